// SPDX-License-Identifier: GPL-2.0-only
//! A stealing CPU holds its own queue's lock and takes another's: two CPUs can do so crosswise.

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
        let own = self.0.queues[cpu].lock();
        let mut others = self.0.others(cpu);
        let stolen = others.find_map(|from| {
            self.0.queues[from]
                .lock()
                .pop_where(|slot| ctx.slot_may_run(slot, cpu))
        });
        drop(own);
        stolen
    }
}

baton::policy!(Planted<Bug>);
