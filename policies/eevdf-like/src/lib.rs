// SPDX-License-Identifier: GPL-2.0-only
//! `eevdf_like`: a model of the kernel's own scheduler, to compare with in the simulator: the fair
//! class of kernel/sched/fair.c in 7.2, without groups, load averages and slices that tasks ask
//! for. A task's load is its weight.
//!
//! 1. A task's *vruntime* grows by the CPU time that it uses, times 1024, divided by its weight
//!    (`calc_delta_fair`). *V* of a CPU is the mean of its tasks' vruntimes, weighted by their
//!    weights (`avg_vruntime`).
//! 2. A task is *eligible* while its vruntime is not past V. Its *deadline* is a base slice of its
//!    own virtual time after the start of its slice (`update_deadline`).
//! 3. Each CPU runs, of the eligible tasks, the one with the earliest deadline (`pick_eevdf`). The
//!    running task continues until its deadline as long as it is eligible (`RUN_TO_PARITY`), and a
//!    timer ends its slice there (`HRTICK`).
//! 4. A task that leaves keeps its *lag*, V less its vruntime, within the virtual time of a base
//!    slice and a tick (`entity_lag`). It gets the lag back where it comes next (`place_entity`),
//!    with a whole slice until its deadline. A new task begins at V with half a slice.
//! 5. A task that goes to sleep with a negative lag remains in the competition until it would be
//!    eligible, and has no lag from then on (`DELAY_DEQUEUE`, `DELAY_ZERO`). Here V does not count
//!    it meanwhile.
//! 6. A woken task preempts the running task if it is the next by rule 3 (`wakeup_preempt_fair`).
//! 7. A task that yields gives up the rest of its slice, if it is eligible (`yield_task_fair`).
//! 8. Woken and new tasks are placed, and CPUs balanced, as under `cfs_like` (its rules 6 to 9):
//!    the kernel kept that. A task that migrates keeps its lag, and the distance to its deadline.
//!
//! The default base slice is 0.7 ms. It is two, three and four times as long on machines with 2,
//! with 4, and with 8 or more CPUs (`get_update_sysctl_factor`).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

// The kernel, too, has one balancer for both.
#[path = "../../cfs-like/src/domains.rs"]
mod domains;

use baton::{
    runqueue::{Queued, Tree},
    weight::NICE_0,
    Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, PerTask, Pick, Placement, Refusal, Schedulable,
    Scheduler, Shared, Task, Wake,
};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use domains::Domains;

/// The queue of one CPU: the tasks that wait, by deadline, and the running task.
struct Queue {
    tasks: Tree,
    /// Slot of the running task, and when it was last charged, ns.
    curr: Option<(u32, u64)>,
    /// Two sums over the tasks that wait: of weights, and of weight times vruntime less `zero`.
    /// `zero` is near V (`cfs_rq->sum_w_vruntime`).
    weight: i64,
    sum: i64,
    zero: u64,
}

/// One task. Written in its own calls, of which the host makes only one at a time, and by a CPU
/// that takes the task. The data of a waiting task change only with the lock of its queue held.
#[derive(Default)]
struct TaskState {
    vruntime: Shared<u64>,
    deadline: Shared<u64>,
    /// The vruntime until which it is not preempted while it is eligible (`se->vprot`).
    protected: Shared<u64>,
    /// Its lag when it went to sleep, and whether that was negative (rule 5).
    lag: AtomicI64,
    is_delayed: AtomicBool,
    /// CPU time that is in `vruntime` already, ns.
    charged: AtomicU64,
    /// Weight at the last charge.
    weight: Shared<u64>,
    /// Weight and vruntime when it was queued. Guarded by the lock of its queue.
    queued_weight: AtomicU64,
    queued_vruntime: AtomicU64,
    /// The CPU for which its vruntime and deadline hold. A queued task is in this CPU's queue.
    home: Shared<u32>,
}

/// The policy.
pub struct EevdfLike {
    cpus: PerCpu<Lock<Queue>>,
    tasks: PerTask<TaskState>,
    domains: Domains,
    base_slice: u64,
}

/// The kernel's tick at HZ=250, ns.
const TICK: u64 = 4_000_000;

/// Is `a` before `b`? Compared as the kernel compares vruntimes, which may wrap.
fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// The virtual time of `ns` of CPU time (`calc_delta_fair`).
fn weighted(ns: u64, weight: u64) -> u64 {
    ns.min(1 << 53) * u64::from(NICE_0) / weight.max(1)
}

impl TaskState {
    /// Adds the CPU time since the last charge to the task's vruntime.
    fn charge(&self, task: &Task) {
        self.weight.set(task.weight().into());
        let ran = task
            .runtime
            .saturating_sub(self.charged.swap(task.runtime, Relaxed));
        self.vruntime.set(
            self.vruntime
                .get()
                .wrapping_add(weighted(ran, task.weight().into())),
        );
    }

    /// How far the task's deadline is after its vruntime.
    fn ahead(&self) -> u64 {
        self.deadline.get().wrapping_sub(self.vruntime.get())
    }
}

impl Queue {
    /// Adds a queued task to the sums, or takes it out.
    fn account(&mut self, state: &TaskState, is_added: bool) {
        let weight = state.queued_weight.load(Relaxed) as i64;
        let key = state.queued_vruntime.load(Relaxed).wrapping_sub(self.zero) as i64;
        let sign = if is_added { 1 } else { -1 };
        // Wrapping, as exactly what was added is taken out again.
        self.sum = self
            .sum
            .wrapping_add(key.wrapping_mul(weight).wrapping_mul(sign));
        self.weight += weight * sign;
    }
}

impl EevdfLike {
    /// Slot and vruntime of the running task at `now`.
    fn running(&self, queue: &Queue, now: u64) -> Option<(u32, u64)> {
        let (slot, since) = queue.curr?;
        let state = self.tasks.slot(slot);
        let ran = weighted(now.saturating_sub(since), state.weight.get());
        Some((slot, state.vruntime.get().wrapping_add(ran)))
    }

    /// V of a CPU (rule 1). It becomes the `zero` of the sums.
    fn average(&self, queue: &mut Queue, now: u64) -> u64 {
        let (mut sum, mut weight) = (queue.sum, queue.weight);
        if let Some((slot, vruntime)) = self.running(queue, now) {
            let own = self.tasks.slot(slot).weight.get() as i64;
            let key = vruntime.wrapping_sub(queue.zero) as i64;
            sum = sum.wrapping_add(key.wrapping_mul(own));
            weight += own;
        }
        if weight > 0 {
            let moved = sum.div_euclid(weight);
            queue.zero = queue.zero.wrapping_add(moved as u64);
            queue.sum = queue.sum.wrapping_sub(queue.weight.wrapping_mul(moved));
        }
        queue.zero
    }

    /// The lag of a task when V is `average`, limited (rule 4).
    fn lag(&self, state: &TaskState, average: u64) -> i64 {
        let limit = weighted(self.base_slice + TICK, state.weight.get()) as i64;
        (average.wrapping_sub(state.vruntime.get()) as i64).clamp(-limit, limit)
    }

    /// Gives a task the vruntime on a CPU with which it has the lag `lag` once it has joined, and a
    /// deadline `ahead` of it (`place_entity`).
    fn place(&self, queue: &mut Queue, now: u64, state: &TaskState, lag: i64, ahead: u64) {
        let average = self.average(queue, now);
        let running = queue
            .curr
            .map_or(0, |(slot, _)| self.tasks.slot(slot).weight.get() as i64);
        let load = queue.weight + running;
        let own = state.weight.get() as i64;
        // Joining moves V by a part of the task's lag, so it is placed with a larger one.
        let lag = if load == 0 {
            0
        } else {
            lag.saturating_mul(load + own) / load
        };
        state.vruntime.set(average.wrapping_sub(lag as u64));
        state.deadline.set(state.vruntime.get().wrapping_add(ahead));
    }

    /// A base slice in a task's virtual time.
    fn virtual_slice(&self, state: &TaskState) -> u64 {
        weighted(self.base_slice, state.weight.get())
    }

    /// Begins a new slice, if the last is used up (`update_deadline`).
    fn update_deadline(&self, state: &TaskState) {
        if !before(state.vruntime.get(), state.deadline.get()) {
            state
                .deadline
                .set(state.vruntime.get().wrapping_add(self.virtual_slice(state)));
        }
    }

    /// Of the eligible tasks that wait, the one with the earliest deadline.
    fn first_eligible(&self, queue: &Queue, average: u64) -> Option<u32> {
        let vruntime = |slot| self.tasks.slot(slot).queued_vruntime.load(Relaxed);
        let is_eligible = |slot| !before(average, vruntime(slot));
        queue
            .tasks
            .iter()
            .map(|(_, slot)| slot)
            .find(|&slot| is_eligible(slot))
    }

    /// The task that should run next, of those that wait; `None` if the running task continues
    /// (rule 3).
    fn next(&self, queue: &mut Queue, now: u64) -> Option<u32> {
        let average = self.average(queue, now);
        let first = self.first_eligible(queue, average);
        let Some((slot, vruntime)) = self.running(queue, now) else {
            // Rounding may leave no eligible task. The first will do then.
            return first.or_else(|| queue.tasks.first().map(|(_, slot)| slot));
        };
        let (first, state) = (first?, self.tasks.slot(slot));
        let is_eligible = !before(average, vruntime);
        let is_protected = before(vruntime, state.protected.get());
        let is_first = before(state.deadline.get(), self.tasks.slot(first).deadline.get());
        (!is_eligible || !is_protected && !is_first).then_some(first)
    }

    /// Notes that the task in `slot`, which was charged, begins or continues to run on `cpu`.
    fn set_curr(&self, ctx: &Ctx<'_>, cpu: Cpu, queue: &mut Queue, slot: u32) {
        queue.curr = Some((slot, ctx.now()));
        self.domains.loads[cpu]
            .running
            .set(self.tasks.slot(slot).weight.get());
    }

    fn clear_curr(&self, cpu: Cpu, queue: &mut Queue) {
        queue.curr = None;
        self.domains.loads[cpu].running.set(0);
    }

    /// The CPU time until the deadline of the task in `slot`, ns. Arms the CPU's timer for it
    /// (`hrtick_start_fair`), also for a task that is alone, as another may come.
    fn slice(&self, ctx: &Ctx<'_>, slot: u32) -> u64 {
        let state = self.tasks.slot(slot);
        let slice =
            (state.ahead().min(1 << 40) * state.weight.get() / u64::from(NICE_0)).max(1_000);
        ctx.arm_timer(slice);
        slice
    }

    /// Makes `cpu` the home of a task that migrates (rule 8). Call without a queue's lock held.
    fn settle(&self, ctx: &Ctx<'_>, slot: u32, cpu: Cpu) {
        let state = self.tasks.slot(slot);
        let home = Cpu::new(state.home.get());
        if home == cpu {
            return;
        }
        let average = self.average(&mut self.cpus[home].lock(), ctx.now());
        let (lag, ahead) = (self.lag(state, average), state.ahead());
        state.home.set(cpu.number() as u32);
        self.place(&mut self.cpus[cpu].lock(), ctx.now(), state, lag, ahead);
    }

    /// Puts a task into the queue of `cpu`, which is its home.
    fn insert(&self, cpu: Cpu, queue: &mut Queue, baton: Schedulable) {
        let state = self.tasks.slot(baton.slot());
        if queue.curr.is_some_and(|(curr, _)| curr == baton.slot()) {
            self.clear_curr(cpu, queue);
        }
        // Otherwise the task was merged with itself: its token was refused, and it was queued again
        // meanwhile. The sums have it already.
        if queue.tasks.insert(state.deadline.get(), baton) == Queued::New {
            let (waiting, weight) = (&self.domains.loads[cpu].waiting, state.weight.get());
            state.queued_weight.store(weight, Relaxed);
            state.queued_vruntime.store(state.vruntime.get(), Relaxed);
            waiting.set(waiting.get() + weight);
            queue.account(state, true);
        }
    }

    /// Removes a task that was taken out of a queue from the waiting load and the sums.
    fn taken(&self, cpu: Cpu, queue: &mut Queue, baton: Schedulable) -> Schedulable {
        let state = self.tasks.slot(baton.slot());
        let waiting = &self.domains.loads[cpu].waiting;
        waiting.set(waiting.get() - state.queued_weight.load(Relaxed));
        queue.account(state, false);
        baton
    }

    /// Takes the first task of a CPU's queue that `fits`.
    fn take(&self, from: Cpu, fits: impl FnMut(u32) -> bool) -> Option<Schedulable> {
        let mut queue = self.cpus[from].lock();
        let (_, baton) = queue.tasks.pop_where(fits)?;
        Some(self.taken(from, &mut queue, baton))
    }

    /// Charges a woken task, and gives it its vruntime and deadline on `cpu` (rules 4 and 5).
    fn wake(&self, ctx: &Ctx<'_>, task: &Task, cpu: Cpu) {
        let state = self.tasks.of(task);
        let mut lag = state.lag.load(Relaxed);
        if state.is_delayed.swap(false, Relaxed) {
            let mut queue = self.cpus[Cpu::new(state.home.get())].lock();
            let is_idle = queue.curr.is_none() && queue.tasks.is_empty();
            let average = self.average(&mut queue, ctx.now());
            let now = if is_idle { 0 } else { self.lag(state, average) };
            lag = now.max(lag).min(0);
        }
        let old = state.weight.get() as i64;
        state.charge(task);
        lag = lag * old / i64::from(task.weight());
        state.home.set(cpu.number() as u32);
        let mut queue = self.cpus[cpu].lock();
        self.place(&mut queue, ctx.now(), state, lag, self.virtual_slice(state));
    }

    /// Queues a task on the nearest CPU that it may use.
    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let home = Cpu::new(self.tasks.slot(baton.slot()).home.get());
        let cpu = self.domains.for_homeless(ctx, baton.slot(), home);
        self.settle(ctx, baton.slot(), cpu);
        self.insert(cpu, &mut self.cpus[cpu].lock(), baton);
        let _ = ctx.kick(cpu, Kick::Idle);
    }

    /// Charges a task that runs or has just run, and is in no queue. `queue` is that of its home.
    fn charge_running(&self, ctx: &Ctx<'_>, queue: &mut Queue, task: &Task) {
        let state = self.tasks.of(task);
        let (old, new) = (state.weight.get(), u64::from(task.weight()));
        if old != new && old != 0 {
            // Its lag and the distance to its deadline are scaled to the new weight
            // (`reweight_entity`).
            let average = self.average(queue, ctx.now());
            let (lag, ahead) = (self.lag(state, average), state.ahead().min(1 << 40));
            let lag = lag * old as i64 / new as i64;
            state.vruntime.set(average.wrapping_sub(lag as u64));
            state
                .deadline
                .set(state.vruntime.get().wrapping_add(ahead * old / new));
        }
        state.charge(task);
        if let Some(curr) = queue.curr.as_mut().filter(|curr| curr.0 == task.slot) {
            curr.1 = ctx.now();
        }
        self.update_deadline(state);
    }
}

impl Scheduler for EevdfLike {
    const NAME: &'static str = "eevdf_like";
    const EVENTS: Events = Events::TICK.and(Events::BALANCE).and(Events::BLOCKED);

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        env.known_options(&["base_slice"])?;
        let queue = || Queue {
            tasks: env.tree(),
            curr: None,
            weight: 0,
            sum: 0,
            zero: 0,
        };
        let factor = 1 + u64::from(env.topology().nr_cpus().min(8).ilog2());
        Ok(Self {
            cpus: env.per_cpu(|_| Lock::new(queue())),
            tasks: env.per_task(),
            domains: Domains::new(env),
            base_slice: env
                .duration("base_slice", 700_000 * factor)?
                .clamp(1_000, 1 << 32),
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
        self.wake(ctx, task, cpu);
        let state = self.tasks.of(task);
        state.protected.set(state.deadline.get());
        self.set_curr(ctx, cpu, &mut self.cpus[cpu].lock(), task.slot);
        Placement::Run {
            cpu,
            slice: self.base_slice,
        }
    }

    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let state = self.tasks.of(task);
        state.charged.store(task.runtime, Relaxed);
        state.weight.set(task.weight().into());
        state.home.set(task.cpu.number() as u32);
        state.lag.store(0, Relaxed);
        state.is_delayed.store(false, Relaxed);
        let mut queue = self.cpus[task.cpu].lock();
        self.place(
            &mut queue,
            ctx.now(),
            state,
            0,
            self.virtual_slice(state) / 2,
        );
        self.insert(task.cpu, &mut queue, baton);
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.wake(ctx, task, task.cpu);
        let mut queue = self.cpus[task.cpu].lock();
        self.insert(task.cpu, &mut queue, baton);
        if queue.curr.is_some() && self.next(&mut queue, ctx.now()) == Some(task.slot) {
            let _ = ctx.kick(task.cpu, Kick::Preempt);
        }
    }

    fn task_blocked(&self, ctx: &Ctx<'_>, task: &Task) {
        let state = self.tasks.of(task);
        let home = Cpu::new(state.home.get());
        let mut queue = self.cpus[home].lock();
        self.charge_running(ctx, &mut queue, task);
        let average = self.average(&mut queue, ctx.now());
        let lag = self.lag(state, average);
        state.lag.store(lag, Relaxed);
        state.is_delayed.store(lag < 0, Relaxed);
        if queue.curr.is_some_and(|(curr, _)| curr == task.slot) {
            self.clear_curr(home, &mut queue);
        }
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let home = Cpu::new(self.tasks.of(task).home.get());
        self.charge_running(ctx, &mut self.cpus[home].lock(), task);
        let cpu = self.domains.pushed(ctx, task, task.cpu);
        if cpu != home {
            let mut queue = self.cpus[home].lock();
            if queue.curr.is_some_and(|(curr, _)| curr == task.slot) {
                self.clear_curr(home, &mut queue);
            }
        }
        self.settle(ctx, task.slot, cpu);
        self.insert(cpu, &mut self.cpus[cpu].lock(), baton);
        if cpu == task.cpu {
            self.domains.offer(ctx, cpu, |cpu| ctx.may_run(task, cpu));
        }
    }

    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let state = self.tasks.of(task);
        {
            let mut queue = self.cpus[Cpu::new(state.home.get())].lock();
            self.charge_running(ctx, &mut queue, task);
            let average = self.average(&mut queue, ctx.now());
            if !before(average, state.vruntime.get()) {
                state.vruntime.set(state.deadline.get());
                self.update_deadline(state);
            }
        }
        self.task_preempt(ctx, task, baton);
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.task_preempt(ctx, task, baton);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        if let Some(task) = prev {
            self.settle(ctx, task.slot, cpu);
        }
        let mut queue = self.cpus[cpu].lock();
        match prev {
            Some(task) => {
                self.set_curr(ctx, cpu, &mut queue, task.slot);
                self.charge_running(ctx, &mut queue, task);
            }
            None => self.clear_curr(cpu, &mut queue),
        }
        let next = self.next(&mut queue, ctx.now());
        let Some(slot) = next else {
            return prev.map_or(Pick::Nothing, |task| Pick::Keep {
                slice: self.slice(ctx, task.slot),
            });
        };
        let Some((_, baton)) = queue.tasks.remove(slot) else {
            return Pick::Nothing;
        };
        let task = self.taken(cpu, &mut queue, baton);
        let state = self.tasks.slot(slot);
        state.protected.set(state.deadline.get());
        self.set_curr(ctx, cpu, &mut queue, slot);
        Pick::Run {
            task,
            slice: self.slice(ctx, slot),
        }
    }

    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let take = |from| self.take(from, |slot| ctx.slot_may_run(slot, cpu));
        let baton = self.domains.newly_idle(cpu, take)?;
        self.settle(ctx, baton.slot(), cpu);
        let state = self.tasks.slot(baton.slot());
        state.protected.set(state.deadline.get());
        self.set_curr(ctx, cpu, &mut self.cpus[cpu].lock(), baton.slot());
        self.slice(ctx, baton.slot());
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
            self.settle(ctx, baton.slot(), cpu);
            self.insert(cpu, &mut self.cpus[cpu].lock(), baton);
            Some(weight)
        });
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let home = Cpu::new(self.tasks.of(task).home.get());
        let remove = |cpu: Cpu| {
            let mut queue = self.cpus[cpu].lock();
            let (_, baton) = queue.tasks.remove(task.slot)?;
            Some(self.taken(cpu, &mut queue, baton))
        };
        // A refused token may be put back while its task is being queued again. The task may then
        // be in another queue than the noted one.
        remove(home).or_else(|| self.domains.topology.cpus().find_map(remove))
    }

    fn task_tick(&self, ctx: &Ctx<'_>, task: &Task) {
        let mut queue = self.cpus[task.cpu].lock();
        self.set_curr(ctx, task.cpu, &mut queue, task.slot);
        self.charge_running(ctx, &mut queue, task);
        if queue.tasks.is_empty() {
            return self.domains.spread(ctx, task, task.cpu);
        }
        let state = self.tasks.of(task);
        if !before(state.vruntime.get(), state.protected.get()) {
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

    fn timer(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let queue = self.cpus[cpu].lock();
        let Some((slot, vruntime)) = self.running(&queue, ctx.now()) else {
            return;
        };
        let state = self.tasks.slot(slot);
        let left = state.deadline.get().wrapping_sub(vruntime);
        if !queue.tasks.is_empty() && !before(vruntime, state.protected.get()) {
            let _ = ctx.kick(cpu, Kick::Preempt);
        } else {
            let left = if (left as i64) < 0 {
                self.virtual_slice(state)
            } else {
                left
            };
            ctx.arm_timer(left.min(1 << 40) * state.weight.get() / u64::from(NICE_0));
        }
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let waiting = self.cpus[cpu].lock().tasks.len();
        for baton in (0..waiting).filter_map(|_| self.take(cpu, |_| true)) {
            self.rehome(ctx, baton);
        }
    }
}

baton::policy!(EevdfLike);
