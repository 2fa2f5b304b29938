// SPDX-License-Identifier: GPL-2.0-only
//! A task is queued where it was queued before, even if its affinity no longer includes that CPU. A
//! refusal does not correct this.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, PerTask, Schedulable, Task};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub struct Bug {
    base: Base,
    /// The CPU on which a task was last queued.
    home: PerTask<AtomicU32>,
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self {
            base: Base::new(env),
            home: env.per_task(),
        }
    }
    fn base(&self) -> &Base {
        &self.base
    }

    fn wakeup(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.home.of(task).store(task.cpu.number() as u32, Relaxed);
        self.base.put(task.cpu, baton);
    }
    fn new_task(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wakeup(ctx, task, baton);
    }
    fn restored(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.refused(ctx, baton);
    }
    fn refused(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let home = Cpu::new(self.home.slot(baton.slot()).load(Relaxed));
        self.base.put(home, baton);
        let _ = ctx.kick(home, baton::Kick::Idle);
    }
}

baton::policy!(Planted<Bug>);
