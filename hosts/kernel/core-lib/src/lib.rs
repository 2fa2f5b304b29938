// SPDX-License-Identifier: GPL-2.0-only
//! `hosts/core` for baton.ko. Each function here only converts its arguments and result. It is
//! declared in `../core.h`, and called by the C file of the same purpose (`shim_calls.c`,
//! `control.c`, `host.c`). The functions that [`Kernel`] calls are in `host.c`.
//!
//! Context: that documented for the functions of `baton_core`. Interrupts are off, except in
//! `init_task`, `exit_task` and control.
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

mod control;
mod hints;
mod kernel;
mod measure;
mod record;

use baton_abi::BatonCtx;
use baton_core::{Core, CpuState, Init, Slot, TaskFacts, TaskState, Verdict};
use core::{cell::UnsafeCell, mem::MaybeUninit};
use kernel::{Frame, Kernel};

type KernelCore = Core<'static, Kernel>;

/// The core of this kernel.
struct Cell(UnsafeCell<MaybeUninit<KernelCore>>);

// SAFETY: Init-once. `baton_core_init` writes it before any other function can be called.
// Afterwards it is only read.
unsafe impl Sync for Cell {}

static CORE: Cell = Cell(UnsafeCell::new(MaybeUninit::uninit()));

#[inline(always)]
pub(crate) fn core() -> &'static KernelCore {
    // SAFETY: Init-once. The module calls `baton_core_init` before it makes itself reachable.
    unsafe { (*CORE.0.get()).assume_init_ref() }
}

/// Size of a task slot, bytes.
#[no_mangle]
pub extern "C" fn baton_core_slot_size() -> usize {
    size_of::<Slot>()
}

/// Size of the state of a CPU, bytes.
#[no_mangle]
pub extern "C" fn baton_core_cpu_size() -> usize {
    size_of::<CpuState>()
}

/// Creates the core, in zeroed memory that is aligned to 128 bytes and outlives the use of the
/// module.
///
/// # Safety
/// Init-once: called before any other function here, with `nr_slots` slots and `nr_cpus` CPUs of
/// the sizes above.
#[no_mangle]
pub unsafe extern "C" fn baton_core_init(
    slots: *const Slot,
    nr_slots: usize,
    cpus: *const CpuState,
    nr_cpus: usize,
) {
    // SAFETY: Init-once. The caller's promise. Slot and CpuState consist of atomics, for which zero
    // is a valid value.
    unsafe {
        let slots = core::slice::from_raw_parts(slots, nr_slots);
        let cpus = core::slice::from_raw_parts(cpus, nr_cpus);
        (*CORE.0.get()).write(Core::new(Kernel, slots, cpus));
    }
}

/// The context that the shim passed to this call.
///
/// # Safety
/// Shim-call: `ctx` is valid, and used by this call alone.
#[inline(always)]
unsafe fn lent<'a>(ctx: *mut BatonCtx) -> &'a mut BatonCtx {
    // SAFETY: Shim-call. The caller's promise.
    unsafe { &mut *ctx }
}

/// The state of a CPU, or NULL if there is no CPU with that number.
#[no_mangle]
pub extern "C" fn baton_core_cpu(cpu: i32) -> *const CpuState {
    core()
        .cpu(cpu)
        .map_or(core::ptr::null(), core::ptr::from_ref)
}

macro_rules! shim_call {
    ($($(#[$doc:meta])* $name:ident |$ctx:ident, $frame:ident, $cpu:ident $(, $more:ident: $ty:ty)*| $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Shim-call: `ctx` is valid, and used by this call alone. `frame` and `cpu` belong to this
        /// CPU.
        #[no_mangle]
        pub unsafe extern "C" fn $name(ctx: *mut BatonCtx, frame: Frame, cpu: &CpuState $(, $more: $ty)*) -> u32 {
            // SAFETY: Shim-call. The caller's promise.
            let $ctx = unsafe { lent(ctx) };
            let ($frame, $cpu) = (frame, cpu);
            let verdict: Verdict = $body;
            verdict as u32
        }
    )*};
}

shim_call! {
    /// See [`Core::select`].
    baton_core_select |ctx, frame, cpu| core().select(frame, cpu, ctx);
    /// See [`Core::enqueue`].
    baton_core_enqueue |ctx, frame, cpu| core().enqueue(frame, cpu, ctx);
    /// See [`Core::dispatch`].
    baton_core_dispatch |ctx, frame, cpu| core().dispatch(frame, cpu, ctx);
    /// See [`Core::tick`].
    baton_core_tick |ctx, frame, cpu| core().tick(frame, cpu, ctx);
    /// See [`Core::yield_task`].
    baton_core_yield |ctx, _frame, _cpu| core().yield_task(ctx.task);
    /// See [`Core::tell_idle`].
    baton_core_tell_idle |ctx, frame, cpu, idle: bool| { core().tell_idle(frame, cpu, ctx, idle); Verdict::None };
    /// See [`Core::set_online`].
    baton_core_online |ctx, frame, cpu, online: bool| { core().set_online(frame, cpu, ctx, online); Verdict::None };
    /// See [`Core::enable_task`].
    baton_core_enable |ctx, _frame, _cpu, nice: i32| { core().enable_task(ctx.task, nice); Verdict::None };
    /// See [`Core::disable_task`].
    baton_core_disable |ctx, frame, cpu, dead: bool| { core().disable_task(frame, cpu, ctx, dead); Verdict::None };
    /// See [`Core::set_nice`].
    baton_core_nice |ctx, frame, cpu, nice: i32| { core().set_nice(frame, cpu, ctx, nice); Verdict::None };
    /// See [`Core::set_affinity`].
    baton_core_affinity |ctx, frame, cpu| { core().set_affinity(frame, cpu, ctx); Verdict::None };
    /// See [`Core::timer`].
    baton_core_timer |ctx, frame, cpu, policy: u32| { core().timer(frame, cpu, ctx, policy as usize); Verdict::None };
}

/// See [`Core::note_idle`]. On that CPU.
#[no_mangle]
pub extern "C" fn baton_core_note_idle(cpu: &CpuState, idle: bool) -> bool {
    core().note_idle(cpu, idle)
}

/// See [`Core::init_task`]. Returns the handle, or 0 if no slot is free.
#[no_mangle]
pub extern "C" fn baton_core_init_task(task: usize, pid: u32, parent: u64) -> u64 {
    match core().init_task(&TaskFacts {
        opaque: task,
        pid,
        parent,
    }) {
        Init::Handle(handle) => handle,
        Init::Full => 0,
    }
}

/// See [`Core::exit_task`].
#[no_mangle]
pub extern "C" fn baton_core_exit_task(handle: u64) {
    core().exit_task(handle);
}

/// See [`Core::rescue_one`]. Returns the token, or 0.
#[no_mangle]
pub extern "C" fn baton_core_rescue() -> u64 {
    core().rescue_one().map_or(0, |(_, token)| token)
}

/// See [`Core::is_rescued`].
#[no_mangle]
pub extern "C" fn baton_core_is_rescued(token: u64) -> bool {
    core().is_rescued(token)
}

/// See [`Core::pick_failed`].
#[no_mangle]
pub extern "C" fn baton_core_pick_failed(token: u64) {
    core().pick_failed(token);
}

/// The host's pointer to the task in this slot, or 0 if the slot has no task.
#[no_mangle]
pub extern "C" fn baton_core_task_of_slot(slot: u32) -> usize {
    core().slots().get(slot as usize).map_or(0, Slot::opaque)
}

/// Does a policy hold a token of the task in this slot?
#[no_mangle]
pub extern "C" fn baton_core_is_queued(slot: u32) -> bool {
    let slot = core().slots().get(slot as usize);
    slot.is_some_and(|slot| slot.state() == TaskState::Queued)
}

/// See [`Core::is_idle`].
#[no_mangle]
pub extern "C" fn baton_core_is_idle(cpu: i32) -> bool {
    core().is_idle(cpu)
}

/// See [`Core::is_any_idle`].
#[no_mangle]
pub extern "C" fn baton_core_is_any_idle() -> bool {
    core().is_any_idle()
}

/// See [`Core::claim_idle`].
#[no_mangle]
pub extern "C" fn baton_core_claim_idle(cpu: i32) -> bool {
    core().claim_idle(cpu)
}

/// See [`CpuState::is_asleep`].
#[no_mangle]
pub extern "C" fn baton_core_is_asleep(cpu: i32) -> bool {
    core().cpu(cpu).is_some_and(CpuState::is_asleep)
}

/// See [`CpuState::is_online`].
#[no_mangle]
pub extern "C" fn baton_core_is_online(cpu: i32) -> bool {
    core().cpu(cpu).is_some_and(CpuState::is_online)
}

/// See [`Core::note_online`].
#[no_mangle]
pub extern "C" fn baton_core_note_online(cpu: i32, online: bool) {
    core().note_online(cpu, online);
}

/// See [`Core::dropped`].
#[no_mangle]
pub extern "C" fn baton_core_dropped(token: u64, cpu: i32) -> bool {
    core()
        .cpu(cpu)
        .is_some_and(|cpu| core().dropped(token, cpu))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    extern "C" {
        // Not defined: the build fails if a panic remains in the rules.
        fn baton_core_must_not_panic() -> !;
    }
    // SAFETY: Never-linked. See above.
    unsafe { baton_core_must_not_panic() }
}
