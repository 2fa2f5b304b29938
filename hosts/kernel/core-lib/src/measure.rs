// SPDX-License-Identifier: GPL-2.0-only
//! Measurements of the calls of policies (`../measure.c`).

use crate::kernel::{baton_guard, Frame};
use crate::record;
use baton_abi::{Arg, BatonCalls, BatonCtx, BatonMethod, BATON_CALL_CLASSES, BATON_METHOD_NAMES};
use baton_core::histogram::{class_of, percentile};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See [`BatonCalls`].
const BITS: u32 = 2;

/// The bit of [`baton_core::PolicyEntry::observers`] that says that calls are measured. The other
/// bits are the address of a recording.
pub const MEASURED: usize = 1;

/// The calls of a method of a policy on one CPU. Written by that CPU only, in a call.
#[repr(C)]
struct Calls {
    total: AtomicU64,
    longest: AtomicU64,
    classes: [AtomicU64; BATON_CALL_CLASSES],
}

/// The calls of a policy on one CPU, by method.
#[repr(transparent)]
pub struct Meter([Calls; BATON_METHOD_NAMES.len()]);

extern "C" {
    fn baton_meter_here(policy: u32) -> Option<&'static Meter>;
    fn baton_meter_now() -> u64;
}

/// Adds to a number that only this CPU writes.
fn add(to: &AtomicU64, number: u64) {
    to.store(to.load(Relaxed).wrapping_add(number), Relaxed);
}

impl Meter {
    fn note(&self, method: BatonMethod, took: u64) {
        let Some(calls) = self.0.get(method as usize) else {
            return;
        };
        add(&calls.total, took);
        if took > calls.longest.load(Relaxed) {
            calls.longest.store(took, Relaxed);
        }
        let class = class_of(took, BITS).min(BATON_CALL_CLASSES - 1);
        if let Some(count) = calls.classes.get(class) {
            add(count, 1);
        }
    }
}

/// Calls a policy, measures the call, and records it if `recorder` is not 0.
///
/// # Safety
/// Policy-alive: as [`record::call`].
#[cold]
#[inline(never)]
#[allow(
    clippy::too_many_arguments,
    reason = "those of the call, and of the guard"
)]
pub unsafe fn call(
    recorder: usize,
    policy: u32,
    frame: Frame,
    method: BatonMethod,
    ctx: &mut BatonCtx,
    a: Arg<'_>,
    b: Arg<'_>,
    this: usize,
    func: usize,
) -> u64 {
    // SAFETY: Kernel-call. It reads a clock.
    let begin = unsafe { baton_meter_now() };
    let answer = match recorder {
        // SAFETY: Policy-alive. The caller's promise.
        0 => unsafe { baton_guard(this, ctx, a.word(), b.word(), func, frame) },
        // SAFETY: Policy-alive. The caller's promise.
        _ => unsafe { record::call(recorder, frame, method, ctx, a, b, this, func) },
    };
    // SAFETY: Kernel-call. A meter is freed after the calls that may have found it.
    if let Some(meter) = unsafe { baton_meter_here(policy) } {
        // SAFETY: Kernel-call. As above.
        let end = unsafe { baton_meter_now() };
        meter.note(method, end.saturating_sub(begin));
    }
    answer
}

/// Size of a meter, bytes. Zero is a valid value.
#[no_mangle]
pub extern "C" fn baton_core_meter_size() -> usize {
    size_of::<Meter>()
}

/// Adds what a CPU's meter, if there is one, has of the method `to.method`. False if there is no
/// such method.
#[no_mangle]
pub extern "C" fn baton_core_add_calls(meter: Option<&Meter>, to: &mut BatonCalls) -> bool {
    let method = to.method as usize;
    let Some(calls) = meter.and_then(|meter| meter.0.get(method)) else {
        return method < BATON_METHOD_NAMES.len();
    };
    to.total = to.total.wrapping_add(calls.total.load(Relaxed));
    to.longest = to.longest.max(calls.longest.load(Relaxed));
    for (sum, count) in to.classes.iter_mut().zip(&calls.classes) {
        *sum = sum.wrapping_add(count.load(Relaxed));
    }
    true
}

/// The number of calls.
#[no_mangle]
pub extern "C" fn baton_core_count_calls(calls: &BatonCalls) -> u64 {
    calls.classes.iter().sum()
}

/// The duration that this percentage of the calls does not exceed, ns; 0 if there are none.
#[no_mangle]
pub extern "C" fn baton_core_percentile(calls: &BatonCalls, percent: u32) -> u64 {
    percentile(&calls.classes, BITS, u64::from(percent)).unwrap_or(0)
}
