// SPDX-License-Identifier: GPL-2.0-only
//! First in, first out.

use core::sync::atomic::Ordering::Relaxed;

use super::{chain::Chain, Queued};
use crate::Schedulable;
use alloc::sync::Arc;
use baton_seam::{Links, NIL};

/// A queue in the order of arrival, created by [`Env::fifo`](crate::Env::fifo). See the
/// [module](super) for the common properties of run queues.
pub struct Fifo(Chain);

impl Fifo {
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

    /// Puts a task at the end.
    #[inline]
    pub fn push_back(&mut self, task: Schedulable) -> Queued {
        let Some(slot) = self.0.parking.park(task) else {
            return Queued::Merged;
        };
        self.0.join(slot, self.0.tail, NIL);
        Queued::New
    }

    /// Puts a task at the front.
    #[inline]
    pub fn push_front(&mut self, task: Schedulable) -> Queued {
        let Some(slot) = self.0.parking.park(task) else {
            return Queued::Merged;
        };
        self.0.join(slot, NIL, self.0.head);
        Queued::New
    }

    /// Takes the first task.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Schedulable> {
        self.0.pop_front()
    }

    /// Generation of a task in the queue.
    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.0.parking.generation(slot)
    }

    /// Restores a task of a saved queue at the end. False when the slot does not exist or is in
    /// use.
    pub(crate) fn restore(&mut self, _: u64, slot: u32, generation: u32) -> bool {
        let fits = self.0.parking.restore(slot, generation);
        if fits {
            self.0.join(slot, self.0.tail, NIL);
        }
        fits
    }

    /// Slot of the first task.
    #[inline]
    pub fn front(&self) -> Option<u32> {
        self.0.front()
    }

    /// Removes the task in that slot from any position; `None` when it is not in this queue.
    #[inline]
    pub fn remove(&mut self, slot: u32) -> Option<Schedulable> {
        self.0.remove(slot)
    }

    /// Is the task in that slot in this queue?
    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        self.0.parking.has(slot)
    }

    /// Takes the first task for whose slot `fits` returns true. O(n) in the number of tasks
    /// checked.
    #[inline]
    pub fn pop_where(&mut self, mut fits: impl FnMut(u32) -> bool) -> Option<Schedulable> {
        let slot = self.iter().find(|&slot| fits(slot))?;
        self.remove(slot)
    }

    /// Slot of the task behind the one in that slot; `None` behind the last, and when the task is
    /// not in this queue.
    #[inline]
    pub fn after(&self, slot: u32) -> Option<u32> {
        if !self.contains(slot) {
            return None;
        }
        let next = self.0.link(slot).a.load(Relaxed);
        (next != NIL).then_some(next)
    }

    /// The slots of all tasks, first to last.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter()
    }
}

impl core::fmt::Debug for Fifo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
