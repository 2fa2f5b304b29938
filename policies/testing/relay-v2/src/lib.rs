// SPDX-License-Identifier: GPL-2.0-only
//! `relay`, version 2: for tests of upgrades, with `relay-v1`, whose state has another layout in
//! memory.
//!
//! 1. As version 1.
//! 2. With the option `fault=KIND`, it fails while it replaces another version, or (`late`) at the
//!    `after`-th pick (100) after that.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;
use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Kick, Lock, PerCpu, PerTask, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Topology, Upgrade, Wake,
};
use core::{
    hint::black_box,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

struct Queue {
    picks: u64,
    tasks: Fifo,
}

#[derive(Default)]
struct TaskState {
    picks: AtomicU64,
    home: AtomicU32,
}

/// ns. Short, so that the task that upgrades the policy soon has its turn.
const SLICE: u64 = 3_000_000;

/// The state that version 2 passes on.
#[derive(Clone)]
pub struct Shared {
    cpus: PerCpu<Lock<Queue>>,
    tasks: PerTask<TaskState>,
}

/// The state that version 1 passes on.
mod other {
    use super::*;

    /// The whole state.
    pub struct Shared {
        /// The tasks that wait for each CPU, in their order.
        pub queues: PerCpu<Lock<Fifo>>,
        /// Number of the CPU in whose queue a task was last put.
        pub home: PerTask<AtomicU32>,
        /// How often a task was picked, in all versions.
        pub picks: PerTask<AtomicU32>,
    }

    baton::state!(Shared, version 1 { queues, home, picks });
}

baton::state!(Queue, version 1 { picks, tasks });
baton::state!(TaskState, version 1 { picks, home });
baton::state!(Shared, version 2 { cpus, tasks });

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    PreparePanic,
    PrepareLoop,
    ConvertPanic,
    ConvertLoop,
    ConvertRefuses,
    InitPanic,
    InitMemory,
    InitLock,
    InitRecursion,
    InitLoop,
    TakePanic,
    TakeDeadlock,
    TakeRefuses,
    TakeRecursion,
    TakeLoop,
    Late,
}

impl Fault {
    fn from_name(name: &str) -> Result<Self, baton::Error> {
        Ok(match name {
            "prepare-panic" => Self::PreparePanic,
            "prepare-loop" => Self::PrepareLoop,
            "convert-panic" => Self::ConvertPanic,
            "convert-loop" => Self::ConvertLoop,
            "convert-refuses" => Self::ConvertRefuses,
            "init-panic" => Self::InitPanic,
            "init-memory" => Self::InitMemory,
            "init-lock" => Self::InitLock,
            "init-recursion" => Self::InitRecursion,
            "init-loop" => Self::InitLoop,
            "take-panic" => Self::TakePanic,
            "take-deadlock" => Self::TakeDeadlock,
            "take-refuses" => Self::TakeRefuses,
            "take-recursion" => Self::TakeRecursion,
            "take-loop" => Self::TakeLoop,
            "late" => Self::Late,
            _ => return Err(alloc::format!("there is no fault {name}").into()),
        })
    }
}

/// The policy.
pub struct Relay {
    shared: Shared,
    topology: Topology,
    fault: Option<Fault>,
    left: AtomicU64,
}

impl Relay {
    fn put(&self, cpu: Cpu, baton: Schedulable) {
        self.shared
            .tasks
            .slot(baton.slot())
            .home
            .store(cpu.number() as u32, Relaxed);
        let _ = self.shared.cpus[cpu].lock().tasks.push_back(baton);
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

fn fault_of(env: &Env<'_>) -> Result<Option<Fault>, baton::Error> {
    env.option("fault").map(Fault::from_name).transpose()
}

/// Turns without end.
fn endless() {
    while black_box(true) {}
}

/// Calls itself without end. Its data on the stack are used after the call, so that the compiler
/// does not make a loop of it.
#[inline(never)]
#[allow(unconditional_recursion, reason = "it is the point")]
fn recursion(n: u64) -> u64 {
    let deep = black_box([n; 16]);
    recursion(deep[3] ^ 1) + black_box(deep)[5]
}

impl Upgrade for Relay {
    type State = Shared;
    type Older = other::Shared;

    fn reregister_prepare(&self) -> Shared {
        assert!(
            self.fault != Some(Fault::PreparePanic),
            "asked to panic as the state is handed on"
        );
        if self.fault == Some(Fault::PrepareLoop) {
            endless();
        }
        self.shared.clone()
    }

    fn reregister_init(env: &Env<'_>, shared: Shared) -> Result<Self, baton::Error> {
        env.known_options(&["fault", "after"])?;
        let fault = fault_of(env)?;
        assert!(
            fault != Some(Fault::InitPanic),
            "asked to panic as it is made"
        );
        if fault == Some(Fault::InitLock) {
            black_box(shared.cpus[Cpu::new(0)].lock().picks);
        }
        if fault == Some(Fault::InitRecursion) {
            recursion(0);
        }
        if fault == Some(Fault::InitLoop) {
            endless();
        }
        if fault == Some(Fault::InitMemory) {
            let mut hoard = Vec::new();
            loop {
                hoard.push(black_box(Vec::<u8>::with_capacity(1 << 20)));
            }
        }
        let left = AtomicU64::new(env.number("after", 100)?);
        Ok(Self {
            shared,
            topology: env.topology().clone(),
            fault,
            left,
        })
    }

    fn reregister_convert(env: &Env<'_>, _: &other::Shared) -> Result<Shared, baton::Error> {
        let fault = fault_of(env)?;
        assert!(
            fault != Some(Fault::ConvertPanic),
            "asked to panic as the state is converted"
        );
        if fault == Some(Fault::ConvertLoop) {
            endless();
        }
        if fault == Some(Fault::ConvertRefuses) {
            return Err("asked to refuse the state".into());
        }
        let queue = |_| {
            Lock::new(Queue {
                picks: 0,
                tasks: env.fifo(),
            })
        };
        Ok(Shared {
            cpus: env.per_cpu(queue),
            tasks: env.per_task(),
        })
    }

    fn reregister_take(&self, older: &other::Shared, slots: u32) -> Result<(), baton::Error> {
        for (own, old) in self.shared.cpus.iter().zip(older.queues.iter()) {
            core::mem::swap(&mut own.lock().tasks, &mut *old.lock());
            // In the middle of the transfer: one queue has been taken.
            assert!(
                self.fault != Some(Fault::TakePanic),
                "asked to panic as the queues are taken"
            );
            if self.fault == Some(Fault::TakeDeadlock) {
                let once = old.lock();
                black_box((once.len(), old.lock().len()));
            }
            if self.fault == Some(Fault::TakeRecursion) {
                recursion(0);
            }
            if self.fault == Some(Fault::TakeLoop) {
                endless();
            }
            if self.fault == Some(Fault::TakeRefuses) {
                return Err("asked to refuse the queues".into());
            }
        }
        for slot in 0..slots {
            let own = self.shared.tasks.slot(slot);
            own.home.store(older.home.slot(slot).load(Relaxed), Relaxed);
            own.picks
                .store(older.picks.slot(slot).load(Relaxed).into(), Relaxed);
        }
        Ok(())
    }
}

impl Scheduler for Relay {
    const NAME: &'static str = "relay";
    const VERSION: u32 = 2;

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        let queue = |_| {
            Lock::new(Queue {
                picks: 0,
                tasks: env.fifo(),
            })
        };
        Self::reregister_init(
            env,
            Shared {
                cpus: env.per_cpu(queue),
                tasks: env.per_task(),
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
        self.shared.tasks.of(task).picks.store(0, Relaxed);
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
        if self.fault == Some(Fault::Late) {
            let left = self.left.load(Relaxed);
            assert!(left != 0, "asked to panic a while after the upgrade");
            self.left.store(left - 1, Relaxed);
        }
        let mut queue = self.shared.cpus[cpu].lock();
        match queue.tasks.pop_front() {
            Some(task) => {
                queue.picks += 1;
                self.shared
                    .tasks
                    .slot(task.slot())
                    .picks
                    .fetch_add(1, Relaxed);
                Pick::Run { task, slice: SLICE }
            }
            None if prev.is_some() => Pick::Keep { slice: SLICE },
            None => Pick::Nothing,
        }
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            let home = Cpu::new(self.shared.tasks.slot(baton.slot()).home.load(Relaxed));
            self.rehome(ctx, baton, home);
        }
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let home = Cpu::new(self.shared.tasks.of(task).home.load(Relaxed));
        let baton = self.shared.cpus[home].lock().tasks.remove(task.slot);
        // A refused token may be put back while its task is being queued again. The task may then
        // be in another queue than the noted one.
        baton.or_else(|| {
            self.shared
                .cpus
                .iter()
                .find_map(|queue| queue.lock().tasks.remove(task.slot))
        })
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let waiting = self.shared.cpus[cpu].lock().tasks.len();
        for _ in 0..waiting {
            let first = self.shared.cpus[cpu].lock().tasks.pop_front();
            let Some(baton) = first else { return };
            self.rehome(ctx, baton, cpu);
        }
    }
}

baton::policy!(Relay, upgrade);
