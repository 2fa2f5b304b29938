// SPDX-License-Identifier: GPL-2.0-only
//! The only table of a policy's methods. It generates the functions in [`BatonPolicy`], the numbers
//! and names of [`BatonMethod`], the kernel's check of a policy that registers (through
//! `policy/c/baton.h`), and the calls of a policy in user space (`hosts/native/glue`).

use crate::{
    BatonAsked, BatonBytes, BatonCtx, BatonEnv, BatonHint, BatonOlder, BatonRefusal,
    BatonStateType, BatonTask, BatonToken, BatonWake, BATON_NAME_LEN,
};
use core::ffi::{c_char, c_void};

/// Passes the table to the macro `$then`, one row for each method, in the order of the method
/// numbers:
///
/// `Variant name: need context form(arguments) -> answer;`
///
/// - need: `needed` if every policy must have the method, or `optional`;
/// - context: `sleeps` in process context; `atomic` with interrupts off, usually with a kernel
///   run-queue lock held, where it must neither sleep nor allocate without a limit;
/// - form: the parameters before the arguments: none (`free`), the policy (`this`), or the policy
///   and the call's context (`call`). At most two arguments.
#[macro_export]
macro_rules! baton_methods {
    ($then:ident) => {
        $then! {
            /// Needed. Process context, may sleep and allocate. Returns NULL on failure.
            Create create: needed sleeps free(env: *const BatonEnv) -> *mut c_void;
            /// Needed. Process context; no other call is in progress or will follow.
            Destroy destroy: needed sleeps this();
            /// Returns the CPU. If it is or'ed with [`BATON_SELECT_DIRECT`], the task runs there
            /// for `ctx->slice` ns, the default if 0. A new task (`BATON_F_FORK`) does not belong
            /// to the policy yet: `task_new` follows for every answer.
            SelectTaskRq select_task_rq: optional atomic
                call(task: *const BatonTask, wake: *const BatonWake) -> u64;
            /// Needed.
            TaskNew task_new: needed atomic call(task: *const BatonTask, token: BatonToken);
            /// Needed.
            TaskWakeup task_wakeup: needed atomic call(task: *const BatonTask, token: BatonToken);
            /// Needed.
            TaskPreempt task_preempt: needed atomic call(task: *const BatonTask, token: BatonToken);
            /// Needed.
            TaskYield task_yield: needed atomic call(task: *const BatonTask, token: BatonToken);
            /// Needed.
            TaskRestored task_restored: needed atomic
                call(task: *const BatonTask, token: BatonToken);
            /// Needed. Returns a token, [`BATON_PICK_NONE`] or [`BATON_PICK_KEEP`]. `prev` may be
            /// NULL. The slice is set in `ctx`.
            PickNextTask pick_next_task: needed atomic
                call(cpu: i32, prev: *const BatonTask) -> u64;
            /// Returns a token or [`BATON_PICK_NONE`].
            NewlyIdle newly_idle: optional atomic call(cpu: i32) -> u64;
            /// Needed.
            PickRefused pick_refused: needed atomic call(token: BatonToken, why: BatonRefusal);
            Balance balance: optional atomic call(cpu: i32);
            TaskBlocked task_blocked: optional atomic call(task: *const BatonTask);
            /// Needed. Returns the token, or 0.
            TaskDequeued task_dequeued: needed atomic call(task: *const BatonTask) -> BatonToken;
            /// Needed. Returns the token, or 0.
            TaskDeparted task_departed: needed atomic call(task: *const BatonTask) -> BatonToken;
            TaskDead task_dead: optional atomic call(task: *const BatonTask);
            TaskAffinityChanged task_affinity_changed: optional atomic call(task: *const BatonTask);
            TaskPrioChanged task_prio_changed: optional atomic call(task: *const BatonTask);
            TaskTick task_tick: optional atomic call(task: *const BatonTask);
            Timer timer: optional atomic call(cpu: i32);
            CpuOnline cpu_online: optional atomic call(cpu: i32);
            CpuOffline cpu_offline: optional atomic call(cpu: i32);
            EnterIdle enter_idle: optional atomic call(cpu: i32);
            ExitIdle exit_idle: optional atomic call(cpu: i32);
            /// Delivers a hint from a task of the policy, checked as far as the host can. Returns
            /// 0, or 1 when it is not a hint of the policy's type. Present if `hint_type` is.
            Hint hint: optional atomic call(from: *const BatonTask, hint: *const BatonHint) -> u64;
            /// Returns the state of the running version, to be shared with the next, or NULL on
            /// failure. Process context; other calls continue meanwhile. Present if `state` is, as
            /// are the next two.
            ReregisterPrepare reregister_prepare: optional sleeps this() -> *mut c_void;
            /// Like `create`, but from a state, of which it takes ownership. Other calls of the
            /// version that passed the state on continue meanwhile.
            ReregisterInit reregister_init: optional sleeps
                free(env: *const BatonEnv, state: *mut c_void) -> *mut c_void;
            /// Releases a state of this version that was not taken over. Process context.
            ReregisterDrop reregister_drop: optional sleeps free(state: *mut c_void);
            /// Creates a state from one of the type `older`, as far as possible while that one is
            /// in use. Process context. Returns NULL on failure. Present if `older` is, as is the
            /// next.
            ReregisterConvert reregister_convert: optional sleeps
                free(env: *const BatonEnv, older: *const c_void) -> *mut c_void;
            /// Completes a policy created from a converted state: takes over the parts that change
            /// while other calls run. Every CPU is stopped, with interrupts off. Returns 0, or
            /// another value on failure.
            ReregisterTake reregister_take: optional atomic this(older: *const BatonOlder) -> u64;
            /// Writes the state that `reregister_prepare` would return as bytes, as far as there is
            /// room, and returns its full length. Every CPU is stopped, with interrupts off.
            /// Present if `state` is and can be saved, as is the next.
            ReregisterSave reregister_save: optional atomic this(to: *const BatonBytes) -> u64;
            /// Like `create`, but from a state that such a function wrote. User space only.
            ReregisterLoad reregister_load: optional sleeps
                free(env: *const BatonEnv, from: *const BatonBytes) -> *mut c_void;
            /// May the policy be given this task, or all tasks that have none? Asked before the
            /// administrator does so. Returns 0, or 1 after it has written why not. Process
            /// context; other calls continue meanwhile, and no lock may be taken.
            MayHave may_have: optional sleeps this(asked: *const BatonAsked) -> u64;
        }
    };
}

/// The type of a method's function.
macro_rules! function {
    (free($($name:ident: $type:ty),*) $(-> $answer:ty)?) => {
        Option<extern "C-unwind" fn($($name: $type),*) $(-> $answer)?>
    };
    (this($($name:ident: $type:ty),*) $(-> $answer:ty)?) => {
        Option<extern "C-unwind" fn(this: *mut c_void $(, $name: $type)*) $(-> $answer)?>
    };
    (call($($name:ident: $type:ty),*) $(-> $answer:ty)?) => {
        Option<
            extern "C-unwind" fn(
                this: *mut c_void,
                ctx: *mut BatonCtx
                $(, $name: $type)*
            ) $(-> $answer)?,
        >
    };
}

/// A word of the table as a bool.
macro_rules! is {
    (needed) => {
        true
    };
    (optional) => {
        false
    };
    (sleeps) => {
        true
    };
    (atomic) => {
        false
    };
}

macro_rules! define {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident: $need:ident $context:ident
            $form:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;
    )*) => {
        /// A policy as the core sees it. `this` is the pointer that `create` returned. Functions
        /// marked "process context" may sleep. All others run with interrupts off, usually with a
        /// kernel run-queue lock held, and must not sleep. Several CPUs call them at once. An
        /// absent function (NULL) is skipped; those marked "needed" must be present. In user space,
        /// a policy in Rust unwinds out of an abandoned call.
        ///
        /// A function that takes a `BatonToken` owns it from then on. The functions are the methods
        /// of the trait `Scheduler` of the crate `baton`, which documents when each is called and
        /// the effect of a wrong answer.
        #[repr(C)]
        pub struct BatonPolicy {
            /// [`crate::BATON_ABI`] the policy was built with.
            pub abi: u32,
            /// Version of the policy, for people.
            pub version: u32,
            /// `BATON_EV_*`.
            pub events: u32,
            /// [`crate::BatonLanguage`].
            pub language: u32,
            /// Name, NUL-terminated: `[a-z0-9_]`.
            pub name: [c_char; BATON_NAME_LEN],
            /// Type of the state that `reregister_prepare` returns and `reregister_init` takes.
            pub state: BatonStateType,
            /// Type of the state of another version that `reregister_convert` takes.
            pub older: BatonStateType,
            /// Types of the hints that the policy takes and of its replies; the names are empty
            /// when it takes none.
            pub hint_type: BatonStateType,
            pub reply_type: BatonStateType,
            $(
                $(#[$doc])*
                pub $name: function!($form($($argument: $type),*) $(-> $answer)?),
            )*
        }

        /// The methods of a policy, for fault reports and counters.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum BatonMethod {
            None = 0,
            $($variant,)*
        }

        impl BatonMethod {
            /// All methods, by number.
            pub const ALL: &[Self] = &[Self::None $(, Self::$variant)*];

            /// Must every policy have it?
            #[inline(always)]
            pub const fn is_needed(self) -> bool {
                match self {
                    Self::None => false,
                    $(Self::$variant => is!($need),)*
                }
            }

            /// Is it called in process context, where it may sleep?
            #[inline(always)]
            pub const fn may_sleep(self) -> bool {
                match self {
                    Self::None => false,
                    $(Self::$variant => is!($context),)*
                }
            }
        }

        /// Names of [`BatonMethod`], by number.
        pub const BATON_METHOD_NAMES: &[&str] = &["-" $(, stringify!($name))*];
    };
}

baton_methods!(define);

impl BatonMethod {
    /// The method with this number; `None` if there is none.
    pub fn of(number: u32) -> Self {
        let method = Self::ALL.get(number as usize).copied();
        method.unwrap_or(Self::None)
    }

    /// Its name in [`BatonPolicy`].
    pub const fn name(self) -> &'static str {
        BATON_METHOD_NAMES[self as usize]
    }
}
