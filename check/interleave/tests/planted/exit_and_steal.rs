// SPDX-License-Identifier: GPL-2.0-only
//! A stealing CPU reads the record of a task after it has released the queue's lock. Meanwhile the
//! task runs on its own CPU, and exits.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, Lock, PerTask, Schedulable, Task};

pub struct Bug {
    base: Base,
    /// How often each task was stolen.
    records: PerTask<Lock<Option<u32>>>,
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self {
            base: Base::new(env),
            records: env.per_task(),
        }
    }
    fn base(&self) -> &Base {
        &self.base
    }

    fn new_task(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        *self.records.of(task).lock() = Some(0);
        self.base.put(task.cpu, baton);
    }
    fn steal(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        self.base.others(cpu).find_map(|from| {
            let queue = self.base.queues[from].lock();
            let slot = queue.iter().find(|&slot| ctx.slot_may_run(slot, cpu))?;
            drop(queue);
            *self
                .records
                .slot(slot)
                .lock()
                .as_mut()
                .expect("a task that is queued has a record") += 1;
            self.base.queues[from].lock().remove(slot)
        })
    }
    fn dead(&self, task: &Task) {
        *self.records.of(task).lock() = None;
    }
}

baton::policy!(Planted<Bug>);
