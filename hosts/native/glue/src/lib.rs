// SPDX-License-Identifier: GPL-2.0-only
//! What a policy needs around it to be called in user space: its functions, and one way to call
//! them that comes back whatever they do. The counterpart of `hosts/kernel/glue` and
//! `hosts/kernel/guard.S`.
#![deny(unsafe_op_in_unsafe_fn)]

mod memory;

use baton_abi::{
    BatonCtx, BatonHint, BatonMethod, BatonPolicy, BatonRefusal, BatonTask, BatonWake, BATON_ABI,
    BATON_ABORTED,
};
use baton_seam::host;
use std::{ffi::c_void, sync::Once};

#[doc(hidden)]
pub use baton_bridge::ops;
pub use memory::Bounded;

/// A policy in user space: what `baton_NAME.so` has under the name `BATON_NATIVE`, or `module!`
/// gives.
#[repr(C)]
pub struct NativePolicy {
    /// [`BATON_ABI`] that it was built with.
    pub abi: u32,
    /// Size of the table of host functions that it calls.
    pub table_size: u32,
    /// Its description. The functions in it are called by `call` alone.
    pub ops: &'static BatonPolicy,
    /// Calls a method. `this` is what `create` gave, or 0; `a` and `b` are the method's further
    /// arguments as it has them in [`BatonPolicy`]. [`BATON_ABORTED`] when the call was abandoned;
    /// 0 of an absent method, and of one that gives nothing.
    pub call:
        extern "C" fn(method: BatonMethod, this: usize, ctx: *mut BatonCtx, a: u64, b: u64) -> u64,
    /// Gives this thread's calls a host.
    pub install: extern "C" fn(table: Option<&'static host::Table>),
}

impl NativePolicy {
    /// Of a policy that is linked in.
    pub const fn new(
        ops: &'static BatonPolicy,
        call: extern "C" fn(BatonMethod, usize, *mut BatonCtx, u64, u64) -> u64,
    ) -> Self {
        Self {
            abi: BATON_ABI,
            table_size: size_of::<host::Table>() as u32,
            ops,
            call,
            install,
        }
    }
}

extern "C" fn install(table: Option<&'static host::Table>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(host::report_panics);
    host::install(table);
}

/// What `../../c/atomics.c` calls, of a policy that is built for the checker.
#[no_mangle]
extern "C" fn baton_host_atomic() {
    host::atomic();
}

/// The reason of a refusal, by number.
fn refusal(number: u64) -> BatonRefusal {
    match number {
        1 => BatonRefusal::Stale,
        2 => BatonRefusal::Foreign,
        3 => BatonRefusal::NotAllowed,
        4 => BatonRefusal::CpuOffline,
        _ => BatonRefusal::NothingToKeep,
    }
}

/// Calls a method: see [`NativePolicy::call`].
#[inline(always)]
#[doc(hidden)]
pub fn call(
    ops: &BatonPolicy,
    method: BatonMethod,
    this: usize,
    ctx: *mut BatonCtx,
    a: u64,
    b: u64,
) -> u64 {
    use BatonMethod::{
        Create, Destroy, ReregisterConvert, ReregisterDrop, ReregisterInit, ReregisterLoad,
        ReregisterPrepare,
    };
    let is_small = !matches!(
        method,
        Create
            | Destroy
            | ReregisterPrepare
            | ReregisterInit
            | ReregisterConvert
            | ReregisterDrop
            | ReregisterLoad
    );
    let outer = memory::small_only(is_small);
    let answer = host::guard(|| dispatch(ops, method, this as *mut c_void, ctx, a, b))
        .unwrap_or(BATON_ABORTED);
    memory::small_only(outer);
    answer
}

#[inline(always)]
fn dispatch(
    ops: &BatonPolicy,
    method: BatonMethod,
    this: *mut c_void,
    ctx: *mut BatonCtx,
    a: u64,
    b: u64,
) -> u64 {
    use BatonMethod as M;
    let task = a as *const BatonTask;
    let (cpu, at) = (a as i32, a as *mut c_void);
    macro_rules! with_token {
        ($name:ident) => {
            ops.$name.map_or(0, |f| {
                f(this, ctx, task, b);
                0
            })
        };
    }
    macro_rules! about {
        ($name:ident, $what:expr) => {
            ops.$name.map_or(0, |f| {
                f(this, ctx, $what);
                0
            })
        };
    }
    match method {
        M::None => 0,
        M::Create => ops.create.map_or(0, |f| f(a as *const _) as u64),
        M::Destroy => ops.destroy.map_or(0, |f| {
            f(this);
            0
        }),
        M::SelectTaskRq => ops
            .select_task_rq
            .map_or(0, |f| f(this, ctx, task, b as *const BatonWake)),
        M::TaskNew => with_token!(task_new),
        M::TaskWakeup => with_token!(task_wakeup),
        M::TaskPreempt => with_token!(task_preempt),
        M::TaskYield => with_token!(task_yield),
        M::TaskRestored => with_token!(task_restored),
        M::PickNextTask => ops
            .pick_next_task
            .map_or(0, |f| f(this, ctx, cpu, b as *const BatonTask)),
        M::NewlyIdle => ops.newly_idle.map_or(0, |f| f(this, ctx, cpu)),
        M::PickRefused => ops.pick_refused.map_or(0, |f| {
            f(this, ctx, a, refusal(b));
            0
        }),
        M::Balance => about!(balance, cpu),
        M::TaskBlocked => about!(task_blocked, task),
        M::TaskDequeued => ops.task_dequeued.map_or(0, |f| f(this, ctx, task)),
        M::TaskDeparted => ops.task_departed.map_or(0, |f| f(this, ctx, task)),
        M::TaskDead => about!(task_dead, task),
        M::TaskAffinityChanged => about!(task_affinity_changed, task),
        M::TaskPrioChanged => about!(task_prio_changed, task),
        M::TaskTick => about!(task_tick, task),
        M::Timer => about!(timer, cpu),
        M::CpuOnline => about!(cpu_online, cpu),
        M::CpuOffline => about!(cpu_offline, cpu),
        M::EnterIdle => about!(enter_idle, cpu),
        M::ExitIdle => about!(exit_idle, cpu),
        M::Hint => ops
            .hint
            .map_or(0, |f| f(this, ctx, task, b as *const BatonHint)),
        M::ReregisterPrepare => ops.reregister_prepare.map_or(0, |f| f(this) as u64),
        M::ReregisterInit => ops
            .reregister_init
            .map_or(0, |f| f(a as *const _, b as *mut c_void) as u64),
        M::ReregisterDrop => ops.reregister_drop.map_or(0, |f| {
            f(at);
            0
        }),
        M::ReregisterConvert => ops
            .reregister_convert
            .map_or(0, |f| f(a as *const _, b as *const c_void) as u64),
        M::ReregisterTake => ops.reregister_take.map_or(0, |f| f(this, a as *const _)),
        M::ReregisterSave => ops.reregister_save.map_or(0, |f| f(this, a as *const _)),
        M::ReregisterLoad => ops
            .reregister_load
            .map_or(0, |f| f(a as *const _, b as *const _) as u64),
    }
}

/// The policy of this type, linked in: a `&'static NativePolicy`.
#[macro_export]
macro_rules! module {
    ($scheduler:ty) => {{
        const OPS: &$crate::Ops = &$crate::ops::<$scheduler>();
        extern "C" fn call(
            method: $crate::Method,
            this: usize,
            ctx: *mut $crate::Ctx,
            a: u64,
            b: u64,
        ) -> u64 {
            $crate::call(OPS, method, this, ctx, a, b)
        }
        const MODULE: &$crate::NativePolicy = &$crate::NativePolicy::new(OPS, call);
        MODULE
    }};
}

#[doc(hidden)]
pub use baton_abi::{BatonCtx as Ctx, BatonMethod as Method, BatonPolicy as Ops};

/// Makes the policy of this type the library's. The library has the feature `alloc_error_hook`, so
/// that memory which is not there is a panic and not the end of the process.
#[macro_export]
macro_rules! export {
    ($scheduler:ty) => {
        #[global_allocator]
        static MEMORY: $crate::Bounded = $crate::Bounded;
        #[used]
        #[link_section = ".init_array"]
        static HOOK: extern "C" fn() = {
            extern "C" fn hook() {
                std::alloc::set_alloc_error_hook(|layout| {
                    panic!("memory allocation of {} bytes failed", layout.size())
                });
            }
            hook
        };
        #[no_mangle]
        pub static BATON_NATIVE: &$crate::NativePolicy = $crate::module!($scheduler);
    };
}
