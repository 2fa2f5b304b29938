// SPDX-License-Identifier: GPL-2.0-only
//! A task that yields is forgotten if no other task waits.

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

    fn yielded(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let mut queue = self.0.queues[task.cpu].lock();
        if !queue.is_empty() {
            let _ = queue.push_back(baton);
        }
    }
}

baton::policy!(Planted<Bug>);
