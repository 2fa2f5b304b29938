// SPDX-License-Identifier: GPL-2.0-only
//! `central`: one queue for the machine, first in, first out, for low latency. After ghOSt's SOL,
//! without the agent and the CPU that it needs.
//!
//! 1. A woken or new task goes to an idle CPU: the nearest to where it last ran, on an idle core
//!    before an idle SMT sibling. If no CPU is idle, it waits at the end of the queue.
//! 2. A CPU with nothing to run takes the first task of the queue that may run there.
//! 3. A task runs for a slice (`slice`, 20 ms). If another task that its CPU may run waits then, it
//!    goes to the end of the queue.
//! 4. When a task comes into the queue, a CPU that had nothing to run when it was last asked is
//!    kicked, so that no task waits beside such a CPU. If a later policy's task runs there, it
//!    makes way.
//!
//! All CPUs take one lock, and a wakeup that finds no idle CPU looks at the state of every CPU. The
//! policy is for machines of some dozens of CPUs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::sync::Arc;
use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Topology, Upgrade, Wake, DEFAULT_SLICE,
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The state that one version passes to the next.
#[derive(Clone)]
pub struct Kept {
    queue: Arc<Lock<Fifo>>,
    /// Rule 4: which CPUs had nothing to run when they were last asked, and have not been kicked
    /// since. Read and written with the lock held.
    free: PerCpu<AtomicBool>,
}

baton::state!(Kept, version 1 { queue, free });

/// The policy.
pub struct Central {
    shared: Kept,
    topology: Topology,
    slice: u64,
}

impl Central {
    /// Queues a task (rules 1 and 4). If a wakeup (`woken`) has just put the task on its CPU's run
    /// queue, that CPU asks by itself.
    #[inline]
    fn put(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable, woken: bool) {
        let mut queue = self.shared.queue.lock();
        let _ = queue.push_back(baton);
        let is_free = |cpu: Cpu| self.shared.free[cpu].load(Relaxed) && ctx.may_run(task, cpu);
        let free = self
            .topology
            .near(task.cpu)
            .iter()
            .copied()
            .find(|&cpu| is_free(cpu));
        if let Some(cpu) = free {
            self.shared.free[cpu].store(false, Relaxed);
            if cpu != task.cpu || !woken {
                // A call kicks one CPU at most, so there is room.
                let _ = ctx.kick(cpu, Kick::Preempt);
            }
        }
    }
}

impl Upgrade for Central {
    type State = Kept;
    type Older = Kept;

    fn reregister_prepare(&self) -> Kept {
        self.shared.clone()
    }

    fn reregister_init(env: &Env<'_>, shared: Kept) -> Result<Self, baton::Error> {
        env.known_options(&["slice"])?;
        Ok(Self {
            shared,
            topology: env.topology().clone(),
            slice: env.duration("slice", DEFAULT_SLICE)?,
        })
    }
}

impl Scheduler for Central {
    const NAME: &'static str = "central";
    const EVENTS: Events = Events::NONE;

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        let queue = Arc::new(Lock::new(env.fifo()));
        Self::reregister_init(
            env,
            Kept {
                queue,
                free: env.per_cpu(|_| AtomicBool::new(true)),
            },
        )
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let idle = ctx.claim_idle_for(&self.topology, task, wake);
        Placement::Queue(idle.unwrap_or(wake.prev_cpu))
    }

    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, true);
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, true);
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, false);
    }

    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, false);
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, false);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let mut queue = self.shared.queue.lock();
        let first = queue.pop_where(|slot| ctx.slot_may_run(slot, cpu));
        self.shared.free[cpu].store(first.is_none() && prev.is_none(), Relaxed);
        match first {
            Some(task) => Pick::Run {
                task,
                slice: self.slice,
            },
            None if prev.is_some() => Pick::Keep { slice: self.slice },
            None => Pick::Nothing,
        }
    }

    fn pick_refused(&self, _: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            // The task's affinity has just changed. It does not fit this CPU when the host asks
            // again.
            let _ = self.shared.queue.lock().push_front(baton);
        }
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.shared.queue.lock().remove(task.slot)
    }

    fn cpu_online(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _queue = self.shared.queue.lock();
        self.shared.free[cpu].store(true, Relaxed);
        let _ = ctx.kick(cpu, Kick::Idle);
    }
}

baton::policy!(Central, upgrade);
