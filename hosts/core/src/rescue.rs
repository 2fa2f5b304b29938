// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that are queued with a policy that is stopped, has no CPU for them, or does not have their
//! token any more: each CPU's dispatch looks through a few slots and moves what it finds to the
//! fallback queue, until all slots have been seen. No list of a policy's tasks is kept for this, as
//! it would cost every enqueue.

use crate::{Core, Host, PolicyEntry, Slot};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Slots that one step looks at, at most. A dispatch takes up to 16 steps (`shim.bpf.c`): a core of
/// usual size in one go.
const STEP: u32 = 2048;

impl<'a, H: Host> Core<'a, H> {
    /// Some policy has stopped: have all slots looked through, from the last to the first.
    pub(crate) fn rescue_all(&self) {
        self.to_rescue.store(self.used().len() as u32, SeqCst);
    }

    /// Is there anything to look through?
    #[inline]
    pub fn rescue_pending(&self) -> bool {
        self.to_rescue.load(Relaxed) != 0
    }

    /// The next task that is stranded in a stopped policy, and the token that it was stranded with.
    /// The caller must put it on the fallback queue, and take it from there if it is not
    /// [`Core::is_rescued`] any more then. `None` when none is left, or when this step found none
    /// and another is needed (`rescue_pending`).
    pub fn rescue_one(&self) -> Option<(&'a Slot, u64)> {
        for _ in 0..STEP {
            // A stop that comes meanwhile starts the count again: the swap fails and the walk goes
            // on from there.
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

    /// Takes a queued task from a policy that is not running any more, has lost all CPUs that the
    /// task may use, or has given it up.
    fn rescue(&self, slot: &Slot) -> Option<u64> {
        let token = slot
            .token()
            .filter(|&token| self.is_stranded(slot, token))?;
        // Counted before anyone can take it off the count again.
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

    /// Is the task as [`Core::rescue_one`] left it? To be asked after the insertion, which is for
    /// an enqueue that had begun by then. If the core is told of another one before this, that has
    /// said where the task goes; if after, it goes to the fallback queue by both.
    pub fn is_rescued(&self, token: u64) -> bool {
        self.by_token(token)
            .is_some_and(|slot| slot.is_rescued_with(token))
    }

    /// Of a pick that was refused: whether the task may run on none of its policy's CPUs just now.
    /// Then a rescue takes it, and the policy does not get it back, as it could put it nowhere. So
    /// it is for a task of a partition on the run queue of a CPU outside, whose migration is
    /// disabled, be it only while a BPF program runs in its name. The policy's CPU is in a
    /// dispatch.
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

    /// Of a pick that the host could not carry out, as the task's migration was disabled by then:
    /// gives the task to a rescue. No harm if it has been enqueued since. In a dispatch.
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

    /// Starts another look through the slots if any task is stranded: an enqueue can slip in behind
    /// the first. True if so. And has CPUs look if any idles while someone waits on the fallback
    /// queue: who goes offline sends kicks before the host has put the task there.
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
