// SPDX-License-Identifier: GPL-2.0-only
//! `shinjuku`: one queue for the machine, first come, first served, and preemption after
//! microseconds: short requests do not wait for long ones. After Shinjuku (Kaffes et al., NSDI '19)
//! as Enoki has it (section 4.2.2).
//!
//! 1. A waking or new task goes to an idle CPU, the nearest to where it ran last, and one of an
//!    idle core before an idle SMT sibling. If no CPU is idle, it waits at the end of the queue.
//! 2. A CPU that has nothing to run takes the first of the queue that it may run.
//! 3. Who has run for a slice (`slice`, 10 us; 5 us to 100 us) is preempted, by a timer, if anyone
//!    is in the queue, and is *long* until it sleeps, or is sent away `patience` times in a row
//!    before it had another slice: so that one who would have slept can. Nobody short is preempted
//!    before; a long one is for anyone in the queue. Where nobody waits no timer is set.
//! 4. For who comes and has to wait, one CPU makes room: one that had nothing when it was asked
//!    last (a later policy's task runs there, if any), else one with a long task, or one that has
//!    run for a slice. If there is none, a timer is set for the first that will have. There is none
//!    if the waker says that it is about to sleep, nor for a task bound to one CPU, of whose waker
//!    nothing is known: there the next who comes looks again, or the tick does.
//! 5. Long tasks go to the back: they have a queue of their own, which is served where the other is
//!    empty, in turns of `turn` (4 ms), kept by the tick. So are tasks of positive nice values,
//!    from the start.
//! 6. Nobody waits for ever: a CPU that has picked `patience` (50) tasks of the queue in a row
//!    picks the first long one, which has a slice then.
//!
//! All CPUs take one lock, and who finds no idle CPU looks at the state of each: for machines of
//! some dozens of CPUs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::sync::Arc;
use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, PerTask, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Topology, Upgrade, Wake, DEFAULT_SLICE,
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Those who wait.
struct Queues {
    short: Fifo,
    long: Fifo,
}

/// What runs on a CPU. Read and written with the queues' lock held.
struct Running {
    /// Since when, ns; 0: the CPU had nothing when it was asked last.
    since: AtomicU64,
    /// When it can make room, ns.
    until: AtomicU64,
    /// The CPU was sent for, and has not asked yet.
    sent_for: AtomicBool,
    /// Rule 6.
    shorts: AtomicU64,
}

/// One task. Written in its own calls, and where its CPU picks another.
#[derive(Default)]
struct TaskState {
    /// How often it can be sent away before it is short again (rule 3); 0: it is short.
    long: AtomicU64,
    /// Woken by one that does not say it is about to sleep.
    timed: AtomicBool,
}

/// What one version hands to the next.
#[derive(Clone)]
pub struct Kept {
    queues: Arc<Lock<Queues>>,
    running: PerCpu<Running>,
    tasks: PerTask<TaskState>,
}

baton::state!(Queues, version 1 { short, long });
baton::state!(Running, version 1 { since, until, sent_for, shorts });
baton::state!(TaskState, version 1 { long, timed });
baton::state!(Kept, version 1 { queues, running, tasks });

/// The policy.
pub struct Shinjuku {
    shared: Kept,
    topology: Topology,
    slice: u64,
    turn: u64,
    patience: u64,
}

impl Shinjuku {
    /// Puts a task at the end of its queue. True if it is the short ones'.
    fn push(&self, queues: &mut Queues, task: &Task, baton: Schedulable) -> bool {
        let is_short = task.nice <= 0 && self.shared.tasks.of(task).long.load(Relaxed) == 0;
        let queue = if is_short {
            &mut queues.short
        } else {
            &mut queues.long
        };
        let _ = queue.push_back(baton);
        is_short
    }

    /// When a CPU can make room (rule 4): 0 if nothing runs there, never if it was sent for
    /// already.
    fn due(&self, cpu: Cpu) -> u64 {
        let running = &self.shared.running[cpu];
        match (running.sent_for.load(Relaxed), running.since.load(Relaxed)) {
            (true, _) => u64::MAX,
            (_, 0) => 0,
            _ => running.until.load(Relaxed),
        }
    }

    /// The CPU that can make room first, and when.
    fn first_due(&self, near: Cpu, fits: impl Fn(Cpu) -> bool) -> Option<(u64, Cpu)> {
        let cpus = self
            .topology
            .near(near)
            .iter()
            .copied()
            .filter(|&cpu| fits(cpu));
        cpus.map(|cpu| (self.due(cpu), cpu))
            .min_by_key(|&(due, _)| due)
            .filter(|&(due, _)| due != u64::MAX)
    }

    /// Has a CPU ask for a task.
    fn send_for(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        self.shared.running[cpu].sent_for.store(true, Relaxed);
        // One kick for each call: there is room.
        let _ = ctx.kick(cpu, Kick::Preempt);
    }

    /// Has a CPU make room for a task that waits: now or, if it is short and `timed`, by a timer.
    /// Call with the queues' lock held.
    fn make_room(&self, ctx: &Ctx<'_>, task: &Task, is_short: bool, timed: bool) {
        let Some((due, cpu)) = self.first_due(task.cpu, |cpu| ctx.may_run(task, cpu)) else {
            return;
        };
        // Time passes from one look at the clock to the next.
        let left = if due != 0 && is_short {
            due.saturating_sub(ctx.now())
        } else {
            due
        };
        match left {
            0 => self.send_for(ctx, cpu),
            // The timer is that of the CPU which this call is on. What it was set for comes after
            // that, unless it is of a CPU that this task may not use: then it is late by a slice at
            // most.
            left if is_short && timed => ctx.arm_timer(left),
            _ => {}
        }
    }

    /// A task begins to be runnable.
    fn begin(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let state = self.shared.tasks.of(task);
        state.long.store(0, Relaxed);
        let timed = state.timed.swap(false, Relaxed);
        let mut queues = self.shared.queues.lock();
        let is_short = self.push(&mut queues, task, baton);
        match self.due(task.cpu) {
            // A CPU that has nothing looks by itself when someone comes to its run queue.
            0 => self.shared.running[task.cpu].sent_for.store(true, Relaxed),
            _ => self.make_room(ctx, task, is_short, timed),
        }
    }

    /// A task goes on being runnable, in a queue.
    fn wait(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let mut queues = self.shared.queues.lock();
        let is_short = self.push(&mut queues, task, baton);
        self.make_room(ctx, task, is_short, true);
    }

    /// Who is next on a CPU, and whether it is of the short ones. `ran` is for how long the task
    /// has run that runs there.
    fn next(
        &self,
        ctx: &Ctx<'_>,
        queues: &mut Queues,
        cpu: Cpu,
        ran: Option<u64>,
    ) -> Option<(Schedulable, bool)> {
        let fits = |slot: &u32| ctx.slot_may_run(*slot, cpu);
        // The first alone: else those that may run anywhere would take the place of one that may
        // not.
        let is_patient = self.shared.running[cpu].shorts.load(Relaxed) < self.patience;
        let first_long = queues.long.front().filter(|slot| !is_patient && fits(slot));
        if first_long.is_none() {
            if let Some(task) = queues.short.pop_where(|slot| fits(&slot)) {
                return Some((task, true));
            }
        }
        let has_turn = ran.is_some_and(|ran| ran < self.turn);
        let long = first_long.or_else(|| queues.long.iter().find(fits).filter(|_| !has_turn))?;
        queues.long.remove(long).map(|task| (task, false))
    }
}

impl Upgrade for Shinjuku {
    type State = Kept;
    type Older = Kept;

    fn reregister_prepare(&self) -> Kept {
        self.shared.clone()
    }

    fn reregister_init(env: &Env<'_>, shared: Kept) -> Result<Self, baton::Error> {
        env.known_options(&["slice", "turn", "patience"])?;
        let slice = env.duration("slice", 10_000)?;
        // Longer ones are for guests, where all takes longer.
        if !(5_000..=100_000_000).contains(&slice) {
            return Err("a slice is 5us to 100ms; above 100us, short requests wait".into());
        }
        let (turn, patience) = (
            env.duration("turn", 4_000_000)?,
            env.number("patience", 50)?.max(1),
        );
        Ok(Self {
            shared,
            topology: env.topology().clone(),
            slice,
            turn,
            patience,
        })
    }
}

impl Scheduler for Shinjuku {
    const NAME: &'static str = "shinjuku";
    const EVENTS: Events = Events::TICK;

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        let queues = Arc::new(Lock::new(Queues {
            short: env.fifo(),
            long: env.fifo(),
        }));
        let running = env.per_cpu(|_| Running {
            since: 0.into(),
            until: 0.into(),
            sent_for: false.into(),
            shorts: 0.into(),
        });
        Self::reregister_init(
            env,
            Kept {
                queues,
                running,
                tasks: env.per_task(),
            },
        )
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        self.shared.tasks.of(task).timed.store(!wake.sync, Relaxed);
        let mut idle = ctx
            .idle_for(&self.topology, wake)
            .filter(|&cpu| ctx.may_run(task, cpu));
        Placement::Queue(
            idle.find(|&cpu| ctx.claim_idle(cpu))
                .unwrap_or(wake.prev_cpu),
        )
    }

    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.begin(ctx, task, baton);
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.begin(ctx, task, baton);
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait(ctx, task, baton);
    }

    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait(ctx, task, baton);
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wait(ctx, task, baton);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let running = &self.shared.running[cpu];
        let (mut queues, now) = (self.shared.queues.lock(), ctx.now());
        running.sent_for.store(false, Relaxed);
        let ran = prev.map(|_| now.saturating_sub(running.since.load(Relaxed)));
        let Some((task, is_short)) = self.next(ctx, &mut queues, cpu, ran) else {
            if prev.is_some() {
                return Pick::Keep {
                    slice: DEFAULT_SLICE,
                };
            }
            running.since.store(0, Relaxed);
            return Pick::Nothing;
        };
        if let Some(prev) = prev {
            let long = &self.shared.tasks.of(prev).long;
            let had_slice = ran >= Some(self.slice);
            long.store(
                if had_slice {
                    self.patience
                } else {
                    long.load(Relaxed).saturating_sub(1)
                },
                Relaxed,
            );
        }
        // A long one whose turn it is not makes room at once.
        let has_slice = is_short || running.shorts.load(Relaxed) >= self.patience;
        running.since.store(now, Relaxed);
        running.until.store(
            now.wrapping_add(if has_slice { self.slice } else { 0 }),
            Relaxed,
        );
        running.shorts.store(
            if is_short {
                running.shorts.load(Relaxed) + 1
            } else {
                0
            },
            Relaxed,
        );
        if !queues.short.is_empty() {
            ctx.arm_timer(self.slice);
        }
        Pick::Run {
            task,
            slice: DEFAULT_SLICE,
        }
    }

    fn pick_refused(&self, _: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            // Its CPUs have just changed. The CPU is asked again, and may not run it now.
            let _ = self.shared.queues.lock().short.push_front(baton);
        }
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let mut queues = self.shared.queues.lock();
        queues
            .short
            .remove(task.slot)
            .or_else(|| queues.long.remove(task.slot))
    }

    fn task_tick(&self, ctx: &Ctx<'_>, task: &Task) {
        let queues = self.shared.queues.lock();
        let ran = ctx
            .now()
            .saturating_sub(self.shared.running[task.cpu].since.load(Relaxed));
        if (!queues.long.is_empty() && ran >= self.turn)
            || (!queues.short.is_empty() && ran >= self.slice)
        {
            self.send_for(ctx, task.cpu);
        }
    }

    fn timer(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let (queues, now) = (self.shared.queues.lock(), ctx.now());
        if queues.short.is_empty() {
            return;
        }
        let own = self.due(cpu);
        if own <= now {
            return self.send_for(ctx, cpu);
        }
        // It was set for the task of another CPU.
        let Some((due, other)) = self.first_due(cpu, |_| true) else {
            return;
        };
        if due <= now {
            self.send_for(ctx, other);
        }
        let next = if due <= now { own } else { due };
        if next != u64::MAX {
            ctx.arm_timer(next - now);
        }
    }

    fn cpu_online(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let _queues = self.shared.queues.lock();
        self.shared.running[cpu].since.store(0, Relaxed);
        self.shared.running[cpu].sent_for.store(false, Relaxed);
        let _ = ctx.kick(cpu, Kick::Idle);
    }
}

baton::policy!(Shinjuku, upgrade);
