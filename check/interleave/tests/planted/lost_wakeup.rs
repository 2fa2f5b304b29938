// SPDX-License-Identifier: GPL-2.0-only
//! Who wakes up goes to an inbox, and a flag says that there is something in it. The flag is taken down after the inbox was emptied,
//! not before.

use crate::base::{Base, Planted, Variant};
use baton::{runqueue::Fifo, Cpu, Ctx, Lock, PerCpu, Schedulable, Task};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

#[derive(Debug)]
pub struct Inbox {
    tasks: Lock<Fifo>,
    is_filled: AtomicBool,
}

pub struct Bug {
    base: Base,
    inboxes: PerCpu<Inbox>,
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        let inbox = |_| Inbox { tasks: Lock::new(env.fifo()), is_filled: AtomicBool::new(false) };
        Self { base: Base::new(env), inboxes: env.per_cpu(inbox) }
    }
    fn base(&self) -> &Base {
        &self.base
    }

    fn wakeup(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let inbox = &self.inboxes[task.cpu];
        inbox.tasks.lock().push_back(baton);
        inbox.is_filled.store(true, SeqCst);
    }
    fn next(&self, _: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let inbox = &self.inboxes[cpu];
        if inbox.is_filled.load(SeqCst) {
            loop {
                let first = inbox.tasks.lock().pop_front();
                let Some(baton) = first else { break };
                self.base.put(cpu, baton);
            }
            inbox.is_filled.store(false, SeqCst);
        }
        self.base.queues[cpu].lock().pop_front()
    }
    fn take_back(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let inboxes = self.inboxes.iter().map(|inbox| &inbox.tasks);
        inboxes.chain(self.base.queues.iter()).find_map(|queue| queue.lock().remove(task.slot))
    }
}

baton::policy!(Planted<Bug>);
