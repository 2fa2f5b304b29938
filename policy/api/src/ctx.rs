// SPDX-License-Identifier: GPL-2.0-only
//! The context of a call.

use crate::{Cpu, Hints, Kick, KickRefused, Message, Schedulable, Task, Topology, Wake};
use baton_seam::host;
use core::{cell::Cell, marker::PhantomData};

/// Maximum number of kicks of one call.
pub const MAX_KICKS: usize = 4;

/// A search for an idle CPU checks all CPUs under the LLC, then at most this many others of the
/// node, then at most this many others of the machine. The limit bounds the cost of a wakeup on a
/// large machine with few idle CPUs.
pub const FAR_CPUS: usize = 64;

#[inline]
fn nearest(level: &[Cpu]) -> &[Cpu] {
    &level[..level.len().min(FAR_CPUS)]
}

/// The interface of one call to the host. It can neither outlive the call nor be sent to another
/// thread. All inputs and effects of a policy pass through it (or through a lock or an allocation),
/// so a recording holds every input.
pub struct Ctx<'a> {
    kicks: Kicks<'a>,
    _not_send: PhantomData<*const ()>,
}

/// Why a reply was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyRefused {
    /// The task has no queue to this policy.
    NoQueue,
    /// The task has not read earlier replies. It can see how many replies were lost.
    Full,
}

/// The kicks of one call, stored for the host.
#[derive(Clone, Copy, Debug)]
pub struct Kicks<'a> {
    /// Number of kicks. It is 0 when the call begins, unless hints that were read before it, at the
    /// same event, requested kicks.
    pub count: &'a Cell<u16>,
    /// CPU numbers, each with or without [`Kicks::PREEMPT`].
    pub places: &'a [Cell<u16>; MAX_KICKS],
}

impl Kicks<'_> {
    /// Marks a [`Kick::Preempt`].
    pub const PREEMPT: u16 = 1 << 15;
}

impl<'a> Ctx<'a> {
    /// For hosts: creates the context of a call.
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

    /// Arms a one-shot timer: [`crate::Scheduler::timer`] is called on this CPU `after_ns` from now
    /// (at least 1 µs). It replaces the timer set before.
    pub fn arm_timer(&self, after_ns: u64) {
        host::arm_timer(after_ns.max(1_000));
    }

    /// Cancels the timer of this CPU.
    pub fn cancel_timer(&self) {
        host::cancel_timer();
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        host::random()
    }

    /// May the task run on that CPU now? The answer may change at any time until the task is
    /// picked.
    #[inline]
    pub fn may_run(&self, task: &Task, cpu: Cpu) -> bool {
        host::may_run(task.slot, cpu.number())
    }

    /// May this queued task run on that CPU now?
    #[inline]
    pub fn baton_may_run(&self, baton: &Schedulable, cpu: Cpu) -> bool {
        host::may_run(baton.slot(), cpu.number())
    }

    /// May the task in that slot run on that CPU now? For a task that is not queued, only affinity
    /// and hotplug count: disabled migration may end before the task can be picked again.
    #[inline]
    pub fn slot_may_run(&self, slot: u32, cpu: Cpu) -> bool {
        host::may_run(slot, cpu.number())
    }

    /// Is the CPU online?
    pub fn is_online(&self, cpu: Cpu) -> bool {
        host::cpu_online(cpu.number())
    }

    /// Is the CPU idle and unclaimed?
    #[inline]
    pub fn is_idle(&self, cpu: Cpu) -> bool {
        host::cpu_idle(cpu.number())
    }

    /// May any CPU of the machine be idle and unclaimed? If this is false, [`Ctx::is_idle`] is
    /// false for every CPU. It saves the search of a busy machine with many CPUs at every wakeup.
    #[inline]
    pub fn any_idle(&self) -> bool {
        host::any_idle()
    }

    /// Claims an idle CPU for a task. Returns false when the CPU was not idle or was already
    /// claimed. The claim ends when the CPU is next idle.
    #[inline]
    pub fn claim_idle(&self, cpu: Cpu) -> bool {
        host::claim_idle(cpu.number())
    }

    /// The idle CPUs, best first, for a task that ran on `from`. CPUs under its LLC come first:
    /// those of wholly idle cores, nearest first, then those with a busy sibling. The rest of its
    /// node and the rest of the machine follow in the same order, limited to the nearest
    /// [`FAR_CPUS`] of each.
    ///
    /// When no CPU is idle, this takes one query ([`Ctx::any_idle`]). Another CPU may claim any of
    /// the CPUs meanwhile: [`Ctx::claim_idle`] decides.
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

    /// [`Ctx::idle_near`] for a woken or new task, from the CPU on which it ran last. A new task
    /// may go further for a core of its own: CPUs of wholly idle cores in all three levels come
    /// first.
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

    /// Claims an idle CPU for a woken or new task: the best of [`Ctx::idle_for`] on which the task
    /// may run. When no CPU is idle, this takes one query.
    #[inline]
    pub fn claim_idle_for(&self, topology: &Topology, task: &Task, wake: &Wake) -> Option<Cpu> {
        if !self.any_idle() {
            return None;
        }
        // The CPU on which the task ran last is the nearest, and usually idles since then. The
        // search costs some 200 instructions more.
        let last = wake.prev_cpu;
        let is_best = self.is_idle(last)
            && (!topology.has_smt() || self.is_idle_core(topology, last))
            && self.may_run(task, last);
        if is_best && self.claim_idle(last) {
            return Some(last);
        }
        self.search_idle_for(topology, task, wake)
    }

    /// Out of line, so that the usual case needs no registers for it.
    #[inline(never)]
    fn search_idle_for(&self, topology: &Topology, task: &Task, wake: &Wake) -> Option<Cpu> {
        self.idle_for(topology, wake)
            .filter(|&cpu| self.may_run(task, cpu))
            .find(|&cpu| self.claim_idle(cpu))
    }

    /// Are all SMT siblings of the idle CPU `cpu` idle, too?
    #[inline]
    fn is_idle_core(&self, topology: &Topology, cpu: Cpu) -> bool {
        topology
            .core(cpu)
            .iter()
            .skip(1)
            .all(|&sibling| self.is_idle(sibling))
    }

    /// Replies to the task in that slot, through its queue to this policy:
    /// `ctx.reply::<Self>(from.slot, &reply)`. Any call on any CPU may reply. The task is woken if
    /// it waits for a reply.
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
