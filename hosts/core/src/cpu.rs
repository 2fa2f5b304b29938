// SPDX-License-Identifier: GPL-2.0-only
//! The core's record of a CPU.

use baton_abi::{BatonEvent, BatonMethod, BATON_MAX_POLICIES};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Calls kept per CPU for fault reports. A power of two.
pub const EVENTS_KEPT: usize = 16;

/// A counter that one CPU writes and any CPU reads.
#[derive(Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Not a locked operation, as only the CPU's own events call this.
    #[inline]
    pub fn bump(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[derive(Default)]
#[repr(C)]
struct Event {
    now: AtomicU64,
    /// Thread id in the high half; then the method, above the policy's place in the table.
    what: AtomicU64,
}

/// State of one CPU, written by that CPU. Other CPUs write `idle` too, to claim the CPU.
#[repr(C, align(128))]
#[derive(Default)]
pub struct CpuState {
    /// 1 while idle and not claimed.
    pub(crate) idle: AtomicU32,
    pub(crate) online: AtomicU32,
    number: AtomicU32,
    pub(crate) ticks: AtomicU32,
    next_event: AtomicU32,
    /// 1 while idle, claimed or not.
    pub(crate) asleep: AtomicU32,
    /// Place of the policy whose task runs here, as of the last time that several policies were
    /// asked; 16 and 17 if it is no policy's task (`order.rs`).
    pub(crate) current: AtomicU32,
    /// Number of the partition that it is in; 0 for none.
    pub(crate) partition: AtomicU32,
    /// The partition that it was in before the change of which policies are being notified.
    pub(crate) was_in: AtomicU32,
    /// 1 if the current task's policy was asked out of order (`share.rs`).
    pub(crate) by_right: AtomicU32,
    /// When the fallback's turn here ends, and when its next begins, ns (`fallback.rs`).
    pub(crate) turn_ends: AtomicU64,
    pub(crate) next_turn: AtomicU64,
    /// Time at which each policy was last asked here, or had a task running at a tick, by place in
    /// the table, ns. Quick dispatches are not included (`stall.rs`).
    pub(crate) asked: [AtomicU64; BATON_MAX_POLICIES],
    /// Dispatches in which it was not clear at once that only the sole policy has to be asked.
    pub(crate) slow: Counter,
    /// State of the watch: the number of quick dispatches at its last look, and a bit for each
    /// policy that was asked since the look before.
    pub(crate) seen_quick: AtomicU64,
    pub(crate) seen_asked: AtomicU32,
    /// The handle of the current task, and its CPU time that has been charged, ns (`share.rs`).
    pub(crate) charged_task: AtomicU64,
    pub(crate) charged: AtomicU64,
    /// The CPU time that this CPU owes to each policy, by place in the table, ns (`share.rs`).
    pub(crate) owed: [AtomicI64; BATON_MAX_POLICIES],
    events: [Event; EVENTS_KEPT],
    /// Dispatches.
    pub dispatches: Counter,
    /// Tasks picked by policies.
    pub picks: Counter,
    /// Tasks enqueued with policies.
    pub enqueues: Counter,
    /// Tasks inserted directly on a CPU by select.
    pub directs: Counter,
    /// Answers refused.
    pub refusals: Counter,
    /// Tasks that went to the fallback.
    pub fallbacks: Counter,
    /// Timer calls.
    pub timers: Counter,
}

impl CpuState {
    /// Notes a call. `tag` is the task's thread id in the high half, and the policy's place in the
    /// table.
    #[inline]
    pub(crate) fn note(&self, now: u64, tag: u64, method: BatonMethod) {
        let next = self.next_event.load(Relaxed);
        let event = &self.events[next as usize % EVENTS_KEPT];
        event.now.store(now, Relaxed);
        event.what.store(tag | (method as u64) << 8, Relaxed);
        self.next_event.store(next.wrapping_add(1), Relaxed);
    }

    /// The call noted `back` calls ago (0 is the last): the policy's place in the table, and the
    /// event.
    pub fn event(&self, back: usize) -> (u32, BatonEvent) {
        let next = self.next_event.load(Relaxed) as usize;
        let event = &self.events[next.wrapping_sub(1).wrapping_sub(back) % EVENTS_KEPT];
        let what = event.what.load(Relaxed);
        let method = (what >> 8) as u32 & 0xff;
        (
            what as u32 & 0xff,
            BatonEvent {
                now: event.now.load(Relaxed),
                method,
                pid: (what >> 32) as u32,
            },
        )
    }

    /// Its number.
    #[inline]
    pub fn number(&self) -> i32 {
        self.number.load(Relaxed) as i32
    }

    pub(crate) fn set_number(&self, number: u32) {
        self.number.store(number, Relaxed);
    }

    /// Is it idle and not claimed?
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.idle.load(Relaxed) != 0
    }

    /// Is it idle, claimed or not?
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Relaxed) != 0
    }

    /// The partition that it is in; [`crate::FREE`] for none.
    pub fn partition(&self) -> u32 {
        self.partition.load(Relaxed)
    }

    /// Is it online?
    pub fn is_online(&self) -> bool {
        self.online.load(Relaxed) != 0
    }
}
