// SPDX-License-Identifier: GPL-2.0-only
//! Recording: writes each call of a policy, and its interaction with the host, into the ring of
//! this CPU (`../record.c`).
//!
//! Context: in a call of a policy, on its CPU, interrupts off. A ring belongs to its CPU alone.
//! Only the lists of its blocks are shared with the reader.

use crate::kernel::{baton_guard, Frame};
use baton_abi::{Arg, BatonCtx, BatonHint, BatonMethod};
use baton_trace::{About, Event, Question, Recorder, BLOCK_SIZE};
use core::{arch::asm, ffi::c_void};

/// The head of `struct baton_ring` (`../record.h`).
#[repr(C)]
pub struct Ring {
    /// The block being written, of `BLOCK_SIZE` bytes, or NULL.
    block: *mut u8,
    cpu: u32,
    reserved: u32,
    recorder: Recorder,
}

extern "C" {
    fn baton_ring_enter(recorder: usize, frame: Frame) -> *mut Ring;
    fn baton_ring_leave(frame: Frame) -> u8;
    fn baton_ring_next(ring: *mut Ring);
}

// BATON_RECORDER_SIZE
const _: () = assert!(size_of::<Recorder>() <= 320 && core::mem::offset_of!(Ring, recorder) == 16);

/// The time stamp counter, read after all earlier instructions.
#[inline(always)]
fn stamp() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: Kernel-call. It reads a counter. The kernel has checked that it is stable before a
    // recording begins.
    unsafe { asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(low) | u64::from(high) << 32
}

impl Ring {
    #[inline(always)]
    fn put(&mut self, event: &Event) {
        if !self.try_put(event) {
            self.put_anew(event);
        }
    }

    #[inline(always)]
    fn try_put(&mut self, event: &Event) -> bool {
        if self.block.is_null() {
            return false;
        }
        // SAFETY: Own-ring. A block has BLOCK_SIZE bytes, and belongs to this ring until it is
        // closed.
        let block = unsafe { core::slice::from_raw_parts_mut(self.block, BLOCK_SIZE) };
        self.recorder.put(block, event)
    }

    #[cold]
    #[inline(never)]
    fn put_anew(&mut self, event: &Event) {
        self.close();
        self.next();
        self.open();
        if !self.try_put(event) {
            self.recorder.lose();
        }
    }

    fn next(&mut self) {
        // SAFETY: Own-ring. On its CPU, or while all CPUs are held, with interrupts off.
        unsafe { baton_ring_next(self) };
    }

    fn open(&mut self) {
        if !self.block.is_null() {
            self.recorder.open(self.cpu, self.recorder.last_stamp());
        }
    }

    fn close(&mut self) {
        if !self.block.is_null() {
            // SAFETY: Own-ring, as above.
            let block = unsafe { core::slice::from_raw_parts_mut(self.block, BLOCK_SIZE) };
            self.recorder.close(block);
        }
    }
}

/// Calls a policy and records the call.
///
/// # Safety
/// Policy-alive: `func` is the function of `method` of the policy whose state is `this`. The
/// arguments are those of that method.
#[cold]
#[inline(never)]
#[allow(
    clippy::too_many_arguments,
    reason = "those of the call, and of the guard"
)]
pub unsafe fn call(
    recorder: usize,
    frame: Frame,
    method: BatonMethod,
    ctx: &mut BatonCtx,
    a: Arg<'_>,
    b: Arg<'_>,
    this: usize,
    func: usize,
) -> u64 {
    // SAFETY: Own-ring. The recorder of a policy stays valid until calls that found it have ended.
    let ring = unsafe { &mut *baton_ring_enter(recorder, frame) };
    let about = About::of(method, &a, &b);
    ring.put(&Event::call(stamp(), method, ctx, about));
    // SAFETY: Policy-alive. The caller's promise.
    let answer = unsafe { baton_guard(this, ctx, a.word(), b.word(), func, frame) };
    // SAFETY: Own-ring. Entered above.
    let kind = unsafe { baton_ring_leave(frame) };
    ring.put(&Event::answer(stamp(), answer, kind, ctx));
    answer
}

macro_rules! recorded {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) $event:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Own-ring: `ring` is the ring of the current call.
        #[no_mangle]
        pub unsafe extern "C" fn $name(ring: *mut Ring, $($arg: $ty),*) {
            // SAFETY: Own-ring. The caller's promise.
            unsafe { (*ring).put(&$event) }
        }
    )*};
}

recorded! {
    /// The call took the lock at this address.
    baton_core_record_lock(lock: *const c_void) Event::Lock { stamp: stamp(), id: lock_id(lock) };
    /// The call tried to take the lock at this address, which was not free.
    baton_core_record_busy(lock: *const c_void) Event::Busy { id: lock_id(lock) };
    /// See [`Event::Now`].
    baton_core_record_now(now: u64) Event::Now(now);
    /// See [`Event::Random`].
    baton_core_record_random(number: u64) Event::Random(number);
    /// See [`Event::Read`].
    baton_core_record_read(value: u64) Event::Read(value);
    /// See [`Event::MayRun`].
    baton_core_record_may_run(slot: u32, cpu: i32, yes: bool) Event::MayRun { slot, cpu, yes };
    /// See [`Question::Online`].
    baton_core_record_online(cpu: i32, yes: bool)
        Event::Cpu { question: Question::Online, cpu, yes };
    /// See [`Question::Idle`].
    baton_core_record_idle(cpu: i32, yes: bool)
        Event::Cpu { question: Question::Idle, cpu, yes };
    /// See [`Question::Claim`].
    baton_core_record_claim(cpu: i32, yes: bool)
        Event::Cpu { question: Question::Claim, cpu, yes };
    /// See [`Event::AnyIdle`].
    baton_core_record_any_idle(yes: bool) Event::AnyIdle(yes);
    /// See [`Event::ArmTimer`].
    baton_core_record_arm_timer(after: u64) Event::ArmTimer(after);
    /// See [`Event::CancelTimer`].
    baton_core_record_cancel_timer() Event::CancelTimer;
    /// See [`Event::NoMemory`].
    baton_core_record_no_memory(after: u64) Event::NoMemory { after };
    /// See [`Event::Reply`]; `reply` is valid.
    baton_core_record_reply(slot: u32, reply: *const BatonHint, answer: u32)
        Event::Reply { slot, reply: *reply, answer: answer as u8 };
    /// See [`Event::Dropped`].
    baton_core_record_dropped(token: u64) Event::Dropped(token);
}

/// Kernel addresses differ only in their lower bits, and locks are aligned to four bytes.
fn lock_id(lock: *const c_void) -> u64 {
    (lock as u64 & 0x3_ffff_ffff) >> 2
}

/// Ends a ring: closes its last block with an end mark. False if there was no room for the mark.
/// `block` is the block to use if the ring has none open.
///
/// # Safety
/// Own-ring: no call is recorded in it any more.
#[no_mangle]
pub unsafe extern "C" fn baton_core_record_end(ring: *mut Ring, block: *mut u8) -> bool {
    // SAFETY: Own-ring. The caller's promise.
    let ring = unsafe { &mut *ring };
    if ring.block.is_null() {
        ring.block = block;
        ring.open();
    }
    let end = Event::End { stamp: stamp() };
    let has_end = ring.try_put(&end);
    ring.close();
    has_end
}

/// Opens the first block of a ring.
///
/// # Safety
/// Own-ring: no call is recorded in it yet.
#[no_mangle]
pub unsafe extern "C" fn baton_core_record_begin(ring: *mut Ring) {
    // SAFETY: Own-ring. The caller's promise.
    unsafe { (*ring).recorder.open((*ring).cpu, stamp()) }
}

/// Continues in another block that begins at this stamp. Later events have later stamps. Lost
/// events are reported before the stamp or, with `forget`, not at all.
///
/// # Safety
/// Own-ring: all CPUs are held.
#[no_mangle]
pub unsafe extern "C" fn baton_core_record_cut(ring: *mut Ring, stamp: u64, forget: bool) {
    // SAFETY: Own-ring. The caller's promise.
    let ring = unsafe { &mut *ring };
    if forget {
        ring.recorder.forget_lost();
    }
    if ring.block.is_null() && ring.recorder.has_lost() {
        ring.next();
        ring.open();
    }
    if !ring.recorder.is_empty() || ring.recorder.has_lost() {
        ring.close();
        ring.next();
    }
    if ring.block.is_null() {
        ring.recorder.wait_from(stamp)
    } else {
        ring.recorder.open(ring.cpu, stamp)
    }
}
