// SPDX-License-Identifier: GPL-2.0-only
//! What a run is counted by.

use std::sync::Arc;

use crate::demand::Shares;
use crate::report::Histogram;
use crate::topology::Distance;
use crate::trace::{Event, Left};

/// A number that tells two runs apart: of everything that happened, in order.
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

    /// The number.
    pub fn value(&self) -> u64 {
        self.0
    }
}

/// What a group of tasks did.
#[derive(Clone, Debug)]
pub struct GroupStats {
    /// Its name.
    pub name: Arc<str>,
    /// Tasks that there were in it.
    pub tasks: u64,
    /// From a wakeup to the CPU, ns.
    pub wakeups: Histogram,
    /// Responses that its programs measured, ns.
    pub responses: Histogram,
    /// What its programs counted.
    pub done: u64,
    /// CPU time that its tasks used, ns.
    pub runtime: u64,
    /// That of each which was there at the end.
    pub ran: Vec<u64>,
    /// How many are there now.
    alive: u64,
    /// When the last of them ended, ns.
    over: u64,
}

impl GroupStats {
    /// How long its tasks were there, of a run of this length, ns: to the end of the last of them,
    /// or of the run.
    pub fn active(&self, duration: u64) -> u64 {
        match self.alive {
            0 if self.tasks > 0 => self.over,
            _ => duration,
        }
    }
}

/// What a run is counted by.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Of everything that happened.
    pub hash: LogHash,
    /// Events of the kernel that the rules were told of.
    pub events: u64,
    /// Changes of the task that a CPU runs.
    pub switches: u64,
    /// Tasks that went on on another CPU: of the same core, last-level cache, node, machine.
    pub migrations: [u64; 4],
    /// CPU time that was idle, ns, of all CPUs that were online.
    pub idle: u64,
    /// The part of it while a task waited for a CPU.
    pub idle_while_waiting: u64,
    /// Of that, of so many CPUs at most as tasks waited.
    pub wasted: u64,
    /// CPU time of higher classes, ns.
    pub higher: u64,
    /// CPU time that was offline, ns.
    pub offline: u64,
    /// Tasks that could not be made.
    pub no_slot: u64,
    /// Hints that tasks sent.
    pub hints: u64,
    /// Those of them that no policy took.
    pub hints_refused: u64,
    /// Versions of policies that took another's place.
    pub upgrades: u64,
    /// Why others did not.
    pub refused: Vec<String>,
    /// How long it was, ns.
    pub duration: u64,
    /// When all tasks that there were at the end had come to wait for something that nobody was
    /// left to do, ns.
    pub stuck: Option<u64>,
    /// What tasks had against what they were due; nothing where the CPUs were never contended, or a
    /// task might not use all of them.
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

    /// So many ns pass, with so many tasks that wait, and CPUs that are idle, of a higher class,
    /// and offline.
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

    /// A task is over, or the run is, with the task alive.
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
