// SPDX-License-Identifier: GPL-2.0-only
//! Each task waits for one CPU, which follows from its slot. The tasks that wait for a CPU that
//! goes offline are forgotten.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Kick, Schedulable, Task};

pub struct Bug(Base);

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }

    fn queue(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let wanted = Cpu::new(task.slot % self.0.topology.nr_cpus() as u32);
        let cpu = if ctx.is_online(wanted) && ctx.may_run(task, wanted) {
            wanted
        } else {
            task.cpu
        };
        self.0.put(cpu, baton);
        let _ = ctx.kick(cpu, Kick::Idle);
    }
    fn steal(&self, _: &Ctx<'_>, _: Cpu) -> Option<Schedulable> {
        None
    }
    fn offline(&self, _: &Ctx<'_>, _: Cpu) {}
}

baton::policy!(Planted<Bug>);
