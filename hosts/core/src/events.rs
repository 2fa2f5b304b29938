// SPDX-License-Identifier: GPL-2.0-only
//! The rarer events: creation, exit and attributes of tasks, ticks, and CPUs. The run-queue lock of
//! the task is held and interrupts are off, unless documented otherwise.

use crate::{Core, CpuState, Host, PolicyEntry, Slot, TaskState, Verdict, BALANCE_TICKS};
use baton_abi::{Arg, BatonCtx, BatonMethod, BATON_EV_BALANCE, BATON_EV_IDLE, BATON_EV_TICK};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Answer to [`Core::init_task`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// The task's handle.
    Handle(u64),
    /// All slots are in use: the task will run in the fallback.
    Full,
}

/// The host's data on a new task.
#[derive(Clone, Copy, Debug)]
pub struct TaskFacts {
    /// The host's identifier of the task; not 0.
    pub opaque: usize,
    /// Thread id.
    pub pid: u32,
    /// Handle of the parent, whose policy the task inherits; 0 for none.
    pub parent: u64,
}

impl<'a, H: Host> Core<'a, H> {
    /// A task was created, or existed when the host began. Process context, no lock.
    pub fn init_task(&self, facts: &TaskFacts) -> Init {
        let taken = self.host.with_slots_locked(|| {
            let head = self.free.load(Relaxed);
            let slot = self.slots.get((head as usize).wrapping_sub(1))?;
            self.free.store(slot.next_free.load(Relaxed), Relaxed);
            self.in_use.fetch_add(1, Relaxed);
            self.used.fetch_max(head, SeqCst);
            Some((head.wrapping_sub(1), slot))
        });
        let Some((index, slot)) = taken else {
            self.note_overflow();
            return Init::Full;
        };
        slot.occupy(index, facts.opaque, facts.pid);
        if let Some(parent) = self.by_handle(facts.parent) {
            // In this order: see `assign_by_rule`.
            slot.wanted.store(parent.wanted.load(SeqCst), Relaxed);
            slot.by_rule.store(parent.by_rule.load(SeqCst), Relaxed);
        }
        Init::Handle(slot.handle())
    }

    /// The task enters Baton's scheduling class.
    pub fn enable_task(&self, handle: u64, nice: i32) {
        if let Some(slot) = self.by_handle(handle) {
            slot.nice.store(nice, Relaxed);
            if slot.state() == TaskState::Outside {
                slot.set(TaskState::Sleeping);
            }
        }
    }

    /// The task leaves Baton's scheduling class, or is dead.
    pub fn disable_task(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, dead: bool) {
        let Some(slot) = self.by_handle(ctx.task) else {
            return;
        };
        let how = if dead {
            BatonMethod::TaskDead
        } else {
            BatonMethod::TaskDeparted
        };
        self.part(frame, cpu, ctx, slot, how);
        if slot.state() == TaskState::Fallback {
            self.leave_fallback(slot, TaskState::Outside);
        } else {
            slot.set(TaskState::Outside);
        }
    }

    /// The task is gone. If it was ever enabled, it was disabled before.
    pub fn exit_task(&self, handle: u64) {
        let Some(slot) = self.by_handle(handle) else {
            return;
        };
        slot.vacate();
        self.host.with_slots_locked(|| {
            slot.next_free.store(self.free.load(Relaxed), Relaxed);
            self.free.store(slot.index().wrapping_add(1), Relaxed);
            self.in_use.fetch_sub(1, Relaxed);
        });
    }

    /// The policy that has been notified of this task, if it is running.
    fn policy_of(&self, slot: &Slot) -> Option<&PolicyEntry> {
        self.by_id(slot.policy()).filter(|p| p.is_running())
    }

    /// The nice value of a task has changed.
    pub fn set_nice(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, nice: i32) {
        let Some(slot) = self.by_handle(ctx.task) else {
            return;
        };
        if slot.nice.swap(nice, Relaxed) == nice {
            return;
        }
        if let Some(policy) = self.policy_of(slot) {
            slot.runtime.store(ctx.runtime, Relaxed);
            self.tell(
                frame,
                cpu,
                policy,
                BatonMethod::TaskPrioChanged,
                ctx,
                slot,
                Arg::Word(0),
            );
        }
    }

    /// The affinity of a task has changed. A queued task stays queued: the kernel enqueues it again
    /// if it must migrate, and a pick for a CPU outside the affinity is refused.
    pub fn set_affinity(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) {
        let Some(slot) = self.by_handle(ctx.task) else {
            return;
        };
        if let Some(policy) = self.policy_of(slot) {
            self.tell(
                frame,
                cpu,
                policy,
                BatonMethod::TaskAffinityChanged,
                ctx,
                slot,
                Arg::Word(0),
            );
        }
    }

    /// The task, which is running, yields.
    pub fn yield_task(&self, handle: u64) -> Verdict {
        if let Some(slot) = self.by_handle(handle) {
            slot.set_yielded();
        }
        Verdict::Expire
    }

    /// The tick on CPU `ctx.cpu`, where this runs, with `ctx.task` as the current task.
    pub fn tick(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) -> Verdict {
        let Some(slot) = self.by_handle(ctx.task) else {
            return Verdict::None;
        };
        let which = ctx.cpu;
        slot.runtime.store(ctx.runtime, Relaxed);
        let ticks = cpu.ticks.load(Relaxed).wrapping_add(1);
        cpu.ticks.store(ticks, Relaxed);
        if let Some(policy) = self.policy_of(slot) {
            cpu.note_asked(policy, ctx.now);
            if policy.wants(BATON_EV_TICK) {
                self.tell(
                    frame,
                    cpu,
                    policy,
                    BatonMethod::TaskTick,
                    ctx,
                    slot,
                    Arg::Word(0),
                );
            }
            if ticks.is_multiple_of(BALANCE_TICKS)
                && policy.wants(BATON_EV_BALANCE)
                && policy.is_running()
            {
                self.tell_cpu(
                    frame,
                    cpu,
                    policy,
                    BatonMethod::Balance,
                    ctx,
                    which,
                    Arg::Word(0),
                );
            }
        }
        // A task that must move leaves the CPU, so that it is enqueued again. The same applies
        // while tasks wait for rescue.
        let stays = !self.moves(slot) && self.may_stay(slot, cpu);
        if !stays || self.rescue_pending() || self.share_ends(cpu, ctx.task, ctx.runtime) {
            Verdict::Expire
        } else {
            Verdict::None
        }
    }

    /// Must the task join another policy when it is next enqueued?
    pub(crate) fn moves(&self, slot: &Slot) -> bool {
        // The task's last enqueue noted this epoch: it was in the policy that it should be in.
        if slot.epoch.load(Relaxed) == self.epoch.load(Relaxed) {
            return false;
        }
        let wanted = self.wanted(slot);
        let may_join = |policy: &PolicyEntry| policy.is_running() && self.has_room(slot, policy);
        slot.policy() != wanted && self.by_id(wanted).is_some_and(may_join)
    }

    /// May the task that runs on `cpu` stay there? Its policy may have stopped, or may no longer
    /// have the CPU.
    pub(crate) fn may_stay(&self, slot: &Slot, cpu: &CpuState) -> bool {
        match self.by_id(slot.policy()) {
            Some(policy) => policy.is_running() && self.serves(policy, cpu),
            None if slot.state() == TaskState::Running => false,
            None => !self.is_partitioned() || self.is_common(cpu) || !self.may_run_apart(slot),
        }
    }

    /// The timer that a policy armed on CPU `ctx.cpu` has expired. Hard interrupt, no lock.
    pub fn timer(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, policy: usize) {
        let Some(policy) = self.policies.get(policy) else {
            return;
        };
        if policy.is_running() {
            let which = ctx.cpu;
            cpu.timers.bump();
            self.tell_cpu(
                frame,
                cpu,
                policy,
                BatonMethod::Timer,
                ctx,
                which,
                Arg::Word(0),
            );
        }
    }

    /// A CPU enters or leaves idle; policies are notified.
    pub fn set_idle(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, idle: bool) {
        if self.note_idle(cpu, idle) {
            self.tell_idle(frame, cpu, ctx, idle);
        }
    }

    /// The first half of [`Core::set_idle`]. True if the second half is needed, because a policy
    /// wants the notice.
    #[inline]
    pub fn note_idle(&self, cpu: &CpuState, idle: bool) -> bool {
        // First, so that a kick from a CPU that sees this one idle finds it asleep.
        cpu.asleep.store(u32::from(idle), Relaxed);
        self.mark_idle(cpu, idle);
        self.wants.load(Relaxed) & BATON_EV_IDLE != 0
    }

    /// The second half of [`Core::set_idle`]: CPU `ctx.cpu`, which is `cpu`, enters or leaves idle.
    pub fn tell_idle(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, idle: bool) {
        let which = ctx.cpu;
        let method = if idle {
            BatonMethod::EnterIdle
        } else {
            BatonMethod::ExitIdle
        };
        for policy in self
            .running()
            .filter(|p| p.wants(BATON_EV_IDLE) && self.serves(p, cpu))
        {
            self.tell_cpu(frame, cpu, policy, method, ctx, which, Arg::Word(0));
        }
    }

    /// CPU `ctx.cpu` comes online or goes offline. Process context, interrupts off, no run-queue
    /// lock; `this` is the CPU that this runs on.
    pub fn set_online(&self, frame: H::Frame, this: &CpuState, ctx: &mut BatonCtx, online: bool) {
        let which = ctx.cpu;
        let Some(cpu) = self.cpu(which) else { return };
        cpu.online.store(u32::from(online), Relaxed);
        self.mark_idle(cpu, false);
        cpu.asleep.store(0, Relaxed);
        let method = if online {
            BatonMethod::CpuOnline
        } else {
            BatonMethod::CpuOffline
        };
        for policy in self.running().filter(|policy| self.serves(policy, cpu)) {
            self.tell_cpu(frame, this, policy, method, ctx, which, Arg::Word(0));
        }
    }

    /// Notes whether a CPU is online when the host begins. No policy is running.
    pub fn note_online(&self, cpu: i32, online: bool) {
        if let Some(cpu) = self.cpu(cpu) {
            cpu.online.store(u32::from(online), Relaxed);
            // The idle state that an earlier shim left may no longer hold.
            self.mark_idle(cpu, false);
            cpu.asleep.store(0, Relaxed);
        }
    }

    /// Marks a CPU as idle and not claimed, or clears that mark. True if it was set.
    pub(crate) fn mark_idle(&self, cpu: &CpuState, idle: bool) -> bool {
        let was = cpu.idle.swap(u32::from(idle), Relaxed) != 0;
        match (was, idle) {
            (false, true) => drop(self.idle_cpus.fetch_add(1, Relaxed)),
            (true, false) => drop(self.idle_cpus.fetch_sub(1, Relaxed)),
            _ => {}
        }
        was
    }

    /// Is any CPU idle and not claimed? One load, instead of one per CPU.
    #[inline]
    pub fn is_any_idle(&self) -> bool {
        self.idle_cpus.load(Relaxed) != 0
    }

    /// Claims a CPU. False if it was not idle, or another claim was first. Any context.
    #[inline]
    pub fn claim_idle(&self, cpu: i32) -> bool {
        // A CPU that is going offline idles too.
        self.cpu(cpu)
            .is_some_and(|cpu| cpu.is_idle() && cpu.is_online() && self.mark_idle(cpu, false))
    }

    /// Is the CPU idle and not claimed?
    pub fn is_idle(&self, cpu: i32) -> bool {
        self.cpu(cpu).is_some_and(CpuState::is_idle)
    }
}
