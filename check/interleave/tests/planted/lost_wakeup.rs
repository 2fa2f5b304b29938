// SPDX-License-Identifier: GPL-2.0-only
//! A woken task goes to an inbox that all CPUs share, and a flag says that the inbox is filled. A
//! pick empties the inbox and clears the flag afterwards, instead of before.

use crate::base::{Base, Planted, Variant};
use baton::{runqueue::Fifo, Cpu, Ctx, Lock, Schedulable, Task};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

pub struct Bug {
    base: Base,
    inbox: Lock<Fifo>,
    is_filled: AtomicBool,
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self {
            base: Base::new(env),
            inbox: Lock::new(env.fifo()),
            is_filled: AtomicBool::new(false),
        }
    }
    fn base(&self) -> &Base {
        &self.base
    }
    fn wakeup(&self, _: &Ctx<'_>, _: &Task, baton: Schedulable) {
        let _ = self.inbox.lock().push_back(baton);
        self.is_filled.store(true, SeqCst);
    }
    fn next(&self, _: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        if self.is_filled.load(SeqCst) {
            loop {
                let first = self.inbox.lock().pop_front();
                let Some(baton) = first else { break };
                self.base.put(cpu, baton);
            }
            self.is_filled.store(false, SeqCst);
        }
        self.base.queues[cpu].lock().pop_front()
    }
    fn take_back(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let queued = self
            .base
            .queues
            .iter()
            .find_map(|queue| queue.lock().remove(task.slot));
        queued.or_else(|| self.inbox.lock().remove(task.slot))
    }
}

baton::policy!(Planted<Bug>);
