// SPDX-License-Identifier: GPL-2.0-only
//! A CPU about to go idle looks at the queues of the next CPUs by recursion, and does not notice
//! that it has come round.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Schedulable};

pub struct Bug(Base);

impl Bug {
    fn look(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let next = self.0.others(cpu).next()?;
        let found = self.0.queues[next]
            .lock()
            .pop_where(|slot| ctx.slot_may_run(slot, cpu));
        // Used after the recursive call, so that the compiler makes no loop of it.
        found
            .or_else(|| self.look(ctx, next))
            .filter(|baton| ctx.baton_may_run(baton, cpu))
    }
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }

    fn steal(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        self.look(ctx, cpu)
    }
}

baton::policy!(Planted<Bug>);
