// SPDX-License-Identifier: GPL-2.0-only
//! Between the core and a policy, and between the shim and the core.

use crate::BATON_NAME_LEN;
use core::ffi::{c_char, c_void};

/// A `Schedulable` as C sees it: the task's slot plus one in the low half, its generation in the
/// high half. Never 0 or 1, see [`BATON_PICK_NONE`] and [`BATON_PICK_KEEP`].
pub type BatonToken = u64;

/// Answer of a pick: nothing to run.
pub const BATON_PICK_NONE: u64 = 0;
/// Answer of a pick: the task that is running goes on.
pub const BATON_PICK_KEEP: u64 = 1;
/// What an abandoned call yields in place of an answer.
pub const BATON_ABORTED: u64 = u64::MAX;

/// At most this many CPUs can be kicked from one call; a further kick is refused to the policy.
pub const BATON_MAX_KICKS: usize = 4;

/// Locks that a call may hold at once (the kernel's RES_NR_HELD); one more is a fault.
pub const BATON_MAX_LOCKS: usize = 31;

/// The kicked CPU leaves idle and asks its policy for a task; a busy one is left alone.
pub const BATON_KICK_IDLE: u16 = 0;
/// The kicked CPU's running task is preempted.
pub const BATON_KICK_PREEMPT: u16 = 0x8000;

/// One call's surroundings. The shim makes it on its stack, the core and the policy fill in
/// answers, and the shim carries them out. Not shared between CPUs. 48 bytes: with more, BPF gives
/// the shim a stack of its own, which costs every call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatonCtx {
    /// Now, ns, to the kernel's tick; 0 as the shim gives it.
    pub now: u64,
    /// In: the task the call is about, as the shim knows it (slot plus one, and the slot's serial);
    /// 0 if none. Out, of a dispatch: the task to run.
    pub task: u64,
    /// CPU time that `task` has used since it was created, ns.
    pub runtime: u64,
    /// Out: how long the task may run, ns; 0 leaves the host's default.
    pub slice: u64,
    /// In: the CPU the call is about. Out, of a select: the CPU chosen.
    pub cpu: i32,
    /// In: `BATON_F_*`.
    pub flags: u16,
    /// Out: kicks asked for in `kicks`.
    pub nr_kicks: u16,
    /// Out: CPU number, with [`BATON_KICK_PREEMPT`] or not.
    pub kicks: [u16; BATON_MAX_KICKS],
}

// The bits are the kernel's where it has such a flag, so that the shim passes them on as they are.

/// The task was woken from sleep (SCX_ENQ_WAKEUP).
pub const BATON_F_WAKEUP: u16 = 1 << 0;
/// The task comes back after a change of its attributes (ENQUEUE_RESTORE).
pub const BATON_F_RESTORE: u16 = 1 << 1;
/// The task is new (WF_FORK).
pub const BATON_F_FORK: u16 = 1 << 2;
/// Of a dispatch: `task`, which ran last on this CPU, can go on running.
pub const BATON_F_PREV_RUNNABLE: u16 = 1 << 3;
/// The waker is about to sleep (WF_SYNC).
pub const BATON_F_SYNC: u16 = 1 << 4;

/// What a policy is told of a task. A copy, made for one call.
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

/// A waking or new task asks for a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatonWake {
    /// Where it ran last.
    pub prev_cpu: i32,
    /// The CPU on which the waker runs.
    pub waker_cpu: i32,
    /// `BATON_F_SYNC`, `BATON_F_FORK`.
    pub flags: u16,
}

/// Set in the answer of `select_task_rq`: run it there at once, past the policy's queues.
pub const BATON_SELECT_DIRECT: u64 = 0x1_0000_0000;

/// Where a CPU is. Ids are dense and start at 0; CPUs with the same id share the thing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatonCpu {
    /// Physical core: CPUs of one core are SMT siblings.
    pub core: u32,
    /// Last-level cache.
    pub llc: u32,
    /// NUMA node.
    pub node: u32,
    /// 1 when the CPU was online as this was read.
    pub online: u32,
}

/// What a policy is given when it is made.
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
    /// Where a policy that cannot be made says why: [`BATON_MESSAGE_LEN`] bytes, NUL-terminated;
    /// valid during the call only.
    pub message: *mut c_char,
}

/// Bytes of the host's, valid during a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatonBytes {
    pub at: *mut u8,
    /// How many.
    pub length: usize,
}

/// What `reregister_take` brings over.
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

/// Why the host did not take a policy's answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonRefusal {
    /// The token is not the task's newest, or the task is not queued any more.
    Stale = 1,
    /// The task belongs to another policy.
    Foreign = 2,
    /// The task may not run on that CPU (affinity, or migration disabled).
    NotAllowed = 3,
    /// The CPU is offline or out of range.
    CpuOffline = 4,
    /// "Keep" was answered where no task can be kept.
    NothingToKeep = 5,
}

/// The type of a state that one version of a policy hands to the next. Two are the same when all
/// fields are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatonStateType {
    /// Name of the type, NUL-terminated; empty when there is no state.
    pub name: [c_char; BATON_NAME_LEN],
    /// Version that its author gave it.
    pub version: u32,
    /// Padding.
    pub reserved: u32,
    /// Of everything that decides how it lies in memory, down to the last field.
    pub layout: u64,
}

/// Bits of `events` in [`BatonPolicy`]: the notifications a policy wants to be called for.
pub const BATON_EV_BLOCKED: u32 = 1 << 0;
pub const BATON_EV_TICK: u32 = 1 << 1;
pub const BATON_EV_IDLE: u32 = 1 << 2;
pub const BATON_EV_BALANCE: u32 = 1 << 3;
pub const BATON_EV_ALL: u32 = 0xf;
/// Added by the host: the policy has no `select_task_rq`, and tasks stay where they ran last.
pub const BATON_EV_NO_SELECT: u32 = 1 << 4;

/// What a policy did wrong.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonFaultKind {
    None = 0,
    /// A panic: index out of range, overflow, `unwrap` on None, or one of the policy's own.
    Panic = 1,
    /// The policy's memory limit, or the machine's memory, was exhausted.
    OutOfMemory = 2,
    /// The call used up the stack that the host grants.
    StackOverflow = 3,
    /// A lock was taken twice by one CPU, or two CPUs wait for each other's.
    Deadlock = 4,
    /// A lock was not granted in time.
    LockTimeout = 5,
    /// A `Schedulable` was dropped: the task would never run again.
    LostTask = 6,
    /// A task was runnable for longer than the stall limit without being picked.
    Stall = 7,
    /// The policy answered with refused tokens, call after call.
    RefusalLoop = 8,
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
];
