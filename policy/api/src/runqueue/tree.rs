// SPDX-License-Identifier: GPL-2.0-only
//! A run queue ordered by key: a red-black tree, or a list while it has few tasks.

use super::{nodes::Nodes, ring::Ring, Queued};
use crate::Schedulable;
use alloc::sync::Arc;
use baton_seam::{Links, Parking, NIL};

/// Maximum number of tasks of the list. One more task turns it into a tree, which remains until one
/// task is left.
const FEW: usize = 8;

/// A red-black tree ordered by key, which caches its first task (like the kernel's
/// `rb_root_cached`). Created by [`Env::tree`](crate::Env::tree). See the [module](super) for the
/// common properties of run queues and the order of keys.
pub struct Tree {
    parking: Parking,
    /// [`NIL`] while it is a list.
    root: u32,
    first: u32,
}

impl Tree {
    pub(crate) fn new(links: Arc<Links>) -> Self {
        Self {
            parking: Parking::new(links),
            root: NIL,
            first: NIL,
        }
    }

    /// How many tasks wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.parking.len()
    }

    /// True when no task waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == NIL
    }

    /// Inserts a task behind all tasks with an equal or smaller key. O(log n).
    // Every wakeup comes here, and a function call would cost 35 instructions.
    #[inline(always)]
    pub fn insert(&mut self, key: u64, task: Schedulable) -> Queued {
        let Some(slot) = self.parking.park(task) else {
            return Queued::Merged;
        };
        self.put(key, slot);
        Queued::New
    }

    /// Puts a parked slot in order.
    #[inline(always)]
    fn put(&mut self, key: u64, slot: u32) {
        if self.first == NIL {
            self.ring().begin(key, slot);
            self.first = slot;
        } else {
            self.put_beside(key, slot);
        }
    }

    fn put_beside(&mut self, key: u64, slot: u32) {
        if self.root != NIL {
            return self.put_in_tree(key, slot);
        }
        let mut ring = self.ring();
        ring.put(key, slot);
        self.first = ring.first;
        if self.len() > FEW {
            self.become_tree();
        }
    }

    fn put_in_tree(&mut self, key: u64, slot: u32) {
        let mut nodes = self.nodes();
        let is_first = nodes.put(key, slot);
        self.root = nodes.root;
        if is_first {
            self.first = slot;
        }
    }

    #[cold]
    fn become_tree(&mut self) {
        let ring = self.ring();
        let mut nodes = self.nodes();
        let mut slot = self.first;
        while slot != NIL {
            // Putting it into the tree overwrites its link.
            let next = ring.after(slot);
            nodes.put(ring.key(slot), slot);
            slot = next;
        }
        self.root = nodes.root;
    }

    /// Generation of a task in the tree.
    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.parking.generation(slot)
    }

    /// Restores a task of a saved tree. False when the slot does not exist or is in use.
    pub(crate) fn restore(&mut self, key: u64, slot: u32, generation: u32) -> bool {
        let fits = self.parking.restore(slot, generation);
        if fits {
            self.put(key, slot);
        }
        fits
    }

    /// Key and slot of the first task. O(1).
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        (self.first != NIL).then(|| (self.ring().key(self.first), self.first))
    }

    /// Takes the first task, with its key.
    #[inline]
    pub fn pop_first(&mut self) -> Option<(u64, Schedulable)> {
        match self.first {
            NIL => None,
            slot => self.take(slot),
        }
    }

    /// Removes the task in that slot from any position; `None` when it is not in this tree. In
    /// O(log n).
    #[inline]
    pub fn remove(&mut self, slot: u32) -> Option<(u64, Schedulable)> {
        if !self.parking.has(slot) {
            return None;
        }
        self.take(slot)
    }

    /// Takes a task that is in the tree.
    #[inline]
    fn take(&mut self, slot: u32) -> Option<(u64, Schedulable)> {
        if self.len() > 1 {
            return self.take_one_of_several(slot);
        }
        self.first = NIL;
        Some((self.ring().key(slot), self.parking.unpark(slot)?))
    }

    fn take_one_of_several(&mut self, slot: u32) -> Option<(u64, Schedulable)> {
        // Unlink first: once unparked, the link may belong to another queue.
        let mut ring = self.ring();
        let key = ring.key(slot);
        if self.root == NIL {
            ring.cut(slot);
            self.first = ring.first;
        } else {
            self.cut_from_tree(slot);
        }
        Some((key, self.parking.unpark(slot)?))
    }

    fn cut_from_tree(&mut self, slot: u32) {
        let mut nodes = self.nodes();
        let first = if slot == self.first {
            nodes.after(slot)
        } else {
            self.first
        };
        nodes.cut(slot);
        self.root = nodes.root;
        self.first = first;
        // The length still includes the slot that is being taken.
        if self.len() == 2 {
            let mut ring = self.ring();
            ring.begin(ring.key(first), first);
            self.root = NIL;
        }
    }

    /// Is the task in that slot in this tree?
    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        self.parking.has(slot)
    }

    /// Takes the first task for whose slot `fits` returns true. O(n) in the number of tasks
    /// checked.
    #[inline]
    pub fn pop_where(&mut self, mut fits: impl FnMut(u32) -> bool) -> Option<(u64, Schedulable)> {
        let (_, slot) = self.iter().find(|&(_, slot)| fits(slot))?;
        self.remove(slot)
    }

    /// Key and slot of the task behind the one in that slot; `None` behind the last, and when the
    /// task is not in this tree. O(log n), and O(1) on average over a walk through all.
    #[inline]
    pub fn after(&self, slot: u32) -> Option<(u64, u32)> {
        self.contains(slot).then(|| self.next_of(slot)).flatten()
    }

    /// The same for a slot that is in this tree.
    #[inline]
    fn next_of(&self, slot: u32) -> Option<(u64, u32)> {
        let next = match self.root {
            NIL => self.ring().after(slot),
            _ => self.nodes().after(slot),
        };
        (next != NIL).then(|| (self.ring().key(next), next))
    }

    /// Keys and slots of all tasks, first to last.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        core::iter::successors(self.first(), |&(_, slot)| self.next_of(slot))
    }

    #[inline]
    fn ring(&self) -> Ring<'_> {
        Ring {
            links: self.parking.links(),
            first: self.first,
        }
    }

    #[inline]
    fn nodes(&self) -> Nodes<'_> {
        Nodes {
            links: self.parking.links(),
            root: self.root,
        }
    }
}

impl core::fmt::Debug for Tree {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
