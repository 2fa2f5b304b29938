// SPDX-License-Identifier: GPL-2.0-only
//! One link per task slot, shared by all run queues of a policy.
//!
//! A task has at most one `Schedulable`, so at any time its link belongs to at most one queue. A
//! queue therefore needs no memory of its own per task, and inserting a task never allocates (the
//! kernel's run queues are intrusive for the same reason). The fields are relaxed atomics, which
//! compile to plain moves: only the queue that owns a link writes it, under the lock that guards
//! the queue.

use crate::Schedulable;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::num::NonZeroU32;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// "No link": an index that no slot has. It fits into 31 bits, so a queue can store a flag beside
/// an index.
pub const NIL: u32 = u32::MAX >> 1;

/// A slot's place in a queue. The queue defines the meaning of `a`, `b`, `c` and `key`.
#[derive(Debug)]
pub struct Link {
    /// Number of the [`Parking`] that holds the slot's `Schedulable` (high half), and its
    /// generation (low half); 0 when it is not parked. Changed by compare-exchange only, as two
    /// queues under two locks may try to take the link at once. The queue that holds the link owns
    /// the fields below. Private, because the soundness of unparking depends on it.
    parked: AtomicU64,
    pub a: AtomicU32,
    pub b: AtomicU32,
    pub c: AtomicU32,
    pub key: AtomicU64,
}

/// The links of one policy.
#[derive(Debug)]
pub struct Links {
    links: Box<[Link]>,
    next_number: AtomicU32,
}

impl Links {
    /// Links for slots `0..max_tasks`. Allocates 32 bytes for each. Panics when there are more than
    /// 2^31 - 1.
    pub fn new(max_tasks: u32) -> Self {
        assert!(max_tasks <= NIL, "the host has too many task slots");
        let mut links = Vec::with_capacity(max_tasks as usize);
        links.resize_with(max_tasks as usize, || Link {
            parked: AtomicU64::new(0),
            a: AtomicU32::new(NIL),
            b: AtomicU32::new(NIL),
            c: AtomicU32::new(NIL),
            key: AtomicU64::new(0),
        });
        Self {
            links: links.into_boxed_slice(),
            next_number: AtomicU32::new(1),
        }
    }
}

/// The `Schedulable`s of one queue.
#[derive(Debug)]
pub struct Parking {
    links: Arc<Links>,
    /// Unique among the parkings of `links`.
    number: u32,
    len: u32,
}

impl Parking {
    /// Creates an empty parking. Panics after 2^32 - 2 of them.
    pub fn new(links: Arc<Links>) -> Self {
        let number = links
            .next_number
            .fetch_update(Relaxed, Relaxed, |n| n.checked_add(1));
        Self {
            links,
            number: number.expect("too many run queues"),
            len: 0,
        }
    }

    /// The links, by slot.
    #[inline]
    pub fn links(&self) -> &[Link] {
        &self.links.links
    }

    /// Number of parked `Schedulable`s.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when no `Schedulable` is parked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Parks a `Schedulable` and returns its slot, which the queue must now put in order. Returns
    /// `None` when another `Schedulable` of the same task is parked, here or in another queue. The
    /// newer of the two then has its place, and the older is dropped. No task is lost, as the host
    /// accepts the newest only. This happens when a refused `Schedulable` is put back while the
    /// task is enqueued again.
    ///
    /// Panics when the slot does not belong to this policy's host.
    #[inline]
    pub fn park(&mut self, task: Schedulable) -> Option<u32> {
        let slot = task.slot();
        let link = &self.links.links[slot as usize];
        let word = u64::from(self.number) << 32 | u64::from(task.generation());
        if link
            .parked
            .compare_exchange(0, word, AcqRel, Relaxed)
            .is_err()
        {
            return self.park_again(task);
        }
        core::mem::forget(task);
        // Cannot wrap: there are fewer slots than 2^31.
        self.len = self.len.wrapping_add(1);
        Some(slot)
    }

    #[cold]
    #[inline(never)]
    fn park_again(&mut self, task: Schedulable) -> Option<u32> {
        let (slot, generation) = (task.slot(), task.generation());
        let link = &self.links.links[slot as usize];
        loop {
            let old = link.parked.load(Acquire);
            // A free link becomes this queue's. The link of another queue keeps that queue's
            // number, as the slot is in its order.
            let number = if old == 0 {
                u64::from(self.number)
            } else {
                old >> 32
            };
            if old != 0 && (generation.wrapping_sub(old as u32) as i32) < 0 {
                drop(task);
                return None;
            }
            if link
                .parked
                .compare_exchange(old, number << 32 | u64::from(generation), AcqRel, Relaxed)
                .is_err()
            {
                continue;
            }
            core::mem::forget(task);
            if old == 0 {
                self.len = self.len.wrapping_add(1);
                return Some(slot);
            }
            // SAFETY: One-baton. The word held the `Schedulable` of this generation until the
            // exchange.
            drop(
                NonZeroU32::new(old as u32)
                    .map(|old| unsafe { Schedulable::from_parts(slot, old) }),
            );
            return None;
        }
    }

    /// Generation of the slot's `Schedulable`, which must be parked here.
    pub fn generation(&self, slot: u32) -> u32 {
        self.links
            .links
            .get(slot as usize)
            .map_or(0, |link| link.parked.load(Relaxed) as u32)
    }

    /// Parks the `Schedulable` of a saved queue, of which no other exists (One-baton: the host
    /// loads a saved state once, and hands out none of its tokens otherwise). False when the slot
    /// does not exist, its link is in use, or the generation is 0.
    pub fn restore(&mut self, slot: u32, generation: u32) -> bool {
        let Some(link) = self
            .links
            .links
            .get(slot as usize)
            .filter(|_| generation != 0)
        else {
            return false;
        };
        let word = u64::from(self.number) << 32 | u64::from(generation);
        let fits = link
            .parked
            .compare_exchange(0, word, AcqRel, Relaxed)
            .is_ok();
        self.len = self.len.wrapping_add(fits.into());
        fits
    }

    /// True when the slot's `Schedulable` is parked here.
    #[inline]
    pub fn has(&self, slot: u32) -> bool {
        self.links
            .links
            .get(slot as usize)
            .is_some_and(|link| link.parked.load(Relaxed) >> 32 == u64::from(self.number))
    }

    /// Returns the slot's `Schedulable`; `None` when it is not parked here.
    #[inline]
    pub fn unpark(&mut self, slot: u32) -> Option<Schedulable> {
        let link = self.links.links.get(slot as usize)?;
        let mut parked = link.parked.load(Relaxed);
        loop {
            // A free link belongs to no queue: numbers begin at 1.
            if parked >> 32 != u64::from(self.number) {
                return None;
            }
            // The generation may change meanwhile (`park_again`); the number does not.
            match link.parked.compare_exchange(parked, 0, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => parked = now,
            }
        }
        self.len = self.len.wrapping_sub(1);
        let generation = NonZeroU32::new(parked as u32)?;
        // SAFETY: One-baton. This word was stored by `park`, which consumed the one Schedulable of
        // that value; the exchange took it out before another can be made.
        Some(unsafe { Schedulable::from_parts(slot, generation) })
    }
}

impl Drop for Parking {
    /// Drops all parked `Schedulable`s, as any collection does, and the host notices the lost
    /// tasks. This checks every link and does not follow the queue's order, which an abandoned call
    /// may have left inconsistent.
    fn drop(&mut self) {
        let slots = self.links.links.len() as u32;
        for slot in 0..slots {
            if self.is_empty() {
                return;
            }
            drop(self.unpark(slot));
        }
    }
}
