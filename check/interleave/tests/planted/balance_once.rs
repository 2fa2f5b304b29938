// SPDX-License-Identifier: GPL-2.0-only
//! A CPU about to go idle looks at one other CPU only, instead of at each until it finds a task.

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
        let from = self.0.others(cpu).next()?;
        self.0.queues[from]
            .lock()
            .pop_where(|slot| ctx.slot_may_run(slot, cpu))
    }
}

baton::policy!(Planted<Bug>);
