// SPDX-License-Identifier: GPL-2.0-only
//! `cfs_like`: what Linux had before EEVDF, to be compared with: the fair scheduler of kernel/sched/fair.c up to 6.5, without groups and
//! load averages. A task's load is its weight.
//!
//! 1. A task's *vruntime* grows by the CPU time that it uses, times 1024, divided by its weight (`calc_delta_fair`).
//! 2. Each CPU runs the task of its queue with the lowest vruntime. Its *min_vruntime* follows the lowest of those who run and wait, and
//!    never goes back (`update_min_vruntime`); a task that moves keeps its distance to it.
//! 3. Those who can run share a period by weight (`sched_slice`): `latency`, or `min_granularity` for each where that is more, which no slice
//!    is below. At the tick, who has used up his slice is preempted, and who, having run for `min_granularity`, is further ahead of the
//!    first in the queue than a slice (`check_preempt_tick`).
//! 4. Who wakes up gets at least min_vruntime less half of `latency`; a new task begins a slice behind (`place_entity`).
//! 5. Who wakes up preempts who is ahead of him by more than `wakeup_granularity`, less for the heavier (`wakeup_preempt_entity`).
//! 6. A waking task goes to where it ran last, or to its waker: if the waker is about to sleep and alone there, or is less loaded and
//!    nobody is idle (`wake_affine`). From there to an idle CPU with the same cache, of an idle core first (`select_idle_sibling`), which is
//!    his then: nobody takes him away while it wakes up (`load_balance` wants two on a run queue). A new task goes to the nearest idle core of the
//!    machine, else to an idle CPU, or to the least loaded (`find_idlest_cpu`).
//! 7. A CPU that would go idle takes a task from the most loaded that has one for it, with the same cache first (`newidle_balance`).
//! 8. Every 16 ticks a busy CPU takes tasks from the most loaded, as long as that brings the two closer: with the same cache if that has
//!    17 % more, any if it has 25 % more (`load_balance`). At each tick, and for who is preempted or restored, it has an idle CPU look
//!    for work, if that may run one of the first eight who wait (`nohz_balancer_kick`).
//!
//! The times are 6, 0.75 and 1 ms, and two, three and four times as long on machines of 2, 4 and of 8 CPUs and more. Nothing bounds a wait
//! but the weights: beside a task of nice -20 one of nice 19 waits for longer than the usual stall limit.
#![no_std]
#![forbid(unsafe_code)]

use baton::{
    runqueue::Tree, weight::NICE_0, Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, PerTask, Pick, Placement, Refusal,
    Schedulable, Scheduler, Shared, Task, Topology, Wake,
};
use core::iter;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The queue of one CPU, and the task that runs there: its slot, when it was charged last, and what it had used when it was picked.
struct Queue {
    tasks: Tree,
    curr: Option<(u32, u64, u64)>,
}

/// One CPU. All but the queue is written with its lock held, and read without.
struct PerCpuState {
    queue: Lock<Queue>,
    min_vruntime: Shared<u64>,
    /// Weight of those who wait, and of who runs.
    waiting: Shared<u64>,
    running: Shared<u64>,
}

/// One task. Written in its own calls, which the host never makes two of at once, and by the CPU that takes it.
#[derive(Default)]
struct TaskState {
    vruntime: Shared<u64>,
    /// CPU time that is in `vruntime` already, ns.
    charged: AtomicU64,
    /// As of the last charge, so that it does not change in a queue.
    weight: Shared<u64>,
    /// The CPU whose min_vruntime this vruntime is relative to; in whose queue it is, if in any.
    home: Shared<u32>,
}

/// The policy.
pub struct CfsLike {
    cpus: PerCpu<PerCpuState>,
    tasks: PerTask<TaskState>,
    topology: Topology,
    latency: u64,
    min_granularity: u64,
    wakeup_granularity: u64,
}

/// Is `a` before `b`? As the kernel compares vruntimes, so that the count may wrap.
fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

fn later(a: u64, b: u64) -> u64 {
    [a, b][usize::from(before(a, b))]
}

/// Rule 1.
fn weighted(ns: u64, weight: u64) -> u64 {
    ns.min(1 << 53).wrapping_mul(u64::from(NICE_0)) / weight.max(1)
}

impl PerCpuState {
    fn load(&self) -> u64 {
        self.waiting.get() + self.running.get()
    }
}

impl TaskState {
    /// Adds what the task has run since it was last charged, and gives its vruntime.
    fn charge(&self, task: &Task) -> u64 {
        self.weight.set(task.weight().into());
        let ran = task.runtime.saturating_sub(self.charged.swap(task.runtime, Relaxed));
        self.vruntime.set(self.vruntime.get().wrapping_add(weighted(ran, task.weight().into())));
        self.vruntime.get()
    }
}

impl CfsLike {
    /// The vruntime of the task that runs, now.
    fn vruntime(&self, queue: &Queue, now: u64) -> Option<u64> {
        let (slot, since, _) = queue.curr?;
        let state = self.tasks.slot(slot);
        let ran = weighted(now.saturating_sub(since), state.weight.get());
        Some(state.vruntime.get().wrapping_add(ran))
    }

    /// The task in `slot` runs on `at` from now on, or runs on; it has used `from` ns of CPU time, and was charged for them.
    fn set_curr(&self, ctx: &Ctx<'_>, at: &PerCpuState, queue: &mut Queue, slot: u32, from: u64) {
        queue.curr = Some((slot, ctx.now(), from));
        at.running.set(self.tasks.slot(slot).weight.get());
        self.update_min(at, queue, Some(self.tasks.slot(slot).vruntime.get()));
    }

    /// Nobody runs on `at`.
    fn clear_curr(&self, at: &PerCpuState, queue: &mut Queue) {
        queue.curr = None;
        at.running.set(0);
    }

    /// The slice of who runs on `at` (rule 3), ns.
    fn slice(&self, at: &PerCpuState, queue: &Queue) -> u64 {
        let period = self.latency.max((queue.tasks.len() as u64 + 1) * self.min_granularity);
        (period * at.running.get() / at.load().max(1)).max(self.min_granularity)
    }

    /// Rule 2, after a change; `running` is the vruntime of who runs.
    fn update_min(&self, at: &PerCpuState, queue: &Queue, running: Option<u64>) {
        let lowest = match (running, queue.tasks.first()) {
            (Some(running), Some((first, _))) if before(first, running) => first,
            (Some(running), _) => running,
            (None, Some((first, _))) => first,
            (None, None) => return,
        };
        at.min_vruntime.set(later(at.min_vruntime.get(), lowest));
    }

    /// Rule 2, second half: brings the vruntime of the task in `slot` to `cpu`. (Each wakeup comes here: a call would cost it 25 instructions.)
    #[inline(always)]
    fn settle(&self, slot: u32, cpu: Cpu) -> u64 {
        let state = self.tasks.slot(slot);
        let home = Cpu::new(state.home.get());
        if home == cpu {
            return state.vruntime.get();
        }
        state.home.set(cpu.number() as u32);
        let min = |cpu: Cpu| self.cpus[cpu].min_vruntime.get();
        let vruntime = state.vruntime.get().wrapping_sub(min(home)).wrapping_add(min(cpu));
        state.vruntime.set(vruntime);
        vruntime
    }

    /// Puts a task into the queue of `cpu`, where its vruntime is `place(vruntime of the task, min_vruntime)`. Gives how far it is before
    /// the task that runs there.
    fn insert(&self, ctx: &Ctx<'_>, cpu: Cpu, baton: Schedulable, place: impl FnOnce(u64, u64) -> u64) -> Option<i64> {
        let (slot, at) = (baton.slot(), &self.cpus[cpu]);
        let state = self.tasks.slot(slot);
        let vruntime = place(self.settle(slot, cpu), at.min_vruntime.get());
        state.vruntime.set(vruntime);
        let mut queue = at.queue.lock();
        if queue.curr.is_some_and(|(curr, ..)| curr == slot) {
            self.clear_curr(at, &mut queue);
            self.update_min(at, &queue, None);
        }
        let waiting = queue.tasks.len();
        let _ = queue.tasks.insert(vruntime, baton);
        // Not so if it is in another queue already: one that was refused, and queued anew meanwhile.
        if queue.tasks.len() != waiting {
            at.waiting.set(at.waiting.get() + state.weight.get());
        }
        let running = self.vruntime(&queue, ctx.now());
        self.update_min(at, &queue, running);
        running.map(|curr| curr.wrapping_sub(vruntime) as i64)
    }

    /// The vruntime of who wakes up (rule 4).
    fn placed(&self, own: u64, min: u64) -> u64 {
        later(own, min.wrapping_sub(self.latency / 2))
    }

    /// What was taken out of a queue waits no more.
    fn taken(&self, at: &PerCpuState, taken: Option<(u64, Schedulable)>) -> Option<Schedulable> {
        let (_, baton) = taken?;
        at.waiting.set(at.waiting.get() - self.tasks.slot(baton.slot()).weight.get());
        Some(baton)
    }

    /// Takes the first task of `from`'s queue that `fits`.
    fn take(&self, from: Cpu, fits: impl FnMut(u32) -> bool) -> Option<Schedulable> {
        let at = &self.cpus[from];
        self.taken(at, at.queue.lock().tasks.pop_where(fits))
    }

    /// Has the nearest idle CPU that is fit look for work (rule 8).
    fn offer(&self, ctx: &Ctx<'_>, from: Cpu, is_fit: impl Fn(Cpu) -> bool) {
        if let Some(idle) = ctx.idle_near(&self.topology, from).find(|&cpu| is_fit(cpu)) {
            let _ = ctx.kick(idle, Kick::Idle);
        }
    }

    /// Rule 6 for who wakes up: an idle CPU, or else a busy one.
    #[inline(never)]
    fn target(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake, is_idle: impl Fn(Cpu) -> bool) -> Result<Cpu, Cpu> {
        let [waker, prev] = [wake.waker_cpu, wake.prev_cpu].map(|cpu| &self.cpus[cpu]);
        let is_alone = wake.sync && waker.waiting.get() == 0;
        let is_less = || !ctx.is_idle(wake.prev_cpu) && waker.load() + u64::from(task.weight()) < prev.load();
        let pulls = (is_alone || is_less()) && ctx.may_run(task, wake.waker_cpu);
        let target = [wake.prev_cpu, wake.waker_cpu][usize::from(pulls)];
        let core = |cpu: Cpu| self.topology.place(cpu).core;
        let is_idle_core =
            |&cpu: &Cpu| self.same_llc(cpu).take_while(|&c| core(c) == core(cpu)).all(|c| ctx.is_idle(c));
        let own = [target, wake.prev_cpu].into_iter().filter(|&cpu| self.topology.same_llc(cpu, target));
        let order = own.chain(self.same_llc(target).filter(is_idle_core)).chain(self.same_llc(target));
        order.take_while(|_| ctx.any_idle()).find(|&cpu| is_idle(cpu)).ok_or(target)
    }

    /// The most loaded of these where somebody waits.
    fn busiest(&self, of: impl Iterator<Item = Cpu>) -> Option<Cpu> {
        let waiting = of.filter(|&cpu| self.cpus[cpu].waiting.get() != 0);
        waiting.max_by_key(|&cpu| self.cpus[cpu].load())
    }

    /// The CPUs that share a cache with this one.
    fn same_llc(&self, cpu: Cpu) -> impl Iterator<Item = Cpu> + '_ {
        self.topology.near(cpu).iter().copied().take_while(move |&other| self.topology.same_llc(cpu, other))
    }

    /// Rule 7.
    #[inline(never)]
    fn steal(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let all = || self.topology.near(cpu).iter().copied();
        let order = [self.busiest(self.same_llc(cpu)), self.busiest(all())].into_iter().flatten().chain(all());
        let mut waiting = order.filter(|&from| self.cpus[from].waiting.get() != 0);
        let baton = waiting.find_map(|from| self.take(from, |slot| ctx.slot_may_run(slot, cpu)))?;
        self.settle(baton.slot(), cpu);
        let (from, at) = (self.tasks.slot(baton.slot()).charged.load(Relaxed), &self.cpus[cpu]);
        self.set_curr(ctx, at, &mut at.queue.lock(), baton.slot(), from);
        Some(baton)
    }

    /// Rule 8: tasks for `cpu` from the most loaded of `others`, if it has `percent` of the load here. True if there was one.
    fn pull(&self, ctx: &Ctx<'_>, cpu: Cpu, percent: u64, others: impl Iterator<Item = Cpu>) -> bool {
        let load = |cpu: Cpu| self.cpus[cpu].load();
        let Some(busiest) = self.busiest(others).filter(|&c| load(c) * 100 > load(cpu) * percent) else { return false };
        let closer = |slot| self.tasks.slot(slot).weight.get() < load(busiest).saturating_sub(load(cpu));
        let next = || self.take(busiest, |slot| closer(slot) && ctx.slot_may_run(slot, cpu));
        iter::from_fn(next).take(32).map(|task| self.insert(ctx, cpu, task, |own, _| own)).fold(false, |_, _| true)
    }

    /// To the nearest CPU that will do. If there is none it stays: the kernel will enqueue it anew.
    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let home = Cpu::new(self.tasks.slot(baton.slot()).home.get());
        let fits = |&cpu: &Cpu| ctx.is_online(cpu) && ctx.baton_may_run(&baton, cpu);
        let cpu = self.topology.near(home).iter().copied().find(fits).unwrap_or(home);
        self.insert(ctx, cpu, baton, |own, _| own);
        let _ = ctx.kick(cpu, Kick::Idle);
    }
}

impl Scheduler for CfsLike {
    const NAME: &'static str = "cfs_like";
    const EVENTS: Events = Events::TICK.and(Events::BALANCE);

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        env.known_options(&["latency", "min_granularity", "wakeup_granularity"])?;
        let queue = || Lock::new(Queue { tasks: env.tree(), curr: None });
        let factor = 1 + u64::from(env.topology().nr_cpus().min(8).ilog2());
        let zero = || Shared::new(0);
        let cpu = |_| PerCpuState { queue: queue(), min_vruntime: zero(), waiting: zero(), running: zero() };
        Ok(Self {
            cpus: env.per_cpu(cpu),
            tasks: env.per_task(),
            topology: env.topology().clone(),
            latency: env.duration("latency", 6_000_000 * factor)?.min(1 << 40),
            min_granularity: env.duration("min_granularity", 750_000 * factor)?.clamp(1, 1 << 40),
            wakeup_granularity: env.duration("wakeup_granularity", 1_000_000 * factor)?,
        })
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let is_idle = |cpu: Cpu| ctx.is_idle(cpu) && ctx.may_run(task, cpu) && ctx.claim_idle(cpu);
        if wake.fork {
            let idle = ctx.idle_for(&self.topology, wake).find(|&cpu| is_idle(cpu));
            let allowed = self.topology.near(wake.prev_cpu).iter().copied().filter(|&cpu| ctx.may_run(task, cpu));
            let least = || allowed.min_by_key(|&cpu| self.cpus[cpu].load());
            return Placement::Queue(idle.or_else(least).unwrap_or(wake.prev_cpu));
        }
        // Whichever of the two would be the target (`wake_affine_idle`).
        let is_near = |&prev: &Cpu| self.topology.same_llc(wake.waker_cpu, prev);
        let idle = Some(wake.prev_cpu).filter(is_near).filter(|&prev| ctx.may_run(task, prev) && ctx.claim_idle(prev));
        let found = idle.map_or_else(|| self.target(ctx, task, wake, is_idle), Ok);
        let cpu = match found {
            Ok(idle) => idle,
            Err(busy) => return Placement::Queue(busy),
        };
        // As good as running there: who is alone on a run queue is not taken from it, however long the CPU takes to wake up.
        let (state, at) = (self.tasks.of(task), &self.cpus[cpu]);
        state.charge(task);
        state.vruntime.set(self.placed(self.settle(task.slot, cpu), at.min_vruntime.get()));
        self.set_curr(ctx, at, &mut at.queue.lock(), task.slot, task.runtime);
        Placement::run(cpu)
    }

    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let (state, weight) = (self.tasks.of(task), u64::from(task.weight()));
        state.charged.store(task.runtime, Relaxed);
        state.weight.set(weight);
        state.home.set(task.cpu.number() as u32);
        let slice = (self.latency * weight / (self.cpus[task.cpu].load() + weight)).max(self.min_granularity);
        self.insert(ctx, task.cpu, baton, |_, min| min.wrapping_add(weighted(slice, weight)));
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
        self.insert(ctx, task.cpu, baton, |own, _| own);
        self.offer(ctx, task.cpu, |cpu| ctx.may_run(task, cpu));
    }

    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        // Behind the one that would run next.
        let first = self.cpus[task.cpu].queue.lock().tasks.first();
        self.tasks.of(task).charge(task);
        self.insert(ctx, task.cpu, baton, |own, _| first.map_or(own, |(vruntime, _)| later(own, vruntime)));
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.task_preempt(ctx, task, baton);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let running = prev.map(|task| (task, self.tasks.of(task).charge(task)));
        let at = &self.cpus[cpu];
        let mut queue = at.queue.lock();
        let first = queue.tasks.first();
        if let Some((task, _)) = running.filter(|(_, own)| first.is_none_or(|(vruntime, _)| before(*own, vruntime))) {
            self.set_curr(ctx, at, &mut queue, task.slot, task.runtime);
            return Pick::Keep { slice: self.slice(at, &queue) };
        }
        let Some(task) = self.taken(at, queue.tasks.pop_first()) else {
            self.clear_curr(at, &mut queue);
            return Pick::Nothing;
        };
        let from = self.tasks.slot(task.slot()).charged.load(Relaxed);
        self.set_curr(ctx, at, &mut queue, task.slot(), from);
        Pick::Run { task, slice: self.slice(at, &queue) }
    }

    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let mut all = self.cpus.iter();
        all.any(|at| at.waiting.get() != 0).then(|| self.steal(ctx, cpu)).flatten()
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            self.rehome(ctx, baton);
        }
    }

    fn balance(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let all = self.topology.near(cpu).iter().copied();
        let _ = self.pull(ctx, cpu, 117, self.same_llc(cpu)) || self.pull(ctx, cpu, 125, all);
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let home = Cpu::new(self.tasks.of(task).home.get());
        let remove = |at: &PerCpuState| self.taken(at, at.queue.lock().tasks.remove(task.slot));
        // One that was refused and is put back while the task is queued anew may leave it in another queue than was noted.
        remove(&self.cpus[home]).or_else(|| self.cpus.iter().find_map(remove))
    }

    fn task_tick(&self, ctx: &Ctx<'_>, task: &Task) {
        let vruntime = self.tasks.of(task).charge(task);
        let at = &self.cpus[task.cpu];
        let mut queue = at.queue.lock();
        let from = queue.curr.filter(|curr| curr.0 == task.slot).map_or(task.runtime, |(_, _, from)| from);
        self.set_curr(ctx, at, &mut queue, task.slot, from);
        let slice = self.slice(at, &queue);
        let Some((first, _)) = queue.tasks.first() else { return };
        let (ran, is_ahead) = (task.runtime.saturating_sub(from), before(first.wrapping_add(slice), vruntime));
        if ran > slice || (is_ahead && ran >= self.min_granularity) {
            let _ = ctx.kick(task.cpu, Kick::Preempt);
        }
        self.offer(ctx, task.cpu, |cpu| queue.tasks.iter().take(8).any(|(_, slot)| ctx.slot_may_run(slot, cpu)));
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let waiting = self.cpus[cpu].queue.lock().tasks.len();
        (0..waiting).filter_map(|_| self.take(cpu, |_| true)).for_each(|baton| self.rehome(ctx, baton));
    }
}

baton::policy!(CfsLike);
