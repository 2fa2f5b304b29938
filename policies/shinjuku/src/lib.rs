// SPDX-License-Identifier: GPL-2.0-only
//! `shinjuku`: one first-come, first-served queue for the machine, and preemption after
//! microseconds, so that short requests do not wait for long ones. After Shinjuku (Kaffes et al.,
//! NSDI '19), as in Enoki (section 4.2.2).
//!
//! 1. A woken or new task goes to an idle CPU: the nearest to where it last ran, on an idle core
//!    before an idle SMT sibling. If no CPU is idle, it waits at the end of the queue.
//! 2. A CPU with nothing to run takes the first task of the queue that may run there.
//! 3. A task that has run for a slice (`slice`, 10 us; 5 us to 100 ms) is preempted by a timer if
//!    another task is in the queue. It is then *long* until it sleeps, or until it has been
//!    preempted `patience` times in succession, each time before it had run for a whole slice. The
//!    second case gives a task that would soon sleep the time to do so. A short task is not
//!    preempted before its slice is over, a long one at any time for a task in the queue. While no
//!    task waits, no timer is set.
//! 4. When a short task has to wait, one CPU makes room for it: one that had nothing to run when it
//!    was last asked (a later policy's task may run there), else one whose task is long or has run
//!    for a slice. If there is no such CPU, a timer is set for when the first CPU can make room. No
//!    timer is set if the waker says that it is about to sleep, nor for a woken or new task that is
//!    bound to one CPU, as nothing is known of its waker. Without a timer, the search is
//!    repeated when the next task is queued, or a CPU whose task has run for a slice makes room at
//!    its tick. A long task gets room only on a CPU that had nothing to run.
//! 5. Long tasks wait in a queue of their own. It is served when the other is empty, in turns of
//!    `turn` (4 ms) that the tick ends. Tasks of positive nice values wait there from the start.
//! 6. No task starves: a CPU that has picked `patience` (50) tasks of the queue in a row picks the
//!    first long one, which then has a slice.
//!
//! All CPUs take one lock, and a wakeup that finds no idle CPU looks at the state of every CPU. The
//! policy is for machines of some dozens of CPUs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::sync::Arc;
use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, PerTask, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Topology, Upgrade, Wake, DEFAULT_SLICE,
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The tasks that wait.
struct Queues {
    short: Fifo,
    long: Fifo,
}

/// The task that runs on a CPU. Read and written with the queues' lock held.
struct Running {
    /// When it was picked, ns; 0 if the CPU had nothing to run when it was last asked.
    since: AtomicU64,
    /// When the CPU can make room, ns.
    until: AtomicU64,
    /// The CPU was kicked and has not asked for a task since.
    sent_for: AtomicBool,
    /// Short tasks picked in a row (rule 6).
    shorts: AtomicU64,
}

/// One task. Written in its own calls, and when its CPU picks another task.
#[derive(Default)]
struct TaskState {
    /// How often it can be preempted before it is short again (rule 3); 0 if it is short.
    long: AtomicU64,
    /// A timer may be set for it: the waker did not say that it is about to sleep (rule 4).
    timed: AtomicBool,
}

/// The state that one version passes to the next.
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
    /// Puts a task at the end of its queue. Returns true if that is the queue of the short tasks.
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

    /// When a CPU can make room (rule 4): 0 if nothing runs there, `u64::MAX` if it was kicked
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

    /// Makes a CPU ask for a task.
    fn send_for(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        self.shared.running[cpu].sent_for.store(true, Relaxed);
        // A call kicks one CPU at most, so the kick is not refused.
        let _ = ctx.kick(cpu, Kick::Preempt);
    }

    /// Makes room on a CPU for a waiting task: now or, if the task is short and `timed`, by a
    /// timer. Call with the queues' lock held.
    fn make_room(&self, ctx: &Ctx<'_>, task: &Task, is_short: bool, timed: bool) {
        let Some((due, cpu)) = self.first_due(task.cpu, |cpu| ctx.may_run(task, cpu)) else {
            return;
        };
        // Saturating, as `due` may have passed.
        let left = if due != 0 && is_short {
            due.saturating_sub(ctx.now())
        } else {
            due
        };
        match left {
            0 => self.send_for(ctx, cpu),
            // This replaces the timer of the current CPU. `due` is the earliest time of all CPUs
            // that this task may use, so nothing is lost if the old timer was set for one of them.
            // If it was set for another CPU, that CPU makes room late, by a slice at most.
            left if is_short && timed => ctx.arm_timer(left),
            _ => {}
        }
    }

    /// Queues a task that has become runnable.
    fn begin(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let state = self.shared.tasks.of(task);
        state.long.store(0, Relaxed);
        let timed = state.timed.swap(false, Relaxed);
        let mut queues = self.shared.queues.lock();
        let is_short = self.push(&mut queues, task, baton);
        match self.due(task.cpu) {
            // A CPU with nothing to run asks by itself when a task reaches its run queue.
            0 => self.shared.running[task.cpu].sent_for.store(true, Relaxed),
            _ => self.make_room(ctx, task, is_short, timed),
        }
    }

    /// Queues a task that is still runnable.
    fn wait(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let mut queues = self.shared.queues.lock();
        let is_short = self.push(&mut queues, task, baton);
        self.make_room(ctx, task, is_short, true);
    }

    /// Takes the next task for a CPU, and returns with it whether it is short. `ran` is how long
    /// the current task of the CPU has run, if there is one.
    fn next(
        &self,
        ctx: &Ctx<'_>,
        queues: &mut Queues,
        cpu: Cpu,
        ran: Option<u64>,
    ) -> Option<(Schedulable, bool)> {
        let fits = |slot: &u32| ctx.slot_may_run(*slot, cpu);
        // Only the first: otherwise tasks that may run anywhere would take the turn of one that is
        // bound to few CPUs.
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
        // Slices above 100 us are for guests, where everything takes longer.
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
        let idle = ctx.claim_idle_for(&self.topology, task, wake);
        Placement::Queue(idle.unwrap_or(wake.prev_cpu))
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
        // A long task that was not picked by rule 6 makes room at once.
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
            // The task's affinity has just changed. It does not fit this CPU when the host asks
            // again.
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
        // The timer was set for another CPU's task.
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
