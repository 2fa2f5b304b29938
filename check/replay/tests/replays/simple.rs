// SPDX-License-Identifier: GPL-2.0-only
//! A simple policy, and the additions that tests make to it.

use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Kick, Lock, Pick, Placement, Refusal, Schedulable, Scheduler,
    Task, Topology, Wake,
};

/// The addition of a test.
pub trait Twist: Send + Sync + Sized + 'static {
    fn new() -> Self;

    /// The slice of a task.
    fn slice(&self) -> u64 {
        1_000_000
    }

    fn balance(&self, _: &Ctx<'_>) {}

    fn enter_idle(&self, _: &Ctx<'_>) {}
}

/// One queue for all tasks.
pub struct Simple<T: Twist> {
    queue: Lock<Fifo>,
    topology: Topology,
    twist: T,
}

impl<T: Twist> Simple<T> {
    fn push(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let _ = self.queue.lock().push_back(baton);
        if let Some(idle) = self.topology.cpus().find(|&cpu| ctx.is_idle(cpu)) {
            let _ = ctx.kick(idle, Kick::Idle);
        }
    }
}

impl<T: Twist> Scheduler for Simple<T> {
    const NAME: &'static str = "simple";

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        Ok(Self {
            queue: Lock::new(env.fifo()),
            topology: env.topology().clone(),
            twist: T::new(),
        })
    }

    fn select_task_rq(&self, _: &Ctx<'_>, _: &Task, wake: &Wake) -> Placement {
        Placement::Queue(wake.prev_cpu)
    }

    fn task_new(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.push(ctx, baton);
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.push(ctx, baton);
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.push(ctx, baton);
    }

    fn task_yield(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.push(ctx, baton);
    }

    fn task_restored(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.push(ctx, baton);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let slice = self.twist.slice();
        match self
            .queue
            .lock()
            .pop_where(|slot| ctx.slot_may_run(slot, cpu))
        {
            Some(task) => Pick::Run { task, slice },
            None if prev.is_some() => Pick::Keep { slice },
            None => Pick::Nothing,
        }
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            self.push(ctx, baton);
        }
    }

    fn balance(&self, ctx: &Ctx<'_>, _: Cpu) {
        self.twist.balance(ctx);
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.queue.lock().remove(task.slot)
    }

    fn enter_idle(&self, ctx: &Ctx<'_>, _: Cpu) {
        self.twist.enter_idle(ctx);
    }
}

/// The policy with this addition, in the form that a host takes.
macro_rules! simple {
    ($twist:ty) => {
        baton_native::Policy::linked(baton_native::module!(
            baton::Plain<$crate::simple::Simple<$twist>>
        ))
    };
}
pub(crate) use simple;
