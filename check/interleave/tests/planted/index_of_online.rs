// SPDX-License-Identifier: GPL-2.0-only
//! A list of the online CPUs is indexed by CPU number.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Lock, Placement, Task, Wake};

pub struct Bug {
    base: Base,
    online: Lock<Vec<Cpu>>,
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self {
            base: Base::new(env),
            online: Lock::new(env.topology().cpus().collect()),
        }
    }
    fn base(&self) -> &Base {
        &self.base
    }

    fn select(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let near = self.online.lock()[wake.prev_cpu.index()];
        let idle = ctx.may_run(task, near) && ctx.claim_idle(near);
        Placement::Queue(if idle { near } else { wake.prev_cpu })
    }
    fn online(&self, cpu: Cpu) {
        let mut online = self.online.lock();
        if !online.contains(&cpu) {
            online.push(cpu);
        }
    }
    fn offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        self.online.lock().retain(|&other| other != cpu);
        let waiting = self.base.queues[cpu].lock().len();
        for _ in 0..waiting {
            let first = self.base.queues[cpu].lock().pop_front();
            let Some(baton) = first else { return };
            self.base.rehome(ctx, baton);
        }
    }
}

baton::policy!(Planted<Bug>);
