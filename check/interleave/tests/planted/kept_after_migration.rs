// SPDX-License-Identifier: GPL-2.0-only
//! A task that is taken back is searched on its destination CPU, not where it was queued.

use crate::base::{Base, Planted, Variant};
use baton::{Ctx, Schedulable, Task};

pub struct Bug(Base);

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }

    fn take_back(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.0.queues[task.cpu].lock().remove(task.slot)
    }
}

baton::policy!(Planted<Bug>);
