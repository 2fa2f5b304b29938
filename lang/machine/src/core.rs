// SPDX-License-Identifier: GPL-2.0-only
//! Cores.

use alloc::vec::Vec;
use baton::runqueue::{Fifo, Queued, Tree};
use baton::{Cpu, Ctx, Env, Kick, Lock, Schedulable, Shared, Topology};

use crate::domain::Domain;
use crate::rules::{Order, Place, Rules};
use crate::scheduler::Machine;
use crate::set::CoreSet;
use crate::thread::Thread;

/// A core. Other cores read `count` and `cload` without the lock. They are written under it, from
/// the copies in [`Guarded`], which the holder of the lock reads.
pub(crate) struct Core<A> {
    pub guarded: Lock<Guarded<A>>,
    /// The runnable threads: those in its queues, and the one that runs.
    pub count: Shared<i64>,
    /// The sum of their loads.
    pub cload: Shared<i64>,
    /// Another core has put a thread here, and has not woken this one yet.
    pub is_owed_kick: Shared<bool>,
    /// The host's timer of this core was armed to wake others that are owed that. Written on the
    /// core.
    pub owes_kicks: Shared<bool>,
    /// If the last balancing on this core ended before all cores had been served, how many it had
    /// served. Written on the core.
    pub balanced: Shared<u32>,
}

impl<A> Core<A> {
    /// A thread of this load, which is put into a queue afterwards, is counted.
    #[inline]
    pub fn count_in(&self, guarded: &mut Guarded<A>, load: i64) {
        guarded.count += 1;
        self.count.set(guarded.count);
        guarded.cload += load;
        self.cload.set(guarded.cload);
    }

    /// A thread of this load, which was taken out before, is counted no more.
    #[inline]
    pub fn count_out(&self, guarded: &mut Guarded<A>, load: i64) {
        guarded.cload -= load;
        self.cload.set(guarded.cload);
        guarded.count -= 1;
        self.count.set(guarded.count);
    }
}

/// What a core's lock guards.
pub(crate) struct Guarded<A> {
    pub queues: Vec<Queue>,
    /// What the policy declares.
    pub attributes: A,
    /// The slot of the thread that was picked last, if it still runs.
    pub current: Option<u32>,
    /// The same values as those of the core.
    pub count: i64,
    pub cload: i64,
    /// When the policy's timer is due, ns; 0 if it is not set.
    pub timer_at: u64,
}

/// Ready threads.
pub(crate) enum Queue {
    Arrival(Fifo),
    Key(Tree),
}

impl Queue {
    pub fn new(env: &Env<'_>, order: Order) -> Self {
        match order {
            Order::Arrival => Self::Arrival(env.fifo()),
            Order::Key => Self::Key(env.tree()),
        }
    }

    #[inline]
    pub fn push(&mut self, key: i64, baton: Schedulable) -> Queued {
        match self {
            Self::Arrival(queue) => queue.push_back(baton),
            Self::Key(queue) => queue.insert(key as u64, baton),
        }
    }

    pub fn contains(&self, slot: u32) -> bool {
        match self {
            Self::Arrival(queue) => queue.contains(slot),
            Self::Key(queue) => queue.contains(slot),
        }
    }

    /// Key and slot of the first thread.
    #[inline]
    pub fn first(&self) -> Option<(i64, u32)> {
        match self {
            Self::Arrival(queue) => queue.front().map(|slot| (0, slot)),
            Self::Key(queue) => queue.first().map(|(key, slot)| (key as i64, slot)),
        }
    }

    #[inline]
    pub fn remove(&mut self, slot: u32) -> Option<Schedulable> {
        match self {
            Self::Arrival(queue) => queue.remove(slot),
            Self::Key(queue) => queue.remove(slot).map(|(_, baton)| baton),
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Schedulable> {
        match self {
            Self::Arrival(queue) => queue.pop_front(),
            Self::Key(queue) => queue.pop_first().map(|(_, baton)| baton),
        }
    }

    /// Key and slot of the thread behind the one in that slot.
    #[inline]
    pub fn after(&self, slot: u32) -> Option<(i64, u32)> {
        match self {
            Self::Arrival(queue) => queue.after(slot).map(|slot| (0, slot)),
            Self::Key(queue) => queue.after(slot).map(|(key, slot)| (key as i64, slot)),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Arrival(queue) => queue.len(),
            Self::Key(queue) => queue.len(),
        }
    }
}

/// What is seen of all cores without their locks. Each value may be as old as the call.
pub struct Seen<'m, 'c, R: Rules> {
    pub(crate) machine: &'m Machine<R>,
    pub(crate) ctx: &'c Ctx<'c>,
    /// Only cores on which the task in this slot may run are in sets of cores.
    pub(crate) slot: Option<u32>,
    /// Sets of cores begin with the nearest to this one.
    pub(crate) from: Cpu,
}

impl<R: Rules> Clone for Seen<'_, '_, R> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'m, R: Rules> Seen<'m, '_, R> {
    /// The load of a core.
    #[inline]
    pub fn cload(&self, core: Cpu) -> i64 {
        self.machine.cores[core].cload.get()
    }

    /// The number of runnable threads of a core.
    #[inline]
    pub fn count(&self, core: Cpu) -> i64 {
        self.machine.cores[core].count.get()
    }

    /// The time, ns.
    #[inline]
    pub fn now(&self) -> i64 {
        self.ctx.now() as i64
    }

    /// A random number below `most`; 0 if that is not positive.
    pub fn random(&self, most: i64) -> i64 {
        random(self.ctx, most)
    }

    /// May the thread of the call use this core now?
    #[inline]
    fn is_usable(&self, core: Cpu) -> bool {
        match self.slot {
            Some(slot) => self.ctx.slot_may_run(slot, core),
            None => self.ctx.is_online(core),
        }
    }

    /// All usable cores, the nearest first.
    #[inline]
    pub fn cores(&self) -> Usable<'_, 'm, R, impl Iterator<Item = Cpu> + '_> {
        self.usable(self.topology().near(self.from).iter().copied())
    }

    /// Those without a runnable thread.
    pub fn idle_cores(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.cores().filter(|core| self.count(*core) == 0)
    }

    /// The usable cores under the same last-level cache, the nearest first.
    #[inline]
    pub fn llc(&self, from: Cpu) -> Usable<'_, 'm, R, impl Iterator<Item = Cpu> + '_> {
        let [llc, ..] = self.topology().levels(from);
        self.usable(llc.iter().copied())
    }

    /// The usable cores of the same node, the nearest first.
    #[inline]
    pub fn node(&self, from: Cpu) -> Usable<'_, 'm, R, impl Iterator<Item = Cpu> + '_> {
        let [llc, node, _] = self.topology().levels(from);
        self.usable(llc.iter().chain(node).copied())
    }

    /// The usable SMT siblings of a core, with itself.
    #[inline]
    pub fn siblings(&self, from: Cpu) -> Usable<'_, 'm, R, impl Iterator<Item = Cpu> + '_> {
        self.usable(self.topology().core(from).iter().copied())
    }

    /// The domains of a core, from the smallest to the largest, which has all cores.
    pub fn domains(&self, of: Cpu) -> impl Iterator<Item = Domain> + 'm {
        Domain::all(self.topology(), of)
    }

    /// The usable cores of a domain, the nearest first.
    #[inline]
    pub fn domain(&self, domain: Domain) -> Usable<'_, 'm, R, impl Iterator<Item = Cpu> + '_> {
        self.usable(domain.cores(self.topology()).iter().copied())
    }

    #[inline]
    fn usable<I: Iterator<Item = Cpu>>(&self, cores: I) -> Usable<'_, 'm, R, I> {
        Usable { seen: self, cores }
    }

    /// The cores of a set, the nearest first.
    pub fn members<'s>(&'s self, set: &'s CoreSet) -> impl Iterator<Item = Cpu> + 's {
        let near = self.topology().near(self.from).iter().copied();
        near.filter(|core| set.contains(*core))
    }

    pub(crate) fn topology(&self) -> &'m Topology {
        &self.machine.topology
    }
}

/// Those of some cores that the thread of the call may use now.
pub struct Usable<'s, 'm, R: Rules, I> {
    seen: &'s Seen<'m, 's, R>,
    cores: I,
}

impl<R: Rules, I: Iterator<Item = Cpu>> Iterator for Usable<'_, '_, R, I> {
    type Item = Cpu;

    #[inline]
    fn next(&mut self) -> Option<Cpu> {
        self.cores.find(|core| self.seen.is_usable(*core))
    }
}

impl<R: Rules, I: Iterator<Item = Cpu>> Usable<'_, '_, R, I> {
    /// The first one for which this holds. The host is asked whether a core is usable only if it
    /// does.
    #[inline]
    pub fn first_where(mut self, mut holds: impl FnMut(Cpu) -> bool) -> Option<Cpu> {
        self.cores
            .find(|core| holds(*core) && self.seen.is_usable(*core))
    }
}

/// A random number below `most`; 0 if that is not positive.
pub(crate) fn random(ctx: &Ctx<'_>, most: i64) -> i64 {
    let random = ctx.random() >> 1;
    random.checked_rem(most.max(0) as u64).unwrap_or(0) as i64
}

/// How far a walk through a queue has come. The queue does not change meanwhile.
pub struct Walk {
    queue: usize,
    /// The slot that it has come to, in the queue itself.
    last: Option<u32>,
    /// The thread that ran until now, and its place, if the walk has not come to it.
    prev: Option<(u32, Place)>,
}

/// A core whose lock is held.
pub struct At<'g, 'm, R: Rules> {
    pub(crate) machine: &'m Machine<R>,
    pub(crate) ctx: &'g Ctx<'g>,
    pub(crate) core: Cpu,
    pub(crate) guarded: &'g mut Guarded<R::Core>,
    /// The thread that ran until now, which the host holds, and its place among the ready ones.
    pub(crate) prev: Option<(u32, Place)>,
}

impl<'g, 'm, R: Rules> At<'g, 'm, R> {
    /// The core.
    #[inline]
    pub fn core(&self) -> Cpu {
        self.core
    }

    /// The core's attributes.
    #[inline]
    pub fn attributes(&self) -> &R::Core {
        &self.guarded.attributes
    }

    /// The same, to change them.
    #[inline]
    pub fn attributes_mut(&mut self) -> &mut R::Core {
        &mut self.guarded.attributes
    }

    /// What is seen of other cores.
    #[inline]
    pub fn seen(&self) -> Seen<'m, 'g, R> {
        Seen {
            machine: self.machine,
            ctx: self.ctx,
            slot: None,
            from: self.core,
        }
    }

    /// The load of a core. That of another one may be as old as the call.
    #[inline]
    pub fn cload(&self, core: Cpu) -> i64 {
        if core == self.core {
            self.guarded.cload
        } else {
            self.machine.cores[core].cload.get()
        }
    }

    /// The number of runnable threads of a core. That of another one may be as old as the call.
    #[inline]
    pub fn count(&self, core: Cpu) -> i64 {
        if core == self.core {
            self.guarded.count
        } else {
            self.machine.cores[core].count.get()
        }
    }

    /// The time, ns.
    #[inline]
    pub fn now(&self) -> i64 {
        self.ctx.now() as i64
    }

    /// Calls [`Rules::timer`] of this core after this time, ns. Only in a call that the core itself
    /// makes: the host's timer is that of the CPU on which a call runs.
    pub fn set_timer(&mut self, after: i64) {
        let after = after.max(0) as u64;
        self.guarded.timer_at = self.ctx.now().saturating_add(after).max(1);
        // There is one timer: it comes for the kicks, and is then armed for what is left.
        let owes_kicks = self.machine.cores[self.core].owes_kicks.get();
        self.ctx.arm_timer(if owes_kicks { 0 } else { after });
    }

    /// A random number below `most`; 0 if that is not positive.
    pub fn random(&self, most: i64) -> i64 {
        random(self.ctx, most)
    }

    /// The thread that the core picked last, if it still runs.
    #[inline]
    pub fn current(&self) -> Option<Thread<'m, R::Thread>> {
        let slot = self.guarded.current?;
        Some(self.machine.thread(slot))
    }

    /// The first thread of a queue.
    #[inline]
    pub fn first(&self, queue: usize) -> Option<Thread<'m, R::Thread>> {
        if self.prev.is_some() {
            return self.first_beside_prev(queue);
        }
        let (_, slot) = self.guarded.queues[queue].first()?;
        Some(self.machine.thread(slot))
    }

    /// Not inlined: a thread seldom leaves its core and stays runnable.
    #[inline(never)]
    fn first_beside_prev(&self, queue: usize) -> Option<Thread<'m, R::Thread>> {
        self.next_of(&mut self.walk(queue))
    }

    /// The number of threads in a queue.
    #[inline]
    pub fn waiting(&self, queue: usize) -> i64 {
        let has_prev = self.prev.is_some_and(|(_, place)| place.queue == queue);
        self.guarded.queues[queue].len() as i64 + i64::from(has_prev)
    }

    /// A walk through the threads of a queue, first to last.
    #[inline]
    pub fn walk(&self, queue: usize) -> Walk {
        Walk {
            queue,
            last: None,
            prev: self.prev.filter(|(_, place)| place.queue == queue),
        }
    }

    /// The next thread of a walk.
    #[inline]
    pub fn next_of(&self, walk: &mut Walk) -> Option<Thread<'m, R::Thread>> {
        let queue = &self.guarded.queues[walk.queue];
        let next = match walk.last {
            None => queue.first(),
            Some(slot) => queue.after(slot),
        };
        if let Some((slot, place)) = walk.prev {
            // Those that are equal wait in the order of arrival, and `prev` comes last.
            let is_keyed = self.machine.rules.queues()[walk.queue] == Order::Key;
            if next.is_none_or(|(key, _)| is_keyed && place.key.wrapping_sub(key) < 0) {
                walk.prev = None;
                return Some(self.machine.thread(slot));
            }
        }
        let (_, slot) = next?;
        walk.last = Some(slot);
        Some(self.machine.thread(slot))
    }

    /// Has the core look for what to run: its running thread's turn is over.
    #[inline]
    pub fn resched(&self) {
        // Four kicks fit into a call, and a handler makes this one only.
        let _ = self.ctx.kick(self.core, Kick::Preempt);
    }
}
