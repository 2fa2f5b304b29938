// SPDX-License-Identifier: GPL-2.0-only
//! A list ordered by key.

use super::{before, chain::Chain, Queued};
use crate::Schedulable;
use alloc::sync::Arc;
use baton_seam::{Links, NIL};
use core::sync::atomic::Ordering::Relaxed;

/// A list ordered by key, for short queues and for keys that mostly grow: insertion searches from
/// the end. Created by [`Env::list`](crate::Env::list). See the [module](super) for the common
/// properties of run queues and the order of keys.
pub struct List(Chain);

impl List {
    pub(crate) fn new(links: Arc<Links>) -> Self {
        Self(Chain::new(links))
    }

    /// How many tasks wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.parking.len()
    }

    /// True when no task waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.head == NIL
    }

    /// Inserts a task behind all tasks with an equal or smaller key. O(n) in the number of larger
    /// keys.
    #[inline]
    pub fn insert(&mut self, key: u64, task: Schedulable) -> Queued {
        let Some(slot) = self.0.parking.park(task) else {
            return Queued::Merged;
        };
        let links = self.0.parking.links();
        links[slot as usize].key.store(key, Relaxed);
        let (mut prev, mut next) = (self.0.tail, NIL);
        while prev != NIL && before(key, links[prev as usize].key.load(Relaxed)) {
            next = prev;
            prev = links[prev as usize].b.load(Relaxed);
        }
        self.0.join(slot, prev, next);
        Queued::New
    }

    /// Generation of a task in the list.
    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.0.parking.generation(slot)
    }

    /// Restores a task of a saved list at the end. False when the slot does not exist or is in use.
    pub(crate) fn restore(&mut self, key: u64, slot: u32, generation: u32) -> bool {
        let fits = self.0.parking.restore(slot, generation);
        if fits {
            self.0.link(slot).key.store(key, Relaxed);
            self.0.join(slot, self.0.tail, NIL);
        }
        fits
    }

    /// Key and slot of the first task.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        self.0.front().map(|slot| (self.key(slot), slot))
    }

    /// Takes the first task, with its key.
    #[inline]
    pub fn pop_first(&mut self) -> Option<(u64, Schedulable)> {
        let (key, _) = self.first()?;
        self.0.pop_front().map(|task| (key, task))
    }

    /// Removes the task in that slot from any position; `None` when it is not in this list.
    #[inline]
    pub fn remove(&mut self, slot: u32) -> Option<(u64, Schedulable)> {
        let task = self.0.remove(slot)?;
        Some((self.key(slot), task))
    }

    /// Is the task in that slot in this list?
    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        self.0.parking.has(slot)
    }

    /// Takes the first task for whose slot `fits` returns true. O(n) in the number of tasks
    /// checked.
    #[inline]
    pub fn pop_where(&mut self, mut fits: impl FnMut(u32) -> bool) -> Option<(u64, Schedulable)> {
        let slot = self.0.iter().find(|&slot| fits(slot))?;
        self.remove(slot)
    }

    /// Keys and slots of all tasks, first to last.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.0.iter().map(|slot| (self.key(slot), slot))
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        self.0.link(slot).key.load(Relaxed)
    }
}

impl core::fmt::Debug for List {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
