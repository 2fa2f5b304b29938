// SPDX-License-Identifier: GPL-2.0-only
//! What a call may do.

use crate::{Cpu, Hints, Kick, KickRefused, Message, Schedulable, Task, Topology, Wake};
use baton_seam::host;
use core::{cell::Cell, marker::PhantomData};

/// Kicks that one call can ask for.
pub const MAX_KICKS: usize = 4;

/// CPUs of its node, and CPUs of the rest of the machine, that a search for an idle one looks at
/// beyond the LLC: so that a large machine with few idle CPUs is not searched at every wakeup.
pub const FAR_CPUS: usize = 64;

#[inline]
fn nearest(level: &[Cpu]) -> &[Cpu] {
    &level[..level.len().min(FAR_CPUS)]
}

/// The powers of one call. It cannot be kept beyond the call, nor given to another thread. All that
/// a policy can learn or cause goes through here (or through a lock or an allocation), so that a
/// recording holds every input.
pub struct Ctx<'a> {
    kicks: Kicks<'a>,
    _not_send: PhantomData<*const ()>,
}

/// A reply was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyRefused {
    /// The task has no queue to this policy.
    NoQueue,
    /// The task has not read what it was sent before. It is told how many replies were lost.
    Full,
}

/// Where the kicks of one call are noted, for the host.
#[derive(Clone, Copy, Debug)]
pub struct Kicks<'a> {
    /// How many there are. 0 as the call begins, but for those of hints that were read before it,
    /// at the same event.
    pub count: &'a Cell<u16>,
    /// CPU number, with [`Kicks::PREEMPT`] or not.
    pub places: &'a [Cell<u16>; MAX_KICKS],
}

impl Kicks<'_> {
    /// Marks a [`Kick::Preempt`].
    pub const PREEMPT: u16 = 1 << 15;
}

impl<'a> Ctx<'a> {
    /// For hosts: the surroundings of a call.
    #[inline]
    pub fn new(kicks: Kicks<'a>) -> Self {
        Self {
            kicks,
            _not_send: PhantomData,
        }
    }

    /// The time, ns of the host's scheduler clock. Does not go back on one CPU.
    #[inline]
    pub fn now(&self) -> u64 {
        host::now()
    }

    /// Wakes or preempts a CPU after the call. A second kick of the same kind for the same CPU
    /// counts as one.
    pub fn kick(&self, cpu: Cpu, kick: Kick) -> Result<(), KickRefused> {
        let number = u16::try_from(cpu.index())
            .ok()
            .filter(|n| n & Kicks::PREEMPT == 0)
            .ok_or(KickRefused)?;
        let wanted = number
            | if kick == Kick::Preempt {
                Kicks::PREEMPT
            } else {
                0
            };
        let count = self.kicks.count.get() as usize;
        if self
            .kicks
            .places
            .iter()
            .take(count)
            .any(|place| place.get() == wanted)
        {
            return Ok(());
        }
        self.kicks.places.get(count).ok_or(KickRefused)?.set(wanted);
        self.kicks.count.set(count as u16 + 1);
        Ok(())
    }

    /// Calls [`crate::Scheduler::timer`] on the CPU that makes this call, `after_ns` from now (at
    /// least 1 µs), once. It replaces the timer set before.
    pub fn arm_timer(&self, after_ns: u64) {
        host::arm_timer(after_ns.max(1_000));
    }

    /// Stops the timer of the CPU that makes this call.
    pub fn cancel_timer(&self) {
        host::cancel_timer();
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        host::random()
    }

    /// May the task run on that CPU now? It may change at any time until the task is picked.
    #[inline]
    pub fn may_run(&self, task: &Task, cpu: Cpu) -> bool {
        host::may_run(task.slot, cpu.number())
    }

    /// May this queued task run on that CPU now?
    #[inline]
    pub fn baton_may_run(&self, baton: &Schedulable, cpu: Cpu) -> bool {
        host::may_run(baton.slot(), cpu.number())
    }

    /// May the task in that slot run on that CPU now?
    #[inline]
    pub fn slot_may_run(&self, slot: u32, cpu: Cpu) -> bool {
        host::may_run(slot, cpu.number())
    }

    /// Is the CPU online?
    pub fn is_online(&self, cpu: Cpu) -> bool {
        host::cpu_online(cpu.number())
    }

    /// Is the CPU idle, and claimed by nobody?
    #[inline]
    pub fn is_idle(&self, cpu: Cpu) -> bool {
        host::cpu_idle(cpu.number())
    }

    /// May any CPU of the machine be idle, and claimed by nobody? False: [`Ctx::is_idle`] is false
    /// for each, so that a busy machine of many CPUs is not searched at every wakeup.
    #[inline]
    pub fn any_idle(&self) -> bool {
        host::any_idle()
    }

    /// Claims an idle CPU for a task; false when it was not idle, or another was first. The claim
    /// ends when the CPU is next idle.
    #[inline]
    pub fn claim_idle(&self, cpu: Cpu) -> bool {
        host::claim_idle(cpu.number())
    }

    /// The idle CPUs, the best first for a task that ran on `from`: those of wholly idle cores
    /// under its LLC, the nearest first, then those under its LLC whose sibling is busy; then in
    /// the same order of the rest of its node, and of the rest of the machine, the nearest
    /// [`FAR_CPUS`] of each. One look ([`Ctx::any_idle`]) where nothing is idle. Another CPU may
    /// claim any of them meanwhile: [`Ctx::claim_idle`] decides.
    #[inline]
    pub fn idle_near<'t>(
        &'t self,
        topology: &'t Topology,
        from: Cpu,
    ) -> impl Iterator<Item = Cpu> + 't {
        let [llc, node, machine] = topology.levels(from);
        let levels = [llc, nearest(node), nearest(machine)].into_iter();
        levels
            .take_while(|_| self.any_idle())
            .flat_map(move |level| {
                let threads: &[Cpu] = if topology.has_smt() { level } else { &[] };
                let idle = |of: &'t [Cpu]| of.iter().copied().filter(|&cpu| self.is_idle(cpu));
                let is_whole = move |&cpu: &Cpu| self.is_idle_core(topology, cpu);
                idle(level)
                    .filter(is_whole)
                    .chain(idle(threads).filter(move |cpu| !is_whole(cpu)))
            })
    }

    /// [`Ctx::idle_near`] for a task that wakes up or is new, from where it ran last. A new one
    /// may go further to a core of its own: the wholly idle cores of all these CPUs come first.
    #[inline]
    pub fn idle_for<'t>(
        &'t self,
        topology: &'t Topology,
        wake: &Wake,
    ) -> impl Iterator<Item = Cpu> + 't {
        let [llc, node, machine] = topology.levels(wake.prev_cpu);
        let is_spread = wake.fork && topology.has_smt() && self.any_idle();
        let levels = if is_spread {
            [llc, nearest(node), nearest(machine)]
        } else {
            [&[][..]; 3]
        };
        let idle = levels
            .into_iter()
            .flatten()
            .copied()
            .filter(|&cpu| self.is_idle(cpu));
        let cores = idle.filter(|&cpu| self.is_idle_core(topology, cpu));
        cores.chain(self.idle_near(topology, wake.prev_cpu))
    }

    /// Are the SMT siblings of `cpu`, which is idle, idle too?
    #[inline]
    fn is_idle_core(&self, topology: &Topology, cpu: Cpu) -> bool {
        topology
            .core(cpu)
            .iter()
            .skip(1)
            .all(|&sibling| self.is_idle(sibling))
    }

    /// Replies to the task in that slot, which has a queue to this policy:
    /// `ctx.reply::<Self>(from.slot, &reply)`. From any call, on any CPU. The task is woken if it
    /// waits for one.
    pub fn reply<P: Hints>(&self, slot: u32, reply: &P::Reply) -> Result<(), ReplyRefused> {
        const { assert!(P::Reply::THREADS == 0, "a reply names no thread") }
        let raw = reply.encode();
        match host::reply(slot, raw.tag, &raw.words) {
            0 => Ok(()),
            1 => Err(ReplyRefused::NoQueue),
            _ => Err(ReplyRefused::Full),
        }
    }
}
