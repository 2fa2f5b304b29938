// SPDX-License-Identifier: GPL-2.0-only
//! A CPU about to go idle spins until a task comes, without a lock or a question to the host.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Schedulable};
use core::hint::black_box;

pub struct Bug(Base);

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }

    fn steal(&self, _: &Ctx<'_>, _: Cpu) -> Option<Schedulable> {
        while black_box(true) {}
        None
    }
}

baton::policy!(Planted<Bug>);
