// SPDX-License-Identifier: GPL-2.0-only
//! `lifo`: one last-in first-out queue for each CPU. A woken task, whose data may still be in the
//! cache, runs before tasks that have waited for longer. It shows what that costs the others.
//!
//! 1. A woken or new task is handed directly to an idle CPU: the nearest to where it last ran, on
//!    an idle core before an idle SMT sibling.
//! 2. If no CPU is idle, it waits at the head of the queue of the CPU where it last ran.
//! 3. A CPU runs the first task of its queue for a slice (option `slice`, 20 ms), and then puts it
//!    at the end of the queue.
#![no_std]
#![forbid(unsafe_code)]

use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Topology, Wake, DEFAULT_SLICE,
};

/// The policy and all its data. `&self` is shared by all CPUs, so data that change are behind a
/// [`Lock`] or in an atomic.
pub struct Lifo {
    /// Indexed by CPU. A queue takes any number of tasks and never allocates.
    queues: PerCpu<Lock<Fifo>>,
    topology: Topology,
    /// How long a task runs before the next one's turn, ns.
    slice: u64,
}

impl Lifo {
    /// Rule 2.
    fn wait_first(&self, cpu: Cpu, baton: Schedulable) {
        let _ = self.queues[cpu].lock().push_front(baton);
    }

    /// Rule 3.
    fn wait_for(&self, cpu: Cpu, baton: Schedulable) {
        let _ = self.queues[cpu].lock().push_back(baton);
    }

    /// Queues a task that cannot stay where it is, for the first CPU that it may use.
    fn wait_elsewhere(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        if let Some(cpu) = self
            .topology
            .cpus()
            .find(|&cpu| ctx.baton_may_run(&baton, cpu))
        {
            self.wait_for(cpu, baton);
            // An idle CPU would not look at its queue by itself. (An error means that the call made
            // too many kicks.)
            let _ = ctx.kick(cpu, Kick::Idle);
        } else {
            // The kernel will move the task. The host takes it back for that (`task_dequeued`).
            self.wait_for(Cpu::new(0), baton);
        }
    }
}

impl Scheduler for Lifo {
    const NAME: &'static str = "lifo";

    /// No tick, no notice of sleep or idleness: events that are not requested cost nothing.
    /// [`Events`] lists them.
    const EVENTS: Events = Events::NONE;

    /// Called once, when the policy is loaded. This is the place to allocate. An error is shown to
    /// the user who loads the policy.
    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        env.known_options(&["slice"])?;
        Ok(Self {
            queues: env.per_cpu(|_| Lock::new(env.fifo())),
            topology: env.topology().clone(),
            slice: env.duration("slice", DEFAULT_SLICE)?,
        })
    }

    /// Rule 1. Two CPUs may see the same idle CPU, but only one of them can claim it.
    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let mut idle = ctx
            .idle_for(&self.topology, wake)
            .filter(|&cpu| ctx.may_run(task, cpu));
        match idle.find(|&cpu| ctx.claim_idle(cpu)) {
            Some(idle) => Placement::Run {
                cpu: idle,
                slice: self.slice,
            },
            None => Placement::Queue(wake.prev_cpu),
        }
    }

    /// The task is new here.
    fn task_new(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait_first(task.cpu, baton);
    }

    /// The task was asleep.
    fn task_wakeup(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait_first(task.cpu, baton);
    }

    /// The task was running and is still runnable, but its slice is over or another task took the
    /// CPU.
    fn task_preempt(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait_for(task.cpu, baton);
    }

    /// The task was running and lets others go first.
    fn task_yield(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait_for(task.cpu, baton);
    }

    /// The kernel took the task out to change it (its nice value, its affinity), and puts it back.
    fn task_restored(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait_for(task.cpu, baton);
    }

    /// Rule 3. `prev` is the task that was running on the CPU, if it is still runnable. It
    /// continues if no other task waits.
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

    /// The task that was picked may not run on that CPU, so its token is returned. The task waits
    /// for a CPU that it may use.
    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if matches!(why, Refusal::Stale | Refusal::Foreign) {
            return; // worthless: a newer one exists, so this one may be dropped
        }
        self.wait_elsewhere(ctx, baton);
    }

    /// The host takes a waiting task back, from whichever queue it is in. Also called when a task
    /// leaves the policy.
    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.queues
            .iter()
            .find_map(|queue| queue.lock().remove(task.slot))
    }

    /// A CPU that goes offline will not pick again, so its tasks must wait elsewhere.
    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let waiting = self.queues[cpu].lock().len();
        for _ in 0..waiting {
            // In a line of its own: in the condition of an `if let`, the lock would be held to the
            // end of the block.
            let first = self.queues[cpu].lock().pop_front();
            if let Some(baton) = first {
                self.wait_elsewhere(ctx, baton);
            }
        }
    }
}

// Names the type of the policy to the host.
baton::policy!(Lifo);
