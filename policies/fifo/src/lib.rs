// SPDX-License-Identifier: GPL-2.0-only
//! `fifo`: one first-in first-out queue for each CPU.
//!
//! 1. A waking or new task goes to an idle CPU, the nearest to where it ran last, and one of an
//!    idle core before an idle SMT sibling; a task woken by one that is about to sleep takes the
//!    waker's CPU instead. If no CPU is idle it stays where it ran last.
//! 2. There it waits at the end of that CPU's queue.
//! 3. A CPU runs the first of its queue, for a slice (`slice`, 20 ms). At the end of the slice the
//!    task goes to the end of the queue.
//! 4. Queues are never evened out.
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
    /// In which CPU's queue a task was put last.
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

    /// Its CPU has gone, or it may not use it any more: to the nearest that will do. If there is
    /// none, the kernel will enqueue it anew.
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
        // A CPU that is busy will come to it by itself.
        let _ = ctx.kick(cpu, baton::Kick::Idle);
    }

    /// The nearest idle CPU, or else the one where the task ran last. Apart from the rest, so that
    /// the other wakeups need no registers for it.
    #[inline(never)]
    fn idle_cpu(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let mut idle = ctx
            .idle_for(&self.near, wake)
            .filter(|&cpu| ctx.may_run(task, cpu));
        idle.find(|&cpu| ctx.claim_idle(cpu))
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
        // One that was refused and is put back while the task is queued anew may leave it in
        // another queue than was noted.
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
