// SPDX-License-Identifier: GPL-2.0-only
//! Rescue of tasks that are queued with a policy that is stopped, has no CPU for them, or no longer
//! has their token. Each CPU's dispatch looks at a few slots and moves the tasks that it finds to
//! the fallback queue, until all slots have been seen. There is no list of a policy's tasks for
//! this, as it would cost every enqueue.

use crate::{Core, Host, PolicyEntry, Slot};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The most slots that one step looks at. A dispatch takes up to 15 steps (`shim.bpf.c`), so it can
/// look at 30,720 slots. The default of `max_tasks` is 32,768.
const STEP: u32 = 2048;

impl<'a, H: Host> Core<'a, H> {
    /// Makes the next dispatches look at all slots, from the last to the first. Called when tasks
    /// may be stranded: a policy has stopped, partitions have changed, or a policy has given up a
    /// task.
    pub(crate) fn rescue_all(&self) {
        self.to_rescue.store(self.used().len() as u32, SeqCst);
    }

    /// Are there slots to look at?
    #[inline]
    pub fn rescue_pending(&self) -> bool {
        self.to_rescue.load(Relaxed) != 0
    }

    /// Returns the next stranded task, and the token with which it was queued. The caller must put
    /// the task on the fallback queue, then call [`Core::is_rescued`], and take the task off again
    /// if that returns false. `None` if this step found no task. Another step is needed while
    /// `rescue_pending` is true.
    pub fn rescue_one(&self) -> Option<(&'a Slot, u64)> {
        for _ in 0..STEP {
            // A concurrent `rescue_all` restarts the count. Then the exchange fails, and the walk
            // continues from the new count.
            let left = self.to_rescue.load(SeqCst);
            let index = left.checked_sub(1)?;
            if self
                .to_rescue
                .compare_exchange(left, index, SeqCst, Relaxed)
                .is_err()
            {
                continue;
            }
            let Some(slot) = self.slots.get(index as usize) else {
                continue;
            };
            if let Some(token) = self.rescue(slot) {
                return Some((slot, token));
            }
        }
        None
    }

    /// Takes a queued task from a policy that is no longer running, has lost all CPUs that the task
    /// may use, or has given it up.
    fn rescue(&self, slot: &Slot) -> Option<u64> {
        let token = slot
            .token()
            .filter(|&token| self.is_stranded(slot, token))?;
        // Count the task first: once it is in the fallback, another CPU can take it and decrement
        // the count.
        self.fallback.fetch_add(1, Relaxed);
        if !slot.rescue(token) {
            self.fallback.fetch_sub(1, Relaxed);
            return None;
        }
        if self.is_partitioned() && !self.may_run_apart(slot) {
            self.begin_relief();
        }
        Some(token)
    }

    /// Is the task still as [`Core::rescue_one`] left it? The host asks this after it has inserted
    /// the task, because the task may have been enqueued again since, and the insertion would then
    /// apply to that enqueue. If the core saw the new enqueue before this check, the enqueue has
    /// decided where the task goes. If the core sees it afterwards, the insertion and the enqueue
    /// both put the task on the fallback queue.
    pub fn is_rescued(&self, token: u64) -> bool {
        self.by_token(token)
            .is_some_and(|slot| slot.is_rescued_with(token))
    }

    /// After a refused pick: if the task may now run on none of its policy's CPUs, leaves it to the
    /// rescue and returns true. The policy does not get the task back, because it could place it
    /// nowhere. This happens to a partition's task that is on the run queue of a CPU outside the
    /// partition while its migration is disabled. A BPF program that runs in the task's context is
    /// enough to disable it. Called in a dispatch.
    pub(crate) fn gives_up(&self, policy: &PolicyEntry, token: u64) -> bool {
        let slot = self
            .by_token(token)
            .filter(|slot| self.is_partitioned() && !self.has_room(slot, policy));
        if let Some(slot) = slot {
            slot.given_up.store(token, Relaxed);
            self.rescue_all();
        }
        slot.is_some()
    }

    /// After a pick that the host could not carry out because the task's migration had been
    /// disabled meanwhile: leaves the task to the rescue. Has no effect if the task has been
    /// enqueued since. Called in a dispatch.
    pub fn pick_failed(&self, token: u64) {
        if let Some(slot) = self.by_token(token) {
            slot.given_up.store(token, Relaxed);
            if slot.unpick(token) {
                self.rescue_all();
            }
        }
    }

    fn is_stranded(&self, slot: &Slot, token: u64) -> bool {
        if slot.given_up.load(Relaxed) == token {
            return true;
        }
        match self
            .by_id(slot.policy())
            .filter(|policy| policy.is_running())
        {
            Some(policy) => !self.has_room(slot, policy),
            None => true,
        }
    }

    /// Calls `rescue_all` again if any task is stranded, and returns whether one is. An earlier
    /// walk misses a task that is enqueued after the walk has passed its slot. Also kicks all CPUs
    /// if any idles while tasks are in the fallback: a CPU that goes offline sends its kicks before
    /// the host has put its tasks there.
    pub fn rescue_stranded(&self) -> bool {
        let is_stranded = |slot: &Slot| {
            slot.token()
                .is_some_and(|token| self.is_stranded(slot, token))
        };
        let stranded = self.used().iter().any(is_stranded);
        if stranded {
            self.rescue_all();
        }
        if stranded || (self.fallback.load(Relaxed) != 0 && self.is_any_idle()) {
            self.host.kick_all();
        }
        stranded
    }
}
