// SPDX-License-Identifier: GPL-2.0-only
//! Hints: what the task on a CPU says to its policy (hosts/kernel/hints.c).

use crate::world::World;
use baton_abi::{BatonHint, BatonHintAnswer};
use std::collections::BTreeMap;

/// What tasks and their policy said to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Hints that the policy took.
    pub hints: u64,
    /// Replies that were sent, by tag.
    pub replies: BTreeMap<u32, u64>,
}

impl Said {
    /// Both together.
    pub(crate) fn add(&mut self, other: &Self) {
        self.hints += other.hints;
        other.replies.iter().for_each(|(tag, count)| *self.replies.entry(*tag).or_default() += count);
    }
}

/// Hints that are tried, until the policy takes one.
const TRIES: usize = 24;

impl World {
    /// Does the policy take hints?
    pub fn hears(&self) -> bool {
        self.instances.borrow().last().is_some_and(|instance| instance.policy().ops().hint.is_some())
    }

    /// The running task says something. What a policy understands only it knows: what is drawn is said until it takes one.
    pub fn hint(&self, pid: u32) {
        let me = self.me();
        let task = self.task(pid);
        for _ in 0..TRIES {
            let Some(slot) = self.core.by_handle(task.handle) else { return };
            let hint = self.draw_hint();
            let mut ctx = self.ctx(&task, me.number, 0);
            let handle_of = |id: u32| {
                let tasks = self.tasks.borrow();
                tasks.get(id as usize - 1).filter(|task| task.is_alive()).map_or(0, |task| task.handle)
            };
            let state = self.state(me.number);
            let said = self.in_rules(|| self.core.hint((), state, &mut ctx, slot, self.policy(), &hint, handle_of));
            self.kick_plainly(&ctx);
            self.said.borrow_mut().hints += u64::from(said == BatonHintAnswer::Taken);
            if said != BatonHintAnswer::Malformed || self.over.get() {
                return;
            }
        }
    }

    /// Small numbers mean something more often than large ones.
    fn draw_hint(&self) -> BatonHint {
        let random = &self.me().random;
        let tag = random.below(8) as u32;
        let thread = if random.once_in(2) { 1 + random.below(self.tasks.borrow().len()) as u32 } else { 0 };
        let mut words = [0; baton_abi::BATON_HINT_WORDS];
        let count = random.below(4);
        words.iter_mut().take(count).for_each(|word| *word = random.next() >> [62, 62, 56, 0][random.below(4)]);
        BatonHint { tag, thread, words }
    }
}
