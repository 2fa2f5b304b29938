// SPDX-License-Identifier: GPL-2.0-only
//! What `wfq` keeps of CPUs and tasks, and arithmetic on vruntimes.

use alloc::sync::Arc;
use baton::{
    runqueue::{Fifo, Tree},
    weight::{self, NICE_0},
    Lock, PerCpu, PerTask, Shared, Task,
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The queue of one CPU, and what its lock guards besides.
pub struct Queue {
    pub tasks: Tree,
    /// Rule 2; ns at weight 1024.
    pub vruntime: u64,
    pub running: Running,
    /// When a running task was last preempted for a woken one, ns.
    pub preempted: u64,
    /// When rule 8 was applied last, ns.
    pub looked: u64,
    /// Of the kernel, since the last look at other CPUs (rule 11).
    pub ticks: u64,
}

/// The task that runs on a CPU.
pub struct Running {
    /// As of `since`. [`FAR`] behind where none runs.
    pub vruntime: u64,
    /// ns. Not kept up to date while the task is [`UNASKED`].
    pub since: u64,
    pub weight: u32,
    /// From when on a woken task may preempt it (rule 9), ns; [`UNASKED`]: it is protected, and no
    /// woken task has had to wait yet.
    pub preemptible_from: u64,
    /// Whether a woken task has had to wait.
    pub made_wait: bool,
}

/// One CPU. `waiting` is the length of the queue, for others to read without the lock.
pub struct PerCpuState {
    pub queue: Lock<Queue>,
    pub waiting: Shared<u32>,
    /// Whether a task runs there whose slice a timer ends.
    pub timed: AtomicBool,
    /// Rule 11: the CPU's vruntime at the last look, and by how much it had grown.
    pub mark: AtomicU64,
    pub pace: Shared<u64>,
    /// When a task was taken from here by rule 11 last, ns.
    pub gave: Shared<u64>,
    /// The CPU that had this one look for work last (rule 7), until it has looked.
    pub offered: Shared<u32>,
}

/// One task. Written in the task's own calls, which the host never makes two of at once.
#[derive(Default)]
pub struct TaskState {
    pub vruntime: AtomicU64,
    /// CPU time that is in `vruntime` already, ns.
    pub charged: AtomicU64,
    /// The CPU whose vruntime this one's is relative to; in whose queue it is, if in any.
    pub home: AtomicU32,
    /// Weight, as of its last change.
    pub weight: AtomicU32,
    /// When rule 11 moved it last, ns. Written by the CPU that takes it from its queue.
    pub moved: AtomicU64,
    /// How often it was found waiting (rule 8). Guarded by the lock of the queue that it is in.
    pub found: AtomicU32,
    /// CPU time up to which a woken task has to wait for it (rule 9), ns.
    pub protected: AtomicU64,
}

/// All that changes, and one version hands to the next.
#[derive(Clone)]
pub struct Kept {
    pub cpus: PerCpu<PerCpuState>,
    pub tasks: PerTask<TaskState>,
    /// Tasks that no CPU may run: their CPU goes offline, and they are bound to it. The kernel
    /// enqueues them anew.
    pub limbo: Arc<Lock<Fifo>>,
}

baton::state!(Queue, version 2 { tasks, vruntime, running, preempted, looked, ticks });
baton::state!(Running, version 1 { vruntime, since, weight, preemptible_from, made_wait });
baton::state!(PerCpuState, version 4 { queue, waiting, timed, mark, pace, gave, offered });
baton::state!(TaskState, version 3 { vruntime, charged, home, weight, moved, found, protected });
baton::state!(Kept, version 2 { cpus, tasks, limbo });

/// Further behind than any task is: where nothing runs, nothing is preempted.
pub const FAR: u64 = 1 << 62;

/// In [`Running::preemptible_from`].
pub const UNASKED: u64 = u64::MAX;

/// Is `a` before `b`? As the kernel compares vruntimes, so that the count may wrap.
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

/// Rule 1.
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

/// Out of line: most tasks are of nice 0.
#[cold]
#[inline(never)]
pub fn divided_by_weight(ns: u64, nice: i32) -> u64 {
    // A slot's first charge may be of a long-lived task: no overflow below 2^54 ns, half a year.
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
    /// No task.
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

    /// A task that a woken one may preempt at once.
    pub fn unprotected(vruntime: u64, since: u64, weight: u32) -> Self {
        Self {
            vruntime,
            since,
            weight,
            preemptible_from: 0,
            made_wait: false,
        }
    }

    /// Its vruntime now.
    pub fn vruntime_at(&self, now: u64) -> u64 {
        let ran = now.saturating_sub(self.since).min(1 << 53) * u64::from(NICE_0);
        self.vruntime
            .wrapping_add(ran / u64::from(self.weight.max(1)))
    }
}
