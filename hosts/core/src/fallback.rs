// SPDX-License-Identifier: GPL-2.0-only
//! Tasks without a policy: the shim's fallback queues, for all CPUs. Contexts as in `calls.rs`.
//!
//! These are tasks of any user, in any number, so the CPU time that they can take is bounded. While
//! policies want a CPU, the fallback has turns there, a quarter of the time. Its slices get shorter
//! with the number of its tasks, so that each task runs within [`ROUND`].

use crate::{order, Core, CpuState, Host, Slot, TaskState, Verdict, DEFAULT_SLICE};
use baton_abi::{BatonCtx, BATON_KICK_PREEMPT};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// A host sets this in the flags of the dispatch that follows a [`Verdict::Turn`] if the fallback
/// had no task that may run there.
pub const TURN_WAS_EMPTY: u16 = 1 << 15;

/// The fallback gets one part in this many of a CPU's time while policies also want the CPU.
const PARTS: u64 = 4;

/// Minimum length of a turn, ns: a few kernel ticks, as `ctx.now` advances only once per tick.
const MIN_TURN: u64 = 10_000_000;

/// Time within which each task of the fallback runs once, ns: a third of the limit of the kernel's
/// watchdog.
const ROUND: u64 = 10_000_000_000;

/// Minimum slice, ns. It keeps a round within [`ROUND`] for up to 25,000 tasks on each CPU.
const MIN_SLICE: u64 = 100_000;

impl<H: Host> Core<'_, H> {
    #[inline]
    pub(crate) fn leave_fallback(&self, slot: &Slot, to: TaskState) {
        slot.set(to);
        self.fallback.fetch_sub(1, Relaxed);
    }

    /// Puts a task on a fallback queue. The task is runnable on the run queue of CPU `ctx.cpu`.
    /// Either it has no policy, or it was rescued and has not been enqueued since. A rescued task
    /// may end up on the fallback queue whatever the verdict ([`Core::is_rescued`]). `cpu` is the
    /// current CPU.
    pub(crate) fn enter_fallback(
        &self,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
    ) -> Verdict {
        if slot.state() != TaskState::Fallback && self.fallback.fetch_add(1, Relaxed) == 0 {
            self.fallback_since.store(ctx.now, Relaxed);
        }
        slot.set(TaskState::Fallback);
        cpu.fallbacks.bump();
        ctx.slice = self.fallback_slice();
        let common = if self.is_partitioned() {
            self.near(slot, ctx.cpu, |cpu| self.is_common(cpu))
        } else {
            Some(ctx.cpu)
        };
        let Some(common) = common else {
            // Each CPU that the task may use is in a partition with a running policy. The task
            // waits on the local queue of its CPU, beside the tasks of the partition's policies.
            slot.set_bound();
            return Verdict::Local;
        };
        slot.cpu.store(common, Relaxed);
        Verdict::Fallback
    }

    /// A CPU for a woken task without a policy, or for one that will join a policy: an idle CPU if
    /// there is one.
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
        idle.unwrap_or_else(|| {
            if self.is_partitioned() {
                self.near(slot, prev_cpu, |cpu| self.is_common(cpu))
                    .unwrap_or(prev_cpu)
            } else {
                prev_cpu
            }
        })
    }

    /// The slice of a task without a policy, ns.
    pub fn fallback_slice(&self) -> u64 {
        let tasks = match self.overflow.load(Relaxed) {
            0 => self.fallback.load(Relaxed),
            // Some tasks are not counted.
            _ => self.slots.len() as u32,
        };
        let slice = |cpus: u64| (ROUND / PARTS).wrapping_mul(cpus) / u64::from(tasks.max(1));
        if slice(1) >= DEFAULT_SLICE {
            return DEFAULT_SLICE;
        }
        let cpus = self
            .cpus
            .iter()
            .filter(|cpu| cpu.is_online() && self.takes_fallback(cpu))
            .count();
        slice(cpus as u64).clamp(MIN_SLICE, DEFAULT_SLICE)
    }

    /// Is it the fallback's turn on this CPU, where policies may also want to run a task?
    pub(crate) fn is_fallbacks_turn(&self, cpu: &CpuState, ctx: &mut BatonCtx) -> bool {
        let was_empty = ctx.flags & TURN_WAS_EMPTY != 0;
        ctx.flags &= !TURN_WAS_EMPTY;
        if was_empty {
            cpu.turn_ends.store(ctx.now, Relaxed);
        }
        if was_empty || !self.has_fallback() || !self.takes_fallback(cpu) {
            return false;
        }
        if ctx.now < cpu.turn_ends.load(Relaxed) {
            self.host.end_slice(self.fallback_slice());
            return true;
        }
        // The first turn comes after policies have had their part.
        let first = self
            .fallback_since
            .load(Relaxed)
            .saturating_add(self.turn().wrapping_mul(PARTS - 1));
        if ctx.now < cpu.next_turn.load(Relaxed).max(first) {
            return false;
        }
        self.put_turn_off(cpu, ctx.now);
        cpu.turn_ends
            .store(ctx.now.wrapping_add(self.turn()), Relaxed);
        true
    }

    /// How long a turn is, ns.
    fn turn(&self) -> u64 {
        self.fallback_slice().max(MIN_TURN)
    }

    /// The fallback has the CPU now. Its next turn comes when policies have had their part of the
    /// time.
    fn put_turn_off(&self, cpu: &CpuState, now: u64) {
        self.host.end_slice(self.fallback_slice());
        cpu.next_turn
            .store(now.wrapping_add(self.turn().wrapping_mul(PARTS)), Relaxed);
    }

    /// The host's timer has ended the slice of the task that this CPU took from the fallback.
    /// Preempts that task if it still runs there.
    pub fn end_slice(&self, cpu: &CpuState, ctx: &mut BatonCtx) {
        if matches!(cpu.current.load(Relaxed), order::NOBODY | order::FALLBACK) {
            order::kick(ctx, cpu.number(), BATON_KICK_PREEMPT);
        }
    }

    /// Notes that there are tasks without a slot.
    pub(crate) fn note_overflow(&self) {
        self.overflow.store(1, SeqCst);
        self.note_sole();
    }

    /// May a task without a policy be runnable? Tasks that were enqueued on this CPU's run queue
    /// are counted, as its lock is held. After another CPU rescues a task, that CPU kicks this one.
    fn has_fallback(&self) -> bool {
        self.fallback.load(Relaxed) | self.overflow.load(Relaxed) != 0
    }

    /// Does this CPU run tasks without a policy?
    fn takes_fallback(&self, cpu: &CpuState) -> bool {
        !self.is_partitioned() || self.relief.load(Relaxed) != 0 || self.is_common(cpu)
    }

    /// No policy has a task for this CPU.
    #[inline]
    pub(crate) fn found_nothing(&self, cpu: &CpuState, ctx: &BatonCtx) -> Verdict {
        // A claim of this CPU while it was idle had no effect. The CPU stays idle, of which the
        // kernel gives no notice, so it may be claimed again.
        if cpu.is_asleep() && !cpu.is_idle() {
            self.mark_idle(cpu, true);
        }
        self.runs(cpu, order::NOBODY, None);
        // A policy that has just failed may have had tasks, and this may be the only CPU that
        // looks.
        if self.rescue_pending() {
            Verdict::Rescue
        } else if self.has_fallback() && self.takes_fallback(cpu) {
            // CPU time that no policy wants does not count as a turn.
            self.put_turn_off(cpu, ctx.now);
            Verdict::Fallback
        } else {
            Verdict::Nothing
        }
    }
}
