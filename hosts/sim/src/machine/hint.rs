// SPDX-License-Identifier: GPL-2.0-only
//! Hints of tasks, and replies of their policy. Models hosts/kernel/channel.c, but only hints that
//! are sent by a system call.

use baton_abi::{BatonHint, BatonHintAnswer};
use baton_core::PolicyEntry;

use super::Machine;
use crate::queue::Next;
use crate::world::TaskRef;

impl Machine<'_> {
    /// The task that runs on a CPU sends its policy a hint.
    pub(super) fn hint(&mut self, cpu: u32, at: u32, hint: BatonHint, thread: Option<TaskRef>) {
        let facts = &self.host().facts[self.tasks[at as usize].slot as usize];
        facts.unread.set(facts.unread.get().or(Some(0)));
        let core = self.core;
        let slot = core
            .by_handle(self.tasks[at as usize].handle)
            .expect("the task runs");
        let mut ctx = self.ctx(at, cpu, 0);
        let here = self.enter(cpu);
        let hint = BatonHint {
            thread: thread.map_or(0, |TaskRef(number)| number + 1),
            ..hint
        };
        // Deviation: any task may name any other, as with a grant for that. Processes are not
        // simulated.
        let thread_of = |id: u32| {
            let at = self.by_ref.get(id as usize - 1).copied().flatten();
            at.map_or(0, |at| self.tasks[at as usize].handle)
        };
        let policy = core
            .policies()
            .iter()
            .find(|policy| policy.id() == slot.policy() && PolicyEntry::is_running(policy));
        // A policy that takes no hints has no queues.
        let policy = policy.filter(|policy| self.host().takes_hints(policy));
        let answer =
            policy.map(|policy| core.hint((), here, &mut ctx, slot, policy, &hint, thread_of));
        self.stats.hints += 1;
        self.stats.hints_refused += u64::from(answer != Some(BatonHintAnswer::Taken));
        self.settle(cpu, &ctx);
    }

    /// Delivers the replies of the call that has ended.
    pub(super) fn deliver_all(&mut self) {
        let host = self.core.host();
        if !host.replies.borrow().is_empty() {
            let replies = host.replies.take();
            replies
                .into_iter()
                .for_each(|(slot, reply)| self.deliver(slot, reply));
        }
    }

    /// Delivers a reply to the task in a slot. A task that waits for one is woken by an irq_work.
    fn deliver(&mut self, slot: u32, reply: BatonHint) {
        let at = (self.core.slots()[slot as usize].opaque() as u32).wrapping_sub(1);
        let Some(task) = self.tasks.get_mut(at as usize) else {
            return;
        };
        if !std::mem::take(&mut task.awaits_reply) {
            return task.replies.push_back(reply);
        }
        let turn = task.turn;
        let soon = self.now + self.config.costs.ipi.max(1);
        self.queue.push(soon, Next::WakeUp { task: at, turn });
        self.read_reply(at, reply);
    }

    pub(super) fn read_reply(&mut self, at: u32, reply: BatonHint) {
        self.tasks[at as usize].reply = Some(reply);
        let facts = &self.host().facts[self.tasks[at as usize].slot as usize];
        facts
            .unread
            .set(facts.unread.get().map(|unread| unread.saturating_sub(1)));
    }
}
