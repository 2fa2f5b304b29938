// SPDX-License-Identifier: GPL-2.0-only
//! `locality`: threads that use the same data share a CPU, and its caches. The application names
//! these threads by hints. After Enoki (section 4.2.3).
//!
//! 1. Each CPU has one first-in first-out queue. A thread runs for `slice` (20 ms).
//! 2. A thread without a group wakes up on its waker's CPU, if the waker is about to sleep and the
//!    thread may run there. Otherwise it wakes up on an idle CPU: the nearest to where it last ran,
//!    on an idle core before an idle SMT sibling. If no CPU is idle, it stays where it last ran.
//! 3. A hint puts a thread into a group of the sender's, by a number of the sender's choice, or
//!    takes it out (0). A group has a home, chosen when its first thread joins: of the CPUs that
//!    this thread may use, the one that is home to the fewest groups.
//! 4. A thread of a group wakes up at the group's home, and waits there even if other CPUs are
//!    idle.
//! 5. If `crowd` (4) others wait there already, or if the thread may not run there, rule 2 applies
//!    to this wakeup.
//! 6. A CPU with nothing to run takes a thread that may run there from another queue: under its LLC
//!    first, then of its node, then of the machine, the longest queue first. It takes a thread of a
//!    group only from a queue where more than `crowd` wait.
//! 7. When a CPU goes offline, the groups at home there get another home. A sender's groups last as
//!    long as they have threads.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::{sync::Arc, vec::Vec};
use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Hints, Kick, Lock, PerCpu, PerTask, Pick, Placement,
    Refusal, Schedulable, Scheduler, Shared, Task, Thread, Topology, Upgrade, Wake, DEFAULT_SLICE,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The most groups at a time, of all applications.
const GROUPS: usize = 256;

baton::message! {
    /// A message from an application.
    pub enum Hint, version 1 {
        /// From now on, that thread is in this group of the sender's and in no other; in none with
        /// 0.
        Group { thread: Thread, group: u32 } = 1,
    }
}

baton::message! {
    /// A message from the policy.
    pub enum Reply, version 1 {
        /// Where the thread wakes up from now on, if it may run there: its group's home. -1: it is
        /// in no group, or there are as many groups as there can be.
        Home { cpu: i32 } = 1,
    }
}

/// A group. It is free when it has no threads.
#[derive(Clone, Copy, Default)]
struct Group {
    /// The sender's thread id.
    owner: u32,
    number: u32,
    threads: u32,
}

/// A thread.
#[derive(Default)]
struct State {
    /// The CPU in whose queue the thread was last put.
    queue: AtomicU32,
    /// Place of the thread's group plus one; 0 if it has none.
    group: Shared<u32>,
}

/// The state that one version passes to the next.
#[derive(Clone)]
pub struct Kept {
    queues: PerCpu<Lock<Fifo>>,
    threads: PerTask<State>,
    groups: Arc<Lock<Vec<Group>>>,
    /// The home of each group, by the group's place. Written with the groups' lock held, read
    /// without.
    homes: Arc<Vec<Shared<u32>>>,
}

baton::state!(Group, version 1 { owner, number, threads });
baton::state!(State, version 1 { queue, group });
baton::state!(Kept, version 1 { queues, threads, groups, homes });

/// The policy.
pub struct Locality {
    kept: Kept,
    topology: Topology,
    slice: u64,
    crowd: usize,
}

impl Locality {
    fn push(&self, cpu: Cpu, baton: Schedulable) {
        self.kept
            .threads
            .slot(baton.slot())
            .queue
            .store(cpu.number() as u32, Relaxed);
        let _ = self.kept.queues[cpu].lock().push_back(baton);
    }

    /// Queues a thread for the nearest CPU that it may use, as its CPU has gone or may not be used
    /// any more.
    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable) {
        let from = Cpu::new(self.kept.threads.slot(baton.slot()).queue.load(Relaxed));
        let cpu = self
            .topology
            .near(from)
            .iter()
            .copied()
            .find(|&cpu| ctx.baton_may_run(&baton, cpu))
            .unwrap_or(from);
        self.push(cpu, baton);
        let _ = ctx.kick(cpu, Kick::Idle);
    }

    /// The home of a thread's group.
    fn home(&self, slot: u32) -> Option<Cpu> {
        let place = self.kept.threads.slot(slot).group.get().checked_sub(1)?;
        self.kept
            .homes
            .get(place as usize)
            .map(|home| Cpu::new(home.get()))
    }

    /// The CPU that is home to the fewest groups, of those that fit.
    fn quietest(&self, groups: &[Group], fits: impl Fn(&Cpu) -> bool) -> u32 {
        let live = || {
            groups
                .iter()
                .zip(&*self.kept.homes)
                .filter(|(group, _)| group.threads > 0)
        };
        let fit = self
            .topology
            .cpus()
            .filter(fits)
            .map(|cpu| cpu.number() as u32);
        fit.min_by_key(|&cpu| live().filter(|(_, home)| home.get() == cpu).count())
            .unwrap_or(0)
    }

    /// The place of a sender's group of this number. If there is none, it is made for the thread in
    /// that slot.
    fn find(
        &self,
        ctx: &Ctx<'_>,
        groups: &mut [Group],
        owner: u32,
        number: u32,
        slot: u32,
    ) -> Option<usize> {
        let is_it =
            |group: &Group| group.threads > 0 && (group.owner, group.number) == (owner, number);
        groups.iter().position(is_it).or_else(|| {
            let free = groups.iter().position(|group| group.threads == 0)?;
            self.kept.homes[free].set(self.quietest(groups, |&cpu| {
                ctx.is_online(cpu) && ctx.slot_may_run(slot, cpu)
            }));
            groups[free] = Group {
                owner,
                number,
                threads: 0,
            };
            Some(free)
        })
    }

    /// Puts a thread into the group at that place, or into none.
    fn join(&self, groups: &mut [Group], slot: u32, place: Option<usize>) {
        let thread = self.kept.threads.slot(slot);
        let before = (thread.group.get() as usize).checked_sub(1);
        if let Some(group) = before.and_then(|place| groups.get_mut(place)) {
            group.threads -= 1;
        }
        if let Some(group) = place.and_then(|place| groups.get_mut(place)) {
            group.threads += 1;
        }
        thread.group.set(place.map_or(0, |place| place as u32 + 1));
    }

    /// Takes a thread that is dead or has left the policy out of its group.
    fn forget(&self, task: &Task) {
        if self.kept.threads.of(task).group.get() != 0 {
            self.join(&mut self.kept.groups.lock(), task.slot, None);
        }
    }
}

impl Hints for Locality {
    type Hint = Hint;
    type Reply = Reply;

    fn hint(&self, ctx: &Ctx<'_>, from: &Task, hint: Hint) {
        let Hint::Group { thread, group } = hint;
        let mut groups = self.kept.groups.lock();
        let place = if group == 0 {
            None
        } else {
            self.find(ctx, &mut groups, from.pid, group, thread.slot())
        };
        self.join(&mut groups, thread.slot(), place);
        drop(groups);
        let cpu = self.home(thread.slot()).map_or(-1, Cpu::number);
        // A sender that does not read its replies goes without this one.
        let _ = ctx.reply::<Self>(from.slot, &Reply::Home { cpu });
    }
}

impl Upgrade for Locality {
    type State = Kept;
    type Older = Kept;

    fn reregister_prepare(&self) -> Kept {
        self.kept.clone()
    }

    fn reregister_init(env: &Env<'_>, kept: Kept) -> Result<Self, baton::Error> {
        env.known_options(&["slice", "crowd"])?;
        let (slice, crowd) = (
            env.duration("slice", DEFAULT_SLICE)?,
            env.number("crowd", 4)? as usize,
        );
        Ok(Self {
            kept,
            topology: env.topology().clone(),
            slice,
            crowd,
        })
    }
}

impl Scheduler for Locality {
    const NAME: &'static str = "locality";
    const EVENTS: Events = Events::NONE;

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        let kept = Kept {
            queues: env.per_cpu(|_| Lock::new(env.fifo())),
            threads: env.per_task(),
            groups: Arc::new(Lock::new(alloc::vec![Group::default(); GROUPS])),
            homes: Arc::new((0..GROUPS).map(|_| Shared::new(0)).collect()),
        };
        Self::reregister_init(env, kept)
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let home = self.home(task.slot).filter(|&home| ctx.may_run(task, home));
        if let Some(home) = home.filter(|&home| self.kept.queues[home].lock().len() < self.crowd) {
            return if ctx.claim_idle(home) {
                Placement::run(home)
            } else {
                Placement::Queue(home)
            };
        }
        if wake.sync && (wake.waker_cpu == wake.prev_cpu || ctx.may_run(task, wake.waker_cpu)) {
            return Placement::Queue(wake.waker_cpu);
        }
        ctx.claim_idle_for(&self.topology, task, wake)
            .map_or(Placement::Queue(wake.prev_cpu), Placement::run)
    }

    fn task_new(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task.cpu, baton);
    }

    fn task_wakeup(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task.cpu, baton);
    }

    fn task_preempt(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task.cpu, baton);
    }

    fn task_yield(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task.cpu, baton);
    }

    fn task_restored(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.push(task.cpu, baton);
    }

    fn pick_next_task(&self, _: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        match self.kept.queues[cpu].lock().pop_front() {
            Some(task) => Pick::Run {
                task,
                slice: self.slice,
            },
            None if prev.is_some() => Pick::Keep { slice: self.slice },
            None => Pick::Nothing,
        }
    }

    fn newly_idle(&self, ctx: &Ctx<'_>, cpu: Cpu) -> Option<Schedulable> {
        let length = |&other: &Cpu| self.kept.queues[other].lock().len();
        let longest = |level: &[Cpu]| level.iter().copied().max_by_key(length);
        // Each look takes a lock, so only the nearest 64 CPUs of each level are searched.
        let levels = self
            .topology
            .levels(cpu)
            .map(|all| &all[..all.len().min(64)])
            .into_iter();
        levels
            .flat_map(|level| longest(level).into_iter().chain(level.iter().copied()))
            .find_map(|from| {
                let mut queue = self.kept.queues[from].lock();
                let is_crowded = queue.len() > self.crowd;
                let may_go =
                    |slot: u32| is_crowded || self.kept.threads.slot(slot).group.get() == 0;
                queue.pop_where(|slot| may_go(slot) && ctx.slot_may_run(slot, cpu))
            })
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            self.rehome(ctx, baton);
        }
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let queue = Cpu::new(self.kept.threads.of(task).queue.load(Relaxed));
        let baton = self.kept.queues[queue].lock().remove(task.slot);
        baton.or_else(|| {
            self.kept
                .queues
                .iter()
                .find_map(|queue| queue.lock().remove(task.slot))
        })
    }

    fn task_departed(&self, ctx: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.forget(task);
        self.task_dequeued(ctx, task)
    }

    fn task_dead(&self, _: &Ctx<'_>, task: &Task) {
        self.forget(task);
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let groups = self.kept.groups.lock();
        for home in self
            .kept
            .homes
            .iter()
            .filter(|home| home.get() == cpu.number() as u32)
        {
            home.set(self.quietest(&groups, |&cpu| ctx.is_online(cpu)));
        }
        drop(groups);
        let waiting = self.kept.queues[cpu].lock().len();
        let first = |_| self.kept.queues[cpu].lock().pop_front();
        (0..waiting)
            .filter_map(first)
            .for_each(|baton| self.rehome(ctx, baton));
    }
}

baton::policy!(Locality, upgrade, hints);
