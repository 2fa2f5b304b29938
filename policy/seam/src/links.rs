// SPDX-License-Identifier: GPL-2.0-only
//! One link per task slot, shared by all run queues of a policy.
//!
//! A task has at most one `Schedulable`, so at any time its link belongs to at most one queue: a
//! queue of any kind needs no memory of its own per task, and putting a task into one never
//! allocates (the kernel's run queues are intrusive for the same reason). The fields are relaxed
//! atomics, plain moves on the machine: a link is written only by the queue that owns it, under
//! whatever lock guards that queue.

use crate::Schedulable;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::num::NonZeroU32;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// "No link": an index that no slot has. It fits 31 bits, so that a queue can keep a flag beside an
/// index.
pub const NIL: u32 = u32::MAX >> 1;

/// A slot's place in a queue. What `a`, `b`, `c` and `key` mean is the queue's business.
#[derive(Debug)]
pub struct Link {
    /// Number of the [`Parking`] that has the slot's `Schedulable` (high half), and its generation
    /// (low half); 0 when it is parked nowhere. Changed by exchange only, as two queues under two
    /// locks may want the link at once; whoever has it owns the fields below. Private: it is what
    /// makes unparking sound.
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
    /// An empty one. Panics after 2^32 - 2 of them.
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

    /// How many are parked.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when none is parked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a `Schedulable` in. The slot, which the queue must now put in order; or `None` when
    /// another `Schedulable` of the same task is parked, here or in another queue: then the newer
    /// of the two has its place, and the older is dropped, which is no loss as the host takes the
    /// newest only. That happens when a refused one is put back while the task is enqueued anew.
    ///
    /// Panics when the slot is not of this policy's host.
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
            // A free link is this queue's; another's keeps its number, as the slot is in that one's
            // order.
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
            // SAFETY: One-baton. The word held the one of this generation until the exchange.
            drop(
                NonZeroU32::new(old as u32)
                    .map(|old| unsafe { Schedulable::from_parts(slot, old) }),
            );
            return None;
        }
    }

    /// Generation of the slot's `Schedulable`, which is parked here.
    pub fn generation(&self, slot: u32) -> u32 {
        self.links
            .links
            .get(slot as usize)
            .map_or(0, |link| link.parked.load(Relaxed) as u32)
    }

    /// Parks the `Schedulable` of a queue that was saved, where nobody has another (One-baton: the
    /// host has a saved state loaded once, and gives none of its tokens otherwise). False when
    /// there is no such slot, its link is in use, or the generation is none.
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

    /// Gives the slot's `Schedulable` back; `None` when it is not parked here.
    #[inline]
    pub fn unpark(&mut self, slot: u32) -> Option<Schedulable> {
        let link = self.links.links.get(slot as usize)?;
        let mut parked = link.parked.load(Relaxed);
        loop {
            // A free link is of no queue: numbers begin at 1.
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
    /// Drops what is parked, as any collection does, so that the host notices the lost tasks. It
    /// looks at every link rather than at the queue's order, which a call that was abandoned
    /// halfway may have left in disorder.
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
