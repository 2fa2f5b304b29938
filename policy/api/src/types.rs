// SPDX-License-Identifier: GPL-2.0-only
//! Argument and return types of the methods.

use crate::{weight, Schedulable};

/// A CPU, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(u32);

impl Cpu {
    /// The CPU with this number.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its number as the kernel writes it.
    #[inline]
    pub const fn number(self) -> i32 {
        self.0 as i32
    }
}

impl core::fmt::Display for Cpu {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A task, as it was when the call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The task's slot, below [`crate::Env::max_tasks`]. It does not change while the task lives.
    pub slot: u32,
    /// Thread id, for messages.
    pub pid: u32,
    /// The CPU whose run queue the task is on, or was on last.
    pub cpu: Cpu,
    /// Nice value, -20 to 19.
    pub nice: i32,
    /// CPU time it has used since it was created, ns. Never decreases.
    pub runtime: u64,
}

impl Task {
    /// The kernel's load weight for its nice value: 15 to 88761, 1024 at nice 0.
    #[inline]
    pub fn weight(&self) -> u32 {
        weight::of_nice(self.nice)
    }
}

/// The circumstances of the wakeup or fork of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The CPU on which the task ran last.
    pub prev_cpu: Cpu,
    /// The CPU on which the waker runs.
    pub waker_cpu: Cpu,
    /// The waker announced that it will sleep at once (WF_SYNC).
    pub sync: bool,
    /// The task is new (WF_FORK): `task_new` comes next.
    pub fork: bool,
}

/// Answer to [`crate::Scheduler::select_task_rq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On this CPU's run queue; `task_wakeup` or `task_new` follows.
    Queue(Cpu),
    /// Directly on `cpu`, which is idle and was claimed ([`crate::Ctx::claim_idle`]), for at most
    /// `slice` ns ([`crate::DEFAULT_SLICE`] if 0). No call follows, except `task_new` for a new
    /// task.
    Run {
        /// The CPU.
        cpu: Cpu,
        /// The slice, ns.
        slice: u64,
    },
}

impl Placement {
    /// [`Placement::Run`] for the default slice.
    #[inline]
    pub const fn run(cpu: Cpu) -> Self {
        Self::Run { cpu, slice: 0 }
    }
}

/// Answer to [`crate::Scheduler::pick_next_task`].
#[derive(Debug, PartialEq, Eq)]
pub enum Pick {
    /// Run this task, for at most `slice` ns ([`crate::DEFAULT_SLICE`] if 0). The kernel checks
    /// slices at its tick (1 to 10 ms); a finer limit needs [`crate::Ctx::arm_timer`].
    Run {
        /// The baton of the task.
        task: Schedulable,
        /// The slice, ns.
        slice: u64,
    },
    /// The running task (`prev`) goes on, for at most `slice` ns more.
    Keep {
        /// The slice, ns.
        slice: u64,
    },
    /// Nothing to run.
    Nothing,
}

/// Why the host did not take a `Schedulable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The `Schedulable` is not the task's newest, or the task is no longer queued. It is void:
    /// drop it.
    Stale,
    /// The task belongs to another policy. Only a policy in C gets this, for a number that it was
    /// not given: a `Schedulable` is stale before its task belongs to another policy.
    Foreign,
    /// The task may not run on that CPU (affinity, or migration disabled).
    NotAllowed,
    /// The CPU is offline. In answer to `select_task_rq`, this is counted and the task stays where
    /// it ran last.
    CpuOffline,
    /// The answer was `Keep`, but no task was running. This is counted, and the host asks again.
    NothingToKeep,
}

/// What somebody wants to give to the policy ([`crate::Scheduler::may_have`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// This task.
    Task {
        /// Its thread id.
        pid: u32,
        /// Its nice value.
        nice: i32,
        /// Its name, which the task chooses itself.
        name: &'a str,
    },
    /// All tasks that have no policy of their own, now and later.
    Rest,
}

/// What a kick does to the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// An idle CPU asks the policy for a task.
    Idle,
    /// The running task is preempted if Baton schedules it.
    Preempt,
}

/// A kick was refused: too many in one call, or a CPU number beyond 32767.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KickRefused;

/// A set of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events(u32);

impl Events {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// `task_blocked`.
    pub const BLOCKED: Self = Self(1);
    /// `task_tick`.
    pub const TICK: Self = Self(2);
    /// `enter_idle`, `exit_idle`.
    pub const IDLE: Self = Self(4);
    /// `balance`.
    pub const BALANCE: Self = Self(8);
    /// All of them.
    pub const ALL: Self = Self(15);

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set as a bit mask of the C interface.
    pub const fn bits(self) -> u32 {
        self.0
    }
}
