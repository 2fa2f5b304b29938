// SPDX-License-Identifier: GPL-2.0-only
//! One link per task slot, shared by all run queues of a policy.
//!
//! A task has at most one `Schedulable`, so at any time its link belongs to at most one queue: a queue of any kind needs no
//! memory of its own per task, and putting a task into one never allocates (the kernel's run queues are intrusive for the
//! same reason). The fields are relaxed atomics, plain moves on the machine: a link is written only by the queue that owns
//! it, under whatever lock guards that queue.

use crate::Schedulable;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// "No link": an index that no slot has. It fits 31 bits, so that a queue can keep a flag beside an index.
pub const NIL: u32 = u32::MAX >> 1;

/// A slot's place in a queue. What `a`, `b`, `c` and `key` mean is the queue's business.
#[derive(Debug)]
pub struct Link {
    /// Number of the [`Parking`] that parked the slot's `Schedulable` last (high half), and its generation, 0 when it is
    /// parked no more (low half). One word, so that another queue's CPU never sees half a change. Private: it is what makes
    /// unparking sound.
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
    /// Links for slots `0..max_tasks`. Allocates 32 bytes for each. Panics when there are more than 2^31 - 1.
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
        Self { links: links.into_boxed_slice(), next_number: AtomicU32::new(1) }
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
        let number = links.next_number.fetch_update(Relaxed, Relaxed, |n| n.checked_add(1));
        Self { links, number: number.expect("too many run queues"), len: 0 }
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

    /// Takes a `Schedulable` in and returns its slot.
    ///
    /// Panics when the slot is not of this policy's host, or when another `Schedulable` of the same task is parked already:
    /// the policy then kept one that the host had asked for.
    #[inline]
    pub fn park(&mut self, task: Schedulable) -> u32 {
        let slot = task.slot();
        let link = &self.links.links[slot as usize];
        if link.parked.load(Relaxed) as u32 != 0 {
            parked_twice();
        }
        link.parked.store(u64::from(self.number) << 32 | task.into_raw() >> 32, Relaxed);
        // Cannot wrap: there are fewer slots than 2^31.
        self.len = self.len.wrapping_add(1);
        slot
    }

    /// True when the slot's `Schedulable` is parked here.
    #[inline]
    pub fn has(&self, slot: u32) -> bool {
        self.links.links.get(slot as usize).is_some_and(|link| self.generation(link) != 0)
    }

    /// Gives the slot's `Schedulable` back; `None` when it is not parked here.
    #[inline]
    pub fn unpark(&mut self, slot: u32) -> Option<Schedulable> {
        let link = self.links.links.get(slot as usize)?;
        let generation = self.generation(link);
        if generation == 0 {
            return None;
        }
        link.parked.store(u64::from(self.number) << 32, Relaxed);
        self.len = self.len.wrapping_sub(1);
        // SAFETY: One-baton. This word was stored by `park`, which consumed the one Schedulable of that value; it is cleared
        // here before another can be made. A word with this number is read and written through this one `Parking` only
        // (it is not Clone, and numbers are unique among `links`), which is borrowed mutably.
        unsafe { Schedulable::from_raw(generation << 32 | u64::from(slot.wrapping_add(1))) }
    }

    /// Generation of what is parked here for a link; 0 when nothing is.
    #[inline]
    fn generation(&self, link: &Link) -> u64 {
        let parked = link.parked.load(Relaxed);
        // A word of another parking keeps its number in the high half after this.
        let mine = parked ^ u64::from(self.number) << 32;
        if mine >> 32 == 0 {
            mine
        } else {
            0
        }
    }
}

impl Drop for Parking {
    /// Drops what is parked, as any collection does, so that the host notices the lost tasks. It looks at every link
    /// rather than at the queue's order, which a call that was abandoned halfway may have left in disorder.
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

#[cold]
#[inline(never)]
fn parked_twice() -> ! {
    panic!(
        "the task is in a run queue already: an older Schedulable of it was not given back when the host asked for it"
    )
}
