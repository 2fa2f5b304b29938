// SPDX-License-Identifier: GPL-2.0-only
//! A CPU about to go idle steals from its SMT sibling only. Without siblings, it looks at all CPUs.

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
        let base = &self.0;
        let topology = &base.topology;
        let is_near =
            |&other: &Cpu| !topology.has_smt() || topology.core(other) == topology.core(cpu);
        let mut from = base.others(cpu).filter(is_near);
        from.find_map(|from| {
            base.queues[from]
                .lock()
                .pop_where(|slot| ctx.slot_may_run(slot, cpu))
        })
    }
}

baton::policy!(Planted<Bug>);
