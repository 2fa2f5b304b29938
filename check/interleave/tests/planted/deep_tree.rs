// SPDX-License-Identifier: GPL-2.0-only
//! A task that yields is ranked by a recursion that asks the host nothing, and does not terminate
//! once the queue is longer than one.

use crate::base::{Base, Planted, Variant};
use baton::{Ctx, Schedulable, Task};
use std::hint::black_box;

pub struct Bug(Base);

fn depth(waiting: usize) -> usize {
    if waiting < 2 {
        return waiting;
    }
    black_box(depth(black_box(waiting + 1))) + 1
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }

    fn yielded(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let mut queue = self.0.queues[task.cpu].lock();
        let _ = queue.push_back(baton);
        black_box(depth(queue.len()));
    }
}

baton::policy!(Planted<Bug>);
