// SPDX-License-Identifier: GPL-2.0-only
//! A refused task is put back by a function that takes the queue's lock, while that lock is held.

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

    fn refused(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let own = self.0.queues[Cpu::new(0)].lock();
        if own.is_empty() {
            self.0.rehome(ctx, baton);
        } else {
            drop(own);
            self.0.rehome(ctx, baton);
        }
    }
}

baton::policy!(Planted<Bug>);
