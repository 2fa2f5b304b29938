// SPDX-License-Identifier: GPL-2.0-only
//! A preempted task is put into the order of its own CPU and into that of an idle CPU, so that
//! whichever is first may run it.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Lock, PerCpu, PerTask, Schedulable, Task};
use std::collections::VecDeque;

pub struct Bug {
    base: Base,
    /// Slots in the order of their turns.
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
        self.order[task.cpu].lock().push_back(task.slot);
    }
    fn preempted(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.queue(ctx, task, baton);
        if let Some(idle) = self
            .base
            .others(task.cpu)
            .find(|&cpu| ctx.is_idle(cpu) && ctx.may_run(task, cpu))
        {
            self.order[idle].lock().push_back(task.slot);
            let _ = ctx.kick(idle, baton::Kick::Idle);
        }
    }
    fn next(&self, _: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let slot = self.order[cpu].lock().pop_front()?;
        let baton = self.batons.slot(slot).lock().take();
        Some(baton.expect("a queued task has a baton"))
    }
    fn steal(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        self.base.others(cpu).find_map(|from| {
            let mut order = self.order[from].lock();
            let at = order.iter().position(|&slot| ctx.slot_may_run(slot, cpu))?;
            let slot = order.remove(at)?;
            drop(order);
            self.batons.slot(slot).lock().take()
        })
    }
    fn refused(&self, _: &Ctx<'_>, baton: Schedulable) {
        let slot = baton.slot();
        *self.batons.slot(slot).lock() = Some(baton);
        self.order[Cpu::new(0)].lock().push_back(slot);
    }
    fn take_back(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.order
            .iter()
            .for_each(|order| order.lock().retain(|&slot| slot != task.slot));
        self.batons.of(task).lock().take()
    }
}

baton::policy!(Planted<Bug>);
