// SPDX-License-Identifier: GPL-2.0-only
//! Threads, as a policy sees them.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use baton::{weight, Task};

/// A thread's home, if it is counted by no core.
pub(crate) const NO_CORE: u32 = u32::MAX;
/// The same, while it is on its way from one core to another.
pub(crate) const MOVING: u32 = u32::MAX - 1;

/// An attribute of a thread. It is written in calls about the thread, of which the host makes one
/// at a time, under the lock of the core in whose queue it is, or by a hint at any time.
#[derive(Debug, Default)]
pub struct Attribute(AtomicI64);

impl Attribute {
    /// The value.
    #[inline(always)]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// Sets the value.
    #[inline(always)]
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }
}

/// What the machine keeps of a task slot.
#[derive(Debug, Default)]
pub(crate) struct Kept<A> {
    /// What the policy declares.
    pub attributes: A,
    /// The core that counts the thread, [`MOVING`] or [`NO_CORE`]. Changed from a core to another
    /// value only under that core's lock.
    pub home: AtomicU32,
    /// Its load when it was counted.
    pub load: AtomicI64,
    /// The queue into which it goes when it leaves its CPU, plus one; 0 if that is not decided.
    pub left_for: AtomicU32,
    /// From the last call about it.
    pub nice: AtomicI32,
    pub runtime: AtomicU64,
}

impl<A> Kept<A> {
    /// Notes what a call says about the task.
    #[inline(always)]
    pub fn note(&self, task: &Task) {
        self.nice.store(task.nice, Relaxed);
        self.runtime.store(task.runtime, Relaxed);
    }
}

/// A thread.
#[derive(Debug)]
pub struct Thread<'a, A> {
    pub(crate) slot: u32,
    pub(crate) kept: &'a Kept<A>,
}

impl<A> Clone for Thread<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Thread<'_, A> {}

impl<A> PartialEq for Thread<'_, A> {
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot
    }
}

impl<'a, A> Thread<'a, A> {
    /// The attributes that the policy declares.
    #[inline(always)]
    pub fn attributes(&self) -> &'a A {
        &self.kept.attributes
    }

    /// Nice value, -20 to 19.
    #[inline(always)]
    pub fn nice(&self) -> i64 {
        self.kept.nice.load(Relaxed).into()
    }

    /// The kernel's load weight for the nice value: 15 to 88761, 1024 at nice 0.
    #[inline(always)]
    pub fn weight(&self) -> i64 {
        weight::of_nice(self.kept.nice.load(Relaxed)).into()
    }

    /// CPU time that it has used, ns, as of the last event of this thread.
    #[inline(always)]
    pub fn runtime(&self) -> i64 {
        self.kept.runtime.load(Relaxed) as i64
    }
}
