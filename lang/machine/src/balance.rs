// SPDX-License-Identifier: GPL-2.0-only
//! Load balancing in three phases (Ipanema, section 3.2).

use core::sync::atomic::Ordering::Relaxed;

use baton::runqueue::Queued;
use baton::{Cpu, Ctx, Kick, Schedulable};

use crate::core::{At, Seen};
use crate::domain::Domain;
use crate::rules::Rules;
use crate::scheduler::Machine;
use crate::set::CoreSet;
use crate::thread::MOVING;

/// The most threads that move from one core to another at once.
const MOST_MOVED: usize = 8;

/// The most threads of a queue that a steal looks at. The core's lock is held meanwhile, and a
/// queue may have thousands that may not run on the other core.
const MOST_LOOKED_AT: usize = 64;

/// How often a call looks at a core to balance. Each phase looks at all cores of the domain that it
/// takes from, so the number of steps grows with the square of the machine. With this limit, a core
/// can try all others on machines of up to 512 CPUs.
const MOST_LOOKS: usize = 512 * 512;

/// Threads on their way to a core. Each has the queue that it goes to.
struct Moving {
    batons: [Option<(Schedulable, usize)>; MOST_MOVED],
    count: usize,
    load: i64,
}

/// A call that moves threads between cores.
pub struct Balance<'m, 'c, R: Rules> {
    pub(crate) machine: &'m Machine<R>,
    pub(crate) ctx: &'c Ctx<'c>,
    /// The core of the call.
    core: Cpu,
    /// How often it may still look at a core.
    looks: usize,
    /// The core for which the policy asked for threads last.
    dst: Option<Cpu>,
    /// For how many cores it has asked, one after the other.
    asked: u32,
    /// How many of these were left out or served, up to the last one that was served.
    served: u32,
    /// How many of these are left out at the beginning.
    left_out: u32,
}

impl<'m, 'c, R: Rules> Balance<'m, 'c, R> {
    /// A call on a core.
    pub(crate) fn new(machine: &'m Machine<R>, ctx: &'c Ctx<'c>, core: Cpu) -> Self {
        Self {
            machine,
            ctx,
            core,
            looks: MOST_LOOKS,
            dst: None,
            asked: 0,
            served: 0,
            left_out: 0,
        }
    }

    /// Balances by a rule that may ask for threads for many cores. If the last such call on this
    /// core could not serve all of them, this one begins with the first that was not served.
    pub(crate) fn all(mut self) {
        let (machine, core) = (self.machine, self.core);
        let balanced = &machine.cores[core].balanced;
        self.left_out = balanced.get();
        machine.rules.balancing(&mut self, core);
        let is_rest = self.looks == 0 && self.served < self.asked;
        balanced.set(if is_rest { self.served } else { 0 });
    }

    /// The policy asks for threads for this core. False if it is another one's turn.
    fn serves(&mut self, dst: Cpu) -> bool {
        if self.dst != Some(dst) {
            self.dst = Some(dst);
            self.asked += 1;
            if self.asked > self.left_out && self.looks > 0 {
                self.served = self.asked;
            }
        }
        self.served == self.asked
    }

    /// What is seen of other cores.
    pub fn seen(&self) -> Seen<'m, 'c, R> {
        self.seen_from(self.core)
    }

    fn seen_from(&self, from: Cpu) -> Seen<'m, 'c, R> {
        Seen {
            machine: self.machine,
            ctx: self.ctx,
            slot: None,
            from,
        }
    }

    /// Takes threads from other cores for `dst`, until it has enough or there is no core left to
    /// take from.
    pub fn steal_for(&mut self, dst: Cpu) {
        self.steal(dst, self.machine.topology.near(dst));
    }

    /// The same, from the cores of a domain.
    pub fn steal_within(&mut self, dst: Cpu, domain: Domain) {
        self.steal(dst, domain.cores(&self.machine.topology));
    }

    fn steal(&mut self, dst: Cpu, cores: &[Cpu]) {
        let rules = &self.machine.rules;
        if !self.ctx.is_online(dst) || !self.serves(dst) {
            return;
        }
        self.looks = self.looks.saturating_sub(cores.len());
        let seen = self.seen_from(dst);
        // Phase 1: observes. The proof does not need the order.
        let mut found: Option<CoreSet> = None;
        for &src in cores {
            if src != dst && rules.can_steal_core(&seen, src, dst) {
                found.get_or_insert_default().insert(src);
            }
        }
        // Most cores that look for threads find none to take from.
        let Some(stealable) = &mut found else {
            return;
        };
        while self.looks > 0 {
            // Phase 2. A rule that orders them looks at each.
            self.looks = self.looks.saturating_sub(cores.len());
            let Some(src) = rules.select_core(&seen, stealable, dst) else {
                return;
            };
            stealable.remove(src);
            // Phase 3.
            if self.steal_from(src, dst) > 0 && dst != self.core {
                self.wake(dst);
            }
            if rules.until(&seen, dst) {
                return;
            }
        }
    }

    /// Phase 3. Returns the number of threads that moved.
    fn steal_from(&self, src: Cpu, dst: Cpu) -> usize {
        let mut moving = Moving {
            batons: [const { None }; MOST_MOVED],
            count: 0,
            load: 0,
        };
        self.take(src, dst, &mut moving);
        let count = moving.count;
        if count > 0 {
            self.put(dst, moving);
        }
        count
    }

    /// Takes threads out of the queues of `src`, under its lock.
    fn take(&self, src: Cpu, dst: Cpu, moving: &mut Moving) {
        let machine = self.machine;
        let core = &machine.cores[src];
        let mut guarded = core.guarded.lock();
        for queue in 0..machine.rules.queues().len() {
            let mut next = guarded.queues[queue].first();
            for _ in 0..MOST_LOOKED_AT {
                let Some((_, slot)) = next.filter(|_| moving.count < MOST_MOVED) else {
                    break;
                };
                next = guarded.queues[queue].after(slot);
                if !self.ctx.slot_may_run(slot, dst) {
                    continue;
                }
                let thread = machine.thread(slot);
                let moved = (moving.load, moving.count as i64);
                let mut from = At {
                    machine,
                    ctx: self.ctx,
                    core: src,
                    guarded: &mut guarded,
                    prev: None,
                };
                let goes = machine.rules.steal_thread(&mut from, dst, moved, thread);
                let Some(to) = goes else {
                    continue;
                };
                let home = &thread.kept.home;
                let was = src.number() as u32;
                // Fails for a thread whose refused token was put back here meanwhile.
                if home
                    .compare_exchange(was, MOVING, Relaxed, Relaxed)
                    .is_err()
                {
                    continue;
                }
                machine.rules.depart(&mut from, thread);
                // Taken out, then its load, then its count: see the crate's description.
                let Some(baton) = guarded.queues[queue].remove(slot) else {
                    continue;
                };
                let load = thread.kept.load.load(Relaxed);
                core.count_out(&mut guarded, load);
                moving.batons[moving.count] = Some((baton, to));
                moving.count += 1;
                moving.load += load;
            }
        }
    }

    /// Puts threads into the queues of `dst`, under its lock.
    fn put(&self, dst: Cpu, moving: Moving) {
        let machine = self.machine;
        let core = &machine.cores[dst];
        let mut guarded = core.guarded.lock();
        for (baton, queue) in moving.batons.into_iter().flatten() {
            let thread = machine.thread(baton.slot());
            let home = &thread.kept.home;
            let is = dst.number() as u32;
            // Fails if the thread has left meanwhile: its token is worthless then.
            if home.compare_exchange(MOVING, is, Relaxed, Relaxed).is_ok() {
                // Counted, then its load, then put in.
                core.count_in(&mut guarded, thread.kept.load.load(Relaxed));
                let mut at = At {
                    machine,
                    ctx: self.ctx,
                    core: dst,
                    guarded: &mut guarded,
                    prev: None,
                };
                machine.rules.arrive(&mut at, thread);
            }
            let place = machine.rules.place_in(queue, thread);
            if guarded.queues[place.queue].push(place.key, baton) == Queued::Merged {
                drop(guarded);
                machine.settle(self.ctx, thread);
                guarded = core.guarded.lock();
            }
        }
    }

    /// Has `dst` look into its queues, if it is idle. A call has room for few kicks; the timer of
    /// this core makes those that are left.
    fn wake(&self, dst: Cpu) {
        if self.ctx.kick(dst, Kick::Idle).is_err() {
            self.machine.cores[dst].is_owed_kick.set(true);
            self.machine.cores[self.core].owes_kicks.set(true);
            self.ctx.arm_timer(0);
        }
    }
}
