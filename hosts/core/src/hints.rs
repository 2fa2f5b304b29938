// SPDX-License-Identifier: GPL-2.0-only
//! Delivery of hints: from an application's ring to a call of its policy. Runs in any context with
//! interrupts off, outside calls of policies.

use crate::{Core, CpuState, Host, PolicyEntry, Slot};
use baton_abi::{
    Arg, BatonCtx, BatonHint, BatonHintAnswer, BatonMethod, BATON_ABORTED, BATON_HINTS_AT_ONCE,
};
use baton_message::ring::{self, Entry};

/// Number of hints that were read in one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// All hints read.
    pub taken: u32,
    /// Those of them that the policy did not accept.
    pub refused: u32,
}

impl<H: Host> Core<'_, H> {
    /// May hints of this task be delivered to this policy now?
    pub fn hears(&self, from: &Slot, policy: &PolicyEntry) -> bool {
        policy.is_running() && from.policy() == policy.id()
    }

    /// Delivers to a policy the hints in the ring of one of its tasks, at most
    /// [`BATON_HINTS_AT_ONCE`]. `place` is the reader's position, which nothing else changes
    /// meanwhile. `entries` is untrusted memory, which may change at any time. `thread_of` returns
    /// the handle of the thread with an id, or 0 if the sender may not name that thread. Hints stay
    /// in the ring while the sender is not a task of the policy.
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

    /// Delivers one hint to a policy, with arguments as in [`Core::drain`].
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
