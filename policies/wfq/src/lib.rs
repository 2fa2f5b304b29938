// SPDX-License-Identifier: GPL-2.0-only
//! `wfq`: weighted fair queueing over the machine, after Enoki 4.2.1 and the kernel's former CFS. Enoki's has no rules 9 to 11.
//!
//! 1. A task's *vruntime* grows by the CPU time that it uses, times 1024, divided by its weight (kernel's table, by nice).
//! 2. Each CPU runs, of the tasks queued for it, the one with the lowest vruntime. The lowest that it has picked so far is the
//!    CPU's own vruntime, which never goes back; a task that moves keeps its distance to the CPU's.
//! 3. A task that wakes up gets at least its CPU's vruntime less a credit (`credit`, 3 ms): sleeping earns no more than that. A
//!    new task begins one slice behind.
//! 4. A slice is the period (`period`, 12 ms) shared by those who wait and the one who runs, and at least `min_slice` (3 ms).
//!    Where nobody waits, nobody is interrupted for a whole period. A task lighter than nice 0 has that much less, down to
//!    `light_slice` (0.5 ms), kept by a timer: so that what it then has to wait for is short, too.
//! 5. At each tick, a running task that is more than `min_slice` ahead of the first in the queue is preempted.
//! 6. A waking or new task goes to an idle CPU, the nearest to where it ran last, and one of an idle core before an idle SMT
//!    sibling; if the waker is about to sleep and nobody waits there, to the waker's CPU; else to where it ran last.
//! 7. A CPU that would go idle steals from the longest queue under its LLC, then of its node, then of all: of the nearest 64 of each. A busy one
//!    wakes an idle one at its tick, if that may run one of the first eight who wait, and for who is preempted or restored; who is woken so
//!    steals there first.
//! 8. Nobody waits for ever, whatever the weights: a busy CPU looks through its queue now and then (`look`, 200 ms), and who is
//!    found waiting the third time is next.
//! 9. A task that wakes up preempts the one that runs, if that is ahead of it by more than `granularity` (1 ms). One that is not lighter is preempted so not more
//!    often than once in `protection` (0.25 ms) on each CPU, so that who wakes many is not interrupted for each.
//! 10. Where no CPU is idle and somebody waits already, a waking task goes to that of the nearest eight CPUs where the fewest wait; of equals, to the one whose
//!     vruntime grows fastest, as that has the lightest tasks.
//! 11. Now and then (every 16 ticks) a busy CPU whose vruntime has grown faster since the last time than that of another, by a quarter, takes one of the first eight
//!     who wait on the slowest, the one that was moved so the longest ago: its own tasks get more than their share, that one's less.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::sync::Arc;
use baton::{
    runqueue::{Fifo, Tree},
    weight::NICE_0,
    Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, PerTask, Pick, Placement, Refusal, Schedulable, Scheduler, Shared, Task,
    Topology, Upgrade, Wake,
};
use core::cmp::Reverse;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The queue of one CPU.
struct Queue {
    tasks: Tree,
    /// Rule 2; ns at weight 1024.
    vruntime: u64,
    /// When rule 8 was applied last, ns.
    looked: u64,
}

/// One CPU. `waiting` is the length of the queue, for others to read without the lock.
struct PerCpuState {
    queue: Lock<Queue>,
    waiting: Shared<u32>,
    /// Whether a task runs there whose slice a timer ends.
    timed: AtomicBool,
    /// The vruntime of the task that runs there, as of its last charge; without one, so far back that nobody preempts it.
    running: Shared<u64>,
    /// Its weight, as it was picked.
    weight: Shared<u32>,
    /// When one was last preempted for a task that woke up, ns.
    preempted: Shared<u64>,
    /// Rule 11: the CPU's vruntime then, and by how much it had grown.
    mark: AtomicU64,
    pace: Shared<u64>,
    /// When a task was taken from here so last, ns.
    gave: Shared<u64>,
    /// The CPU that had this one look for work last (rule 7), until it has looked.
    offered: Shared<u32>,
}

/// One task. Written in the task's own calls, which the host never makes two of at once.
#[derive(Default)]
struct TaskState {
    vruntime: AtomicU64,
    /// CPU time that is in `vruntime` already, ns.
    charged: AtomicU64,
    /// The CPU whose vruntime this one's is relative to; in whose queue it is, if in any.
    home: AtomicU32,
    /// Weight, as of its last change.
    weight: AtomicU32,
    /// When rule 11 moved it last, ns. Whoever moves it has it from its queue.
    moved: AtomicU64,
    /// How often it was found waiting (rule 8). Guarded by the lock of the queue that it is in.
    found: AtomicU32,
}

/// All that changes, and one version hands to the next.
#[derive(Clone)]
pub struct Kept {
    cpus: PerCpu<PerCpuState>,
    tasks: PerTask<TaskState>,
    /// Tasks that no CPU may run: on one that is going offline, and bound to it. The kernel enqueues them anew.
    limbo: Arc<Lock<Fifo>>,
}

baton::state!(Queue, version 1 { tasks, vruntime, looked });
baton::state!(PerCpuState, version 3 { queue, waiting, timed, running, weight, preempted, mark, pace, gave, offered });
baton::state!(TaskState, version 2 { vruntime, charged, home, weight, moved, found });
baton::state!(Kept, version 2 { cpus, tasks, limbo });

/// The policy.
pub struct Wfq {
    shared: Kept,
    topology: Topology,
    period: u64,
    min_slice: u64,
    credit: u64,
    light_slice: u64,
    look: u64,
    granularity: i64,
    protection: u64,
}

/// A task that is found waiting so often is next (rule 8).
const FOUND_TOO_OFTEN: u32 = 3;

/// How far behind its CPU a task would have to be to preempt nobody.
const FAR: u64 = 1 << 62;

/// CPUs that a waking task looks at where none is idle (rule 10), and tasks of another CPU that one chooses from (rule 11).
const NEAREST: usize = 8;

/// Under its LLC, of its node and of all, CPUs that an idle one looks at for work (rule 7).
const STEAL_FROM: usize = 64;

/// Is `a` before `b`? As the kernel compares vruntimes, so that the count may wrap.
fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

fn later(a: u64, b: u64) -> u64 {
    [a, b][usize::from(before(a, b))]
}

/// Rule 1.
#[inline]
fn weighted(ns: u64, task: &Task) -> u64 {
    match task.weight() {
        NICE_0 => ns,
        // A slot's first charge may be of a long-lived task: no overflow below 2^54 ns, half a year.
        weight => ns.min(1 << 53).wrapping_mul(u64::from(NICE_0)) / u64::from(weight),
    }
}

impl Wfq {
    /// Adds what the task has run since it was last here, and gives its vruntime on its CPU. Call without a queue's lock held.
    #[inline(always)]
    fn charge(&self, task: &Task) -> u64 {
        let state = self.shared.tasks.of(task);
        let ran = task.runtime.saturating_sub(state.charged.load(Relaxed));
        state.charged.store(task.runtime, Relaxed);
        state.vruntime.store(state.vruntime.load(Relaxed).wrapping_add(weighted(ran, task)), Relaxed);
        // It is another CPU's still where this one stole it.
        self.settle(task.slot, task.cpu)
    }

    /// Rule 2, second half: what the vruntime of the task in `slot` is on `cpu`. Call without a queue's lock held.
    #[inline(always)]
    fn settle(&self, slot: u32, cpu: Cpu) -> u64 {
        let state = self.shared.tasks.slot(slot);
        let home = Cpu::new(state.home.load(Relaxed));
        let vruntime = state.vruntime.load(Relaxed);
        if home == cpu {
            return vruntime;
        }
        let was = self.shared.cpus[home].queue.lock().vruntime;
        let is = self.shared.cpus[cpu].queue.lock().vruntime;
        let vruntime = vruntime.wrapping_sub(was).wrapping_add(is);
        state.home.store(cpu.number() as u32, Relaxed);
        state.vruntime.store(vruntime, Relaxed);
        vruntime
    }

    /// Puts a task into the queue of `cpu`, where its vruntime is `place(vruntime of the task, of the CPU)`. Gives by how much the one that runs there is
    /// ahead of it.
    #[inline(always)]
    fn insert(&self, cpu: Cpu, baton: Schedulable, place: impl FnOnce(u64, u64) -> u64) -> i64 {
        let slot = baton.slot();
        let vruntime = self.settle(slot, cpu);
        let at = &self.shared.cpus[cpu];
        let mut queue = at.queue.lock();
        let vruntime = place(vruntime, queue.vruntime);
        let state = self.shared.tasks.slot(slot);
        state.vruntime.store(vruntime, Relaxed);
        state.found.store(0, Relaxed);
        let _ = queue.tasks.insert(vruntime, baton);
        at.waiting.set(queue.tasks.len() as u32);
        at.running.get().wrapping_sub(vruntime) as i64
    }

    /// Puts a task into its CPU's queue, charged for what it ran.
    #[inline(always)]
    fn put(&self, task: &Task, baton: Schedulable, place: impl FnOnce(u64, u64) -> u64) -> i64 {
        self.charge(task);
        self.insert(task.cpu, baton, place)
    }

    /// Takes the first task of `cpu`'s queue that `fits`.
    #[inline]
    fn take(&self, cpu: Cpu, fits: impl FnMut(u32) -> bool) -> Option<Schedulable> {
        let at = &self.shared.cpus[cpu];
        let mut queue = at.queue.lock();
        let (_, baton) = queue.tasks.pop_where(fits)?;
        at.waiting.set(queue.tasks.len() as u32);
        Some(baton)
    }

    /// Rule 4, for the task in `slot` on the CPU `at`, with `waiting` tasks left in the queue.
    #[inline]
    fn slice(&self, ctx: &Ctx<'_>, at: &PerCpuState, slot: u32, waiting: usize) -> u64 {
        if waiting == 0 {
            return self.period;
        }
        let slice = (self.period / (waiting as u64 + 1)).max(self.min_slice);
        let weight = self.shared.tasks.slot(slot).weight.load(Relaxed);
        if weight >= NICE_0 {
            return slice;
        }
        let slice = (slice * u64::from(weight) / u64::from(NICE_0)).max(self.light_slice);
        at.timed.store(true, Relaxed);
        ctx.arm_timer(slice);
        slice
    }

    /// Rule 8. `running` is the vruntime of the one that runs.
    fn look_through(&self, queue: &mut Queue, running: u64) {
        let found = |slot| &self.shared.tasks.slot(slot).found;
        queue.tasks.iter().for_each(|(_, slot)| found(slot).store(found(slot).load(Relaxed) + 1, Relaxed));
        let front = [queue.vruntime, running][usize::from(before(running, queue.vruntime))].wrapping_sub(self.period);
        while let Some((_, baton)) = queue.tasks.pop_where(|slot| found(slot).load(Relaxed) >= FOUND_TOO_OFTEN) {
            let state = self.shared.tasks.slot(baton.slot());
            state.found.store(0, Relaxed);
            state.vruntime.store(front, Relaxed);
            let _ = queue.tasks.insert(front, baton);
        }
    }

    /// Rule 10.
    fn least_loaded(&self, ctx: &Ctx<'_>, task: &Task, own: Cpu) -> Cpu {
        let waiting = |cpu: Cpu| self.shared.cpus[cpu].waiting.get();
        let most = waiting(own);
        if most == 0 {
            return own;
        }
        let near = self.topology.near(own).iter().copied().take(NEAREST);
        let fit = near.filter(|&cpu| waiting(cpu) < most && ctx.is_online(cpu) && ctx.may_run(task, cpu));
        fit.min_by_key(|&cpu| (waiting(cpu), Reverse(self.shared.cpus[cpu].pace.get()))).unwrap_or(own)
    }

    /// Has the nearest idle CPU that is fit look for work.
    fn offer(&self, ctx: &Ctx<'_>, from: Cpu, is_fit: impl Fn(Cpu) -> bool) {
        if let Some(idle) = ctx.idle_near(&self.topology, from).find(|&cpu| is_fit(cpu)) {
            self.shared.cpus[idle].offered.set(from.number() as u32);
            let _ = ctx.kick(idle, Kick::Idle);
        }
    }

    /// Queues a task for the nearest CPU that it may use.
    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable, from: Cpu) {
        let near = self.topology.near(from).iter().copied();
        let allowed = near.filter(|&cpu| ctx.is_online(cpu)).find(|&cpu| ctx.baton_may_run(&baton, cpu));
        let Some(cpu) = allowed else {
            let _ = self.shared.limbo.lock().push_back(baton);
            return;
        };
        self.insert(cpu, baton, |own, _| own);
        // A CPU that is busy will come to it by itself.
        let _ = ctx.kick(cpu, Kick::Idle);
    }
}

impl Upgrade for Wfq {
    type State = Kept;
    type Older = Kept;

    fn reregister_prepare(&self) -> Kept {
        self.shared.clone()
    }

    fn reregister_init(env: &Env<'_>, shared: Kept) -> Result<Self, baton::Error> {
        env.known_options(&["period", "min_slice", "credit", "light_slice", "look", "granularity", "protection"])?;
        Ok(Self {
            shared,
            topology: env.topology().clone(),
            period: env.duration("period", 12_000_000)?,
            min_slice: env.duration("min_slice", 3_000_000)?.max(1),
            credit: env.duration("credit", 3_000_000)?,
            light_slice: env.duration("light_slice", 500_000)?.max(1),
            look: env.duration("look", 200_000_000)?,
            granularity: i64::try_from(env.duration("granularity", 1_000_000)?).unwrap_or(i64::MAX),
            protection: env.duration("protection", 250_000)?,
        })
    }
}

impl Scheduler for Wfq {
    const NAME: &'static str = "wfq";
    const EVENTS: Events = Events::TICK.and(Events::BALANCE);

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        let queue = || Lock::new(Queue { tasks: env.tree(), vruntime: 0, looked: 0 });
        let cpu = |cpu: Cpu| PerCpuState {
            queue: queue(),
            waiting: Shared::new(0),
            timed: AtomicBool::new(false),
            running: Shared::new(FAR.wrapping_neg()),
            weight: Shared::new(0),
            preempted: Shared::new(0),
            mark: AtomicU64::new(0),
            pace: Shared::new(0),
            gave: Shared::new(0),
            offered: Shared::new(cpu.number() as u32),
        };
        let limbo = Arc::new(Lock::new(env.fifo()));
        Self::reregister_init(env, Kept { cpus: env.per_cpu(cpu), tasks: env.per_task(), limbo })
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let waker = wake.waker_cpu;
        let nobody_waits = self.shared.cpus[waker].waiting.get() == 0;
        if wake.sync && nobody_waits && (waker == wake.prev_cpu || ctx.may_run(task, waker)) {
            return Placement::Queue(waker);
        }
        let mut idle = ctx.idle_for(&self.topology, wake).filter(|&cpu| ctx.may_run(task, cpu));
        Placement::Queue(
            idle.find(|&cpu| ctx.claim_idle(cpu)).unwrap_or_else(|| self.least_loaded(ctx, task, wake.prev_cpu)),
        )
    }

    fn task_new(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let state = self.shared.tasks.of(task);
        state.charged.store(task.runtime, Relaxed);
        state.home.store(task.cpu.number() as u32, Relaxed);
        state.weight.store(task.weight(), Relaxed);
        self.insert(task.cpu, baton, |_, cpu| cpu.wrapping_add(weighted(self.min_slice, task)));
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let ahead = self.put(task, baton, |own, cpu| later(own, cpu.wrapping_sub(self.credit)));
        if ahead <= self.granularity {
            return;
        }
        let at = &self.shared.cpus[task.cpu];
        let since = ctx.now().wrapping_sub(at.preempted.get());
        if at.weight.get() < task.weight() || since >= self.protection {
            at.preempted.set(ctx.now());
            let _ = ctx.kick(task.cpu, Kick::Preempt);
        }
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task, baton, |own, _| own);
        self.offer(ctx, task.cpu, |cpu| ctx.may_run(task, cpu));
    }

    fn task_yield(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        // Behind the one that would run next.
        let first = self.shared.cpus[task.cpu].queue.lock().tasks.first();
        self.put(task, baton, |own, _| first.map_or(own, |(key, _)| later(own, key)));
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.task_preempt(ctx, task, baton);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let running = prev.map(|task| (task.slot, self.charge(task)));
        let at = &self.shared.cpus[cpu];
        at.timed.store(false, Relaxed);
        let mut queue = at.queue.lock();
        let waiting = queue.tasks.len();
        let first = queue.tasks.first();
        let goes_on = running.filter(|&(_, own)| first.is_none_or(|(vruntime, _)| before(own, vruntime)));
        if let Some((slot, own)) = goes_on {
            // Rule 2: the CPU's follows the lowest, of a task that runs alone too, so that who comes later starts beside it.
            queue.vruntime = later(queue.vruntime, own);
            at.running.set(own);
            return Pick::Keep { slice: self.slice(ctx, at, slot, waiting) };
        }
        let Some((vruntime, task)) = queue.tasks.pop_first() else {
            at.running.set(queue.vruntime.wrapping_sub(FAR));
            return Pick::Nothing;
        };
        queue.vruntime = later(queue.vruntime, vruntime);
        at.waiting.set(waiting as u32 - 1);
        at.running.set(vruntime);
        at.weight.set(self.shared.tasks.slot(task.slot()).weight.load(Relaxed));
        let others = waiting - 1 + usize::from(prev.is_some());
        Pick::Run { slice: self.slice(ctx, at, task.slot(), others), task }
    }

    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let waiting = |c: Cpu| self.shared.cpus[c].waiting.get();
        // What its vruntime is here its first charge says: until it runs here, it is other CPUs' to write.
        let take = |from: Cpu| self.take(from, |slot| ctx.slot_may_run(slot, cpu));
        let offered = Cpu::new(self.shared.cpus[cpu].offered.get());
        if offered != cpu {
            self.shared.cpus[cpu].offered.set(cpu.number() as u32);
            if let Some(task) = take(offered) {
                return Some(task);
            }
        }
        self.topology.levels(cpu).into_iter().find_map(|level| {
            let busy = || level.iter().copied().take(STEAL_FROM).filter(|&c| waiting(c) != 0);
            busy().max_by_key(|&c| waiting(c)).into_iter().chain(busy()).find_map(take)
        })
    }

    fn balance(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let at = &self.shared.cpus[cpu];
        let vruntime = at.queue.lock().vruntime;
        let pace = vruntime.wrapping_sub(at.mark.swap(vruntime, Relaxed));
        at.pace.set(pace);
        let others = self.topology.near(cpu).iter().map(|&other| (other, &self.shared.cpus[other]));
        let slower =
            others.filter(|(other, at)| *other != cpu && at.waiting.get() != 0 && at.pace.get() < pace / 5 * 4);
        // Of those that are about as slow each in its turn.
        let key = |at: &PerCpuState| (at.pace.get() / (pace / 8).max(1), at.gave.get());
        let Some((slowest, from)) = slower.min_by_key(|(_, at)| key(at)) else { return };
        let moved = |slot| &self.shared.tasks.slot(slot).moved;
        let first: Option<u32> = {
            let queue = from.queue.lock();
            let fit =
                queue.tasks.iter().map(|(_, slot)| slot).take(NEAREST).filter(|&slot| ctx.slot_may_run(slot, cpu));
            fit.min_by_key(|&slot| moved(slot).load(Relaxed))
        };
        if let Some(task) = first.and_then(|first| self.take(slowest, |slot| slot == first)) {
            moved(task.slot()).store(ctx.now(), Relaxed);
            from.gave.set(ctx.now());
            self.insert(cpu, task, |own, _| own);
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
        let remove = |at: &PerCpuState| {
            let mut queue = at.queue.lock();
            let (_, baton) = queue.tasks.remove(task.slot)?;
            at.waiting.set(queue.tasks.len() as u32);
            Some(baton)
        };
        let baton = remove(&self.shared.cpus[home]).or_else(|| self.shared.limbo.lock().remove(task.slot));
        // One that was refused and is put back while the task is queued anew may leave it in another queue than was noted.
        baton.or_else(|| self.shared.cpus.iter().find_map(remove))
    }

    fn task_prio_changed(&self, _: &Ctx<'_>, task: &Task) {
        // What it ran since its last charge was at the old weight; the difference for one slice is nothing.
        let vruntime = self.charge(task);
        let state = self.shared.tasks.of(task);
        let old = state.weight.swap(task.weight(), Relaxed);
        let cpu = self.shared.cpus[Cpu::new(state.home.load(Relaxed))].queue.lock().vruntime;
        // What it is ahead by is to be waited for at the new weight (kernel/sched/fair.c, rescale_entity). If it is queued, the
        // host takes it back and restores it.
        let ahead = vruntime.wrapping_sub(cpu);
        if before(cpu, vruntime) && old != 0 {
            let ahead = ahead.min(1 << 40) * u64::from(old) / u64::from(task.weight());
            state.vruntime.store(cpu.wrapping_add(ahead), Relaxed);
        }
    }

    fn task_tick(&self, ctx: &Ctx<'_>, task: &Task) {
        let vruntime = self.charge(task);
        self.shared.cpus[task.cpu].running.set(vruntime);
        let mut queue = self.shared.cpus[task.cpu].queue.lock();
        let now = ctx.now();
        if now.wrapping_sub(queue.looked) >= self.look {
            queue.looked = now;
            self.look_through(&mut queue, vruntime);
        }
        let Some((first, _)) = queue.tasks.first() else { return queue.vruntime = later(queue.vruntime, vruntime) };
        if before(first.wrapping_add(self.min_slice), vruntime) {
            // A tick never comes with more kicks than fit.
            let _ = ctx.kick(task.cpu, Kick::Preempt);
        }
        let can_use = |cpu| queue.tasks.iter().take(8).any(|(_, slot)| ctx.slot_may_run(slot, cpu));
        self.offer(ctx, task.cpu, can_use);
    }

    fn timer(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        // The task that it was for may have gone to sleep.
        if self.shared.cpus[cpu].timed.load(Relaxed) {
            let _ = ctx.kick(cpu, Kick::Preempt);
        }
    }

    fn cpu_online(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        // As many as there are now: one that still has nowhere to go comes back.
        let count = self.shared.limbo.lock().len();
        for _ in 0..count {
            let Some(baton) = self.shared.limbo.lock().pop_front() else { return };
            self.rehome(ctx, baton, cpu);
        }
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        while let Some(baton) = self.take(cpu, |_| true) {
            self.rehome(ctx, baton, cpu);
        }
    }
}

baton::policy!(Wfq, upgrade);
