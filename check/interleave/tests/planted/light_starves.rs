// SPDX-License-Identifier: GPL-2.0-only
//! The heaviest task always runs first.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, PerTask, Schedulable, Task};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub struct Bug {
    base: Base,
    weights: PerTask<AtomicU32>,
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self {
            base: Base::new(env),
            weights: env.per_task(),
        }
    }
    fn base(&self) -> &Base {
        &self.base
    }

    fn queue(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.weights.of(task).store(task.weight(), Relaxed);
        self.base.put(task.cpu, baton);
    }
    fn next(&self, _: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let mut queue = self.base.queues[cpu].lock();
        let heaviest = queue
            .iter()
            .map(|slot| self.weights.slot(slot).load(Relaxed))
            .max()?;
        queue.pop_where(|slot| self.weights.slot(slot).load(Relaxed) == heaviest)
    }
}

baton::policy!(Planted<Bug>);
