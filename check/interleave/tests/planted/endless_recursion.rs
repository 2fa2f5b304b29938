// SPDX-License-Identifier: GPL-2.0-only
//! Who would go idle looks at the next CPU's queue, and from there at the next one's, and does not
//! notice that it has been there.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Schedulable};

pub struct Bug(Base);

impl Bug {
    fn look(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let next = self.0.others(cpu).next()?;
        let found = self.0.queues[next]
            .lock()
            .pop_where(|slot| ctx.slot_may_run(slot, cpu));
        // Not the last thing that is done, so that it is no loop.
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
