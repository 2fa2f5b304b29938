// SPDX-License-Identifier: GPL-2.0-only
//! A task that waits alone in its queue is not stolen, although another task runs on that CPU.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Schedulable};

pub struct Bug(Base);

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }

    fn steal(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        self.0.others(cpu).find_map(|from| {
            let mut queue = self.0.queues[from].lock();
            let is_worth_it = queue.len() > 1;
            is_worth_it
                .then(|| queue.pop_where(|slot| ctx.slot_may_run(slot, cpu)))
                .flatten()
        })
    }
}

baton::policy!(Planted<Bug>);
