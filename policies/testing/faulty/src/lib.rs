// SPDX-License-Identifier: GPL-2.0-only
//! `faulty`: a policy that misbehaves on demand, to show and test that the host contains it.
//!
//! 1. All tasks wait in one first-in first-out queue. A CPU runs the first task that may run there.
//! 2. With the option `fault=KIND`, the `after`-th call (2,000) of the method that fits the kind,
//!    or of the method that the option `in` names, does the wrong thing, once or from then on.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod wrong;

baton::message! {
    /// A message from an application.
    pub enum Hint, version 1 {
        /// Asks for nothing.
        Ping {
            /// Any number.
            number: u64,
        } = 1,
    }
}

baton::message! {
    /// A message from the policy, which sends none.
    pub enum Reply, version 1 {
        /// Says nothing.
        Pong {
            /// Any number.
            number: u64,
        } = 1,
    }
}

use alloc::{string::String, vec, vec::Vec};
use baton::{
    runqueue::Fifo, Asked, Cpu, Ctx, Env, Hints, Kick, Lock, PerCpu, Pick, Placement, Refusal,
    Schedulable, Scheduler, Shared, Task, Topology, Wake,
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use wrong::Fault;

/// The policy.
pub struct Faulty {
    queue: Lock<Fifo>,
    /// A `Schedulable` that was kept when it should have been given back ([`Fault::Stale`]).
    kept: Lock<Option<Schedulable>>,
    /// For [`Fault::Cycle`].
    crosswise: [Lock<u64>; 2],
    waiting_with: [AtomicU64; 2],
    /// For [`Fault::ManyLocks`] and [`Fault::KeptLock`].
    many: Vec<Lock<u64>>,
    /// For [`Fault::Copies`]; empty for other faults.
    block: Vec<u8>,
    copy: Lock<Vec<u8>>,
    topology: Topology,
    cpus: PerCpu<AtomicU64>,
    /// Has the CPU gone offline?
    gone: PerCpu<AtomicBool>,
    fault: Option<Fault>,
    /// The method in which a fault happens that may happen in any.
    method: String,
    after: u64,
    calls: Shared<u64>,
    /// The number of blocks that were hoarded ([`Fault::Hoard`]). Slices are longer by it, so that
    /// the policy's answers depend on how much memory there was.
    hoarded: AtomicU64,
}

impl Faulty {
    /// Is the fault `kind` due? Counts the call. Two CPUs that call at once may count as one.
    fn is_due(&self, kind: Fault) -> bool {
        if self.fault != Some(kind) {
            return false;
        }
        let calls = self.calls.get();
        self.calls.set(calls + 1);
        calls >= self.after
    }

    /// Every method begins with this.
    fn reach(&self, method: &str) {
        let Some(fault) = self.fault else { return };
        // Another fault happens elsewhere, and its calls are counted there.
        if fault > Fault::KeptLock || method != self.method || !self.is_due(fault) {
            return;
        }
        let n = self.calls.get();
        match fault {
            Fault::Index => wrong::index(n),
            Fault::LargeMessage => wrong::large_message(),
            Fault::Overflow => wrong::overflow(n),
            Fault::Unwrap => wrong::unwrap(&self.topology),
            Fault::Memory => wrong::memory(),
            Fault::Recursion => drop(wrong::recursion(n)),
            Fault::Forever => wrong::forever(),
            Fault::Nested => wrong::nested(),
            Fault::Tail => drop(wrong::even(n)),
            Fault::Copies => wrong::copies(&self.block, &self.copy),
            Fault::Deadlock => wrong::deadlock(&self.queue),
            Fault::Lost => drop(self.queue.lock().pop_front()),
            Fault::ManyLocks => wrong::many_locks(&self.many),
            _ => wrong::kept_lock(&self.many[0]),
        }
    }

    fn enqueue(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let _ = self.queue.lock().push_back(baton);
        // Any idle CPU, as the queue is for all CPUs.
        if let Some(idle) = self.topology.cpus().find(|&cpu| ctx.is_idle(cpu)) {
            let _ = ctx.kick(idle, Kick::Idle);
        }
    }
}

impl Scheduler for Faulty {
    const NAME: &'static str = "faulty";

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        env.known_options(&["fault", "after", "in"])?;
        let fault = env.option("fault").map(Fault::from_name).transpose()?;
        let usual = fault.map_or("", Fault::usual_method);
        let method = String::from(env.option("in").unwrap_or(usual));
        let block = vec![
            0;
            if fault == Some(Fault::Copies) {
                1 << 20
            } else {
                0
            }
        ];
        let policy = Self {
            queue: Lock::new(env.fifo()),
            kept: Lock::new(None),
            crosswise: [Lock::new(0), Lock::new(0)],
            waiting_with: [AtomicU64::new(0), AtomicU64::new(0)],
            many: (0..32).map(Lock::new).collect(),
            copy: Lock::new(block.clone()),
            block,
            topology: env.topology().clone(),
            cpus: env.per_cpu(|_| AtomicU64::new(0)),
            gone: env.per_cpu(|_| AtomicBool::new(false)),
            fault,
            // These are called once.
            after: if ["new", "drop"].contains(&&method[..]) {
                0
            } else {
                env.number("after", 2_000)?
            },
            method,
            calls: Shared::new(0),
            hoarded: AtomicU64::new(0),
        };
        policy.reach("new");
        Ok(policy)
    }

    fn may_have(&self, _: &Asked<'_>) -> Result<(), baton::Error> {
        self.reach("may_have");
        Ok(())
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        self.reach("select_task_rq");
        if self.is_due(Fault::SelectCpu) {
            return Placement::run(Cpu::new(4_000));
        }
        let mut idle = self
            .topology
            .near(wake.prev_cpu)
            .iter()
            .copied()
            .filter(|&cpu| ctx.may_run(task, cpu));
        Placement::Queue(
            idle.find(|&cpu| ctx.claim_idle(cpu))
                .unwrap_or(wake.prev_cpu),
        )
    }

    fn task_new(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.reach("task_new");
        self.enqueue(ctx, baton);
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.reach("task_wakeup");
        if self.is_due(Fault::Hoard) && self.hoarded.load(Relaxed) == 0 {
            self.hoarded.store(wrong::hoard(), Relaxed);
        }
        if self.method == "timer" {
            ctx.arm_timer(20_000);
        }
        self.enqueue(ctx, baton);
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.reach("task_preempt");
        if self.is_due(Fault::Kick) {
            let _ = ctx.kick(task.cpu, Kick::Preempt);
        }
        self.enqueue(ctx, baton);
    }

    fn task_yield(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.reach("task_yield");
        if self.is_due(Fault::Dropped) {
            drop(baton);
            return;
        }
        if self.is_due(Fault::Forgotten) {
            core::mem::forget(baton);
            return;
        }
        self.enqueue(ctx, baton);
    }

    fn task_restored(&self, ctx: &Ctx<'_>, _: &Task, baton: Schedulable) {
        self.reach("task_restored");
        self.enqueue(ctx, baton);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, _: Option<&Task>) -> Pick {
        self.reach("pick_next_task");
        let turn = self.cpus[cpu].fetch_add(1, Relaxed);
        if self.is_due(Fault::Stall) {
            return Pick::Nothing;
        }
        if self.is_due(Fault::Cycle) {
            wrong::cycle(&self.crosswise, &self.waiting_with, cpu);
        }
        if self.is_due(Fault::Stale) {
            if let Some(task) = self.kept.lock().take() {
                return Pick::Run { task, slice: 0 };
            }
        }
        // Wrong every other time, so that the policy is refused and continues; or always.
        let wrong_now = self.calls.get().is_multiple_of(2);
        let is_to_be_refused = self.method == "pick_refused" && turn.is_multiple_of(2);
        let careless = (self.is_due(Fault::NotAllowed) && wrong_now)
            || self.is_due(Fault::Loop)
            || is_to_be_refused;
        let task = self
            .queue
            .lock()
            .pop_where(|slot| careless != ctx.slot_may_run(slot, cpu));
        let task = task.or_else(|| {
            self.queue
                .lock()
                .pop_where(|slot| ctx.slot_may_run(slot, cpu))
        });
        let slice = 3_000_000 + self.hoarded.load(Relaxed);
        task.map_or(Pick::Nothing, |task| Pick::Run { task, slice })
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        self.reach("pick_refused");
        match why {
            Refusal::Stale | Refusal::Foreign => {}
            // To the front, so that it is the next answer again.
            _ if self.fault == Some(Fault::Loop) => {
                let _ = self.queue.lock().push_front(baton);
            }
            _ => {
                let allowed = self
                    .topology
                    .cpus()
                    .find(|&cpu| ctx.baton_may_run(&baton, cpu));
                let _ = self.queue.lock().push_back(baton);
                if let Some(cpu) = allowed {
                    let _ = ctx.kick(cpu, Kick::Idle);
                }
            }
        }
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.reach("task_dequeued");
        let baton = self.queue.lock().remove(task.slot);
        match baton {
            Some(baton) if self.is_due(Fault::Stale) => {
                let mut kept = self.kept.lock();
                if kept.is_some() {
                    return Some(baton);
                }
                *kept = Some(baton);
                None
            }
            baton => baton,
        }
    }

    fn cpu_online(&self, _: &Ctx<'_>, cpu: Cpu) {
        self.reach("cpu_online");
        self.gone[cpu].store(false, Relaxed);
    }

    fn cpu_offline(&self, _: &Ctx<'_>, cpu: Cpu) {
        self.reach("cpu_offline");
        self.gone[cpu].store(true, Relaxed);
    }

    fn enter_idle(&self, _: &Ctx<'_>, cpu: Cpu) {
        self.reach("enter_idle");
        if self.gone[cpu].load(Relaxed) && self.is_due(Fault::Offline) {
            wrong::index(self.calls.get());
        }
    }

    fn timer(&self, ctx: &Ctx<'_>, _: Cpu) {
        self.reach("timer");
        // Wakeups that follow each other closely put the timer off. It would fire only a few times.
        if self.method == "timer" {
            ctx.arm_timer(100_000);
        }
    }

    fn newly_idle(&self, _: &Ctx<'_>, _: Cpu) -> Option<Schedulable> {
        self.reach("newly_idle");
        None
    }

    fn balance(&self, _: &Ctx<'_>, _: Cpu) {
        self.reach("balance");
    }

    fn task_blocked(&self, _: &Ctx<'_>, _: &Task) {
        self.reach("task_blocked");
    }

    fn task_departed(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.reach("task_departed");
        self.queue.lock().remove(task.slot)
    }

    fn task_dead(&self, _: &Ctx<'_>, _: &Task) {
        self.reach("task_dead");
    }

    fn task_affinity_changed(&self, _: &Ctx<'_>, _: &Task) {
        self.reach("task_affinity_changed");
    }

    fn task_prio_changed(&self, _: &Ctx<'_>, _: &Task) {
        self.reach("task_prio_changed");
    }

    fn task_tick(&self, _: &Ctx<'_>, _: &Task) {
        self.reach("task_tick");
    }

    fn exit_idle(&self, _: &Ctx<'_>, _: Cpu) {
        self.reach("exit_idle");
    }
}

impl Hints for Faulty {
    type Hint = Hint;
    type Reply = Reply;

    fn hint(&self, _: &Ctx<'_>, _: &Task, _: Hint) {
        self.reach("hint");
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.reach("drop");
    }
}

baton::policy!(Faulty, hints);
