// SPDX-License-Identifier: GPL-2.0-only
//! A task that yields waits in a queue that is not part of the state handed on by an upgrade.

use crate::base::{Base, Planted, Variant};
use baton::{runqueue::Fifo, Cpu, Ctx, Env, Lock, PerCpu, Schedulable, Task, Upgrade};

pub struct Bug {
    base: Base,
    yielded: PerCpu<Lock<Fifo>>,
}

impl Variant for Bug {
    fn new(env: &Env<'_>) -> Self {
        Self {
            base: Base::new(env),
            yielded: env.per_cpu(|_| Lock::new(env.fifo())),
        }
    }
    fn base(&self) -> &Base {
        &self.base
    }
    fn yielded(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let _ = self.yielded[task.cpu].lock().push_back(baton);
    }
    fn next(&self, _: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let first = self.yielded[cpu].lock().pop_front();
        first.or_else(|| self.base.queues[cpu].lock().pop_front())
    }
    fn take_back(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.base
            .queues
            .iter()
            .chain(self.yielded.iter())
            .find_map(|queue| queue.lock().remove(task.slot))
    }
}

impl Upgrade for Planted<Bug> {
    type State = PerCpu<Lock<Fifo>>;
    type Older = PerCpu<Lock<Fifo>>;

    fn reregister_prepare(&self) -> Self::State {
        self.0.base.queues.clone()
    }
    fn reregister_init(env: &Env<'_>, queues: Self::State) -> Result<Self, baton::Error> {
        let base = Base {
            queues,
            topology: env.topology().clone(),
        };
        Ok(Self(Bug {
            base,
            yielded: env.per_cpu(|_| Lock::new(env.fifo())),
        }))
    }
}

baton::policy!(Planted<Bug>, upgrade);
