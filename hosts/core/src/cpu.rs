// SPDX-License-Identifier: GPL-2.0-only
//! A CPU, as the core knows it.

use baton_abi::{BatonEvent, BatonMethod, BATON_MAX_POLICIES};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Calls remembered per CPU, for fault reports. A power of two.
pub const EVENTS_KEPT: usize = 16;

/// A counter that one CPU writes and anyone reads.
#[derive(Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more. Not a locked operation: only the CPU's own events come here.
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
    /// Thread id in the high half, method, then the policy's place in the table.
    what: AtomicU64,
}

/// State of one CPU, written by that CPU; `idle` also by those who claim it.
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
    /// Place of the policy whose task runs here, as of the last time that several were asked; 16
    /// and 17 for nobody's (`order.rs`).
    pub(crate) current: AtomicU32,
    /// Number of the partition that it is in; 0 for none.
    pub(crate) partition: AtomicU32,
    /// The one that it was in before the change that is being told of.
    pub(crate) was_in: AtomicU32,
    /// 1 when what runs here was asked for out of order (`share.rs`).
    pub(crate) by_right: AtomicU32,
    /// When the fallback's turn here ends, and when its next begins, ns (`fallback.rs`).
    pub(crate) turn_ends: AtomicU64,
    pub(crate) next_turn: AtomicU64,
    /// When each policy was last asked here, or had a task running at a tick, by place in the
    /// table, ns; but for what `quick` counts (`stall.rs`).
    pub(crate) asked: [AtomicU64; BATON_MAX_POLICIES],
    /// Of the dispatches, those in which it was not clear at once that the only policy is to be
    /// asked.
    pub(crate) slow: Counter,
    /// What the watch has seen: the number of quick dispatches, and a bit for each policy that was
    /// asked since the look before.
    pub(crate) seen_quick: AtomicU64,
    pub(crate) seen_asked: AtomicU32,
    /// The handle of the task that runs here, and how much of its CPU time is accounted for, ns
    /// (`share.rs`).
    pub(crate) charged_task: AtomicU64,
    pub(crate) charged: AtomicU64,
    /// By place in the table: how far this CPU is behind the policy's share, ns (`share.rs`).
    pub(crate) owed: [AtomicI64; BATON_MAX_POLICIES],
    events: [Event; EVENTS_KEPT],
    /// Calls to dispatch.
    pub dispatches: Counter,
    /// Tasks of policies picked.
    pub picks: Counter,
    /// Tasks taken over by policies.
    pub enqueues: Counter,
    /// Tasks handed straight to an idle CPU.
    pub directs: Counter,
    /// Answers refused.
    pub refusals: Counter,
    /// Tasks that went to the fallback.
    pub fallbacks: Counter,
    /// Timer calls.
    pub timers: Counter,
}

impl CpuState {
    /// Remembers a call; `tag` is the task's thread id in the high half, and the policy's place in
    /// the table.
    #[inline]
    pub(crate) fn note(&self, now: u64, tag: u64, method: BatonMethod) {
        let next = self.next_event.load(Relaxed);
        let event = &self.events[next as usize % EVENTS_KEPT];
        event.now.store(now, Relaxed);
        event.what.store(tag | (method as u64) << 8, Relaxed);
        self.next_event.store(next.wrapping_add(1), Relaxed);
    }

    /// The call remembered `back` calls ago (0 is the last): the policy's place in the table, and
    /// the event.
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

    /// Is it idle, and claimed by nobody?
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
