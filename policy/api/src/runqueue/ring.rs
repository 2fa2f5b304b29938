// SPDX-License-Identifier: GPL-2.0-only
//! The order of a [`super::Tree`] with few tasks: a sorted list, which is cheaper than balancing.
//!
//! In a link, `a` is the next slot, or [`NIL`] at the end. `b` is the previous slot; that of the
//! first slot is the last slot.

use super::before;
use baton_seam::{Link, NIL};
use core::sync::atomic::Ordering::Relaxed;

/// A list during one operation.
pub(super) struct Ring<'a> {
    pub links: &'a [Link],
    /// [`NIL`] if the list is empty.
    pub first: u32,
}

impl Ring<'_> {
    #[inline]
    fn link(&self, slot: u32) -> &Link {
        &self.links[slot as usize]
    }

    #[inline]
    pub fn key(&self, slot: u32) -> u64 {
        self.link(slot).key.load(Relaxed)
    }

    /// The next slot in order, or [`NIL`].
    #[inline]
    pub fn after(&self, slot: u32) -> u32 {
        self.link(slot).a.load(Relaxed)
    }

    /// Makes a slot the only one in the list.
    #[inline]
    pub fn begin(&mut self, key: u64, slot: u32) {
        let link = self.link(slot);
        link.key.store(key, Relaxed);
        link.a.store(NIL, Relaxed);
        link.b.store(slot, Relaxed);
        self.first = slot;
    }

    /// Inserts `slot` behind all slots with an equal or smaller key. The list must not be empty.
    #[inline]
    pub fn put(&mut self, key: u64, slot: u32) {
        self.link(slot).key.store(key, Relaxed);
        let first = self.link(self.first);
        let last = first.b.load(Relaxed);
        let mut place = last;
        while before(key, self.key(place)) {
            if place == self.first {
                // Before all others.
                let link = self.link(slot);
                link.a.store(self.first, Relaxed);
                link.b.store(last, Relaxed);
                first.b.store(slot, Relaxed);
                self.first = slot;
                return;
            }
            place = self.link(place).b.load(Relaxed);
        }
        let next = self.after(place);
        let link = self.link(slot);
        link.a.store(next, Relaxed);
        link.b.store(place, Relaxed);
        self.link(place).a.store(slot, Relaxed);
        let behind = if next == NIL { first } else { self.link(next) };
        behind.b.store(slot, Relaxed);
    }

    /// Removes a slot.
    #[inline]
    pub fn cut(&mut self, slot: u32) {
        let link = self.link(slot);
        let (next, prev) = (link.a.load(Relaxed), link.b.load(Relaxed));
        if slot == self.first {
            self.first = next;
        } else {
            self.link(prev).a.store(next, Relaxed);
        }
        let behind = if next == NIL { self.first } else { next };
        if behind != NIL {
            self.link(behind).b.store(prev, Relaxed);
        }
    }
}
