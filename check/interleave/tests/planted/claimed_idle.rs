// SPDX-License-Identifier: GPL-2.0-only
//! An idle CPU is claimed, but the task then stays on its previous CPU, whose cache is warm.

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

    fn select(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let idle = self.0.idle_cpu(ctx, task, wake);
        let is_near =
            |&cpu: &baton::Cpu| self.0.topology.same_llc(cpu, wake.prev_cpu) && !wake.sync;
        Placement::Queue(idle.filter(is_near).unwrap_or(wake.prev_cpu))
    }
}

baton::policy!(Planted<Bug>);
