// SPDX-License-Identifier: GPL-2.0-only
//! The order in which several policies are asked, and preemption between them.
//!
//! The administrator sets the order, as in SaaKM, but can change it at any time. On each CPU a
//! policy is asked when those before it have no task there. A task that becomes runnable preempts a
//! task of a later policy.

use crate::{Core, Host, PolicyEntry, Slot, NO_SOLE};
use baton_abi::{BatonCtx, BATON_KICK_PREEMPT, BATON_MAX_POLICIES};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// All places in table order: four bits each, the first in the lowest bits.
pub(crate) const AS_IN_TABLE: u64 = 0xfedc_ba98_7654_3210;
const _: () = assert!(BATON_MAX_POLICIES == 16);

/// In `current`: the CPU runs no policy's task, and any policy may preempt it.
pub(crate) const NOBODY: u32 = BATON_MAX_POLICIES as u32;

/// In `current`: the fallback has its turn on the CPU, and no policy may preempt it.
pub(crate) const FALLBACK: u32 = NOBODY + 1;

/// The places of an order, first to last.
fn places(mut order: u64) -> impl Iterator<Item = u32> {
    core::iter::repeat_with(move || {
        let place = (order & 0xf) as u32;
        order >>= 4;
        place
    })
    .take(BATON_MAX_POLICIES)
}

impl<H: Host> Core<'_, H> {
    /// The running policies, in the order in which they are asked.
    #[inline]
    pub(crate) fn running(&self) -> impl Iterator<Item = &PolicyEntry> {
        let running = self.running.load(Relaxed);
        let last = running.count_ones() as usize;
        let in_order =
            places(self.order.load(Relaxed)).filter(move |place| running & 1 << place != 0);
        in_order
            .take(last)
            .filter_map(|place| self.policies.get(place as usize))
    }

    /// Sets the order: first the places in `first`, then all others in their present order. A place
    /// that is named twice counts once. Under the control mutex.
    pub fn set_order(&self, first: &[u32]) {
        let old = self.order.load(Relaxed);
        let mut order = 0;
        let mut taken = 0_u32;
        let mut at = 0_u32;
        for place in first.iter().copied().chain(places(old)) {
            if place >= NOBODY || taken & 1 << place != 0 {
                continue;
            }
            taken |= 1 << place;
            order |= u64::from(place).wrapping_shl(at);
            at = at.wrapping_add(4);
        }
        self.order.store(order, SeqCst);
    }

    /// The place in the table of each policy, first to last.
    pub fn order(&self) -> impl Iterator<Item = u32> {
        places(self.order.load(Relaxed))
    }

    /// Moves `policy` to the place of `of` in the order, directly before it. Under the control
    /// mutex.
    pub(crate) fn take_place(&self, policy: &PolicyEntry, of: &PolicyEntry) {
        let mut order = [NOBODY; BATON_MAX_POLICIES + 1];
        let old = places(self.order.load(Relaxed)).filter(|&place| place != policy.index());
        let new = old
            .flat_map(|place| [(place == of.index()).then_some(policy.index()), Some(place)])
            .flatten();
        order
            .iter_mut()
            .zip(new)
            .for_each(|(to, place)| *to = place);
        self.set_order(&order);
    }

    /// Puts a policy behind all others. Under the control mutex.
    pub(crate) fn put_last(&self, place: u32) {
        let mut others = [NOBODY; BATON_MAX_POLICIES];
        let old = places(self.order.load(Relaxed)).filter(|&other| other != place);
        others
            .iter_mut()
            .zip(old)
            .for_each(|(to, other)| *to = other);
        self.set_order(&others);
    }

    /// Preempts a task of a later policy on the CPU of `slot`, whose task, of `policy`, has become
    /// runnable.
    #[inline]
    pub(crate) fn preempt_later(&self, ctx: &mut BatonCtx, slot: &Slot, policy: &PolicyEntry) {
        if self.sole.load(Relaxed) == NO_SOLE {
            self.preempt_later_slow(ctx, slot.cpu(), policy);
        }
    }

    #[cold]
    #[inline(never)]
    fn preempt_later_slow(&self, ctx: &mut BatonCtx, number: i32, policy: &PolicyEntry) {
        let Some(cpu) = self.cpu(number) else { return };
        let current = cpu.current.load(Relaxed);
        let first = self
            .order()
            .find(|&place| place == policy.index() || place == current);
        if cpu.is_asleep()
            || current == FALLBACK
            || current == policy.index()
            || first != Some(policy.index())
            || self.is_by_right(cpu)
        {
            return;
        }
        kick(ctx, number, BATON_KICK_PREEMPT);
    }
}

/// Adds a kick to those that the policy asked for. If there is no room it replaces the last, as
/// this one is required.
pub(crate) fn kick(ctx: &mut BatonCtx, cpu: i32, how: u16) {
    let at = (ctx.nr_kicks as usize).min(ctx.kicks.len().wrapping_sub(1));
    if let Some(kick) = ctx.kicks.get_mut(at) {
        *kick = cpu as u16 | how;
        ctx.nr_kicks = at.wrapping_add(1) as u16;
    }
}
