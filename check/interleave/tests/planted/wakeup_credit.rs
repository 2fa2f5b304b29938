// SPDX-License-Identifier: GPL-2.0-only
//! A woken task precedes all others, however short its sleep was.

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

    fn wakeup(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let _ = self.0.queues[task.cpu].lock().push_front(baton);
    }
}

baton::policy!(Planted<Bug>);
