// SPDX-License-Identifier: GPL-2.0-only
//! `relay`, version 1: for tests of upgrades, with `relay-v2`, whose state has another layout in
//! memory.
//!
//! 1. One first-in first-out queue for each CPU. A task waits at the end of the queue of the CPU
//!    where it last ran.
//! 2. Each pick of a task is counted, and the count goes with the task from version to version.
#![no_std]
#![forbid(unsafe_code)]

use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Kick, Lock, PerCpu, PerTask, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Topology, Upgrade, Wake,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// ns. Short, so that the task that upgrades the policy soon has its turn.
const SLICE: u64 = 3_000_000;

/// The state that version 1 passes on.
#[derive(Clone)]
pub struct Shared {
    queues: PerCpu<Lock<Fifo>>,
    home: PerTask<AtomicU32>,
    picks: PerTask<AtomicU32>,
}

/// The state that version 2 passes on.
mod other {
    use super::*;

    /// The state of one CPU.
    pub struct Queue {
        /// How often a task was picked from the queue.
        pub picks: u64,
        /// The tasks that wait, in their order.
        pub tasks: Fifo,
    }

    /// The state of one task.
    pub struct TaskState {
        /// How often the task was picked, in all versions.
        pub picks: AtomicU64,
        /// Number of the CPU in whose queue it was last put.
        pub home: AtomicU32,
    }

    /// The whole state.
    pub struct Shared {
        /// The queues.
        pub cpus: PerCpu<Lock<Queue>>,
        /// The states of the tasks.
        pub tasks: PerTask<TaskState>,
    }

    baton::state!(Queue, version 1 { picks, tasks });
    baton::state!(TaskState, version 1 { picks, home });
    baton::state!(Shared, version 2 { cpus, tasks });
}

baton::state!(Shared, version 1 { queues, home, picks });

/// The policy.
pub struct Relay {
    shared: Shared,
    topology: Topology,
}

impl Relay {
    fn put(&self, cpu: Cpu, baton: Schedulable) {
        self.shared
            .home
            .slot(baton.slot())
            .store(cpu.number() as u32, Relaxed);
        let _ = self.shared.queues[cpu].lock().push_back(baton);
    }

    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable, from: Cpu) {
        let cpu = self
            .topology
            .near(from)
            .iter()
            .copied()
            .find(|&cpu| ctx.baton_may_run(&baton, cpu))
            .unwrap_or(from);
        self.put(cpu, baton);
        let _ = ctx.kick(cpu, Kick::Idle);
    }
}

impl Upgrade for Relay {
    type State = Shared;
    type Older = other::Shared;

    fn reregister_prepare(&self) -> Shared {
        self.shared.clone()
    }

    fn reregister_init(env: &Env<'_>, shared: Shared) -> Result<Self, baton::Error> {
        Ok(Self {
            shared,
            topology: env.topology().clone(),
        })
    }

    fn reregister_convert(env: &Env<'_>, _: &other::Shared) -> Result<Shared, baton::Error> {
        Ok(Shared {
            queues: env.per_cpu(|_| Lock::new(env.fifo())),
            home: env.per_task(),
            picks: env.per_task(),
        })
    }

    fn reregister_take(&self, older: &other::Shared, slots: u32) -> Result<(), baton::Error> {
        for (own, old) in self.shared.queues.iter().zip(older.cpus.iter()) {
            core::mem::swap(&mut *own.lock(), &mut old.lock().tasks);
        }
        for slot in 0..slots {
            let old = older.tasks.slot(slot);
            self.shared
                .home
                .slot(slot)
                .store(old.home.load(Relaxed), Relaxed);
            self.shared
                .picks
                .slot(slot)
                .store(old.picks.load(Relaxed) as u32, Relaxed);
        }
        Ok(())
    }
}

impl Scheduler for Relay {
    const NAME: &'static str = "relay";

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        let queues = env.per_cpu(|_| Lock::new(env.fifo()));
        Self::reregister_init(
            env,
            Shared {
                queues,
                home: env.per_task(),
                picks: env.per_task(),
            },
        )
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let mut near = self
            .topology
            .near(wake.prev_cpu)
            .iter()
            .copied()
            .filter(|&cpu| ctx.may_run(task, cpu));
        Placement::Queue(
            near.find(|&cpu| ctx.claim_idle(cpu))
                .unwrap_or(wake.prev_cpu),
        )
    }

    fn task_new(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.shared.picks.of(task).store(0, Relaxed);
        self.put(task.cpu, baton);
    }

    fn task_wakeup(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task.cpu, baton);
    }

    fn task_preempt(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task.cpu, baton);
    }

    fn task_yield(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task.cpu, baton);
    }

    fn task_restored(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task.cpu, baton);
    }

    fn pick_next_task(&self, _: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let first = self.shared.queues[cpu].lock().pop_front();
        match first {
            Some(task) => {
                self.shared.picks.slot(task.slot()).fetch_add(1, Relaxed);
                Pick::Run { task, slice: SLICE }
            }
            None if prev.is_some() => Pick::Keep { slice: SLICE },
            None => Pick::Nothing,
        }
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            let home = Cpu::new(self.shared.home.slot(baton.slot()).load(Relaxed));
            self.rehome(ctx, baton, home);
        }
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let home = Cpu::new(self.shared.home.of(task).load(Relaxed));
        let baton = self.shared.queues[home].lock().remove(task.slot);
        // A refused token may be put back while its task is being queued again. The task may then
        // be in another queue than the noted one.
        baton.or_else(|| {
            self.shared
                .queues
                .iter()
                .find_map(|queue| queue.lock().remove(task.slot))
        })
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let waiting = self.shared.queues[cpu].lock().len();
        for _ in 0..waiting {
            let first = self.shared.queues[cpu].lock().pop_front();
            let Some(baton) = first else { return };
            self.rehome(ctx, baton, cpu);
        }
    }
}

baton::policy!(Relay, upgrade);
