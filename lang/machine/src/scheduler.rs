// SPDX-License-Identifier: GPL-2.0-only
//! The machine as a policy of Baton.

use core::sync::atomic::Ordering::Relaxed;

use baton::runqueue::Queued;
use baton::{
    Cpu, Ctx, Env, Error, Events, Kick, Lock, PerCpu, PerTask, Pick, Placement, Refusal,
    Schedulable, Scheduler, Shared, Task, Topology, Wake,
};

use crate::balance::Balance;
use crate::core::{At, Core, Guarded, Queue, Seen};
use crate::rules::{Next, Place, Rules};
use crate::set::MOST_CPUS;
use crate::state::Held;
use crate::thread::{Kept, Thread, MOVING, NO_CORE};

/// A policy in Baton's language, as one that every host runs.
pub struct Machine<R: Rules> {
    pub(crate) rules: R,
    pub(crate) cores: PerCpu<Core<R::Core>>,
    pub(crate) threads: PerTask<Kept<R::Thread>>,
    pub(crate) topology: Topology,
}

/// How a thread leaves its CPU without going to sleep.
enum Left {
    Preempted,
    GaveWay,
}

impl<R: Rules> Machine<R> {
    /// A version that goes on with these threads and cores.
    pub(crate) fn with(env: &Env<'_>, rules: R, held: Held<R>) -> Self {
        Self {
            rules,
            cores: held.cores,
            threads: held.threads,
            topology: env.topology().clone(),
        }
    }

    #[inline(always)]
    pub(crate) fn thread(&self, slot: u32) -> Thread<'_, R::Thread> {
        Thread {
            slot,
            kept: self.threads.slot(slot),
        }
    }

    #[inline(always)]
    fn thread_of(&self, task: &Task) -> Thread<'_, R::Thread> {
        let thread = self.thread(task.slot);
        thread.kept.note(task);
        thread
    }

    /// Takes the thread out of the counts of the core that counts it. With `goes_on`, the thread
    /// goes to another core, so its handler `depart` runs.
    fn uncount(&self, ctx: &Ctx<'_>, thread: Thread<'_, R::Thread>, goes_on: bool) {
        let home = &thread.kept.home;
        let was = home.load(Relaxed);
        if was < MOVING {
            let cpu = Cpu::new(was);
            let core = &self.cores[cpu];
            let mut guarded = core.guarded.lock();
            let is_ours = home.compare_exchange(was, NO_CORE, Relaxed, Relaxed);
            if is_ours.is_ok() {
                core.count_out(&mut guarded, thread.kept.load.load(Relaxed));
                if goes_on {
                    let mut at = At {
                        machine: self,
                        ctx,
                        core: cpu,
                        guarded: &mut guarded,
                        prev: None,
                    };
                    self.rules.depart(&mut at, thread);
                }
                return;
            }
        }
        // If the thread is on its way to another core, that core will not count it (`put`).
        let _ = home.compare_exchange(MOVING, NO_CORE, Relaxed, Relaxed);
    }

    /// A thread is not runnable any more: runs its handler, and counts it no more, under one lock.
    fn end(
        &self,
        ctx: &Ctx<'_>,
        task: &Task,
        thread: Thread<'_, R::Thread>,
        handler: impl FnOnce(&mut At<'_, '_, R>),
    ) {
        let cpu = self.home(task.slot, task.cpu);
        let core = &self.cores[cpu];
        let mut guarded = core.guarded.lock();
        if guarded.current == Some(task.slot) {
            guarded.current = None;
        }
        handler(&mut At {
            machine: self,
            ctx,
            core: cpu,
            guarded: &mut guarded,
            prev: None,
        });
        let is = cpu.number() as u32;
        let home = &thread.kept.home;
        if home.compare_exchange(is, NO_CORE, Relaxed, Relaxed).is_ok() {
            core.count_out(&mut guarded, thread.kept.load.load(Relaxed));
            return;
        }
        drop(guarded);
        self.uncount(ctx, thread, false);
    }

    /// Counts a thread, under the lock of its core. False if a core counts it already: two calls may
    /// be about one thread, if one of them has an old token of it.
    fn count(
        &self,
        cpu: Cpu,
        guarded: &mut Guarded<R::Core>,
        thread: Thread<'_, R::Thread>,
    ) -> bool {
        let kept = thread.kept;
        let is = cpu.number() as u32;
        let is_ours = kept.home.compare_exchange(NO_CORE, is, Relaxed, Relaxed);
        if is_ours.is_ok() {
            let load = self.rules.load(thread);
            kept.load.store(load, Relaxed);
            self.cores[cpu].count_in(guarded, load);
        }
        is_ours.is_ok()
    }

    /// Puts a thread into the queue of a core that `place` says, under the core's lock.
    #[inline(always)]
    fn insert(
        &self,
        ctx: &Ctx<'_>,
        cpu: Cpu,
        thread: Thread<'_, R::Thread>,
        baton: Schedulable,
        place: impl FnOnce(&mut At<'_, '_, R>) -> Place,
    ) {
        let home = &thread.kept.home;
        let is = cpu.number() as u32;
        let was = home.load(Relaxed);
        if was != is && was != NO_CORE {
            self.uncount(ctx, thread, true);
        }
        let core = &self.cores[cpu];
        let mut guarded = core.guarded.lock();
        if guarded.current == Some(thread.slot) {
            guarded.current = None;
        }
        let comes = was != is && self.count(cpu, &mut guarded, thread);
        let mut at = At {
            machine: self,
            ctx,
            core: cpu,
            guarded: &mut guarded,
            prev: None,
        };
        if comes && was != NO_CORE {
            self.rules.arrive(&mut at, thread);
        }
        let place = place(&mut at);
        if guarded.queues[place.queue].push(place.key, baton) == Queued::Merged {
            drop(guarded);
            self.settle(ctx, thread);
        }
    }

    /// Called when a thread was queued of which a queue already held a token. One of the two tokens
    /// is left, in an unknown queue. So this searches for the thread, and counts it on the core
    /// where it waits. This is rare: a host must have returned an old token late.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&self, ctx: &Ctx<'_>, thread: Thread<'_, R::Thread>) {
        for cpu in self.topology.cpus() {
            let core = &self.cores[cpu];
            let waits = |queue: &Queue| queue.contains(thread.slot);
            if !core.guarded.lock().queues.iter().any(waits) {
                continue;
            }
            return self.is_at(ctx, thread, cpu);
        }
    }

    /// Ensures that the thread is counted on this core, where it waits or runs. Usually it already
    /// is. It may not be after a host returned an old token late.
    #[inline]
    fn is_at(&self, ctx: &Ctx<'_>, thread: Thread<'_, R::Thread>, cpu: Cpu) {
        if thread.kept.home.load(Relaxed) != cpu.number() as u32 {
            self.uncount(ctx, thread, true);
            self.locked(ctx, cpu, |at| {
                if self.count(cpu, at.guarded, thread) {
                    self.rules.arrive(at, thread);
                }
            });
        }
    }

    /// A thread leaves its CPU, and can go on.
    fn leave(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable, how: Left) {
        let thread = self.thread_of(task);
        let left_for = thread.kept.left_for.load(Relaxed);
        thread.kept.left_for.store(0, Relaxed);
        self.insert(ctx, task.cpu, thread, baton, |at| match how {
            Left::GaveWay => self.rules.give_way(at, thread),
            // Its turn ended in a pick already.
            Left::Preempted if left_for != 0 => self.rules.place_in(left_for as usize - 1, thread),
            Left::Preempted => self.rules.preempt(at, thread),
        });
    }

    /// The nearest core that may run a task.
    fn nearest(&self, ctx: &Ctx<'_>, slot: u32, from: Cpu) -> Option<Cpu> {
        let mut near = self.topology.near(from).iter().copied();
        near.find(|&cpu| ctx.is_online(cpu) && ctx.slot_may_run(slot, cpu))
    }

    /// Moves a thread to the nearest online core on which it may run, because its own core went
    /// offline or refused it. If there is no such core, the thread waits in the queue of an offline
    /// one, from which no core picks it, until the kernel enqueues it again.
    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable, from: Cpu) {
        let (slot, thread) = (baton.slot(), self.thread(baton.slot()));
        let may_run = |cpu: &Cpu| ctx.slot_may_run(slot, *cpu);
        let offline = || self.topology.near(from).iter().copied().find(may_run);
        let cpu = self
            .nearest(ctx, slot, from)
            .or_else(offline)
            .unwrap_or(from);
        self.insert(ctx, cpu, thread, baton, |at| self.rules.preempt(at, thread));
        // A busy CPU picks it by itself.
        let _ = ctx.kick(cpu, Kick::Idle);
    }

    /// Kicks the cores that got threads and were not woken yet (`is_owed_kick`). False if the call
    /// has no room for all kicks.
    fn kick_owed(&self, ctx: &Ctx<'_>, cpu: Cpu) -> bool {
        for &owed in self.topology.near(cpu) {
            let is_owed = &self.cores[owed].is_owed_kick;
            if !is_owed.get() {
                continue;
            }
            if ctx.kick(owed, Kick::Idle).is_err() {
                return false;
            }
            is_owed.set(false);
        }
        true
    }

    /// Runs the handler of the core's timer if its time has passed. Otherwise the host's timer came
    /// for kicks, and is armed for the time that is left.
    fn policy_timer(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        self.locked(ctx, cpu, |at| {
            let due = at.guarded.timer_at;
            if due == 0 {
                return;
            }
            let left = due.saturating_sub(ctx.now());
            if left > 0 {
                return ctx.arm_timer(left);
            }
            at.guarded.timer_at = 0;
            self.rules.timer(at);
        });
    }

    /// Runs a handler with the lock of a core held.
    fn locked(&self, ctx: &Ctx<'_>, core: Cpu, run: impl FnOnce(&mut At<'_, '_, R>)) {
        let mut guarded = self.cores[core].guarded.lock();
        run(&mut At {
            machine: self,
            ctx,
            core,
            guarded: &mut guarded,
            prev: None,
        });
    }

    /// The core that a thread was counted by last, or else this one.
    fn home(&self, slot: u32, otherwise: Cpu) -> Cpu {
        match self.threads.slot(slot).home.load(Relaxed) {
            MOVING | NO_CORE => otherwise,
            home => Cpu::new(home),
        }
    }

    /// Asks the policy for the next thread of a core.
    fn next(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let core = &self.cores[cpu];
        let mut guarded = core.guarded.lock();
        guarded.current = None;
        let mut at = At {
            machine: self,
            ctx,
            core: cpu,
            guarded: &mut guarded,
            prev: None,
        };
        if let Some(task) = prev {
            let thread = self.thread_of(task);
            let place = self.rules.preempt(&mut at, thread);
            thread.kept.left_for.store(place.queue as u32 + 1, Relaxed);
            at.prev = Some((task.slot, place));
        }
        let Some(Next { thread, slice }) = self.rules.schedule(&mut at) else {
            return Pick::Nothing;
        };
        let slice = slice.max(0) as u64;
        let queues = &mut guarded.queues;
        // A worthless token of `prev` may be queued. The host refuses it, and asks again.
        let baton = queues
            .iter_mut()
            .find_map(|queue| queue.remove(thread.slot));
        let Some(task) = baton else {
            if prev.is_none_or(|task| task.slot != thread.slot) {
                return Pick::Nothing;
            }
            thread.kept.left_for.store(0, Relaxed);
            guarded.current = Some(thread.slot);
            return Pick::Keep { slice };
        };
        guarded.current = Some(thread.slot);
        drop(guarded);
        self.is_at(ctx, thread, cpu);
        Pick::Run { task, slice }
    }
}

impl<R: Rules> Scheduler for Machine<R> {
    const NAME: &'static str = R::NAME;
    const EVENTS: Events = Events::BLOCKED.and(Events::BALANCE).and(Events::TICK);

    fn new(env: &Env<'_>) -> Result<Self, Error> {
        if env.topology().nr_cpus() > MOST_CPUS {
            return Err("a policy in Baton's language runs on at most 4096 CPUs".into());
        }
        let rules = R::new(env)?;
        let threads: PerTask<Kept<R::Thread>> = env.per_task();
        for slot in 0..threads.len() {
            threads.slot(slot).home.store(NO_CORE, Relaxed);
        }
        let held = Held {
            cores: env.per_cpu(|cpu| Core {
                guarded: Lock::new(Guarded {
                    queues: rules
                        .queues()
                        .iter()
                        .map(|order| Queue::new(env, *order))
                        .collect(),
                    attributes: rules.core(cpu),
                    current: None,
                    count: 0,
                    cload: 0,
                    timer_at: 0,
                }),
                count: Shared::new(0),
                cload: Shared::new(0),
                is_owed_kick: Shared::new(false),
                owes_kicks: Shared::new(false),
                balanced: Shared::new(0),
            }),
            threads,
        };
        Ok(Self::with(env, rules, held))
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let thread = self.thread(task.slot);
        let seen = Seen {
            machine: self,
            ctx,
            slot: Some(task.slot),
            from: wake.prev_cpu,
        };
        let core = if wake.fork {
            thread.kept.note(task);
            self.rules.begin(thread, wake.prev_cpu);
            self.rules.place_new(&seen, thread, wake)
        } else {
            self.rules.place_unblock(&seen, thread, wake)
        };
        if core == wake.prev_cpu || ctx.may_run(task, core) {
            return Placement::Queue(core);
        }
        let nearest = self.nearest(ctx, task.slot, core);
        Placement::Queue(nearest.unwrap_or(wake.prev_cpu))
    }

    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let thread = self.thread_of(task);
        thread.kept.left_for.store(0, Relaxed);
        self.rules.begin(thread, task.cpu);
        self.insert(ctx, task.cpu, thread, baton, |at| {
            self.rules.start(at, thread)
        });
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let thread = self.thread_of(task);
        self.insert(ctx, task.cpu, thread, baton, |at| {
            self.rules.unblock(at, thread)
        });
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.leave(ctx, task, baton, Left::Preempted);
    }

    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.leave(ctx, task, baton, Left::GaveWay);
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.leave(ctx, task, baton, Left::Preempted);
        // Balancing may have held the thread's token meanwhile, so CPU `task.cpu` may idle.
        let _ = ctx.kick(task.cpu, Kick::Idle);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        self.next(ctx, cpu, prev)
    }

    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        self.rules
            .newly_idle(&mut Balance::new(self, ctx, cpu), cpu);
        match self.next(ctx, cpu, None) {
            Pick::Run { task, .. } => Some(task),
            Pick::Keep { .. } | Pick::Nothing => None,
        }
    }

    fn balance(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        Balance::new(self, ctx, cpu).all();
    }

    fn timer(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        // First, as it needs room for a kick.
        if self.rules.has_timer() {
            self.policy_timer(ctx, cpu);
        }
        let is_done = self.kick_owed(ctx, cpu);
        self.cores[cpu].owes_kicks.set(!is_done);
        if !is_done {
            ctx.arm_timer(0);
        }
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            let home = self.home(baton.slot(), Cpu::new(0));
            self.rehome(ctx, baton, home);
        }
    }

    fn task_blocked(&self, ctx: &Ctx<'_>, task: &Task) {
        let thread = self.thread_of(task);
        self.end(ctx, task, thread, |at| self.rules.block(at, thread));
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let remove = |core: &Core<R::Core>| {
            let mut guarded = core.guarded.lock();
            let queues = &mut guarded.queues;
            queues.iter_mut().find_map(|queue| queue.remove(task.slot))
        };
        let baton = remove(&self.cores[self.home(task.slot, task.cpu)]);
        // A refused token may be put back while its task is being queued again. The task may then
        // be in another queue than the noted one.
        baton.or_else(|| self.cores.iter().find_map(remove))
    }

    fn task_departed(&self, ctx: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let baton = self.task_dequeued(ctx, task);
        self.uncount(ctx, self.thread(task.slot), false);
        baton
    }

    fn task_dead(&self, ctx: &Ctx<'_>, task: &Task) {
        let thread = self.thread(task.slot);
        self.end(ctx, task, thread, |at| self.rules.terminate(at, thread));
    }

    fn task_tick(&self, ctx: &Ctx<'_>, task: &Task) {
        let thread = self.thread_of(task);
        self.is_at(ctx, thread, task.cpu);
        self.locked(ctx, task.cpu, |at| self.rules.tick(at, thread));
        if ctx.any_idle() && self.cores[task.cpu].count.get() > 1 {
            self.balance(ctx, task.cpu);
        }
    }

    fn cpu_online(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        self.locked(ctx, cpu, |at| self.rules.entry(at));
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        self.locked(ctx, cpu, |at| {
            self.rules.exit(at);
            // The host's timer does not outlive it.
            at.guarded.timer_at = 0;
        });
        loop {
            let mut guarded = self.cores[cpu].guarded.lock();
            let queues = &mut guarded.queues;
            let baton = queues.iter_mut().find_map(Queue::pop);
            drop(guarded);
            let Some(baton) = baton else { return };
            if self.nearest(ctx, baton.slot(), cpu).is_none() {
                // It stays until the kernel enqueues it again.
                self.rehome(ctx, baton, cpu);
                return;
            }
            self.rehome(ctx, baton, cpu);
        }
    }
}
