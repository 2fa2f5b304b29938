// SPDX-License-Identifier: GPL-2.0-only
//! The host of a policy in the kernel: functions that `baton.ko` exports (`hosts/kernel/host.c`).
//!
//! Context of all functions: inside a call of a policy, interrupts off, on one CPU. In `create`, a
//! lock is a fault, and the other functions do nothing.

use core::sync::atomic::{AtomicU32, Ordering};

mod c {
    use core::sync::atomic::AtomicU32;
    extern "C" {
        pub fn baton_host_lock(word: *const AtomicU32);
        pub fn baton_host_try_lock(word: *const AtomicU32) -> bool;
        pub fn baton_host_unlock(word: *const AtomicU32);
        pub fn baton_host_token_dropped(token: u64);
        pub fn baton_host_now() -> u64;
        pub fn baton_host_random() -> u64;
        pub fn baton_host_read(value: u64) -> u64;
        pub static baton_recording: AtomicU32;
        pub fn baton_host_arm_timer(after_ns: u64);
        pub fn baton_host_cancel_timer();
        pub fn baton_host_may_run(slot: u32, cpu: i32) -> bool;
        pub fn baton_host_cpu_online(cpu: i32) -> bool;
        pub fn baton_host_cpu_idle(cpu: i32) -> bool;
        pub fn baton_host_any_idle() -> bool;
        pub fn baton_host_claim_idle(cpu: i32) -> bool;
        pub fn baton_host_reply(slot: u32, tag: u32, words: *const u64) -> u32;
    }
}

/// Takes a lock. Does not return when that would deadlock.
#[inline]
pub fn lock(word: &AtomicU32) {
    // SAFETY: Kernel-call. The word outlives the call and is used as a lock only.
    unsafe { c::baton_host_lock(word) }
}

/// Takes a lock if it is free.
#[inline]
pub fn try_lock(word: &AtomicU32) -> bool {
    // SAFETY: Kernel-call, as above.
    unsafe { c::baton_host_try_lock(word) }
}

/// Releases the lock taken last.
#[inline]
pub fn unlock(word: &AtomicU32) {
    // SAFETY: Kernel-call, as above.
    unsafe { c::baton_host_unlock(word) }
}

/// Reports that a policy dropped a `Schedulable`.
pub fn token_dropped(token: u64) {
    // SAFETY: Kernel-call. Plain numbers only.
    unsafe { c::baton_host_token_dropped(token) }
}

/// The time, ns of the scheduler clock.
pub fn now() -> u64 {
    // SAFETY: Kernel-call. No arguments.
    unsafe { c::baton_host_now() }
}

/// A random number, recorded.
pub fn random() -> u64 {
    // SAFETY: Kernel-call. Plain numbers only.
    unsafe { c::baton_host_random() }
}

/// Reports a value that was read without a lock to a recording, and returns it.
#[inline(always)]
pub fn read(value: u64) -> u64 {
    // SAFETY: Kernel-call. The static belongs to baton.ko, which outlives this module; the rest is
    // plain numbers.
    unsafe {
        if cfg!(not(baton_without_recording)) && c::baton_recording.load(Ordering::Relaxed) != 0 {
            c::baton_host_read(value);
        }
    }
    value
}

/// Arms this policy's timer on this CPU, ns from now.
pub fn arm_timer(after_ns: u64) {
    // SAFETY: Kernel-call. Plain numbers only.
    unsafe { c::baton_host_arm_timer(after_ns) }
}

/// Cancels this policy's timer on this CPU.
pub fn cancel_timer() {
    // SAFETY: Kernel-call. Plain numbers only.
    unsafe { c::baton_host_cancel_timer() }
}

/// May the task in this slot run on that CPU now?
#[inline]
pub fn may_run(slot: u32, cpu: i32) -> bool {
    // SAFETY: Kernel-call. Both numbers are checked there.
    unsafe { c::baton_host_may_run(slot, cpu) }
}

/// Is the CPU online?
#[inline]
pub fn cpu_online(cpu: i32) -> bool {
    // SAFETY: Kernel-call. The number is checked there.
    unsafe { c::baton_host_cpu_online(cpu) }
}

/// Is the CPU idle and unclaimed?
#[inline]
pub fn cpu_idle(cpu: i32) -> bool {
    // SAFETY: Kernel-call. The number is checked there.
    unsafe { c::baton_host_cpu_idle(cpu) }
}

/// May any CPU be idle?
#[inline]
pub fn any_idle() -> bool {
    // SAFETY: Kernel-call. No arguments.
    unsafe { c::baton_host_any_idle() }
}

/// Claims an idle CPU; false when it was not idle or was already claimed.
#[inline]
pub fn claim_idle(cpu: i32) -> bool {
    // SAFETY: Kernel-call. The number is checked there.
    unsafe { c::baton_host_claim_idle(cpu) }
}

/// Replies to a task. Returns 0, or the reason why not (`BatonReplyAnswer`).
pub fn reply(slot: u32, tag: u32, words: &[u64; 6]) -> u32 {
    // SAFETY: Kernel-call. The slot is checked there, and there are six words.
    unsafe { c::baton_host_reply(slot, tag, words.as_ptr()) }
}
