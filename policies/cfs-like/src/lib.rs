// SPDX-License-Identifier: GPL-2.0-only
//! `cfs_like`: the fair scheduler that Linux had before EEVDF, to compare with: kernel/sched/fair.c
//! up to 6.5, without groups and load averages. A task's load is its weight.
//!
//! 1. A task's *vruntime* grows by the CPU time that it uses, times 1024, divided by its weight
//!    (`calc_delta_fair`).
//! 2. Each CPU runs the task of its queue with the lowest vruntime. Its *min_vruntime* follows the
//!    lowest vruntime of its tasks, and never goes back (`update_min_vruntime`). A task that
//!    migrates keeps its distance to it.
//! 3. Runnable tasks share a period by weight (`sched_slice`). The period is `latency`, or
//!    `min_granularity` for each task if that is longer; no slice is shorter than
//!    `min_granularity`. The tick preempts a task that has used up its slice. It also preempts one
//!    that has run for `min_granularity` and is ahead of the first in the queue by more than a
//!    slice (`check_preempt_tick`).
//! 4. A woken task gets at least min_vruntime less half of `latency`. A new task begins at
//!    min_vruntime plus a slice (`place_entity`).
//! 5. A woken task preempts one that is ahead of it by more than `wakeup_granularity`, less for a
//!    heavier woken task (`wakeup_preempt_entity`).
//! 6. A woken task goes to its waker's CPU if the waker is about to sleep and no other task waits
//!    there, or if the previous CPU is not idle and the waker's CPU is less loaded even with the
//!    task. Otherwise it goes to its previous CPU (`wake_affine`). From there it goes to an idle
//!    CPU under the same LLC, if there is one: the same CPU, the previous one, one of an idle core,
//!    any other (`select_idle_sibling`). The task counts as running there at once, and no other CPU
//!    takes it while that CPU wakes up (`load_balance` wants two tasks on a run queue). A new task
//!    goes to the nearest idle core of the machine, else to an idle CPU, else to the least loaded
//!    (`find_idlest_cpu`).
//! 7. A CPU that would go idle takes a task from the most loaded CPU, or from another if that has
//!    none for it: under the same LLC first, then of its node, then of the machine, among the
//!    nearest 64 CPUs of each (`newidle_balance`).
//! 8. A busy CPU balances its domains at intervals, larger ones less often: threads of a core,
//!    cores under an LLC, LLCs of a node, nodes (`rebalance_domains`). If another group has over 17
//!    % more load for each CPU (10 % between threads), it takes tasks of the imbalance's weight,
//!    and heavier ones when that fails repeatedly (`detach_tasks`). At each tick, an idle CPU is
//!    woken to look for work, if it may run one of the first eight tasks that wait, and likewise
//!    for a task that is preempted or restored (`nohz_balancer_kick`).
//! 9. At the tick, a task that shares its core with another running task moves to an idle core, if
//!    there is one and no task waits on its CPU (`need_active_balance`).
//!
//! The default times are 6, 0.75 and 1 ms. They are two, three and four times as long on machines
//! with 2, with 4, and with 8 or more CPUs. Only the weights bound a wait: beside a task of nice
//! -20, one of nice 19 waits for longer than the usual stall limit.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod domains;

use baton::{
    runqueue::Tree, weight::NICE_0, Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, PerTask, Pick,
    Placement, Refusal, Schedulable, Scheduler, Shared, Task, Wake,
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use domains::Domains;

/// The queue of one CPU, and the task that runs there: its slot, when it was last charged, and its
/// CPU time when it was picked.
struct Queue {
    tasks: Tree,
    curr: Option<(u32, u64, u64)>,
}

/// One CPU. `min_vruntime` is written with the queue's lock held, and read without.
struct PerCpuState {
    queue: Lock<Queue>,
    min_vruntime: Shared<u64>,
}

/// One task. Written in its own calls, of which the host makes only one at a time, and by a CPU
/// that takes the task.
#[derive(Default)]
struct TaskState {
    vruntime: Shared<u64>,
    /// CPU time that is in `vruntime` already, ns.
    charged: AtomicU64,
    /// Weight at the last charge.
    weight: Shared<u64>,
    /// Weight when it was queued. Guarded by the lock of its queue.
    queued: AtomicU64,
    /// The CPU whose min_vruntime the vruntime is relative to. A queued task is in this CPU's
    /// queue.
    home: Shared<u32>,
}

/// The policy.
pub struct CfsLike {
    cpus: PerCpu<PerCpuState>,
    tasks: PerTask<TaskState>,
    domains: Domains,
    latency: u64,
    min_granularity: u64,
    wakeup_granularity: u64,
}

/// Is `a` before `b`? Compared as the kernel compares vruntimes, which may wrap.
fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

fn later(a: u64, b: u64) -> u64 {
    if before(a, b) {
        b
    } else {
        a
    }
}

/// The growth of a task's vruntime in `ns` of CPU time (rule 1).
fn weighted(ns: u64, weight: u64) -> u64 {
    ns.min(1 << 53).wrapping_mul(u64::from(NICE_0)) / weight.max(1)
}

impl TaskState {
    /// Adds the CPU time since the last charge to the task's vruntime, and returns the vruntime.
    fn charge(&self, task: &Task) -> u64 {
        self.weight.set(task.weight().into());
        let ran = task
            .runtime
            .saturating_sub(self.charged.swap(task.runtime, Relaxed));
        self.vruntime.set(
            self.vruntime
                .get()
                .wrapping_add(weighted(ran, task.weight().into())),
        );
        self.vruntime.get()
    }
}

impl CfsLike {
    /// The vruntime of the running task at `now`.
    fn vruntime(&self, queue: &Queue, now: u64) -> Option<u64> {
        let (slot, since, _) = queue.curr?;
        let state = self.tasks.slot(slot);
        let ran = weighted(now.saturating_sub(since), state.weight.get());
        Some(state.vruntime.get().wrapping_add(ran))
    }

    /// Notes that the task in `slot` begins or continues to run on `cpu`, and updates min_vruntime.
    /// The task was charged; `from` is its CPU time when it was picked, ns.
    fn set_curr(&self, ctx: &Ctx<'_>, cpu: Cpu, queue: &mut Queue, slot: u32, from: u64) {
        queue.curr = Some((slot, ctx.now(), from));
        self.domains.loads[cpu]
            .running
            .set(self.tasks.slot(slot).weight.get());
        self.update_min(cpu, queue, Some(self.tasks.slot(slot).vruntime.get()));
    }

    /// Notes that no task runs on `cpu`.
    fn clear_curr(&self, cpu: Cpu, queue: &mut Queue) {
        queue.curr = None;
        self.domains.loads[cpu].running.set(0);
    }

    /// The slice of the task that runs on `cpu` (rule 3), ns.
    fn slice(&self, cpu: Cpu, queue: &Queue) -> u64 {
        let period = self
            .latency
            .max((queue.tasks.len() as u64 + 1) * self.min_granularity);
        let running = self.domains.loads[cpu].running.get();
        (period * running / self.domains.load(cpu).max(1)).max(self.min_granularity)
    }

    /// Updates min_vruntime after a change (rule 2). `running` is the vruntime of the running task.
    fn update_min(&self, cpu: Cpu, queue: &Queue, running: Option<u64>) {
        let lowest = match (running, queue.tasks.first()) {
            (Some(running), Some((first, _))) if before(first, running) => first,
            (Some(running), _) => running,
            (None, Some((first, _))) => first,
            (None, None) => return,
        };
        let min = &self.cpus[cpu].min_vruntime;
        min.set(later(min.get(), lowest));
    }

    /// Rule 2, second half: makes `cpu` the home of the task in `slot`, and returns its vruntime
    /// there. Inlined, as a call would cost each wakeup 25 instructions.
    #[inline(always)]
    fn settle(&self, slot: u32, cpu: Cpu) -> u64 {
        let state = self.tasks.slot(slot);
        let home = Cpu::new(state.home.get());
        if home == cpu {
            return state.vruntime.get();
        }
        state.home.set(cpu.number() as u32);
        let min = |cpu: Cpu| self.cpus[cpu].min_vruntime.get();
        let vruntime = state
            .vruntime
            .get()
            .wrapping_sub(min(home))
            .wrapping_add(min(cpu));
        state.vruntime.set(vruntime);
        vruntime
    }

    /// Puts a task into the queue of `cpu`. Its vruntime becomes `place(own, min_vruntime)`.
    /// Returns how far the running task is ahead of it.
    fn insert(
        &self,
        ctx: &Ctx<'_>,
        cpu: Cpu,
        baton: Schedulable,
        place: impl FnOnce(u64, u64) -> u64,
    ) -> Option<i64> {
        let (slot, at) = (baton.slot(), &self.cpus[cpu]);
        let state = self.tasks.slot(slot);
        let vruntime = place(self.settle(slot, cpu), at.min_vruntime.get());
        state.vruntime.set(vruntime);
        let mut queue = at.queue.lock();
        if queue.curr.is_some_and(|(curr, ..)| curr == slot) {
            self.clear_curr(cpu, &mut queue);
            self.update_min(cpu, &queue, None);
        }
        let queued = queue.tasks.len();
        let _ = queue.tasks.insert(vruntime, baton);
        // The length is the same if the task is in a queue already: its token was refused, and the
        // task was queued again meanwhile.
        if queue.tasks.len() != queued {
            let (waiting, weight) = (&self.domains.loads[cpu].waiting, state.weight.get());
            state.queued.store(weight, Relaxed);
            waiting.set(waiting.get() + weight);
        }
        let running = self.vruntime(&queue, ctx.now());
        self.update_min(cpu, &queue, running);
        running.map(|curr| curr.wrapping_sub(vruntime) as i64)
    }

    /// The vruntime of a woken task (rule 4).
    fn placed(&self, own: u64, min: u64) -> u64 {
        later(own, min.wrapping_sub(self.latency / 2))
    }

    /// Removes a task that was taken out of a queue from the waiting load.
    fn taken(&self, cpu: Cpu, taken: Option<(u64, Schedulable)>) -> Option<Schedulable> {
        let (_, baton) = taken?;
        let waiting = &self.domains.loads[cpu].waiting;
        waiting.set(waiting.get() - self.tasks.slot(baton.slot()).queued.load(Relaxed));
        Some(baton)
    }

    /// Takes the first task of a CPU's queue that `fits`.
    fn take(&self, from: Cpu, fits: impl FnMut(u32) -> bool) -> Option<Schedulable> {
        self.taken(from, self.cpus[from].queue.lock().tasks.pop_where(fits))
    }

    /// Queues a task on the nearest CPU that it may use.
    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let home = Cpu::new(self.tasks.slot(baton.slot()).home.get());
        let cpu = self.domains.for_homeless(ctx, baton.slot(), home);
        self.insert(ctx, cpu, baton, |own, _| own);
        let _ = ctx.kick(cpu, Kick::Idle);
    }
}

impl Scheduler for CfsLike {
    const NAME: &'static str = "cfs_like";
    const EVENTS: Events = Events::TICK.and(Events::BALANCE);

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        env.known_options(&["latency", "min_granularity", "wakeup_granularity"])?;
        let queue = || {
            Lock::new(Queue {
                tasks: env.tree(),
                curr: None,
            })
        };
        let factor = 1 + u64::from(env.topology().nr_cpus().min(8).ilog2());
        Ok(Self {
            cpus: env.per_cpu(|_| PerCpuState {
                queue: queue(),
                min_vruntime: Shared::new(0),
            }),
            tasks: env.per_task(),
            domains: Domains::new(env),
            latency: env.duration("latency", 6_000_000 * factor)?.min(1 << 40),
            min_granularity: env
                .duration("min_granularity", 750_000 * factor)?
                .clamp(1, 1 << 40),
            wakeup_granularity: env.duration("wakeup_granularity", 1_000_000 * factor)?,
        })
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        if wake.fork {
            return Placement::Queue(self.domains.for_new(ctx, task, wake));
        }
        let cpu = match self.domains.for_woken(ctx, task, wake) {
            Ok(idle) => idle,
            Err(busy) => return Placement::Queue(busy),
        };
        // The task counts as running: a task alone on a run queue is not taken from it, however
        // long the CPU takes to wake up.
        let (state, at) = (self.tasks.of(task), &self.cpus[cpu]);
        state.charge(task);
        state
            .vruntime
            .set(self.placed(self.settle(task.slot, cpu), at.min_vruntime.get()));
        self.set_curr(ctx, cpu, &mut at.queue.lock(), task.slot, task.runtime);
        Placement::run(cpu)
    }

    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let (state, weight) = (self.tasks.of(task), u64::from(task.weight()));
        state.charged.store(task.runtime, Relaxed);
        state.weight.set(weight);
        state.home.set(task.cpu.number() as u32);
        let share = self.latency * weight / (self.domains.load(task.cpu) + weight);
        let slice = share.max(self.min_granularity);
        self.insert(ctx, task.cpu, baton, |_, min| {
            min.wrapping_add(weighted(slice, weight))
        });
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.tasks.of(task).charge(task);
        let before = self.insert(ctx, task.cpu, baton, |own, min| self.placed(own, min));
        let granularity = weighted(self.wakeup_granularity, task.weight().into());
        if before.is_some_and(|before| before > granularity as i64) {
            let _ = ctx.kick(task.cpu, Kick::Preempt);
        }
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.tasks.of(task).charge(task);
        let cpu = self.domains.pushed(ctx, task, task.cpu);
        self.insert(ctx, cpu, baton, |own, _| own);
        if cpu == task.cpu {
            self.domains.offer(ctx, cpu, |cpu| ctx.may_run(task, cpu));
        }
    }

    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        // Behind the task that would run next.
        let first = self.cpus[task.cpu].queue.lock().tasks.first();
        self.tasks.of(task).charge(task);
        let place = |own, _| first.map_or(own, |(vruntime, _)| later(own, vruntime));
        self.insert(ctx, task.cpu, baton, place);
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.task_preempt(ctx, task, baton);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let running = prev.map(|task| (task, self.tasks.of(task).charge(task)));
        let mut queue = self.cpus[cpu].queue.lock();
        let first = queue.tasks.first();
        let goes_on = |own| first.is_none_or(|(vruntime, _)| before(own, vruntime));
        if let Some((task, _)) = running.filter(|(_, own)| goes_on(*own)) {
            self.set_curr(ctx, cpu, &mut queue, task.slot, task.runtime);
            return Pick::Keep {
                slice: self.slice(cpu, &queue),
            };
        }
        let Some(task) = self.taken(cpu, queue.tasks.pop_first()) else {
            self.clear_curr(cpu, &mut queue);
            return Pick::Nothing;
        };
        let from = self.tasks.slot(task.slot()).charged.load(Relaxed);
        self.set_curr(ctx, cpu, &mut queue, task.slot(), from);
        Pick::Run {
            task,
            slice: self.slice(cpu, &queue),
        }
    }

    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let take = |from| self.take(from, |slot| ctx.slot_may_run(slot, cpu));
        let baton = self.domains.newly_idle(cpu, take)?;
        self.settle(baton.slot(), cpu);
        let from = self.tasks.slot(baton.slot()).charged.load(Relaxed);
        self.set_curr(
            ctx,
            cpu,
            &mut self.cpus[cpu].queue.lock(),
            baton.slot(),
            from,
        );
        Some(baton)
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            self.rehome(ctx, baton);
        }
    }

    fn balance(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let weight = |slot| self.tasks.slot(slot).weight.get();
        self.domains.balance(ctx, cpu, weight, |from, fits| {
            let baton = self.take(from, fits)?;
            let weight = weight(baton.slot());
            self.insert(ctx, cpu, baton, |own, _| own);
            Some(weight)
        });
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let home = Cpu::new(self.tasks.of(task).home.get());
        let remove =
            |cpu: Cpu| self.taken(cpu, self.cpus[cpu].queue.lock().tasks.remove(task.slot));
        // A refused token may be put back while its task is being queued again. The task may then
        // be in another queue than the noted one.
        remove(home).or_else(|| self.domains.topology.cpus().find_map(remove))
    }

    fn task_tick(&self, ctx: &Ctx<'_>, task: &Task) {
        let vruntime = self.tasks.of(task).charge(task);
        let mut queue = self.cpus[task.cpu].queue.lock();
        let curr = queue.curr.filter(|curr| curr.0 == task.slot);
        let from = curr.map_or(task.runtime, |(_, _, from)| from);
        self.set_curr(ctx, task.cpu, &mut queue, task.slot, from);
        let slice = self.slice(task.cpu, &queue);
        let Some((first, _)) = queue.tasks.first() else {
            return self.domains.spread(ctx, task, task.cpu);
        };
        let ran = task.runtime.saturating_sub(from);
        let is_ahead = before(first.wrapping_add(slice), vruntime);
        if ran > slice || (is_ahead && ran >= self.min_granularity) {
            let _ = ctx.kick(task.cpu, Kick::Preempt);
        }
        let can_use = |cpu| {
            queue
                .tasks
                .iter()
                .take(8)
                .any(|(_, slot)| ctx.slot_may_run(slot, cpu))
        };
        self.domains.offer(ctx, task.cpu, can_use);
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let waiting = self.cpus[cpu].queue.lock().tasks.len();
        for baton in (0..waiting).filter_map(|_| self.take(cpu, |_| true)) {
            self.rehome(ctx, baton);
        }
    }
}

baton::policy!(CfsLike);
