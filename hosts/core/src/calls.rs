// SPDX-License-Identifier: GPL-2.0-only
//! The hot path of a task: select and enqueue, and how a task joins and leaves a policy. The lock
//! of the run queue in question is held and interrupts are off. Select runs without that lock, but
//! with the task's own (pi_lock).

use crate::{
    order, Core, CpuState, Fault, Host, PolicyEntry, Slot, TaskState, Verdict, DEFAULT_SLICE,
    NO_SOLE,
};
use baton_abi::{
    Arg, BatonCtx, BatonFaultKind, BatonMethod, BatonRefusal, BatonWake, BATON_ABORTED,
    BATON_EV_BLOCKED, BATON_EV_NO_SELECT, BATON_F_FORK, BATON_F_RESTORE, BATON_F_SYNC,
    BATON_F_WAKEUP, BATON_MAX_POLICIES, BATON_SELECT_DIRECT,
};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

impl<H: Host> Core<'_, H> {
    /// The id of the policy that a task should be in.
    #[inline]
    pub(crate) fn wanted(&self, slot: &Slot) -> u32 {
        // A stopped policy may be started again, and has its tasks again then.
        match slot.wanted.load(SeqCst) {
            id if self.by_id(id).is_some_and(PolicyEntry::is_running) => id,
            _ => self.default_policy.load(Relaxed),
        }
    }

    /// Handles a running task that turns out to have blocked.
    #[inline]
    pub(crate) fn blocked(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot) {
        if slot.block() {
            if self.wants.load(Relaxed) & BATON_EV_BLOCKED != 0 {
                self.tell_blocked(frame, cpu, ctx, slot);
            }
        } else if slot.state() == TaskState::Fallback {
            self.leave_fallback(slot, TaskState::Sleeping);
        }
    }

    #[inline(never)]
    fn tell_blocked(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot) {
        if let Some(policy) = self
            .by_id(slot.policy())
            .filter(|p| p.is_running() && p.wants(BATON_EV_BLOCKED))
        {
            slot.runtime.store(ctx.runtime, Relaxed);
            self.tell(
                frame,
                cpu,
                policy,
                BatonMethod::TaskBlocked,
                ctx,
                slot,
                Arg::Word(0),
            );
        }
    }

    /// Chooses a CPU for a woken or new task (`ctx.task`) that was last on CPU `ctx.cpu`, and
    /// stores it in `ctx.cpu`. `Run` means that the shim must insert the task there directly, for
    /// `ctx.slice`. `cpu` is the waker's CPU.
    pub fn select(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) -> Verdict {
        let Some(slot) = self.by_handle(ctx.task) else {
            return Verdict::None;
        };
        if slot.epoch.load(Relaxed) != self.epoch.load(Relaxed) {
            let Some(home) = self.settled_home(slot, ctx.cpu) else {
                ctx.cpu = match self.select_new(frame, cpu, ctx, slot) {
                    Some(chosen) => chosen,
                    None => self.any_idle(slot, ctx.cpu),
                };
                return Verdict::None;
            };
            ctx.cpu = home;
        }
        let prev_cpu = ctx.cpu;
        let policy = &self.policies[slot.policy() as usize % BATON_MAX_POLICIES];
        slot.runtime.store(ctx.runtime, Relaxed);
        if slot.state() == TaskState::Running {
            self.blocked(frame, cpu, ctx, slot);
            if !policy.is_running() {
                return Verdict::None;
            }
        }
        if policy.wants(BATON_EV_NO_SELECT) {
            return Verdict::None;
        }
        let wake = BatonWake {
            prev_cpu,
            waker_cpu: cpu.number(),
            flags: ctx.flags & (BATON_F_SYNC | BATON_F_FORK),
        };
        let answer = self.tell_quickly(
            frame,
            cpu,
            policy,
            BatonMethod::SelectTaskRq,
            ctx,
            slot,
            Arg::Wake(&wake),
        );
        ctx.cpu = prev_cpu;
        if answer == u64::from(prev_cpu as u32) || answer == BATON_ABORTED {
            return Verdict::None;
        }
        let chosen = answer as u32 as i32;
        if chosen != prev_cpu || answer & BATON_SELECT_DIRECT != 0 {
            let refusal = self.check_cpu(slot, policy, chosen);
            if refusal.is_some() {
                self.count_refusal(cpu, policy);
                return Verdict::None;
            }
        }
        ctx.cpu = chosen;
        if answer & BATON_SELECT_DIRECT != 0 && slot.state() == TaskState::Sleeping {
            if ctx.slice == 0 {
                ctx.slice = DEFAULT_SLICE;
            }
            slot.cpu.store(chosen, Relaxed);
            slot.set(TaskState::Running);
            if let Some(chosen) = self
                .cpu(chosen)
                .filter(|cpu| self.sole.load(Relaxed) == NO_SOLE && cpu.is_asleep())
            {
                self.runs(chosen, policy.index(), Some(slot));
            }
            cpu.directs.bump();
            return Verdict::Run;
        }
        Verdict::None
    }

    /// Asks the policy that a new task will join. `None` if there is none that can be asked.
    #[cold]
    fn select_new(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
    ) -> Option<i32> {
        let is_new = ctx.flags & BATON_F_FORK != 0 && !slot.joined();
        let policy = self
            .by_id(self.wanted(slot))
            .filter(|p| is_new && p.is_running())?;
        let prev_cpu = self
            .home(slot, policy, ctx.cpu)
            .filter(|_| !policy.wants(BATON_EV_NO_SELECT))?;
        slot.cpu.store(prev_cpu, Relaxed);
        slot.runtime.store(ctx.runtime, Relaxed);
        slot.call_of(policy);
        let wake = BatonWake {
            prev_cpu,
            waker_cpu: cpu.number(),
            flags: BATON_F_FORK,
        };
        let answer = self.tell(
            frame,
            cpu,
            policy,
            BatonMethod::SelectTaskRq,
            ctx,
            slot,
            Arg::Wake(&wake),
        );
        // `task_new` gives the policy the task, so an answer to run it at once counts as the choice
        // of that CPU's run queue.
        let chosen = answer as u32 as i32;
        if answer == BATON_ABORTED || chosen == prev_cpu {
            return Some(prev_cpu);
        }
        if self.check_cpu(slot, policy, chosen).is_some() {
            self.count_refusal(cpu, policy);
            return Some(prev_cpu);
        }
        Some(chosen)
    }

    /// The CPU to name to the policy as the task's, if the task is in the policy that it should be
    /// in and that policy is running.
    fn settled_home(&self, slot: &Slot, prev_cpu: i32) -> Option<i32> {
        let policy = self
            .by_id(slot.policy())
            .filter(|p| p.is_running() && p.id() == self.wanted(slot))?;
        self.home(slot, policy, prev_cpu)
    }

    #[inline]
    fn check_cpu(&self, slot: &Slot, policy: &PolicyEntry, cpu: i32) -> Option<BatonRefusal> {
        if !self
            .cpu(cpu)
            .is_some_and(|cpu| cpu.is_online() && self.serves(policy, cpu))
        {
            Some(BatonRefusal::CpuOffline)
        } else if !self.host.may_run(slot, cpu) {
            Some(BatonRefusal::NotAllowed)
        } else {
            None
        }
    }

    pub(crate) fn count_refusal(&self, cpu: &CpuState, policy: &PolicyEntry) {
        cpu.refusals.bump();
        policy.refusals.fetch_add(1, Relaxed);
    }

    /// Enqueues `ctx.task`, which is runnable on the run queue of CPU `ctx.cpu`: its policy places
    /// it. `cpu` is the CPU that this runs on.
    #[inline]
    pub fn enqueue(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) -> Verdict {
        let Some(slot) = self.by_handle(ctx.task) else {
            return self.enqueue_unknown(ctx);
        };
        slot.cpu.store(ctx.cpu, Relaxed);
        slot.runtime.store(ctx.runtime, Relaxed);
        if slot.epoch.load(Relaxed) != self.epoch.load(Relaxed) {
            return self.enqueue_slow(frame, cpu, ctx, slot);
        }
        let policy = &self.policies[slot.policy() as usize % BATON_MAX_POLICIES];
        // The two calls of every context switch, with their methods known at compile time.
        match slot.state() {
            TaskState::Sleeping if ctx.flags & BATON_F_WAKEUP != 0 => {
                self.give::<true>(frame, cpu, ctx, slot, policy, BatonMethod::TaskWakeup)
            }
            TaskState::Running
                if ctx.flags & (BATON_F_WAKEUP | BATON_F_RESTORE) == 0 && !slot.has_yielded() =>
            {
                self.give::<true>(frame, cpu, ctx, slot, policy, BatonMethod::TaskPreempt)
            }
            _ => self.enqueue_slow(frame, cpu, ctx, slot),
        }
    }

    /// Enqueues a task that got no slot. From now on the fallback queue has tasks that are not
    /// counted.
    #[cold]
    fn enqueue_unknown(&self, ctx: &mut BatonCtx) -> Verdict {
        if self.overflow.load(Relaxed) == 0 {
            self.note_overflow();
        }
        ctx.slice = self.fallback_slice();
        Verdict::Fallback
    }

    /// Enqueues a task in every other case.
    #[inline(never)]
    fn enqueue_slow(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
    ) -> Verdict {
        let (is_leaving, on) = (slot.is_leaving(), ctx.cpu);
        let verdict = self.enqueue_anew(frame, cpu, ctx, slot);
        // In these cases nothing else makes the CPU dispatch.
        if is_leaving || slot.cpu() != on {
            order::kick(ctx, slot.cpu(), 0);
        }
        verdict
    }

    fn enqueue_anew(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
    ) -> Verdict {
        let woken = ctx.flags & BATON_F_WAKEUP != 0;
        if woken && slot.state() == TaskState::Running {
            // The task slept unnoticed: a higher class took the CPU at that moment. This notice
            // goes first, as the task must leave a policy that fails in it.
            self.blocked(frame, cpu, ctx, slot);
        }
        // The epoch is noted before the check, so that a concurrent assignment clears the note
        // again.
        let epoch = if self.is_partitioned() {
            0
        } else {
            self.epoch.load(SeqCst)
        };
        slot.epoch.store(epoch, SeqCst);
        let policy = self
            .by_id(slot.policy())
            .filter(|p| p.is_running() && p.id() == self.wanted(slot));
        let home = policy.and_then(|policy| self.home(slot, policy, ctx.cpu));
        let (Some(policy), Some(home)) = (policy, home) else {
            return self.enqueue_stranger(frame, cpu, ctx, slot);
        };
        slot.cpu.store(home, Relaxed);
        let method = match slot.state() {
            TaskState::Running if slot.has_yielded() => BatonMethod::TaskYield,
            TaskState::Running if ctx.flags & BATON_F_RESTORE == 0 => BatonMethod::TaskPreempt,
            TaskState::Queued => return self.enqueue_queued(frame, cpu, ctx, slot, policy, woken),
            TaskState::Fallback if slot.is_rescued() => return self.enter_fallback(cpu, ctx, slot),
            TaskState::Fallback => {
                // The task was rescued from a policy that is running and was not notified.
                self.take_back(frame, cpu, ctx, slot, policy, BatonMethod::TaskDequeued);
                if !policy.is_running() {
                    return self.enqueue_stranger(frame, cpu, ctx, slot);
                }
                self.leave_fallback(slot, TaskState::Sleeping);
                if woken {
                    BatonMethod::TaskWakeup
                } else {
                    BatonMethod::TaskRestored
                }
            }
            _ if woken => BatonMethod::TaskWakeup,
            _ => BatonMethod::TaskRestored,
        };
        self.give::<false>(frame, cpu, ctx, slot, policy, method)
    }

    /// Mints a token and gives it to the policy. `FIRST`: no other policy was called in this event.
    #[inline(always)]
    fn give<const FIRST: bool>(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
        policy: &PolicyEntry,
        method: BatonMethod,
    ) -> Verdict {
        let token = slot.mint(ctx.now);
        cpu.enqueues.bump();
        // An abandoned call has stopped its policy.
        if FIRST {
            self.tell_quickly(frame, cpu, policy, method, ctx, slot, Arg::Word(token));
            // The host needs these two to carry kicks out. Without kicks it reads neither.
            if ctx.nr_kicks != 0 {
                let is_wakeup = method == BatonMethod::TaskWakeup;
                (ctx.cpu, ctx.flags) = (slot.cpu(), if is_wakeup { BATON_F_WAKEUP } else { 0 });
            }
        } else {
            self.tell(frame, cpu, policy, method, ctx, slot, Arg::Word(token));
        }
        if policy.is_running() {
            // A preempted task has no task to preempt on the CPU that it left.
            if method != BatonMethod::TaskPreempt {
                self.preempt_later(ctx, slot, policy);
            }
            return Verdict::None;
        }
        // The policy has been stopped meanwhile. Either this or a rescue takes the task out of the
        // queue, and puts it on the fallback queue.
        if slot.claim(token, TaskState::Fallback) {
            self.fallback.fetch_add(1, Relaxed);
            cpu.fallbacks.bump();
            // Not the slice that the policy may have asked for.
            ctx.slice = self.fallback_slice();
            return Verdict::Fallback;
        }
        Verdict::None
    }

    /// The kernel took a queued task back without notice (a change of attributes, a forced
    /// migration, a time in bypass mode) and enqueues it again. The core does the same.
    #[cold]
    fn enqueue_queued(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
        policy: &PolicyEntry,
        woken: bool,
    ) -> Verdict {
        self.take_back(frame, cpu, ctx, slot, policy, BatonMethod::TaskDequeued);
        slot.withdraw();
        if slot.is_rescued() {
            return self.enter_fallback(cpu, ctx, slot);
        }
        if woken {
            slot.set(TaskState::Running);
            self.blocked(frame, cpu, ctx, slot);
        }
        if !policy.is_running() {
            return self.enqueue_stranger(frame, cpu, ctx, slot);
        }
        let method = if woken {
            BatonMethod::TaskWakeup
        } else {
            BatonMethod::TaskRestored
        };
        self.give::<false>(frame, cpu, ctx, slot, policy, method)
    }

    /// Asks the policy for the token of a task that it has queued. The token is stale afterwards,
    /// whatever the answer.
    pub(crate) fn take_back(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
        policy: &PolicyEntry,
        method: BatonMethod,
    ) -> u64 {
        let token = slot.token();
        let answer = self.tell(frame, cpu, policy, method, ctx, slot, Arg::Word(0));
        if answer == BATON_ABORTED || answer == 0 || Some(answer) == token {
            return answer;
        }
        self.count_refusal(cpu, policy);
        // The token is another task's. The policy no longer holds it.
        if let Some(other) = self.by_token(answer).filter(|other| other.is_fresh(answer)) {
            let fault = Fault {
                kind: BatonFaultKind::LostTask,
                method,
                pid: other.pid(),
                now: ctx.now,
            };
            self.fault(policy, &fault, Some(cpu));
            return BATON_ABORTED;
        }
        answer
    }

    /// Enqueues a task that is in no running policy, or not in the one that it should be in.
    #[cold]
    fn enqueue_stranger(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
    ) -> Verdict {
        self.part(frame, cpu, ctx, slot, BatonMethod::TaskDeparted);
        // A task whose assigned policy no longer exists belongs to the default policy, as if it had
        // not been assigned.
        let assigned = slot.wanted.load(SeqCst);
        let policy = self.by_id(assigned).filter(|p| p.is_running());
        let policy = policy.or_else(|| {
            self.by_id(self.default_policy.load(Relaxed))
                .filter(|p| p.is_running())
        });
        let home = policy.and_then(|policy| self.home(slot, policy, ctx.cpu));
        let (Some(policy), Some(home)) = (policy, home) else {
            return self.enter_fallback(cpu, ctx, slot);
        };
        if slot.is_rescued() {
            return self.enter_fallback(cpu, ctx, slot);
        }
        slot.cpu.store(home, Relaxed);
        if slot.state() == TaskState::Fallback {
            self.leave_fallback(slot, TaskState::Sleeping);
        }
        if self.by_id(assigned).is_none() {
            // Unless it has been assigned again meanwhile.
            let _ = slot.wanted.compare_exchange(assigned, 0, SeqCst, Relaxed);
        }
        slot.join(policy);
        slot.epoch.store(0, Relaxed);
        self.give::<false>(frame, cpu, ctx, slot, policy, BatonMethod::TaskNew)
    }

    /// Removes the task from its policy, if it has one. A queued or running task becomes
    /// `Sleeping`, or is in the fallback if a rescue was first. A task in any other state keeps it.
    pub(crate) fn part(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        slot: &Slot,
        how: BatonMethod,
    ) {
        if slot.joined() {
            if let Some(policy) = self.by_id(slot.policy()).filter(|p| p.is_running()) {
                if slot.state() == TaskState::Queued && how == BatonMethod::TaskDead {
                    self.take_back(frame, cpu, ctx, slot, policy, BatonMethod::TaskDequeued);
                }
                if how != BatonMethod::TaskDead {
                    self.take_back(frame, cpu, ctx, slot, policy, how);
                } else if policy.is_running() {
                    self.tell(frame, cpu, policy, how, ctx, slot, Arg::Word(0));
                }
            }
        }
        // Before it leaves, as a rescue would take a queued task of no policy.
        slot.withdraw();
        if slot.state() == TaskState::Running {
            slot.set(TaskState::Sleeping);
        }
        slot.leave();
    }

    /// A policy has dropped a token in the last call on `cpu`. If it is the newest token of a
    /// queued task, the task is lost: the policy is stopped for it, and the result is true.
    pub fn dropped(&self, token: u64, cpu: &CpuState) -> bool {
        let Some(slot) = self.by_token(token).filter(|slot| slot.is_fresh(token)) else {
            return false;
        };
        let (index, event) = cpu.event(0);
        let Some(policy) = self.policies.get(index as usize) else {
            return false;
        };
        let method = BatonMethod::of(event.method);
        let fault = Fault {
            kind: BatonFaultKind::LostTask,
            method,
            pid: slot.pid(),
            now: event.now,
        };
        self.fault(policy, &fault, Some(cpu));
        core::sync::atomic::fence(SeqCst);
        true
    }
}
