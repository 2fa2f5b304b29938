// SPDX-License-Identifier: GPL-2.0-only
//! A CPU with a queue wakes idle CPUs only at every 23rd tick. They get tasks in the end, but are
//! idle most of the time.

use crate::base::{Base, Planted, Variant};
use baton::{Ctx, Task};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub struct Bug(Base, AtomicU32);

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env), AtomicU32::new(0))
    }
    fn base(&self) -> &Base {
        &self.0
    }

    fn tick(&self, ctx: &Ctx<'_>, task: &Task) {
        if self.1.fetch_add(1, Relaxed) % 23 == 22 {
            self.0.wake_idle(ctx, task.cpu);
        }
    }
}

baton::policy!(Planted<Bug>);
