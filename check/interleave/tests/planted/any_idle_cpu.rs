// SPDX-License-Identifier: GPL-2.0-only
//! An idle CPU is chosen without a check of the task's affinity.

use crate::base::{Base, Planted, Variant};
use baton::{Ctx, Placement, Task, Wake};

pub struct Bug(Base);

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }

    fn select(&self, ctx: &Ctx<'_>, _: &Task, wake: &Wake) -> Placement {
        let idle = self
            .0
            .others(wake.prev_cpu)
            .find(|&cpu| ctx.claim_idle(cpu));
        Placement::Queue(idle.unwrap_or(wake.prev_cpu))
    }
}

baton::policy!(Planted<Bug>);
