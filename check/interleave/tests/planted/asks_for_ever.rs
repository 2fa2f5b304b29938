// SPDX-License-Identifier: GPL-2.0-only
//! A CPU about to go idle asks the host in a loop until another CPU is idle.

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
        while !self
            .0
            .others(cpu)
            .any(|other| ctx.is_idle(other) && !ctx.is_idle(cpu))
        {}
        None
    }
}

baton::policy!(Planted<Bug>);
