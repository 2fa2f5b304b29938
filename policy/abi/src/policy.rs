// SPDX-License-Identifier: GPL-2.0-only
//! The interfaces between core and policy, and between shim and core.

use crate::BATON_NAME_LEN;
use core::ffi::{c_char, c_void};

/// A `Schedulable` as C sees it: the task's slot plus one in the low half, its generation in the
/// high half. Never 0 or 1, see [`BATON_PICK_NONE`] and [`BATON_PICK_KEEP`].
pub type BatonToken = u64;

/// A question to a policy: may it be given this task?
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonAsked {
    /// The thread; 0 for all tasks that have no policy of their own.
    pub pid: u32,
    /// Its nice value.
    pub nice: i32,
    /// Its name, NUL-terminated.
    pub comm: [u8; 16],
    /// Where the policy writes why not: [`crate::BATON_MESSAGE_LEN`] bytes, all 0 before.
    pub message: *mut c_char,
}

/// What a policy is written in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonLanguage {
    /// Rust, or Baton's language.
    Rust = 0,
    /// C, as the functions of [`crate::BatonPolicy`].
    C = 1,
    /// C, as handlers of events (`policy/c/events.h`).
    Events = 2,
}

/// Answer of a pick: nothing to run.
pub const BATON_PICK_NONE: u64 = 0;
/// Answer of a pick: the task that is running goes on.
pub const BATON_PICK_KEEP: u64 = 1;
/// Result of an abandoned call, in place of an answer.
pub const BATON_ABORTED: u64 = u64::MAX;

/// Maximum number of CPUs kicked from one call; a further kick is refused.
pub const BATON_MAX_KICKS: usize = 4;

/// Maximum number of locks that a call may hold at once (the kernel's RES_NR_HELD); one more is a
/// fault.
pub const BATON_MAX_LOCKS: usize = 31;

/// An idle CPU leaves idle and asks its policy for a task; a busy CPU is not disturbed.
pub const BATON_KICK_IDLE: u16 = 0;
/// The kicked CPU's running task is preempted.
pub const BATON_KICK_PREEMPT: u16 = 0x8000;

/// The context of one call. The shim creates it on its stack, the core and the policy fill in
/// answers, and the shim carries them out. Not shared between CPUs. Its size is 48 bytes: with
/// more, BPF gives the shim a private stack, which slows every call down.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonCtx {
    /// Current time, ns, in the resolution of the kernel's tick; the shim passes 0.
    pub now: u64,
    /// In: the task of the call, as the shim knows it (slot plus one, and the slot's serial); 0 if
    /// none. Out, for a dispatch: the task to run.
    pub task: u64,
    /// CPU time that `task` has used since it was created, ns.
    pub runtime: u64,
    /// Out: how long the task may run, ns; 0 leaves the host's default.
    pub slice: u64,
    /// In: the CPU of the call. Out, for a select: the CPU chosen.
    pub cpu: i32,
    /// In: `BATON_F_*`.
    pub flags: u16,
    /// Out: number of kicks requested in `kicks`.
    pub nr_kicks: u16,
    /// Out: CPU numbers, each with or without [`BATON_KICK_PREEMPT`].
    pub kicks: [u16; BATON_MAX_KICKS],
}

// Where the kernel has such a flag, the bit is the kernel's, and the shim passes it on unchanged.

/// The task was woken from sleep (SCX_ENQ_WAKEUP).
pub const BATON_F_WAKEUP: u16 = 1 << 0;
/// The task comes back after a change of its attributes (ENQUEUE_RESTORE).
pub const BATON_F_RESTORE: u16 = 1 << 1;
/// The task is new (WF_FORK).
pub const BATON_F_FORK: u16 = 1 << 2;
/// For a dispatch: `task`, which ran last on this CPU, can continue to run.
pub const BATON_F_PREV_RUNNABLE: u16 = 1 << 3;
/// The waker will sleep at once (WF_SYNC).
pub const BATON_F_SYNC: u16 = 1 << 4;

/// The data of a task that a policy receives. A copy, made for one call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatonTask {
    /// Slot of the task: below the `max_tasks` of [`BatonEnv`], and reused after the task is dead.
    pub slot: u32,
    /// Thread id in the initial namespace.
    pub pid: u32,
    /// The CPU whose run queue the task is on, or was on last.
    pub cpu: i32,
    /// Nice value, -20 to 19.
    pub nice: i32,
    /// CPU time used since the task was created, ns.
    pub runtime: u64,
}

/// A woken or new task needs a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatonWake {
    /// The CPU on which the task ran last.
    pub prev_cpu: i32,
    /// The CPU on which the waker runs.
    pub waker_cpu: i32,
    /// `BATON_F_SYNC`, `BATON_F_FORK`.
    pub flags: u16,
}

/// Flag in the answer of `select_task_rq`: run the task there at once, bypassing the policy's
/// queues.
pub const BATON_SELECT_DIRECT: u64 = 0x1_0000_0000;

/// The place of a CPU. Ids are dense and start at 0. CPUs with the same id share that unit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatonCpu {
    /// Physical core: CPUs of one core are SMT siblings.
    pub core: u32,
    /// Last-level cache.
    pub llc: u32,
    /// NUMA node.
    pub node: u32,
    /// 1 if the CPU was online when this was read.
    pub online: u32,
    /// Cluster: CPUs that share a cache nearer than the last-level one (on x86 the second-level
    /// cache). Whole cores, under one last-level cache.
    pub cluster: u32,
}

/// The environment in which a policy is created.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonEnv {
    /// `nr_cpus` entries; valid during the call only.
    pub cpus: *const BatonCpu,
    /// Number of possible CPUs; CPU numbers are below it.
    pub nr_cpus: u32,
    /// Number of task slots.
    pub max_tasks: u32,
    /// The options given at load, NUL-terminated UTF-8; valid during the call only.
    pub options: *const c_char,
    /// Buffer for the reason why a policy cannot be created: [`BATON_MESSAGE_LEN`] bytes,
    /// NUL-terminated; valid during the call only.
    pub message: *mut c_char,
}

/// A buffer of the host, valid during a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonBytes {
    pub at: *mut u8,
    /// Length in bytes.
    pub length: usize,
}

/// The argument of `reregister_take`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonOlder {
    /// The state that was converted.
    pub state: *const c_void,
    /// Slots from here on have never had a task.
    pub nr_slots: u32,
    pub reserved: u32,
}

/// Length of a message from a policy, with the terminating NUL.
pub const BATON_MESSAGE_LEN: usize = 160;

/// Why the host refused a policy's answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonRefusal {
    /// The token is not the task's newest, or the task is no longer queued.
    Stale = 1,
    /// The task belongs to another policy.
    Foreign = 2,
    /// The task may not run on that CPU (affinity, or migration disabled).
    NotAllowed = 3,
    /// The CPU is offline or out of range.
    CpuOffline = 4,
    /// The answer was "keep", but no task can be kept.
    NothingToKeep = 5,
}

/// The type of a state that one version of a policy passes to the next. Two types are the same if
/// all fields are equal.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatonStateType {
    /// Name of the type, NUL-terminated; empty when there is no state.
    pub name: [c_char; BATON_NAME_LEN],
    /// Version given to the type by its author.
    pub version: u32,
    /// Padding.
    pub reserved: u32,
    /// Hash of everything that determines the memory layout, down to the last field.
    pub layout: u64,
}

impl BatonStateType {
    /// No type: the name is empty.
    pub const NONE: Self = Self {
        name: [0; BATON_NAME_LEN],
        version: 0,
        reserved: 0,
        layout: 0,
    };
}

/// Bits of `events` in [`BatonPolicy`]: the notifications a policy wants to be called for.
pub const BATON_EV_BLOCKED: u32 = 1 << 0;
pub const BATON_EV_TICK: u32 = 1 << 1;
pub const BATON_EV_IDLE: u32 = 1 << 2;
pub const BATON_EV_BALANCE: u32 = 1 << 3;
pub const BATON_EV_ALL: u32 = 0xf;
/// Added by the host: the policy has no `select_task_rq`, and tasks stay where they ran last.
pub const BATON_EV_NO_SELECT: u32 = 1 << 4;

/// The kinds of faults.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonFaultKind {
    None = 0,
    /// A panic: index out of range, overflow, `unwrap` on None, or one of the policy's own.
    Panic = 1,
    /// The policy's memory limit, or the machine's memory, was exhausted.
    OutOfMemory = 2,
    /// The call exhausted the stack that the host grants.
    StackOverflow = 3,
    /// A lock was taken twice by one CPU, or two CPUs wait for each other's locks.
    Deadlock = 4,
    /// A lock was not granted in time.
    LockTimeout = 5,
    /// A `Schedulable` was dropped: the task would never run again.
    LostTask = 6,
    /// A task was runnable for longer than the stall limit without being picked.
    Stall = 7,
    /// The policy answered with refused tokens again and again.
    RefusalLoop = 8,
    /// The process that answers for the policy, the agent of an enclave, ended or was silent.
    AgentGone = 9,
    /// An agent of a CPU left messages unread because other tasks kept it from that CPU.
    AgentStarved = 10,
    /// The loops of the call turned more often than the policy is granted, or for too long.
    EndlessLoop = 11,
}

/// Names of [`BatonFaultKind`], by number.
pub const BATON_FAULT_NAMES: &[&str] = &[
    "none",
    "panic",
    "out of memory",
    "stack overflow",
    "deadlock",
    "lock timeout",
    "lost task",
    "stall",
    "refusal loop",
    "agent gone",
    "agent starved",
    "endless loop",
];
