// SPDX-License-Identifier: GPL-2.0-only
//! The state of CPUs and tasks, and arithmetic on vruntimes.

use alloc::sync::Arc;
use baton::{
    runqueue::{Fifo, Tree},
    weight::{self, NICE_0},
    Lock, PerCpu, PerTask, Shared, Task,
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The queue of one CPU, and the other data that its lock guards.
pub struct Queue {
    pub tasks: Tree,
    /// The CPU's own vruntime (rule 2), ns at weight 1024.
    pub vruntime: u64,
    pub running: Running,
    /// When a running task was last preempted for a woken one, ns.
    pub preempted: u64,
    /// When rule 8 was applied last, ns.
    pub looked: u64,
    /// Ticks since the last look at other CPUs (rule 11).
    pub ticks: u64,
}

/// The task that runs on a CPU.
pub struct Running {
    /// Its vruntime at `since`. [`FAR`] behind if no task runs.
    pub vruntime: u64,
    /// When `vruntime` was updated, ns. Not kept up to date while the task is [`UNASKED`].
    pub since: u64,
    pub weight: u32,
    /// The time from which a woken task may preempt it (rule 9), ns. [`UNASKED`] if it is protected
    /// and no woken task has had to wait yet.
    pub preemptible_from: u64,
    /// Whether a woken task has had to wait.
    pub made_wait: bool,
}

/// One CPU. `waiting` is the length of the queue, which other CPUs read without the lock.
pub struct PerCpuState {
    pub queue: Lock<Queue>,
    pub waiting: Shared<u32>,
    /// Whether a timer ends the slice of the running task.
    pub timed: AtomicBool,
    /// Rule 11: the CPU's vruntime at the last look, and its growth since the look before.
    pub mark: AtomicU64,
    pub pace: Shared<u64>,
    /// When rule 11 last took a task from this CPU, ns.
    pub gave: Shared<u64>,
    /// The CPU that last woke this one to look for work (rule 7); the CPU itself once it has
    /// looked.
    pub offered: Shared<u32>,
}

/// One task. Written in the task's own calls, of which the host makes only one at a time.
#[derive(Default)]
pub struct TaskState {
    pub vruntime: AtomicU64,
    /// CPU time that is in `vruntime` already, ns.
    pub charged: AtomicU64,
    /// The CPU whose vruntime the task's is relative to. A queued task is in this CPU's queue.
    pub home: AtomicU32,
    /// Weight at its last change.
    pub weight: AtomicU32,
    /// When rule 11 last moved it, ns. Written by the CPU that takes it from its queue.
    pub moved: AtomicU64,
    /// How often it was found waiting (rule 8). Guarded by the lock of its queue.
    pub found: AtomicU32,
    /// CPU time up to which a woken task has to wait for it (rule 9), ns.
    pub protected: AtomicU64,
}

/// The state that changes, which one version passes to the next.
#[derive(Clone)]
pub struct Kept {
    pub cpus: PerCpu<PerCpuState>,
    pub tasks: PerTask<TaskState>,
    /// Tasks that no CPU may run, as they are bound to a CPU that goes offline. The kernel enqueues
    /// them again.
    pub limbo: Arc<Lock<Fifo>>,
}

baton::state!(Queue, version 2 { tasks, vruntime, running, preempted, looked, ticks });
baton::state!(Running, version 1 { vruntime, since, weight, preemptible_from, made_wait });
baton::state!(PerCpuState, version 4 { queue, waiting, timed, mark, pace, gave, offered });
baton::state!(TaskState, version 3 { vruntime, charged, home, weight, moved, found, protected });
baton::state!(Kept, version 2 { cpus, tasks, limbo });

/// A distance further behind than any task is. Where no task runs, none is preempted.
pub const FAR: u64 = 1 << 62;

/// A value of [`Running::preemptible_from`].
pub const UNASKED: u64 = u64::MAX;

/// Is `a` before `b`? Compared as the kernel compares vruntimes, which may wrap.
pub fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

pub fn max_vruntime(a: u64, b: u64) -> u64 {
    if before(a, b) {
        b
    } else {
        a
    }
}

pub fn min_vruntime(a: u64, b: u64) -> u64 {
    if before(a, b) {
        a
    } else {
        b
    }
}

/// The growth of a task's vruntime in `ns` of CPU time (rule 1).
#[inline(always)]
pub fn weighted(ns: u64, task: &Task) -> u64 {
    if task.nice == 0 {
        return ns;
    }
    divided_by_weight(ns, task.nice)
}

/// [`weighted`] for tasks heavier than nice 0 only.
#[inline(always)]
pub fn less_if_heavy(ns: u64, task: &Task) -> u64 {
    if task.nice >= 0 {
        return ns;
    }
    divided_by_weight(ns, task.nice)
}

/// Out of line, as most tasks have nice 0.
#[cold]
#[inline(never)]
pub fn divided_by_weight(ns: u64, nice: i32) -> u64 {
    // The first charge of a slot may be for a long-lived task. There is no overflow below 2^54 ns,
    // half a year.
    ns.min(1 << 53).wrapping_mul(u64::from(NICE_0)) / u64::from(weight::of_nice(nice))
}

impl Queue {
    pub fn new(tasks: Tree) -> Self {
        Self {
            tasks,
            vruntime: 0,
            running: Running::none(0),
            preempted: 0,
            looked: 0,
            ticks: 0,
        }
    }
}

impl Running {
    /// The state of a CPU where no task runs.
    pub fn none(vruntime: u64) -> Self {
        let vruntime = vruntime.wrapping_sub(FAR);
        Self {
            vruntime,
            since: 0,
            weight: NICE_0,
            preemptible_from: UNASKED,
            made_wait: false,
        }
    }

    /// A task that a woken task may preempt at once.
    pub fn unprotected(vruntime: u64, since: u64, weight: u32) -> Self {
        Self {
            vruntime,
            since,
            weight,
            preemptible_from: 0,
            made_wait: false,
        }
    }

    /// Its vruntime at `now`.
    pub fn vruntime_at(&self, now: u64) -> u64 {
        let ran = now.saturating_sub(self.since).min(1 << 53) * u64::from(NICE_0);
        self.vruntime
            .wrapping_add(ran / u64::from(self.weight.max(1)))
    }
}
