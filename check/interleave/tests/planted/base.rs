// SPDX-License-Identifier: GPL-2.0-only
//! A correct policy. Each of the other policies here is a copy with one mistake.
//!
//! 1. One first-in first-out queue for each CPU. A woken task goes to an idle CPU if there is one.
//! 2. A CPU about to go idle takes the first task that it may run from another CPU's queue.
//! 3. At the tick, a CPU with a queue wakes the idle CPUs that could take from it.

use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Kick, Lock, PerCpu, Pick, Placement, Refusal, Schedulable,
    Scheduler, Task, Topology, Wake,
};

pub struct Base {
    pub queues: PerCpu<Lock<Fifo>>,
    pub topology: Topology,
}

impl Base {
    pub fn new(env: &Env<'_>) -> Self {
        Self {
            queues: env.per_cpu(|_| Lock::new(env.fifo())),
            topology: env.topology().clone(),
        }
    }

    pub fn put(&self, cpu: Cpu, baton: Schedulable) {
        let _ = self.queues[cpu].lock().push_back(baton);
    }

    pub fn others(&self, cpu: Cpu) -> impl Iterator<Item = Cpu> + '_ {
        self.topology
            .near(cpu)
            .iter()
            .copied()
            .filter(move |&other| other != cpu)
    }

    pub fn idle_cpu(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Option<Cpu> {
        let mut near = self
            .topology
            .near(wake.prev_cpu)
            .iter()
            .copied()
            .filter(|&cpu| ctx.may_run(task, cpu));
        near.find(|&cpu| ctx.claim_idle(cpu))
    }

    pub fn wake_idle(&self, ctx: &Ctx<'_>, from: Cpu) {
        let idle: Vec<Cpu> = self.others(from).filter(|&cpu| ctx.is_idle(cpu)).collect();
        let queue = self.queues[from].lock();
        for cpu in idle
            .into_iter()
            .filter(|&cpu| queue.iter().any(|slot| ctx.slot_may_run(slot, cpu)))
        {
            let _ = ctx.kick(cpu, Kick::Idle);
        }
    }

    pub fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let allowed = self
            .topology
            .cpus()
            .find(|&cpu| ctx.baton_may_run(&baton, cpu))
            .unwrap_or(Cpu::new(0));
        self.put(allowed, baton);
        let _ = ctx.kick(allowed, Kick::Idle);
    }
}

/// A policy derived from [`Base`]; methods that it does not define are those of the base.
pub trait Variant: Sized + Send + Sync {
    fn new(env: &Env<'_>) -> Self;
    fn base(&self) -> &Base;

    fn select(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        Placement::Queue(
            self.base()
                .idle_cpu(ctx, task, wake)
                .unwrap_or(wake.prev_cpu),
        )
    }
    fn queue(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.base().put(task.cpu, baton);
    }
    fn new_task(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.queue(ctx, task, baton);
    }
    fn wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.queue(ctx, task, baton);
    }
    fn preempted(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.queue(ctx, task, baton);
    }
    fn yielded(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.queue(ctx, task, baton);
    }
    fn restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.queue(ctx, task, baton);
    }
    fn next(&self, _: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        self.base().queues[cpu].lock().pop_front()
    }
    fn steal(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let base = self.base();
        base.others(cpu).find_map(|from| {
            base.queues[from]
                .lock()
                .pop_where(|slot| ctx.slot_may_run(slot, cpu))
        })
    }
    fn refused(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        self.base().rehome(ctx, baton);
    }
    fn take_back(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.base()
            .queues
            .iter()
            .find_map(|queue| queue.lock().remove(task.slot))
    }
    fn dead(&self, task: &Task) {
        let _ = task;
    }
    fn tick(&self, ctx: &Ctx<'_>, task: &Task) {
        self.base().wake_idle(ctx, task.cpu);
    }
    fn online(&self, cpu: Cpu) {
        let _ = cpu;
    }
    fn offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let base = self.base();
        let waiting = base.queues[cpu].lock().len();
        for _ in 0..waiting {
            let first = base.queues[cpu].lock().pop_front();
            let Some(baton) = first else { return };
            base.rehome(ctx, baton);
        }
    }
}

/// The policy that a [`Variant`] defines.
pub struct Planted<V>(pub V);

impl<V: Variant> Scheduler for Planted<V> {
    const NAME: &'static str = "planted";

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        Ok(Self(V::new(env)))
    }
    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        self.0.select(ctx, task, wake)
    }
    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.0.new_task(ctx, task, baton);
    }
    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.0.wakeup(ctx, task, baton);
    }
    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.0.preempted(ctx, task, baton);
    }
    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.0.yielded(ctx, task, baton);
    }
    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.0.restored(ctx, task, baton);
    }
    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        match self.0.next(ctx, cpu) {
            Some(task) => Pick::Run {
                task,
                slice: 8_000_000,
            },
            None if prev.is_some() => Pick::Keep { slice: 8_000_000 },
            None => Pick::Nothing,
        }
    }
    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        self.0.steal(ctx, cpu)
    }
    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            self.0.refused(ctx, baton);
        }
    }
    fn task_dequeued(&self, ctx: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.0.take_back(ctx, task)
    }
    fn task_dead(&self, _: &Ctx<'_>, task: &Task) {
        self.0.dead(task);
    }
    fn task_tick(&self, ctx: &Ctx<'_>, task: &Task) {
        self.0.tick(ctx, task);
    }
    fn cpu_online(&self, _: &Ctx<'_>, cpu: Cpu) {
        self.0.online(cpu);
    }
    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        self.0.offline(ctx, cpu);
    }
}

/// The base itself.
pub struct Right(Base);

impl Variant for Right {
    fn new(env: &Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }
}

baton::policy!(Planted<Right>);
