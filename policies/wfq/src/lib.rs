// SPDX-License-Identifier: GPL-2.0-only
//! `wfq`: weighted fair queueing over the machine, after Enoki (section 4.2.1) and the kernel's
//! former CFS. Enoki's scheduler has no rules 9 to 11.
//!
//! 1. A task's *vruntime* grows by the CPU time that it uses, times 1024, divided by its weight
//!    (the kernel's table, by nice value).
//! 2. Each CPU runs the task of its queue with the lowest vruntime. The CPU's own vruntime is the
//!    highest at which a task was picked there, or ran on while none ahead of it waited. When a
//!    task migrates, its distance to the vruntime of the old CPU becomes that to the one of the new
//!    CPU.
//! 3. A woken task gets at least its CPU's vruntime less a credit (`credit`, 0.5 ms; less for a
//!    task heavier than nice 0), so a sleep earns no more than that. A new task begins at its CPU's
//!    vruntime plus `min_slice`, weighted as in rule 1.
//! 4. A slice is the period (`period`, 12 ms) divided by the number of runnable tasks, and at least
//!    `min_slice` (3 ms). A task that runs alone has a whole period. The slice of a task lighter
//!    than nice 0 beside others is shorter by its weight, down to `light_slice` (0.5 ms), and a
//!    timer ends it, so that the task's next wait is short, too.
//! 5. At each tick, the running task is preempted if its vruntime is ahead of the first in the
//!    queue by more than `min_slice`, or by more than `granularity` if it has made a woken task
//!    wait (rule 9).
//! 6. If the waker is about to sleep, a woken task goes to the waker's CPU, provided that no task
//!    waits there and that it may run there. Otherwise a woken or new task goes to an idle CPU: the
//!    nearest to where it last ran, on an idle core before an idle SMT sibling. If no CPU is idle,
//!    rule 10 applies.
//! 7. A CPU that would go idle steals from the longest queue under its LLC, then of its node, then
//!    of the machine, among the nearest 64 CPUs of each. At its tick, a busy CPU wakes an idle one
//!    that may run one of the first eight tasks in the queue. It does the same for a task that is
//!    preempted or restored. The idle CPU steals from that queue first.
//! 8. No task starves, whatever the weights: every `look` (200 ms), a busy CPU looks through its
//!    queue, and a task that is found waiting for the third time is next.
//! 9. A woken task preempts the running task if the vruntime of the running task is ahead of its
//!    own by more than `granularity` (0.5 ms; less for a woken task heavier than nice 0). Each CPU
//!    does this at most once in `protection` (0.25 ms) for woken tasks that are not heavier than
//!    the running one. A running task of nice 0 or heavier that has run for less than `protection`
//!    since it woke up makes the first woken task wait that would preempt it. One that wakes up
//!    `protection` or more after that preempts. Short bursts are therefore not interrupted.
//! 10. If no CPU is idle, a woken or new task stays where it last ran, unless another task waits
//!     there. In that case it goes to the CPU among the nearest eight where the fewest tasks wait;
//!     among equals, to the one whose vruntime grows fastest, as that has the lightest tasks.
//! 11. Every 16 ticks, a busy CPU looks for one where a task waits and whose vruntime has grown
//!     slower than its own since the last look, by more than a fifth. It looks under its LLC, then
//!     on its node, then in the machine, at the nearest 64 CPUs of each. The tasks of the slower
//!     CPU get less than their share. From the slowest CPU it takes one of the first eight tasks
//!     that wait: the one that was last moved in this way the longest ago.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod state;

use alloc::sync::Arc;
use baton::{weight::NICE_0, Cpu, Ctx, Env, Events, Kick, Lock, Pick, Placement, Refusal};
use baton::{Schedulable, Scheduler, Shared, Task, Topology, Upgrade, Wake};
use core::cmp::Reverse;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use state::{before, less_if_heavy, max_vruntime, min_vruntime, weighted};
use state::{Kept, PerCpuState, Queue, Running, TaskState, UNASKED};

/// The policy.
pub struct Wfq {
    shared: Kept,
    topology: Topology,
    period: u64,
    min_slice: u64,
    credit: u64,
    light_slice: u64,
    look: u64,
    granularity: u64,
    protection: u64,
}

const OPTIONS: &[&str] = &[
    // For queued tasks.
    "period",
    "min_slice",
    "light_slice",
    "look",
    // For woken tasks.
    "credit",
    "granularity",
    "protection",
];

/// A task that is found waiting this often is next (rule 8).
const FOUND_TOO_OFTEN: u32 = 3;

/// The number of CPUs considered for a woken task when none is idle (rule 10), and of tasks
/// considered in a queue (rules 7 and 11).
const NEAREST: usize = 8;

/// Ticks between two looks of a busy CPU at other CPUs (rule 11).
const BALANCED_EVERY: u64 = 16;

/// The number of CPUs of each level that a CPU looks at to steal or to balance (rules 7 and 11).
const SEARCHED: usize = 64;

/// The place of a task in a queue, relative to the running task.
struct Inserted {
    /// The task's vruntime.
    vruntime: u64,
    /// How far the running task was ahead of it at the running task's last charge.
    ahead: i64,
    /// Whether the running task is [`UNASKED`].
    is_running_unasked: bool,
}

impl Wfq {
    /// Adds the CPU time since the last charge to a task's vruntime, and returns the vruntime on
    /// its CPU. Call without a queue's lock held.
    #[inline(always)]
    fn charge(&self, state: &TaskState, task: &Task) -> u64 {
        let ran = task.runtime.saturating_sub(state.charged.load(Relaxed));
        state.charged.store(task.runtime, Relaxed);
        let vruntime = state
            .vruntime
            .load(Relaxed)
            .wrapping_add(weighted(ran, task));
        state.vruntime.store(vruntime, Relaxed);
        // If this CPU stole the task, the vruntime is still relative to another CPU.
        self.settle(state, task.cpu)
    }

    /// Rule 2, second half: makes `cpu` the home of a task, and returns its vruntime there. Call
    /// without a queue's lock held.
    #[inline(always)]
    fn settle(&self, state: &TaskState, cpu: Cpu) -> u64 {
        let home = state.home.load(Relaxed);
        if home != cpu.number() as u32 {
            self.change_home(state, Cpu::new(home), cpu);
        }
        state.vruntime.load(Relaxed)
    }

    #[inline(never)]
    fn change_home(&self, state: &TaskState, home: Cpu, cpu: Cpu) {
        let was = self.shared.cpus[home].queue.lock().vruntime;
        let is = self.shared.cpus[cpu].queue.lock().vruntime;
        let vruntime = state
            .vruntime
            .load(Relaxed)
            .wrapping_sub(was)
            .wrapping_add(is);
        state.home.store(cpu.number() as u32, Relaxed);
        state.vruntime.store(vruntime, Relaxed);
    }

    /// Puts a task whose home is `cpu` into the queue of that CPU. Its vruntime becomes
    /// `place(own, vruntime of the CPU)`.
    #[inline(always)]
    fn insert(
        &self,
        cpu: Cpu,
        state: &TaskState,
        own: u64,
        baton: Schedulable,
        place: impl FnOnce(u64, u64) -> u64,
    ) -> Inserted {
        let at = &self.shared.cpus[cpu];
        let mut queue = at.queue.lock();
        let vruntime = place(own, queue.vruntime);
        state.vruntime.store(vruntime, Relaxed);
        state.found.store(0, Relaxed);
        let _ = queue.tasks.insert(vruntime, baton);
        at.waiting.set(queue.tasks.len() as u32);
        Inserted {
            vruntime,
            ahead: queue.running.vruntime.wrapping_sub(vruntime) as i64,
            is_running_unasked: queue.running.preemptible_from == UNASKED,
        }
    }

    /// Charges a task and puts it into its CPU's queue.
    #[inline(always)]
    fn put<P>(&self, task: &Task, baton: Schedulable, place: P) -> Inserted
    where
        P: FnOnce(u64, u64) -> u64,
    {
        let state = self.shared.tasks.of(task);
        let own = self.charge(state, task);
        self.insert(task.cpu, state, own, baton, place)
    }

    /// Puts a task into the queue of another CPU. The task keeps its distance to the CPU's
    /// vruntime.
    #[inline(never)]
    fn move_to(&self, cpu: Cpu, baton: Schedulable) {
        let state = self.shared.tasks.slot(baton.slot());
        let own = self.settle(state, cpu);
        self.insert(cpu, state, own, baton, |own, _| own);
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

    /// The slice of a task of this weight on the CPU `at`, beside `others` more tasks (rule 4).
    /// Arms the timer for a light task.
    #[inline]
    fn slice(&self, ctx: &Ctx<'_>, at: &PerCpuState, weight: u32, others: usize) -> u64 {
        if others == 0 {
            return self.period;
        }
        let slice = (self.period / (others as u64 + 1)).max(self.min_slice);
        if weight >= NICE_0 {
            return slice;
        }
        let slice = (slice * u64::from(weight) / u64::from(NICE_0)).max(self.light_slice);
        at.timed.store(true, Relaxed);
        ctx.arm_timer(slice);
        slice
    }

    /// Applies rule 8 to a queue.
    fn look_through(&self, queue: &mut Queue) {
        let found = |slot| &self.shared.tasks.slot(slot).found;
        for (_, slot) in queue.tasks.iter() {
            found(slot).store(found(slot).load(Relaxed) + 1, Relaxed);
        }
        let front = min_vruntime(queue.vruntime, queue.running.vruntime).wrapping_sub(self.period);
        let is_due = |slot| found(slot).load(Relaxed) >= FOUND_TOO_OFTEN;
        while let Some((_, baton)) = queue.tasks.pop_where(is_due) {
            let state = self.shared.tasks.slot(baton.slot());
            state.found.store(0, Relaxed);
            state.vruntime.store(front, Relaxed);
            let _ = queue.tasks.insert(front, baton);
        }
    }

    /// Applies rule 9 for a task that woke up with this vruntime. Out of line, as most tasks wake
    /// up where the running task is protected and not far ahead.
    #[cold]
    #[inline(never)]
    fn preempt_for_woken(&self, ctx: &Ctx<'_>, task: &Task, vruntime: u64, granularity: u64) {
        let now = ctx.now();
        let queue = &mut *self.shared.cpus[task.cpu].queue.lock();
        let running = &mut queue.running;
        if running.preemptible_from == UNASKED {
            running.preemptible_from = now.saturating_add(self.protection);
            running.since = now;
        }
        if !before(vruntime.wrapping_add(granularity), running.vruntime_at(now)) {
            return;
        }
        let is_lighter = running.weight < task.weight();
        let is_due = is_lighter || now.wrapping_sub(queue.preempted) >= self.protection;
        if is_due && now >= running.preemptible_from {
            queue.preempted = now;
            let _ = ctx.kick(task.cpu, Kick::Preempt);
        } else {
            running.made_wait = true;
        }
    }

    /// The CPU for a woken or new task when none is idle (rule 10).
    fn least_loaded(&self, ctx: &Ctx<'_>, task: &Task, own: Cpu) -> Cpu {
        let waiting = |cpu: Cpu| self.shared.cpus[cpu].waiting.get();
        let most = waiting(own);
        if most == 0 {
            return own;
        }
        let near = self.topology.near(own).iter().copied().take(NEAREST);
        let shorter = near.filter(|&cpu| waiting(cpu) < most && ctx.is_online(cpu));
        let fit = shorter.filter(|&cpu| ctx.may_run(task, cpu));
        let pace = |cpu: Cpu| self.shared.cpus[cpu].pace.get();
        fit.min_by_key(|&cpu| (waiting(cpu), Reverse(pace(cpu))))
            .unwrap_or(own)
    }

    /// Wakes the nearest idle CPU that is fit, to look for work (rule 7).
    fn offer(&self, ctx: &Ctx<'_>, from: Cpu, is_fit: impl Fn(Cpu) -> bool) {
        if let Some(idle) = ctx.idle_near(&self.topology, from).find(|&cpu| is_fit(cpu)) {
            self.shared.cpus[idle].offered.set(from.number() as u32);
            let _ = ctx.kick(idle, Kick::Idle);
        }
    }

    /// Rule 7, for one level: takes a task from the longest queue, or from another if `take` finds
    /// none there.
    fn steal<T>(&self, level: &[Cpu], take: impl Fn(Cpu) -> Option<T>) -> Option<T> {
        let waiting = |from: Cpu| self.shared.cpus[from].waiting.get();
        let searched = || level.iter().copied().take(SEARCHED);
        let lengths = searched().map(|from| (waiting(from), from));
        let busy = lengths.filter(|&(length, _)| length != 0);
        let (_, longest) = busy.max_by_key(|&(length, _)| length)?;
        let others = || searched().filter(|&from| from != longest && waiting(from) != 0);
        take(longest).or_else(|| others().find_map(take))
    }

    /// Rule 11, for one level: the CPU with the slowest vruntime of those where a task waits.
    fn slowest(&self, level: &[Cpu], pace: u64) -> Option<Cpu> {
        let others = level
            .iter()
            .map(|&cpu| (cpu, &self.shared.cpus[cpu]))
            .take(SEARCHED);
        let slower = others.filter(|(_, at)| at.waiting.get() != 0 && at.pace.get() < pace / 5 * 4);
        // CPUs that are about equally slow take turns.
        let order = |at: &PerCpuState| (at.pace.get() / (pace / 8).max(1), at.gave.get());
        slower.min_by_key(|(_, at)| order(at)).map(|(cpu, _)| cpu)
    }

    /// Applies rule 11 for a busy CPU with this vruntime.
    fn even_out(&self, ctx: &Ctx<'_>, cpu: Cpu, vruntime: u64) {
        let at = &self.shared.cpus[cpu];
        let pace = vruntime.wrapping_sub(at.mark.swap(vruntime, Relaxed));
        at.pace.set(pace);
        let mut levels = self.topology.levels(cpu).into_iter();
        let Some(slowest) = levels.find_map(|level| self.slowest(level, pace)) else {
            return;
        };
        let from = &self.shared.cpus[slowest];
        let moved = |slot: u32| &self.shared.tasks.slot(slot).moved;
        let first: Option<u32> = {
            let queue = from.queue.lock();
            let slots = queue.tasks.iter().take(NEAREST).map(|(_, slot)| slot);
            let fit = slots.filter(|&slot| ctx.slot_may_run(slot, cpu));
            fit.min_by_key(|&slot| moved(slot).load(Relaxed))
        };
        let Some(first) = first else { return };
        if let Some(task) = self.take(slowest, |slot| slot == first) {
            moved(first).store(ctx.now(), Relaxed);
            from.gave.set(ctx.now());
            self.move_to(cpu, task);
        }
    }

    /// Queues a task for the nearest CPU that it may use.
    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable, from: Cpu) {
        let near = self.topology.near(from).iter().copied();
        let fits = |&cpu: &Cpu| ctx.is_online(cpu) && ctx.baton_may_run(&baton, cpu);
        let Some(cpu) = near.clone().find(fits) else {
            let _ = self.shared.limbo.lock().push_back(baton);
            return;
        };
        self.move_to(cpu, baton);
        // A busy CPU picks it by itself.
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
        env.known_options(OPTIONS)?;
        Ok(Self {
            shared,
            topology: env.topology().clone(),
            period: env.duration("period", 12_000_000)?,
            min_slice: env.duration("min_slice", 3_000_000)?.max(1),
            credit: env.duration("credit", 500_000)?,
            light_slice: env.duration("light_slice", 500_000)?.max(1),
            look: env.duration("look", 200_000_000)?,
            granularity: env.duration("granularity", 500_000)?.min(i64::MAX as u64),
            protection: env.duration("protection", 250_000)?,
        })
    }
}

impl Scheduler for Wfq {
    const NAME: &'static str = "wfq";
    const EVENTS: Events = Events::TICK;

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        let cpu = |cpu: Cpu| PerCpuState {
            queue: Lock::new(Queue::new(env.tree())),
            waiting: Shared::new(0),
            timed: AtomicBool::new(false),
            mark: AtomicU64::new(0),
            pace: Shared::new(0),
            gave: Shared::new(0),
            offered: Shared::new(cpu.number() as u32),
        };
        let limbo = Arc::new(Lock::new(env.fifo()));
        Self::reregister_init(
            env,
            Kept {
                cpus: env.per_cpu(cpu),
                tasks: env.per_task(),
                limbo,
            },
        )
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let waker = wake.waker_cpu;
        let waker_fits = || waker == wake.prev_cpu || ctx.may_run(task, waker);
        if wake.sync && self.shared.cpus[waker].waiting.get() == 0 && waker_fits() {
            return Placement::Queue(waker);
        }
        let claimed = ctx.claim_idle_for(&self.topology, task, wake);
        Placement::Queue(claimed.unwrap_or_else(|| self.least_loaded(ctx, task, wake.prev_cpu)))
    }

    fn task_new(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let state = self.shared.tasks.of(task);
        state.charged.store(task.runtime, Relaxed);
        state.home.store(task.cpu.number() as u32, Relaxed);
        state.weight.store(task.weight(), Relaxed);
        state.protected.store(0, Relaxed);
        let behind = weighted(self.min_slice, task);
        self.insert(task.cpu, state, 0, baton, |_, cpu| cpu.wrapping_add(behind));
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let end = if task.nice <= 0 {
            task.runtime + self.protection
        } else {
            0
        };
        self.shared.tasks.of(task).protected.store(end, Relaxed);
        let credit = less_if_heavy(self.credit, task);
        let woken = self.put(task, baton, |own, cpu| {
            max_vruntime(own, cpu.wrapping_sub(credit))
        });
        let granularity = less_if_heavy(self.granularity, task);
        if woken.ahead > granularity as i64 || !woken.is_running_unasked {
            self.preempt_for_woken(ctx, task, woken.vruntime, granularity);
        }
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task, baton, |own, _| own);
        self.offer(ctx, task.cpu, |cpu| ctx.may_run(task, cpu));
    }

    fn task_yield(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        // Behind the task that would run next.
        let first = self.shared.cpus[task.cpu].queue.lock().tasks.first();
        self.put(task, baton, |own, _| {
            first.map_or(own, |(key, _)| max_vruntime(own, key))
        });
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.task_preempt(ctx, task, baton);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let running = prev.map(|task| (task, self.charge(self.shared.tasks.of(task), task)));
        let at = &self.shared.cpus[cpu];
        at.timed.store(false, Relaxed);
        let mut queue = at.queue.lock();
        if let Some((task, own)) = running {
            if queue
                .tasks
                .first()
                .is_none_or(|(vruntime, _)| before(own, vruntime))
            {
                // Rule 2: the CPU's vruntime also follows a task that continues to run, so that a
                // task that comes later starts beside it.
                queue.vruntime = max_vruntime(queue.vruntime, own);
                queue.running = Running::unprotected(own, ctx.now(), task.weight());
                return Pick::Keep {
                    slice: self.slice(ctx, at, task.weight(), queue.tasks.len()),
                };
            }
        }
        let Some((vruntime, task)) = queue.tasks.pop_first() else {
            queue.running = Running::none(queue.vruntime);
            return Pick::Nothing;
        };
        let waiting = queue.tasks.len();
        at.waiting.set(waiting as u32);
        queue.vruntime = max_vruntime(queue.vruntime, vruntime);
        let state = self.shared.tasks.slot(task.slot());
        let weight = state.weight.load(Relaxed);
        if state.charged.load(Relaxed) < state.protected.load(Relaxed) {
            queue.running.vruntime = vruntime;
            queue.running.weight = weight;
            queue.running.preemptible_from = UNASKED;
            queue.running.made_wait = false;
        } else {
            queue.running = Running::unprotected(vruntime, ctx.now(), weight);
        }
        let others = waiting + usize::from(prev.is_some());
        Pick::Run {
            slice: self.slice(ctx, at, weight, others),
            task,
        }
    }

    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        // The vruntime of a stolen task is not written here: until the task runs on this CPU, calls
        // on other CPUs may write it. Its first charge here makes it relative to this CPU.
        let take = |from: Cpu| self.take(from, |slot| ctx.slot_may_run(slot, cpu));
        let offered = Cpu::new(self.shared.cpus[cpu].offered.get());
        if offered != cpu {
            self.shared.cpus[cpu].offered.set(cpu.number() as u32);
            if let Some(task) = take(offered) {
                return Some(task);
            }
        }
        self.topology
            .levels(cpu)
            .into_iter()
            .find_map(|level| self.steal(level, take))
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
        let baton = remove(&self.shared.cpus[home]);
        let baton = baton.or_else(|| self.shared.limbo.lock().remove(task.slot));
        // A refused token may be put back while its task is being queued again. The task may then
        // be in another queue than the noted one.
        baton.or_else(|| self.shared.cpus.iter().find_map(remove))
    }

    fn task_prio_changed(&self, _: &Ctx<'_>, task: &Task) {
        // The CPU time since the last charge was at the old weight and is charged at the new one.
        // For one slice the difference does not matter.
        let state = self.shared.tasks.of(task);
        let vruntime = self.charge(state, task);
        let old = state.weight.swap(task.weight(), Relaxed);
        let cpu = self.shared.cpus[Cpu::new(state.home.load(Relaxed))]
            .queue
            .lock()
            .vruntime;
        // The task's lead over its CPU is scaled to the new weight (kernel/sched/fair.c,
        // rescale_entity). If the task is queued, the host takes it back and restores it.
        let ahead = vruntime.wrapping_sub(cpu);
        if before(cpu, vruntime) && old != 0 {
            let ahead = ahead.min(1 << 40) * u64::from(old) / u64::from(task.weight());
            state.vruntime.store(cpu.wrapping_add(ahead), Relaxed);
        }
    }

    fn task_tick(&self, ctx: &Ctx<'_>, task: &Task) {
        let state = self.shared.tasks.of(task);
        let vruntime = self.charge(state, task);
        let now = ctx.now();
        let mut queue = self.shared.cpus[task.cpu].queue.lock();
        let most = if queue.running.made_wait {
            self.granularity
        } else {
            self.min_slice
        };
        if task.runtime >= state.protected.load(Relaxed) {
            queue.running = Running::unprotected(vruntime, now, task.weight());
        } else {
            queue.running.vruntime = vruntime;
        }
        if now.wrapping_sub(queue.looked) >= self.look {
            queue.looked = now;
            self.look_through(&mut queue);
        }
        if let Some((first, _)) = queue.tasks.first() {
            if before(first.wrapping_add(most), vruntime) {
                // A tick makes two kicks at most, so there is room.
                let _ = ctx.kick(task.cpu, Kick::Preempt);
            }
            let first_few = || queue.tasks.iter().take(NEAREST).map(|(_, slot)| slot);
            let is_fit = |cpu| first_few().any(|slot| ctx.slot_may_run(slot, cpu));
            self.offer(ctx, task.cpu, is_fit);
        } else {
            queue.vruntime = max_vruntime(queue.vruntime, vruntime);
        }
        queue.ticks = (queue.ticks + 1) % BALANCED_EVERY;
        if queue.ticks == 0 {
            let own = queue.vruntime;
            drop(queue);
            self.even_out(ctx, task.cpu, own);
        }
    }

    fn timer(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        // The task whose slice the timer ends may have gone to sleep.
        if self.shared.cpus[cpu].timed.load(Relaxed) {
            let _ = ctx.kick(cpu, Kick::Preempt);
        }
    }

    fn cpu_online(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        // Only as many as there are now: a task that still has no CPU comes back.
        let count = self.shared.limbo.lock().len();
        for _ in 0..count {
            let Some(baton) = self.shared.limbo.lock().pop_front() else {
                return;
            };
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
