// SPDX-License-Identifier: GPL-2.0-only
//! The counts of a run.

use std::sync::Arc;

use crate::demand::Shares;
use crate::report::Histogram;
use crate::topology::Distance;
use crate::trace::{Event, Left};

/// A hash of all events of a run, in order. Equal runs have equal hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHash(u64);

impl Default for LogHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl LogHash {
    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }

    pub(crate) fn event(&mut self, now: u64, event: &Event) {
        let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
        let task = |task: Option<crate::world::TaskRef>| task.map_or(u32::MAX, |task| task.0);
        let (kind, first, second) = match *event {
            Event::New { task } => (1, u64::from(task.0), 0),
            Event::Wake { task, cpu, waker } => (2, u64::from(task.0), pair(cpu, waker)),
            Event::Switch {
                cpu,
                prev,
                next,
                migrated,
            } => {
                let left = prev.map_or(Left::Blocked, |(_, left)| left) as u64;
                let who = pair(task(prev.map(|(task, _)| task)), task(next));
                (
                    3,
                    u64::from(cpu) << 8 | left << 1 | u64::from(migrated),
                    who,
                )
            }
            Event::Higher { cpu, begins } => (4, pair(cpu, begins.into()), 0),
            Event::Online { cpu, online } => (5, pair(cpu, online.into()), 0),
            Event::Load { waiting, idle } => (6, pair(waiting, idle), 0),
            Event::Fault { policy } => (7, policy.into(), 0),
            Event::Upgrade {
                policy,
                version,
                done,
            } => (8, pair(policy, version), done.into()),
        };
        self.add(now);
        self.add(kind ^ first.rotate_left(8));
        self.add(second);
    }

    /// The hash.
    pub fn value(&self) -> u64 {
        self.0
    }
}

/// The counts of a group of tasks.
#[derive(Clone, Debug)]
pub struct GroupStats {
    /// Its name.
    pub name: Arc<str>,
    /// Number of tasks that it ever had.
    pub tasks: u64,
    /// Times from a wakeup to running, ns.
    pub wakeups: Histogram,
    /// Responses that its programs measured, ns.
    pub responses: Histogram,
    /// Units of work that its programs recorded as done.
    pub done: u64,
    /// CPU time that its tasks used, ns.
    pub runtime: u64,
    /// CPU time of each task that was alive at the end, ns.
    pub ran: Vec<u64>,
    /// Number of tasks that are alive.
    alive: u64,
    /// When the last task exited, ns.
    over: u64,
}

impl GroupStats {
    /// How long the group had tasks in a run of this duration, ns: until the last of them exited,
    /// or until the end of the run.
    pub fn active(&self, duration: u64) -> u64 {
        match self.alive {
            0 if self.tasks > 0 => self.over,
            _ => duration,
        }
    }
}

/// The counts of a run.
#[derive(Clone, Debug)]
pub struct Stats {
    /// The hash of all events.
    pub hash: LogHash,
    /// Number of kernel events that were passed to the rules.
    pub events: u64,
    /// Number of changes of a CPU's current task.
    pub switches: u64,
    /// Number of migrations, by what the two CPUs share: a core, a last-level cache, a node, only
    /// the machine.
    pub migrations: [u64; 4],
    /// Idle time of all online CPUs, ns.
    pub idle: u64,
    /// The part of `idle` while at least one task waited for a CPU, ns.
    pub idle_while_waiting: u64,
    /// The lesser of idle CPUs and waiting tasks, over time, ns.
    pub wasted: u64,
    /// CPU time of higher classes, ns.
    pub higher: u64,
    /// Time that CPUs were offline, ns.
    pub offline: u64,
    /// Tasks that were not created for lack of a slot.
    pub no_slot: u64,
    /// Hints that tasks sent.
    pub hints: u64,
    /// Hints that no policy took.
    pub hints_refused: u64,
    /// Number of upgrades of policies.
    pub upgrades: u64,
    /// The reason of each refused upgrade.
    pub refused: Vec<String>,
    /// Duration of the run, ns.
    pub duration: u64,
    /// When a task last left a CPU, ns, if at the end all tasks slept and no coming event could
    /// have woken one.
    pub stuck: Option<u64>,
    /// The CPU time of tasks compared with their due. `None` if the CPUs were never contended, or a
    /// task could not use all of them.
    pub shares: Option<Shares>,
    /// The groups of tasks.
    pub groups: Vec<GroupStats>,
}

impl Stats {
    pub(crate) fn new(groups: &[Arc<str>]) -> Self {
        let group = |name: &Arc<str>| GroupStats {
            name: name.clone(),
            tasks: 0,
            wakeups: Histogram::default(),
            responses: Histogram::default(),
            done: 0,
            runtime: 0,
            ran: Vec::new(),
            alive: 0,
            over: 0,
        };
        let all: Arc<str> = "tasks".into();
        Self {
            hash: LogHash::default(),
            events: 0,
            switches: 0,
            migrations: [0; 4],
            idle: 0,
            idle_while_waiting: 0,
            wasted: 0,
            higher: 0,
            offline: 0,
            no_slot: 0,
            hints: 0,
            hints_refused: 0,
            upgrades: 0,
            refused: Vec::new(),
            duration: 0,
            stuck: None,
            shares: None,
            groups: if groups.is_empty() {
                vec![group(&all)]
            } else {
                groups.iter().map(group).collect()
            },
        }
    }

    pub(crate) fn group_name(&self, group: u32) -> &str {
        &self.groups[group as usize].name
    }

    /// Counts `ns` of time with these numbers of waiting tasks, and of CPUs that are idle, in a
    /// higher class, and offline.
    pub(crate) fn pass(&mut self, ns: u64, waiting: u32, [idle, higher, offline]: [u32; 3]) {
        self.idle += ns * u64::from(idle);
        if waiting > 0 {
            self.idle_while_waiting += ns * u64::from(idle);
        }
        self.wasted += ns * u64::from(waiting.min(idle));
        self.higher += ns * u64::from(higher);
        self.offline += ns * u64::from(offline);
    }

    pub(crate) fn new_task(&mut self, group: u32) {
        self.groups[group as usize].tasks += 1;
        self.groups[group as usize].alive += 1;
    }

    pub(crate) fn wakeup(&mut self, group: u32, ns: u64) {
        self.groups[group as usize].wakeups.record(ns);
    }

    pub(crate) fn response(&mut self, group: u32, ns: u64) {
        self.groups[group as usize].responses.record(ns);
    }

    pub(crate) fn done(&mut self, group: u32, count: u64) {
        self.groups[group as usize].done += count;
    }

    pub(crate) fn migration(&mut self, distance: Distance) {
        let level = distance as usize - Distance::Core as usize;
        self.migrations[level] += 1;
    }

    /// Counts a task that exits, or that is alive at the end of the run.
    pub(crate) fn end_of(&mut self, group: u32, now: u64, runtime: u64, alive: bool) {
        let group = &mut self.groups[group as usize];
        group.runtime += runtime;
        if alive {
            group.ran.push(runtime);
        } else {
            group.alive -= 1;
            group.over = now;
        }
    }
}
