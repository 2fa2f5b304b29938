// SPDX-License-Identifier: GPL-2.0-only
//! The host of a policy that runs in user space: an object, installed per thread by the simulator, a checker or a test.

use core::sync::atomic::{AtomicU32, Ordering};
use std::{cell::RefCell, rc::Rc};

/// What a host gives a policy. The functions of this module call the one that is installed on the thread.
pub trait Host {
    /// Takes a lock. May panic instead of returning when that would deadlock.
    fn lock(&self, word: &AtomicU32);
    /// Takes a lock if it is free.
    fn try_lock(&self, word: &AtomicU32) -> bool;
    /// Releases a lock.
    fn unlock(&self, word: &AtomicU32);
    /// A policy dropped a `Schedulable`.
    fn token_dropped(&self, token: u64);
    /// The time, ns.
    fn now(&self) -> u64;
    /// A random number.
    fn random(&self) -> u64;
    /// Sets this CPU's timer of this policy, ns from now.
    fn arm_timer(&self, after_ns: u64);
    /// Stops this CPU's timer of this policy.
    fn cancel_timer(&self);
    /// May the task in this slot run on that CPU now?
    fn may_run(&self, slot: u32, cpu: i32) -> bool;
    /// Is the CPU online?
    fn cpu_online(&self, cpu: i32) -> bool;
    /// Is the CPU idle, and not claimed by anyone?
    fn cpu_idle(&self, cpu: i32) -> bool;
    /// Claims an idle CPU; false when it was not idle or another was first.
    fn claim_idle(&self, cpu: i32) -> bool;
}

/// The host of a thread that has none installed: locks spin, all CPUs are online and busy, a dropped `Schedulable` panics.
struct Bare;

impl Host for Bare {
    fn lock(&self, word: &AtomicU32) {
        while !self.try_lock(word) {
            std::thread::yield_now();
        }
    }
    fn try_lock(&self, word: &AtomicU32) -> bool {
        word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    fn unlock(&self, word: &AtomicU32) {
        word.store(0, Ordering::Release);
    }
    fn token_dropped(&self, token: u64) {
        if !std::thread::panicking() {
            panic!("a Schedulable was dropped: slot {}, generation {}", (token as u32).wrapping_sub(1), token >> 32);
        }
    }
    fn now(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        0
    }
    fn arm_timer(&self, _after_ns: u64) {}
    fn cancel_timer(&self) {}
    fn may_run(&self, _slot: u32, _cpu: i32) -> bool {
        true
    }
    fn cpu_online(&self, _cpu: i32) -> bool {
        true
    }
    fn cpu_idle(&self, _cpu: i32) -> bool {
        false
    }
    fn claim_idle(&self, _cpu: i32) -> bool {
        false
    }
}

std::thread_local! {
    static HOST: RefCell<Rc<dyn Host>> = RefCell::new(Rc::new(Bare));
}

/// Installs `host` on this thread and returns the one before.
pub fn install(host: Rc<dyn Host>) -> Rc<dyn Host> {
    HOST.replace(host)
}

fn with<R>(f: impl FnOnce(&dyn Host) -> R) -> R {
    let host = HOST.with_borrow(Rc::clone);
    f(&*host)
}

/// See [`Host::lock`].
pub fn lock(word: &AtomicU32) {
    with(|h| h.lock(word))
}

/// See [`Host::try_lock`].
pub fn try_lock(word: &AtomicU32) -> bool {
    with(|h| h.try_lock(word))
}

/// See [`Host::unlock`].
pub fn unlock(word: &AtomicU32) {
    with(|h| h.unlock(word))
}

/// See [`Host::token_dropped`].
pub fn token_dropped(token: u64) {
    with(|h| h.token_dropped(token))
}

/// See [`Host::now`].
pub fn now() -> u64 {
    with(|h| h.now())
}

/// See [`Host::random`].
pub fn random() -> u64 {
    with(|h| h.random())
}

/// See [`Host::arm_timer`].
pub fn arm_timer(after_ns: u64) {
    with(|h| h.arm_timer(after_ns))
}

/// See [`Host::cancel_timer`].
pub fn cancel_timer() {
    with(|h| h.cancel_timer())
}

/// See [`Host::may_run`].
pub fn may_run(slot: u32, cpu: i32) -> bool {
    with(|h| h.may_run(slot, cpu))
}

/// See [`Host::cpu_online`].
pub fn cpu_online(cpu: i32) -> bool {
    with(|h| h.cpu_online(cpu))
}

/// See [`Host::cpu_idle`].
pub fn cpu_idle(cpu: i32) -> bool {
    with(|h| h.cpu_idle(cpu))
}

/// See [`Host::claim_idle`].
pub fn claim_idle(cpu: i32) -> bool {
    with(|h| h.claim_idle(cpu))
}
