// SPDX-License-Identifier: GPL-2.0-only
//! The kernel as host of the rules.

use crate::{measure, record};
use baton_abi::{Arg, BatonCtx, BatonFaultKind, BatonMethod, BatonPolicy, BATON_METHOD_NAMES};
use baton_core::{CpuState, Fault, Host, PolicyEntry, Slot};
use core::ffi::c_void;

/// A CPU's `struct baton_frame` (`../core.h`).
pub type Frame = *mut c_void;

extern "C" {
    pub(crate) fn baton_guard(
        this: usize,
        ctx: *mut BatonCtx,
        a: u64,
        b: u64,
        func: usize,
        frame: Frame,
    ) -> u64;
    fn baton_khost_may_run(task: usize, cpu: i32) -> bool;
    fn baton_khost_kick_all();
    fn baton_khost_evict();
    fn baton_khost_end_slice(after: u64);
    fn baton_khost_report(
        policy: u32,
        kind: BatonFaultKind,
        method: BatonMethod,
        pid: u32,
        now: u64,
        cpu: *const CpuState,
    );
    fn baton_khost_lock_slots() -> u64;
    fn baton_khost_unlock_slots(flags: u64);
}

pub struct Kernel;

/// The head of `struct baton_version` (`../place.h`): all that a call needs of a version, behind
/// one pointer.
#[repr(C)]
struct Version {
    this: usize,
    ops: BatonPolicy,
}

/// The function of a method, or 0 if the policy has none. The functions are in the order of
/// [`BatonMethod`], after the policy's description.
#[inline(always)]
fn function(version: *const Version, method: BatonMethod) -> usize {
    const FIRST: usize =
        core::mem::offset_of!(Version, ops) + core::mem::offset_of!(BatonPolicy, create);
    const COUNT: usize = BATON_METHOD_NAMES.len() - BatonMethod::Create as usize;
    const _: () = assert!(FIRST + 8 * COUNT == size_of::<Version>());
    let place = (method as usize).wrapping_sub(BatonMethod::Create as usize);
    if place >= COUNT {
        return 0;
    }
    // SAFETY: Policy-alive, and `place` is the index of a function: see the assertion.
    unsafe { *version.byte_add(FIRST).cast::<usize>().add(place) }
}

impl Host for Kernel {
    type Frame = Frame;

    #[inline(always)]
    fn call(
        &self,
        frame: Frame,
        policy: &PolicyEntry,
        method: BatonMethod,
        ctx: &mut BatonCtx,
        a: Arg<'_>,
        b: Arg<'_>,
    ) -> u64 {
        use core::sync::atomic::Ordering::Relaxed;
        // Policy-alive: a version stays valid until another version replaces it or the policy is
        // stopped, and all calls that began before have ended (`place.c`, `upgrade.c`). One load,
        // so that the function and the state are of the same version.
        let version = policy.version.load(Relaxed) as *const Version;
        let func = function(version, method);
        if func == 0 && !method.is_needed() {
            return 0;
        }
        let observers = policy.observers.load(Relaxed);
        if observers != 0 && cfg!(not(baton_without_recording)) {
            let (recorder, policy) = (observers & !measure::MEASURED, policy.index());
            // SAFETY: Policy-alive, as below.
            return unsafe {
                let this = (*version).this;
                if recorder == observers {
                    record::call(recorder, frame, method, ctx, a, b, this, func)
                } else {
                    measure::call(recorder, policy, frame, method, ctx, a, b, this, func)
                }
            };
        }
        // SAFETY: Policy-alive; the arguments are those of the method (`baton_abi::BatonPolicy`).
        unsafe { baton_guard((*version).this, ctx, a.word(), b.word(), func, frame) }
    }

    #[inline(always)]
    fn may_run(&self, slot: &Slot, cpu: i32) -> bool {
        // SAFETY: Task-alive. A slot's task is not freed before its exit_task and a grace period;
        // interrupts are off.
        unsafe { baton_khost_may_run(slot.opaque(), cpu) }
    }

    fn kick_all(&self) {
        // SAFETY: Kernel-call. No arguments.
        unsafe { baton_khost_kick_all() }
    }

    #[cold]
    fn evict(&self, _cpu: i32) {
        // SAFETY: Kernel-call. On the CPU in question, with interrupts off.
        unsafe { baton_khost_evict() }
    }

    fn end_slice(&self, after: u64) {
        // SAFETY: Kernel-call. On the CPU in question, with interrupts off.
        unsafe { baton_khost_end_slice(after) }
    }

    #[cold]
    fn report(&self, policy: &PolicyEntry, fault: &Fault, cpu: Option<&CpuState>) {
        let cpu = cpu.map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: Kernel-call. Plain numbers, and a CPU state that is never freed.
        unsafe {
            baton_khost_report(
                policy.index(),
                fault.kind,
                fault.method,
                fault.pid,
                fault.now,
                cpu,
            )
        }
    }

    fn with_slots_locked<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: Kernel-call. `f` always returns, as the rules do not panic.
        let flags = unsafe { baton_khost_lock_slots() };
        let result = f();
        // SAFETY: Kernel-call. Locked above.
        unsafe { baton_khost_unlock_slots(flags) };
        result
    }
}
