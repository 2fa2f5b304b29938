// SPDX-License-Identifier: GPL-2.0-only
//! Hand-over of tasks while every other CPU is stopped: to another version of their policy, or to
//! another policy.

use crate::{plain_ctx, Core, CpuState, Host, PolicyEntry, Slot, TaskState};
use baton_abi::{Arg, BatonCtx, BatonMethod};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

impl<H: Host> Core<'_, H> {
    /// Gives every queued task of a running policy to it again, each with a new token. What its
    /// queues held may be lost, and is stale from now on. With `is_new` the policy knows no task,
    /// and gets every task as a new one: a queued task now, any other when it is next queued.
    /// O(tasks). Every other CPU is stopped and interrupts are off; `cpu` is this one.
    pub fn hand_anew(
        &self,
        entry: &PolicyEntry,
        is_new: bool,
        now: u64,
        frame: H::Frame,
        cpu: &CpuState,
    ) {
        let mut ctx = plain_ctx(now);
        let method = if is_new {
            BatonMethod::TaskNew
        } else {
            BatonMethod::TaskRestored
        };
        for slot in self
            .used()
            .iter()
            .filter(|slot| slot.policy() == entry.id())
        {
            match slot.token() {
                Some(token) if entry.is_running() => {
                    self.hand(frame, cpu, &mut ctx, slot, token, entry, method);
                }
                None if is_new => slot.leave(),
                _ => {}
            }
        }
        self.host.kick_all();
    }

    /// Gives all tasks of one running policy to another. The queued tasks go in the order in which
    /// `from` picks them, CPU by CPU; the others follow when they are next queued, or next on their
    /// CPU. `to` also gets what was assigned to `from`, the tasks that were assigned to none if
    /// `from` had those, its place in the order and its share. O(tasks). Context as for
    /// [`Core::hand_anew`].
    pub fn hand_over(
        &self,
        from: &PolicyEntry,
        to: &PolicyEntry,
        now: u64,
        frame: H::Frame,
        cpu: &CpuState,
    ) {
        let mut ctx = plain_ctx(now);
        for which in 0..self.cpus.len() as i32 {
            // Each round takes one task from the policy, so that the loop ends.
            while from.is_running() {
                let none = Arg::Word(0);
                let token = self.tell_cpu(
                    frame,
                    cpu,
                    from,
                    BatonMethod::PickNextTask,
                    &mut ctx,
                    which,
                    none,
                );
                let slot = self
                    .by_token(token)
                    .filter(|slot| slot.is_fresh(token) && slot.policy() == from.id());
                let Some(slot) = slot else { break };
                self.hand(frame, cpu, &mut ctx, slot, token, to, BatonMethod::TaskNew);
            }
        }
        for slot in self.used() {
            if slot.wanted.load(SeqCst) == from.id() {
                slot.wanted.store(to.id(), SeqCst);
            }
            if slot.policy() != from.id() {
                continue;
            }
            // Queued tasks that no pick returned go last.
            match slot.token() {
                Some(token) => {
                    self.hand(frame, cpu, &mut ctx, slot, token, to, BatonMethod::TaskNew)
                }
                None => slot.leave(),
            }
        }
        self.take_place(to, from);
        let share = from.share.load(Relaxed);
        if share != 0 {
            self.set_share(from, 0);
            self.set_share(to, share);
        }
        if self.default_policy.load(Relaxed) == from.id() {
            self.default_policy.store(to.id(), Relaxed);
        }
        self.next_epoch();
        self.host.kick_all();
    }

    /// Takes a queued task from where it is, and gives it to a policy with a new token.
    pub(crate) fn hand(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
        token: u64,
        to: &PolicyEntry,
        method: BatonMethod,
    ) {
        slot.claim(token, TaskState::Sleeping);
        slot.join(to);
        slot.epoch.store(0, Relaxed);
        // If the policy has stopped meanwhile, a rescue finds the task in it.
        let token = slot.mint(ctx.now);
        ctx.nr_kicks = 0;
        if to.is_running() {
            self.tell(frame, cpu, to, method, ctx, slot, Arg::Word(token));
        }
    }
}
