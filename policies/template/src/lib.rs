// SPDX-License-Identifier: GPL-2.0-only
//! `template`: one first-in first-out queue for each CPU.
//!
//! 1. A woken or new task is handed directly to an idle CPU: the nearest to where it last ran, on
//!    an idle core before an idle SMT sibling.
//! 2. If no CPU is idle, it waits at the end of the queue of the CPU where it last ran.
//! 3. A CPU runs the first task of its queue for a slice (option `slice`, 20 ms), and then puts it
//!    at the end of the queue.
//!
//! How to read this: a policy is one type that implements [`Scheduler`]. The host calls its methods
//! at each event of a task or a CPU, from several CPUs at once, with interrupts off. A method must
//! be short, cannot sleep, and locks the data that CPUs share.
//!
//! A [`Schedulable`] is the right to run one task now. There is never more than one for a task. The
//! policy gets it when the task becomes runnable, keeps it in a queue, and returns it as the answer
//! to a pick. Dropping one is a fault, as its task would never run again.
#![no_std]
#![forbid(unsafe_code)]

use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Topology, Wake, DEFAULT_SLICE,
};

/// The policy and all its data. `&self` is shared by all CPUs, so data that change are behind a
/// [`Lock`] or in an atomic.
pub struct Template {
    /// Indexed by CPU. A queue takes any number of tasks and never allocates.
    queues: PerCpu<Lock<Fifo>>,
    topology: Topology,
    /// How long a task runs before the next one's turn, ns.
    slice: u64,
}

impl Template {
    /// Rule 2. The lock is released at the end of the line. `push_back` returns whether the queue
    /// had the task already, for policies that count.
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

impl Scheduler for Template {
    const NAME: &'static str = "template";

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
        match ctx.claim_idle_for(&self.topology, task, wake) {
            Some(idle) => Placement::Run {
                cpu: idle,
                slice: self.slice,
            },
            None => Placement::Queue(wake.prev_cpu),
        }
    }

    // Five ways in which a task comes to wait. This policy treats them alike. Another might let a
    // task that wakes up go before one whose slice is over. `task.cpu` is the CPU that
    // select_task_rq chose, or the one where the task ran.

    /// The task is new here.
    fn task_new(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait_for(task.cpu, baton);
    }

    /// The task was asleep.
    fn task_wakeup(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait_for(task.cpu, baton);
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
baton::policy!(Template);
