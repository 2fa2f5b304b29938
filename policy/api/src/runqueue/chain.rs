// SPDX-License-Identifier: GPL-2.0-only
//! A doubly linked list over [`Parking`], shared by [`super::Fifo`] and [`super::List`].
//!
//! In a link, `a` is the next slot and `b` the previous one. They are [`NIL`] at the ends.

use crate::Schedulable;
use alloc::sync::Arc;
use baton_seam::{Link, Links, Parking, NIL};
use core::sync::atomic::Ordering::Relaxed;

#[derive(Debug)]
pub(super) struct Chain {
    pub parking: Parking,
    pub head: u32,
    pub tail: u32,
}

impl Chain {
    pub fn new(links: Arc<Links>) -> Self {
        Self {
            parking: Parking::new(links),
            head: NIL,
            tail: NIL,
        }
    }

    /// The first slot.
    #[inline]
    pub fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    /// The link of a slot that is in the chain.
    #[inline]
    pub fn link(&self, slot: u32) -> &Link {
        &self.parking.links()[slot as usize]
    }

    /// Links a parked slot between two neighbours. [`NIL`] stands for an end.
    #[inline]
    pub fn join(&mut self, slot: u32, before: u32, after: u32) {
        let links = self.parking.links();
        let link = &links[slot as usize];
        link.b.store(before, Relaxed);
        link.a.store(after, Relaxed);
        if before == NIL {
            self.head = slot;
        } else {
            links[before as usize].a.store(slot, Relaxed);
        }
        if after == NIL {
            self.tail = slot;
        } else {
            links[after as usize].b.store(slot, Relaxed);
        }
    }

    /// Takes the first slot.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Schedulable> {
        let slot = self.head;
        if slot == NIL {
            return None;
        }
        let links = self.parking.links();
        let next = links[slot as usize].a.load(Relaxed);
        self.head = next;
        if next == NIL {
            self.tail = NIL;
        } else {
            links[next as usize].b.store(NIL, Relaxed);
        }
        self.parking.unpark(slot)
    }

    /// Removes a slot from any position.
    #[inline]
    pub fn remove(&mut self, slot: u32) -> Option<Schedulable> {
        if !self.parking.has(slot) {
            return None;
        }
        // Unlink first: once unparked, the link may belong to another queue.
        let links = self.parking.links();
        let link = &links[slot as usize];
        let (next, prev) = (link.a.load(Relaxed), link.b.load(Relaxed));
        if prev == NIL {
            self.head = next;
        } else {
            links[prev as usize].a.store(next, Relaxed);
        }
        if next == NIL {
            self.tail = prev;
        } else {
            links[next as usize].b.store(prev, Relaxed);
        }
        self.parking.unpark(slot)
    }

    /// The slots in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let links = self.parking.links();
        let mut next = self.head;
        core::iter::from_fn(move || {
            let slot = next;
            if slot == NIL {
                return None;
            }
            next = links[slot as usize].a.load(Relaxed);
            Some(slot)
        })
    }
}
