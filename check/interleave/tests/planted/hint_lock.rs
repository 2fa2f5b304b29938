// SPDX-License-Identifier: GPL-2.0-only
//! A hint has two CPUs exchange the first of their queues: it holds its own queue's lock and takes the other's, as another hint may
//! crosswise.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Hints, Task};

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
        Exchange { with: u8 } = 3,
    }
}

impl Hints for Planted<Bug> {
    type Hint = Hint;
    type Reply = Hint;

    fn hint(&self, _: &Ctx<'_>, from: &Task, hint: Hint) {
        let Hint::Exchange { with } = hint;
        let base = self.0.base();
        let other = Cpu::new(u32::from(with) % base.topology.cpus().count() as u32);
        if other == from.cpu {
            return;
        }
        let (mut own, mut others) = (base.queues[from.cpu].lock(), base.queues[other].lock());
        let (first, second) = (own.pop_front(), others.pop_front());
        first.into_iter().for_each(|baton| others.push_front(baton));
        second.into_iter().for_each(|baton| own.push_front(baton));
    }
}

baton::policy!(Planted<Bug>, hints);
