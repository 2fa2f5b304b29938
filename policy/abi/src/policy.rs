// SPDX-License-Identifier: GPL-2.0-only
//! Between the core and a policy, and between the shim and the core.

use crate::{BatonHint, BATON_NAME_LEN};
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

/// A policy as the core sees it. `this` is what `create` made. All but `create` and `destroy` run
/// with interrupts off and usually with a kernel run-queue lock held: they must not sleep, and
/// several CPUs are in them at once. An absent function (NULL) is skipped; those marked "needed"
/// must be there. In user space a policy in Rust unwinds out of a call that is abandoned.
///
/// Functions that take a `BatonToken` own it from then on. See the trait `Scheduler` of the crate
/// `baton`, whose methods these are, for when each is called and what a wrong answer costs.
#[repr(C)]
pub struct BatonPolicy {
    /// [`crate::BATON_ABI`] the policy was built with.
    pub abi: u32,
    /// Version of the policy, for people.
    pub version: u32,
    /// `BATON_EV_*`.
    pub events: u32,
    /// 1 for a policy in C, whose stack use is not bounded by the host.
    pub language: u32,
    /// Name, NUL-terminated: `[a-z0-9_]`.
    pub name: [c_char; BATON_NAME_LEN],
    /// The state that `reregister_prepare` gives and `reregister_init` takes.
    pub state: BatonStateType,
    /// The state of another version that `reregister_convert` takes.
    pub older: BatonStateType,
    /// The types of the hints that it takes and of its replies; names are empty when it takes none.
    pub hint_type: BatonStateType,
    pub reply_type: BatonStateType,
    /// Needed. Process context, may sleep and allocate. Returns NULL when it cannot.
    pub create: Option<extern "C-unwind" fn(env: *const BatonEnv) -> *mut c_void>,
    /// Needed. Process context; no other call is under way or will come.
    pub destroy: Option<extern "C-unwind" fn(this: *mut c_void)>,
    /// The CPU, or'ed with [`BATON_SELECT_DIRECT`]: then the task runs there for `ctx->slice` ns,
    /// the default if 0. A new task (`BATON_F_FORK`) is not the policy's yet: `task_new` gives it
    /// the task whatever this answers.
    pub select_task_rq: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            task: *const BatonTask,
            wake: *const BatonWake,
        ) -> u64,
    >,
    /// Needed.
    pub task_new: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            task: *const BatonTask,
            token: BatonToken,
        ),
    >,
    /// Needed.
    pub task_wakeup: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            task: *const BatonTask,
            token: BatonToken,
        ),
    >,
    /// Needed.
    pub task_preempt: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            task: *const BatonTask,
            token: BatonToken,
        ),
    >,
    /// Needed.
    pub task_yield: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            task: *const BatonTask,
            token: BatonToken,
        ),
    >,
    /// Needed.
    pub task_restored: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            task: *const BatonTask,
            token: BatonToken,
        ),
    >,
    /// Needed. A token, [`BATON_PICK_NONE`] or [`BATON_PICK_KEEP`]; `prev` may be NULL. The slice
    /// goes into `ctx`.
    pub pick_next_task: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            cpu: i32,
            prev: *const BatonTask,
        ) -> u64,
    >,
    /// A token or [`BATON_PICK_NONE`].
    pub newly_idle:
        Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, cpu: i32) -> u64>,
    /// Needed.
    pub pick_refused: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            token: BatonToken,
            why: BatonRefusal,
        ),
    >,
    pub balance: Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, cpu: i32)>,
    pub task_blocked:
        Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, task: *const BatonTask)>,
    /// Needed. The token, or 0.
    pub task_dequeued: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            task: *const BatonTask,
        ) -> BatonToken,
    >,
    /// Needed. The token, or 0.
    pub task_departed: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            task: *const BatonTask,
        ) -> BatonToken,
    >,
    pub task_dead:
        Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, task: *const BatonTask)>,
    pub task_affinity_changed:
        Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, task: *const BatonTask)>,
    pub task_prio_changed:
        Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, task: *const BatonTask)>,
    pub task_tick:
        Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, task: *const BatonTask)>,
    pub timer: Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, cpu: i32)>,
    pub cpu_online: Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, cpu: i32)>,
    pub cpu_offline: Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, cpu: i32)>,
    pub enter_idle: Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, cpu: i32)>,
    pub exit_idle: Option<extern "C-unwind" fn(this: *mut c_void, ctx: *mut BatonCtx, cpu: i32)>,
    /// A hint of a task of the policy's, checked as far as the host can: 0, or 1 when it is none of
    /// the type that the policy takes. There if `hint_type` is.
    pub hint: Option<
        extern "C-unwind" fn(
            this: *mut c_void,
            ctx: *mut BatonCtx,
            from: *const BatonTask,
            hint: *const BatonHint,
        ) -> u64,
    >,
    /// The state of the running version, to be shared with the next. Process context; other calls
    /// go on meanwhile. Returns NULL when it cannot. There if `state` is, as are the next two.
    pub reregister_prepare: Option<extern "C-unwind" fn(this: *mut c_void) -> *mut c_void>,
    /// As `create`, of a state, which it owns from then on. Other calls of the version that gave
    /// the state go on meanwhile.
    pub reregister_init:
        Option<extern "C-unwind" fn(env: *const BatonEnv, state: *mut c_void) -> *mut c_void>,
    /// Gives up a state of this version's that nobody took. Process context.
    pub reregister_drop: Option<extern "C-unwind" fn(state: *mut c_void)>,
    /// Makes a state of one of the type `older`, as far as it can while that one is in use. Process
    /// context. NULL when it cannot. There if `older` is, as is the next.
    pub reregister_convert:
        Option<extern "C-unwind" fn(env: *const BatonEnv, older: *const c_void) -> *mut c_void>,
    /// Brings over, into a policy made of a converted state, what only can be while nothing moves:
    /// every CPU stands still, with interrupts off. 0, or not 0 when it cannot.
    pub reregister_take:
        Option<extern "C-unwind" fn(this: *mut c_void, older: *const BatonOlder) -> u64>,
    /// Writes the state that `reregister_prepare` would give as bytes, as many as there is room
    /// for, and says how many it takes. Every CPU stands still, with interrupts off. There if
    /// `state` is, as is the next, where the state can be saved.
    pub reregister_save:
        Option<extern "C-unwind" fn(this: *mut c_void, to: *const BatonBytes) -> u64>,
    /// As `create`, of a state that such a function has written. In user space only.
    pub reregister_load:
        Option<extern "C-unwind" fn(env: *const BatonEnv, from: *const BatonBytes) -> *mut c_void>,
}

/// The methods of a policy, for fault reports and counters.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatonMethod {
    None = 0,
    Create,
    Destroy,
    SelectTaskRq,
    TaskNew,
    TaskWakeup,
    TaskPreempt,
    TaskYield,
    TaskRestored,
    PickNextTask,
    NewlyIdle,
    PickRefused,
    Balance,
    TaskBlocked,
    TaskDequeued,
    TaskDeparted,
    TaskDead,
    TaskAffinityChanged,
    TaskPrioChanged,
    TaskTick,
    Timer,
    CpuOnline,
    CpuOffline,
    EnterIdle,
    ExitIdle,
    Hint,
    ReregisterPrepare,
    ReregisterInit,
    ReregisterDrop,
    ReregisterConvert,
    ReregisterTake,
    ReregisterSave,
    ReregisterLoad,
}

impl BatonMethod {
    /// The method with this number; `None` if there is none.
    pub fn of(number: u32) -> Self {
        use BatonMethod::*;
        const ALL: [BatonMethod; 33] = [
            None,
            Create,
            Destroy,
            SelectTaskRq,
            TaskNew,
            TaskWakeup,
            TaskPreempt,
            TaskYield,
            TaskRestored,
            PickNextTask,
            NewlyIdle,
            PickRefused,
            Balance,
            TaskBlocked,
            TaskDequeued,
            TaskDeparted,
            TaskDead,
            TaskAffinityChanged,
            TaskPrioChanged,
            TaskTick,
            Timer,
            CpuOnline,
            CpuOffline,
            EnterIdle,
            ExitIdle,
            Hint,
            ReregisterPrepare,
            ReregisterInit,
            ReregisterDrop,
            ReregisterConvert,
            ReregisterTake,
            ReregisterSave,
            ReregisterLoad,
        ];
        ALL.get(number as usize).copied().unwrap_or(None)
    }
}

/// Names of [`BatonMethod`], by number.
pub const BATON_METHOD_NAMES: [&str; 33] = [
    "-",
    "create",
    "destroy",
    "select_task_rq",
    "task_new",
    "task_wakeup",
    "task_preempt",
    "task_yield",
    "task_restored",
    "pick_next_task",
    "newly_idle",
    "pick_refused",
    "balance",
    "task_blocked",
    "task_dequeued",
    "task_departed",
    "task_dead",
    "task_affinity_changed",
    "task_prio_changed",
    "task_tick",
    "timer",
    "cpu_online",
    "cpu_offline",
    "enter_idle",
    "exit_idle",
    "hint",
    "reregister_prepare",
    "reregister_init",
    "reregister_drop",
    "reregister_convert",
    "reregister_take",
    "reregister_save",
    "reregister_load",
];

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
pub const BATON_FAULT_NAMES: [&str; 9] = [
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
