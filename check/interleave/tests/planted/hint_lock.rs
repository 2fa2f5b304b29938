// SPDX-License-Identifier: GPL-2.0-only
//! A hint wakes a CPU whose queue is shorter. For the comparison it holds its own queue's lock and
//! takes the other's; another hint may do so crosswise.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Hints, Kick, Task};

pub struct Bug(Base);

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }
}

baton::message! {
    pub enum Hint, version 1 {
        Compare { with: u8 } = 3,
    }
}

impl Hints for Planted<Bug> {
    type Hint = Hint;
    type Reply = Hint;

    fn hint(&self, ctx: &Ctx<'_>, from: &Task, hint: Hint) {
        let Hint::Compare { with } = hint;
        let base = self.0.base();
        let other = Cpu::new(u32::from(with) % base.topology.cpus().count() as u32);
        if other == from.cpu {
            return;
        }
        let (own, others) = (base.queues[from.cpu].lock(), base.queues[other].lock());
        if own.len() > others.len() {
            let _ = ctx.kick(other, Kick::Idle);
        }
    }
}

baton::policy!(Planted<Bug>, hints);
