// SPDX-License-Identifier: GPL-2.0-only
//! A queue's length is read, its lock released, and taken again to remove the first task.

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

    fn next(&self, _: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let waiting = self.0.queues[cpu].lock().len();
        (waiting != 0).then(|| {
            self.0.queues[cpu]
                .lock()
                .pop_front()
                .expect("the queue is not empty")
        })
    }
}

baton::policy!(Planted<Bug>);
