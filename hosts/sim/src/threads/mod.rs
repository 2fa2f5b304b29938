// SPDX-License-Identifier: GPL-2.0-only
//! A workload as threads of this machine: the same programs, asked by their own threads and not by
//! the simulator, so that the two can be held against each other (`baton bench fidelity`).
//!
//! Computing is counting, as far as [`Speed`] says. A task that waits sleeps in a read of its own
//! pipe, when who wakes it is about to sleep (pipe_write() wakes with WF_SYNC), or of its own
//! eventfd (eventfd_write() does not). What is given goes straight to the first who waits, as in
//! the simulator. Requests of an open loop come by the timer of the worker that waits for them: who
//! takes next has the next request, and sleeps until it is due.
//!
//! Nothing of the simulator runs here, and nothing here is deterministic.

mod things;

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use rustix::process::setpriority_process;
use rustix::thread::{
    clock_nanosleep_absolute, gettid, sched_setaffinity, sched_yield, set_current_timer_slack,
    CpuSet,
};
use rustix::time::{clock_gettime, ClockId, Timespec};

use crate::report::Histogram;
use crate::rng::Rng;
use crate::world::{Cx, Item, Op, Spawn, TaskRef, World};
use things::{Sleeper, Things};

/// How fast this machine counts.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    per_ms: u64,
}

impl Speed {
    /// Counts for a while. To be done on a quiet CPU: the fastest of some runs is believed.
    pub fn calibrate() -> Self {
        const SAMPLE: u64 = 200_000;
        let best = (0..9).map(|_| {
            let start = Instant::now();
            count(SAMPLE);
            start.elapsed()
        });
        let ns = best.min().map_or(1, |best| best.as_nanos().max(1));
        Self {
            per_ms: (u128::from(SAMPLE) * 1_000_000 / ns).max(1) as u64,
        }
    }

    /// Computes for so long, ns of an undisturbed CPU; less if it is to stop, or until then. Gives
    /// for how long it did.
    fn run(self, ns: u64, end: u64, stop: &AtomicBool) -> u64 {
        const PIECE: u64 = 1_000_000;
        let mut left = ns;
        // Who is to say stop may have to wait for a CPU himself.
        while left > 0 && !stop.load(Relaxed) && now() < end {
            let piece = left.min(PIECE);
            count(self.per_ms * piece / 1_000_000);
            left -= piece;
        }
        ns - left
    }
}

fn count(n: u64) {
    for i in 0..n {
        black_box(i);
    }
}

/// Now, ns of CLOCK_MONOTONIC, which is bpf_ktime_get_ns().
fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn sleep_until(ns: u64) {
    let then = Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as _,
    };
    // A signal ends it early.
    while now() < ns && clock_nanosleep_absolute(ClockId::Monotonic, &then).is_err() {}
}

/// What a group of tasks did.
#[derive(Clone, Debug, Default)]
pub struct GroupRan {
    /// Its name.
    pub name: String,
    /// What its programs counted.
    pub done: u64,
    /// Responses that they measured, ns.
    pub responses: Histogram,
    /// For how long they computed, ns of an undisturbed CPU.
    pub computed: u64,
}

/// How a workload is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides what programs draw, as in the simulator.
    pub seed: u64,
    /// For how long, ns.
    pub duration: u64,
    /// Of this machine.
    pub speed: Speed,
    /// The workload begins at a multiple of this, ns of CLOCK_MONOTONIC.
    pub align: u64,
}

/// What all threads share.
struct Shared {
    things: Things,
    plan: Plan,
    begin: AtomicU64,
    stop: AtomicBool,
    gate: Barrier,
}

/// Runs a workload. `begins` is told when it begins, ns of CLOCK_MONOTONIC, shortly before.
///
/// # Errors
/// A program does what cannot be done here; there are not enough threads or files.
pub fn run(world: World, plan: Plan, begins: impl FnOnce(u64)) -> Result<Vec<GroupRan>, String> {
    /// For threads to come to their sleep, and for [`forget`].
    const MARGIN: u64 = 60_000_000;
    if !world.happenings.is_empty() {
        return Err("what happens to a machine from outside cannot be done here".into());
    }
    let World {
        things,
        groups,
        tasks,
        sources,
        ..
    } = world;
    let groups = if groups.is_empty() {
        vec!["tasks".into()]
    } else {
        groups
    };
    let shared = Arc::new(Shared {
        things: Things::new(things, sources, plan.seed)?,
        plan,
        begin: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        gate: Barrier::new(tasks.len() + 1),
    });
    let sleepers = tasks
        .iter()
        .map(|_| Sleeper::new().map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    let threads = tasks
        .into_iter()
        .zip(&sleepers)
        .enumerate()
        .map(|(id, (spawn, sleeper))| {
            let (shared, sleeper) = (shared.clone(), sleeper.clone());
            let group = spawn.group.map_or(0, |group| group.0 as usize);
            let builder = thread::Builder::new()
                .name(spawn.name.to_string())
                .stack_size(64 << 10);
            let body = move || Task::new(id as u32, spawn, shared, sleeper).live();
            (group, builder.spawn(body))
        });
    let mut running = Vec::with_capacity(sleepers.len());
    for (group, thread) in threads {
        // The others wait at the gate for ever.
        running.push((
            group,
            thread.unwrap_or_else(|why| panic!("a thread cannot be made: {why}")),
        ));
    }
    shared.gate.wait();
    let begin = (now() + MARGIN).next_multiple_of(plan.align.max(1));
    begins(begin);
    shared.begin.store(begin, Relaxed);
    shared.gate.wait();
    forget(begin);
    sleep_until(begin + plan.duration);
    shared.stop.store(true, Relaxed);
    sleepers.iter().for_each(|sleeper| sleeper.wake_for_good());
    let mut ran: Vec<_> = groups
        .iter()
        .map(|name| GroupRan {
            name: name.to_string(),
            ..GroupRan::default()
        })
        .collect();
    let mut failed = None;
    for (group, thread) in running {
        match thread.join() {
            Ok(Ok(task)) => {
                ran[group].done += task.done;
                ran[group].responses.add(&task.responses);
                ran[group].computed += task.computed;
            }
            Ok(Err(why)) => failed = Some(why),
            Err(_) => failed = Some("a thread of the workload panicked".into()),
        }
    }
    failed.map_or(Ok(ran), Err)
}

/// Keeps each CPU busy until shortly before then, while all tasks sleep: a fair policy, which would
/// remember for ever by how much one of them is ahead from its start as a thread, then has them all
/// begin alike, as they do in the simulator.
fn forget(begin: u64) {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for cpu in 0..cpus {
            scope.spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu);
                // Where it may not, another CPU is busy.
                let _ = sched_setaffinity(None, &only);
                while now() + 1_000_000 < begin {
                    count(1_000);
                }
            });
        }
    });
}

/// One task, on its thread.
struct Task {
    id: u32,
    spawn: Spawn,
    shared: Arc<Shared>,
    sleeper: Arc<Sleeper>,
    rng: Rng,
    item: Option<Item>,
    done: u64,
    responses: Histogram,
    computed: u64,
    /// What notes took, ns.
    debt: u64,
}

impl Task {
    fn new(id: u32, spawn: Spawn, shared: Arc<Shared>, sleeper: Arc<Sleeper>) -> Self {
        let rng = Rng::new(shared.plan.seed, u64::from(id));
        let responses = Histogram::default();
        Self {
            id,
            spawn,
            shared,
            sleeper,
            rng,
            item: None,
            done: 0,
            responses,
            computed: 0,
            debt: 0,
        }
    }

    fn live(mut self) -> Result<Self, String> {
        // The usual slack of 50 us would let a sleep be too long by that.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        if let Some(nice) = self.spawn.nice {
            setpriority_process(Some(gettid()), nice)
                .map_err(|why| format!("a thread cannot have nice {nice}: {why}"))?;
        }
        self.shared.gate.wait();
        self.shared.gate.wait();
        let begin = self.shared.begin.load(Relaxed);
        // In the simulator's order, where they begin at the same time.
        sleep_until(begin + self.spawn.at + u64::from(self.id));
        let mut noted_since = None;
        while !self.shared.stop.load(Relaxed) {
            let now = now();
            if now >= begin + self.shared.plan.duration {
                break;
            }
            // Notes cost nothing in the simulator: what they took here is taken off the next
            // computing.
            self.debt += noted_since.take().map_or(0, |since| now - since);
            let mut cx = Cx {
                now: now - begin,
                rng: &mut self.rng,
                me: TaskRef(self.id),
                item: self.item.take(),
                reply: None,
                child: None,
            };
            match self.spawn.program.next(&mut cx) {
                Op::Exit => break,
                Op::Response(ns) => {
                    self.responses.record(ns);
                    noted_since = Some(now);
                }
                Op::Done(count) => {
                    self.done += count;
                    noted_since = Some(now);
                }
                op => self.perform(op, begin)?,
            }
        }
        Ok(self)
    }

    fn perform(&mut self, op: Op, begin: u64) -> Result<(), String> {
        let things = &self.shared.things;
        let end = begin + self.shared.plan.duration;
        match op {
            Op::Run(ns) => {
                let rest = ns.saturating_sub(std::mem::take(&mut self.debt));
                let left_out = ns - rest;
                self.computed +=
                    self.shared.plan.speed.run(rest, end, &self.shared.stop) + left_out;
            }
            Op::Sleep(ns) => sleep_until((now() + ns).min(end)),
            Op::SleepUntil(then) => sleep_until((begin + then).min(end)),
            Op::Down(object) => things.down(object, &self.sleeper)?,
            Op::Up { to, sync } => things.up(to, sync)?,
            Op::Barrier(object) => things.barrier(object, &self.sleeper)?,
            Op::Take(object) => {
                let (due, item) = things.take(object)?;
                sleep_until((begin + due).min(end));
                self.item = Some(item);
            }
            Op::Yield => sched_yield(),
            _ => {
                return Err(format!(
                    "the task {} does what cannot be done by threads yet",
                    self.spawn.name
                ))
            }
        }
        Ok(())
    }
}
