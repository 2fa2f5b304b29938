// SPDX-License-Identifier: GPL-2.0-only
//! Tasks without a policy: one first-in first-out queue of the shim's, for all CPUs. Contexts as in `calls.rs`.

use crate::{order::NOBODY, Core, CpuState, Host, Slot, TaskState, Verdict};
use baton_abi::BatonCtx;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// While a policy has tasks, the fallback queue is served first on one dispatch in this many.
const TURN: u32 = 4;

impl<H: Host> Core<'_, H> {
    #[inline]
    pub(crate) fn leave_fallback(&self, slot: &Slot, to: TaskState) {
        slot.set(to);
        self.fallback.fetch_sub(1, Relaxed);
    }

    /// The task is runnable on the run queue of CPU `ctx.cpu`, and has no policy; or it was rescued, and has not been enqueued since: then a CPU
    /// may be about to put it on the fallback queue whatever is said here ([`Core::is_rescued`]). `cpu` is where this runs.
    pub(crate) fn enter_fallback(&self, cpu: &CpuState, ctx: &BatonCtx, slot: &Slot) -> Verdict {
        if slot.state() != TaskState::Fallback {
            self.fallback.fetch_add(1, Relaxed);
        }
        slot.set(TaskState::Fallback);
        cpu.fallbacks.bump();
        let common = match self.is_partitioned() {
            false => Some(ctx.cpu),
            true => self.near(slot, ctx.cpu, |cpu| self.is_common(cpu)),
        };
        let Some(common) = common else {
            // On its own CPU's queue: in turn with what the partition's policies have.
            slot.set_bound();
            return Verdict::Local;
        };
        slot.cpu.store(common, Relaxed);
        Verdict::Fallback
    }

    /// A CPU for a waking task without a policy, or one that is about to join: an idle one if there is one.
    pub(crate) fn any_idle(&self, slot: &Slot, prev_cpu: i32) -> i32 {
        let claim = |cpu: i32| {
            self.cpu(cpu).is_some_and(|c| {
                c.is_idle()
                    && (!self.is_partitioned() || self.is_common(c))
                    && self.host.may_run(slot, cpu)
                    && self.claim_idle(cpu)
            })
        };
        if claim(prev_cpu) {
            return prev_cpu;
        }
        let idle = (0..self.cpus.len() as i32).find(|&c| self.is_any_idle() && claim(c));
        idle.unwrap_or_else(|| match self.is_partitioned() {
            false => prev_cpu,
            true => self.near(slot, prev_cpu, |cpu| self.is_common(cpu)).unwrap_or(prev_cpu),
        })
    }

    /// Is it the fallback queue's turn on this CPU?
    pub(crate) fn is_fallbacks_turn(&self, cpu: &CpuState) -> bool {
        self.has_fallback() && cpu.dispatches.get().is_multiple_of(u64::from(TURN)) && self.takes_fallback(cpu)
    }

    /// There are tasks without a slot.
    pub(crate) fn note_overflow(&self) {
        self.overflow.store(1, SeqCst);
        self.note_sole();
    }

    /// May a task without a policy be runnable? Those that were enqueued on this CPU's run queue are counted, as its lock is held; for one that another
    /// CPU rescues, this one is kicked afterwards.
    fn has_fallback(&self) -> bool {
        self.fallback.load(Relaxed) | self.overflow.load(Relaxed) != 0
    }

    /// Does this CPU run tasks without a policy?
    fn takes_fallback(&self, cpu: &CpuState) -> bool {
        !self.is_partitioned() || self.relief.load(Relaxed) != 0 || self.is_common(cpu)
    }

    /// No policy has a task for this CPU.
    #[inline]
    pub(crate) fn found_nothing(&self, cpu: &CpuState) -> Verdict {
        // If it was claimed while it was idle, that came to nothing: it stays idle, of which the kernel gives no notice, and may be
        // claimed again.
        if cpu.is_asleep() && !cpu.is_idle() {
            self.mark_idle(cpu, true);
        }
        self.runs(cpu, NOBODY, None);
        // One that has failed just now may have had some, and this CPU may be the only one to look.
        if self.rescue_pending() {
            Verdict::Rescue
        } else if self.has_fallback() && self.takes_fallback(cpu) {
            Verdict::Fallback
        } else {
            Verdict::Nothing
        }
    }
}
