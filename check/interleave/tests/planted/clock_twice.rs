// SPDX-License-Identifier: GPL-2.0-only
//! A queued task arms a timer for the end of the current slice, if that end is in the future. The
//! clock is read once for the check, and again for the remaining time.

use crate::base::{Base, Planted, Variant};
use baton::{Cpu, Ctx, PerCpu, Schedulable, Task};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SLICE: u64 = 10_000;

pub struct Bug {
    base: Base,
    since: PerCpu<AtomicU64>,
}

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self {
            base: Base::new(env),
            since: env.per_cpu(|_| AtomicU64::new(0)),
        }
    }
    fn base(&self) -> &Base {
        &self.base
    }

    fn queue(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.base.put(task.cpu, baton);
        let until = self.since[task.cpu].load(Relaxed) + SLICE;
        if ctx.now() < until {
            ctx.arm_timer(until - ctx.now());
        }
    }

    fn next(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        self.since[cpu].store(ctx.now(), Relaxed);
        self.base.queues[cpu].lock().pop_front()
    }
}

baton::policy!(Planted<Bug>);
