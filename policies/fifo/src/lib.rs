// SPDX-License-Identifier: GPL-2.0-only
//! `fifo`: one first-in first-out queue for each CPU.
//!
//! 1. A task whose waker is about to sleep goes to the waker's CPU, if it may run there. Any other
//!    woken or new task goes to an idle CPU: the nearest to where it last ran, on an idle core
//!    before an idle SMT sibling. If no CPU is idle, it stays where it last ran.
//! 2. Unless an idle CPU runs it at once, it waits at the end of that CPU's queue.
//! 3. A CPU runs the first task of its queue for a slice (`slice`, 20 ms). At the end of the slice
//!    the task goes to the end of the queue.
//! 4. Queues are never balanced.
#![no_std]
#![forbid(unsafe_code)]

use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Lock, PerCpu, PerTask, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Wake, DEFAULT_SLICE,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The policy.
pub struct PerCpuFifo {
    queues: PerCpu<Lock<Fifo>>,
    /// The CPU in whose queue a task was last put.
    home: PerTask<AtomicU32>,
    near: baton::Topology,
    slice: u64,
}

impl PerCpuFifo {
    #[inline(always)]
    fn push(&self, task: &Task, baton: Schedulable) {
        self.home.of(task).store(task.cpu.number() as u32, Relaxed);
        let _ = self.queues[task.cpu].lock().push_back(baton);
    }

    /// Queues a task for the nearest CPU that it may use, as its CPU has gone or may not be used
    /// any more. If there is none, the kernel will enqueue the task again.
    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let home = Cpu::new(self.home.slot(baton.slot()).load(Relaxed));
        let cpu = self
            .near
            .near(home)
            .iter()
            .copied()
            .find(|&cpu| ctx.baton_may_run(&baton, cpu))
            .unwrap_or(home);
        self.home
            .slot(baton.slot())
            .store(cpu.number() as u32, Relaxed);
        let _ = self.queues[cpu].lock().push_back(baton);
        // A busy CPU picks it by itself.
        let _ = ctx.kick(cpu, baton::Kick::Idle);
    }

    /// The nearest idle CPU, or else the one where the task last ran. Out of line, so that other
    /// wakeups need no registers for it.
    #[inline(never)]
    fn idle_cpu(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        ctx.claim_idle_for(&self.near, task, wake)
            .map_or(Placement::Queue(wake.prev_cpu), Placement::run)
    }
}

impl Scheduler for PerCpuFifo {
    const NAME: &'static str = "fifo";
    const EVENTS: Events = Events::NONE;

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        env.known_options(&["slice"])?;
        Ok(Self {
            queues: env.per_cpu(|_| Lock::new(env.fifo())),
            home: env.per_task(),
            near: env.topology().clone(),
            slice: env.duration("slice", DEFAULT_SLICE)?,
        })
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        if wake.sync && (wake.waker_cpu == wake.prev_cpu || ctx.may_run(task, wake.waker_cpu)) {
            return Placement::Queue(wake.waker_cpu);
        }
        self.idle_cpu(ctx, task, wake)
    }

    fn task_new(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task, baton);
    }

    fn task_wakeup(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task, baton);
    }

    fn task_preempt(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task, baton);
    }

    fn task_yield(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task, baton);
    }

    fn task_restored(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task, baton);
    }

    fn pick_next_task(&self, _: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        match self.queues[cpu].lock().pop_front() {
            Some(task) => Pick::Run {
                task,
                slice: self.slice,
            },
            None if prev.is_some() => Pick::Keep { slice: self.slice },
            None => Pick::Nothing,
        }
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if matches!(why, Refusal::Stale | Refusal::Foreign) {
            return;
        }
        self.rehome(ctx, baton);
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let home = Cpu::new(self.home.of(task).load(Relaxed));
        let baton = self.queues[home].lock().remove(task.slot);
        // A refused token may be put back while its task is being queued again. The task may then
        // be in another queue than the noted one.
        baton.or_else(|| {
            self.queues
                .iter()
                .find_map(|queue| queue.lock().remove(task.slot))
        })
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let waiting = self.queues[cpu].lock().len();
        for _ in 0..waiting {
            let first = self.queues[cpu].lock().pop_front();
            let Some(baton) = first else { return };
            self.rehome(ctx, baton);
        }
    }
}

baton::policy!(PerCpuFifo);
