// SPDX-License-Identifier: GPL-2.0-only
//! Runs a workload as threads of this machine. The programs are the same as in the simulator, but
//! are driven by their own threads, so the two can be compared (`baton bench fidelity`).
//!
//! A thread computes by counting, at the rate of [`Speed`]. A waiting task sleeps in a read of its
//! own pipe if its waker is expected to sleep soon, because pipe_write() wakes with WF_SYNC.
//! Otherwise it sleeps in a read of its own eventfd, because eventfd_write() wakes without it. A
//! wakeup goes directly to the first waiter, as in the simulator. Requests of an open loop arrive
//! by the timer of a worker: the next worker to take a request gets the next one, and sleeps until
//! it is due.
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

/// The rate at which this machine counts.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    per_ms: u64,
}

impl Speed {
    /// Measures the rate: the fastest of nine runs. The CPU should be otherwise idle.
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

    /// Computes for `ns` of an undisturbed CPU. Ends early at the time `end`, or when `stop` is
    /// set. Returns how long it computed, ns.
    fn run(self, ns: u64, end: u64, stop: &AtomicBool) -> u64 {
        const PIECE: u64 = 1_000_000;
        let mut left = ns;
        // The thread that sets `stop` may have to wait for a CPU.
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

/// The current time, ns of CLOCK_MONOTONIC, as bpf_ktime_get_ns() returns it.
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
    // A signal ends the sleep early.
    while now() < ns && clock_nanosleep_absolute(ClockId::Monotonic, &then).is_err() {}
}

/// The results of a group of tasks.
#[derive(Clone, Debug, Default)]
pub struct GroupRan {
    /// Its name.
    pub name: String,
    /// Units of work that its programs recorded as done.
    pub done: u64,
    /// Responses that its programs measured, ns.
    pub responses: Histogram,
    /// Time that its tasks computed, ns of an undisturbed CPU.
    pub computed: u64,
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Determines the random numbers of the programs, as in the simulator.
    pub seed: u64,
    /// Duration, ns.
    pub duration: u64,
    /// The rate of this machine.
    pub speed: Speed,
    /// The workload begins at a multiple of this, ns of CLOCK_MONOTONIC.
    pub align: u64,
}

/// The state that all threads share.
struct Shared {
    things: Things,
    plan: Plan,
    begin: AtomicU64,
    stop: AtomicBool,
    gate: Barrier,
}

/// Runs a workload. `begins` is called shortly before the workload begins, with the time of that,
/// ns of CLOCK_MONOTONIC.
///
/// # Errors
/// A program or a happening is not supported here, a nice value cannot be set, a thread panicked,
/// or there are not enough files.
///
/// # Panics
/// A thread cannot be created.
pub fn run(world: World, plan: Plan, begins: impl FnOnce(u64)) -> Result<Vec<GroupRan>, String> {
    /// Time for the threads to reach their sleep, and for [`forget`], ns.
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
        // The threads at the gate would never end, so this is not returned as an error.
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

/// Keeps each CPU busy until shortly before `begin`, while all tasks sleep. A fair policy then lets
/// all tasks begin with equal vruntime, as in the simulator. Otherwise it would keep the
/// differences from the start of the threads for the whole run.
fn forget(begin: u64) {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for cpu in 0..cpus {
            scope.spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu);
                // If this fails, the thread keeps another CPU busy.
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
    /// The time that recording results took, ns. It is subtracted from the next computation.
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
        // The default slack of 50 us would prolong each sleep by up to that.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        if let Some(nice) = self.spawn.nice {
            setpriority_process(Some(gettid()), nice)
                .map_err(|why| format!("a thread cannot have nice {nice}: {why}"))?;
        }
        self.shared.gate.wait();
        self.shared.gate.wait();
        let begin = self.shared.begin.load(Relaxed);
        // Tasks that begin at the same time keep the simulator's order.
        sleep_until(begin + self.spawn.at + u64::from(self.id));
        let mut noted_since = None;
        while !self.shared.stop.load(Relaxed) {
            let now = now();
            if now >= begin + self.shared.plan.duration {
                break;
            }
            // Recording results costs nothing in the simulator. The time that it took here is
            // subtracted from the next computation.
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
