// SPDX-License-Identifier: GPL-2.0-only
//! A queue holds slots, and the running task stays at its front, as in early versions of CFS. A
//! stealing CPU takes the front one.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Lock, PerCpu, PerTask, Schedulable, Task};
use std::collections::VecDeque;

pub struct Bug {
    base: Base,
    /// Slots in the order of their turns; the running task is at the front.
    order: PerCpu<Lock<VecDeque<u32>>>,
    batons: PerTask<Lock<Option<Schedulable>>>,
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self {
            base: Base::new(env),
            order: env.per_cpu(|_| Lock::default()),
            batons: env.per_task(),
        }
    }
    fn base(&self) -> &Base {
        &self.base
    }

    fn queue(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        *self.batons.of(task).lock() = Some(baton);
        let mut order = self.order[task.cpu].lock();
        order.retain(|&slot| slot != task.slot);
        order.push_back(task.slot);
    }
    fn next(&self, _: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let order = self.order[cpu].lock();
        order
            .iter()
            .find_map(|&slot| self.batons.slot(slot).lock().take())
    }
    fn steal(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        self.base.others(cpu).find_map(|from| {
            let mut order = self.order[from].lock();
            let slot = order
                .iter()
                .copied()
                .find(|&slot| ctx.slot_may_run(slot, cpu))?;
            order.retain(|&other| other != slot);
            let stolen = self.batons.slot(slot).lock().take();
            Some(stolen.expect("a queued task has a baton"))
        })
    }
    fn refused(&self, _: &Ctx<'_>, baton: Schedulable) {
        let slot = baton.slot();
        *self.batons.slot(slot).lock() = Some(baton);
    }
    fn take_back(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.order
            .iter()
            .for_each(|order| order.lock().retain(|&slot| slot != task.slot));
        self.batons.of(task).lock().take()
    }
}

baton::policy!(Planted<Bug>);
