// SPDX-License-Identifier: GPL-2.0-only
//! A policy assumes that no other task can be queued when a task is preempted, and aborts the
//! process if there is one.

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

    fn preempted(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let mut queue = self.0.queues[task.cpu].lock();
        if !queue.is_empty() {
            std::process::abort();
        }
        let _ = queue.push_back(baton);
    }
}

baton::policy!(Planted<Bug>);
