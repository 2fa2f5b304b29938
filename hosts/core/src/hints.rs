// SPDX-License-Identifier: GPL-2.0-only
//! Hints: from what an application wrote to a call of its policy. Any context with interrupts off,
//! outside of calls of policies.

use crate::{Arg, Core, CpuState, Host, PolicyEntry, Slot};
use baton_abi::{
    BatonCtx, BatonHint, BatonHintAnswer, BatonMethod, BATON_ABORTED, BATON_HINTS_AT_ONCE,
};
use baton_message::ring::{self, Entry};

/// Hints that were read at one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// All of them.
    pub taken: u32,
    /// Those of them that the policy did not get.
    pub refused: u32,
}

impl<H: Host> Core<'_, H> {
    /// Is the task one whose hints this policy is given now?
    pub fn hears(&self, from: &Slot, policy: &PolicyEntry) -> bool {
        policy.is_running() && from.policy() == policy.id()
    }

    /// Gives a policy what is in the ring of one of its tasks, [`BATON_HINTS_AT_ONCE`] at most.
    /// `place` is the reader's place, which nobody else changes meanwhile. What is in `entries` is
    /// not to be relied on, now or later. `thread_of` gives the handle of the thread with an id, 0
    /// for one that the sender may not name. Hints stay in the ring while the sender is none of the
    /// policy's tasks.
    pub fn drain(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        from: &Slot,
        policy: &PolicyEntry,
        (entries, place): (&[Entry], &mut u64),
        thread_of: impl Fn(u32) -> u64,
    ) -> Drained {
        let mut drained = Drained::default();
        while drained.taken < BATON_HINTS_AT_ONCE && self.hears(from, policy) {
            let Some(hint) = ring::take(entries, place) else {
                break;
            };
            drained.taken = drained.taken.wrapping_add(1);
            if self.hint(frame, cpu, ctx, from, policy, &hint, &thread_of) != BatonHintAnswer::Taken
            {
                drained.refused = drained.refused.wrapping_add(1);
            }
        }
        drained
    }

    /// Gives a policy one hint, with arguments as [`Core::drain`] has them.
    pub fn hint(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        from: &Slot,
        policy: &PolicyEntry,
        hint: &BatonHint,
        thread_of: impl Fn(u32) -> u64,
    ) -> BatonHintAnswer {
        if !policy.is_running() {
            return BatonHintAnswer::Stopped;
        }
        if from.policy() != policy.id() {
            return BatonHintAnswer::NotMember;
        }
        let mut hint = *hint;
        if hint.thread != 0 {
            let thread = self
                .by_handle(thread_of(hint.thread))
                .filter(|slot| slot.policy() == policy.id());
            let Some(thread) = thread else {
                return BatonHintAnswer::Thread;
            };
            hint.thread = thread.index().wrapping_add(1);
        }
        match self.tell(
            frame,
            cpu,
            policy,
            BatonMethod::Hint,
            ctx,
            from,
            Arg::Hint(&hint),
        ) {
            0 => BatonHintAnswer::Taken,
            BATON_ABORTED => BatonHintAnswer::Stopped,
            _ => BatonHintAnswer::Malformed,
        }
    }
}
