// SPDX-License-Identifier: GPL-2.0-only
//! The hot path: select, enqueue, dispatch. Run-queue lock of the CPU in question held, interrupts off; select runs without
//! the run-queue lock but with the task's own (pi_lock).

use crate::{
    order, Arg, Core, CpuState, Fault, Host, PolicyEntry, Slot, TaskState, Verdict, DEFAULT_SLICE, MAX_REFUSALS,
    NO_SOLE,
};
use baton_abi::{
    BatonCtx, BatonFaultKind, BatonMethod, BatonRefusal, BatonTask, BatonWake, BATON_ABORTED, BATON_EV_BLOCKED,
    BATON_EV_NO_SELECT, BATON_F_FORK, BATON_F_PREV_RUNNABLE, BATON_F_RESTORE, BATON_F_SYNC, BATON_F_WAKEUP,
    BATON_MAX_POLICIES, BATON_PICK_KEEP, BATON_PICK_NONE, BATON_SELECT_DIRECT,
};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// What a policy is told of the task in `slot`.
#[inline]
pub(crate) fn view(slot: &Slot) -> BatonTask {
    BatonTask {
        slot: slot.index(),
        pid: slot.pid(),
        cpu: slot.cpu(),
        nice: slot.nice(),
        runtime: slot.runtime.load(Relaxed),
    }
}

impl<H: Host> Core<'_, H> {
    /// Calls a method that is about a task.
    #[inline(always)]
    pub(crate) fn tell(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        policy: &PolicyEntry,
        method: BatonMethod,
        ctx: &mut BatonCtx,
        slot: &Slot,
        b: Arg<'_>,
    ) -> u64 {
        cpu.note(ctx.now, slot.tag(), method);
        self.host.call(frame, policy, method, ctx, Arg::Task(&view(slot)), b)
    }

    /// Calls a method that is about a CPU.
    #[inline]
    pub(crate) fn tell_cpu(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        policy: &PolicyEntry,
        method: BatonMethod,
        ctx: &mut BatonCtx,
        which: i32,
        b: Arg<'_>,
    ) -> u64 {
        cpu.note(ctx.now, u64::from(policy.index()), method);
        self.host.call(frame, policy, method, ctx, Arg::Word(which as u64), b)
    }

    /// The id of the policy that a task should be in.
    #[inline]
    pub(crate) fn wanted(&self, slot: &Slot) -> u32 {
        // One that has stopped may come back, and has its tasks again then.
        match slot.wanted.load(SeqCst) {
            id if self.by_id(id).is_some_and(PolicyEntry::is_running) => id,
            _ => self.default_policy.load(Relaxed),
        }
    }

    /// A running task has turned out to be asleep.
    #[inline]
    fn blocked(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot) {
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
        if let Some(policy) = self.by_id(slot.policy()).filter(|p| p.is_running() && p.wants(BATON_EV_BLOCKED)) {
            slot.runtime.store(ctx.runtime, Relaxed);
            self.tell(frame, cpu, policy, BatonMethod::TaskBlocked, ctx, slot, Arg::Word(0));
        }
    }

    /// A waking or new task (`ctx.task`), last on CPU `ctx.cpu`, needs a CPU. Puts the answer in `ctx.cpu`; `Run` means that the
    /// shim must insert it there directly. `cpu` is the waker's.
    pub fn select(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) -> Verdict {
        let Some(slot) = self.by_handle(ctx.task) else { return Verdict::None };
        if slot.epoch.load(Relaxed) != self.epoch.load(Relaxed) {
            let Some(home) = self.settled_home(slot, ctx.cpu) else {
                ctx.cpu = self.any_idle(slot, ctx.cpu);
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
        let wake = BatonWake { prev_cpu, waker_cpu: cpu.number(), flags: ctx.flags & (BATON_F_SYNC | BATON_F_FORK) };
        let answer = self.tell(frame, cpu, policy, BatonMethod::SelectTaskRq, ctx, slot, Arg::Wake(&wake));
        if answer == u64::from(prev_cpu as u32) {
            return Verdict::None;
        }
        let chosen = answer as u32 as i32;
        if answer == BATON_ABORTED {
            ctx.cpu = prev_cpu;
            return Verdict::None;
        }
        if chosen != prev_cpu || answer & BATON_SELECT_DIRECT != 0 {
            let refusal = self.check_cpu(slot, policy, chosen);
            if refusal.is_some() {
                self.count_refusal(cpu, policy);
                ctx.cpu = prev_cpu;
                return Verdict::None;
            }
        }
        ctx.cpu = chosen;
        if answer & BATON_SELECT_DIRECT != 0 && slot.state() == TaskState::Sleeping {
            slot.cpu.store(chosen, Relaxed);
            slot.set(TaskState::Running);
            if let Some(chosen) = self.cpu(chosen).filter(|cpu| self.sole.load(Relaxed) == NO_SOLE && cpu.is_asleep()) {
                self.runs(chosen, policy.index(), Some(slot));
            }
            cpu.directs.bump();
            return Verdict::Run;
        }
        Verdict::None
    }

    /// If the task is in the policy that it should be in, and that one running: where that is to think it was.
    fn settled_home(&self, slot: &Slot, prev_cpu: i32) -> Option<i32> {
        let policy = self.by_id(slot.policy()).filter(|p| p.is_running() && p.id() == self.wanted(slot))?;
        self.home(slot, policy, prev_cpu)
    }

    #[inline]
    fn check_cpu(&self, slot: &Slot, policy: &PolicyEntry, cpu: i32) -> Option<BatonRefusal> {
        if !self.cpu(cpu).is_some_and(|cpu| cpu.is_online() && self.serves(policy, cpu)) {
            Some(BatonRefusal::CpuOffline)
        } else if !self.host.may_run(slot, cpu) {
            Some(BatonRefusal::NotAllowed)
        } else {
            None
        }
    }

    fn count_refusal(&self, cpu: &CpuState, policy: &PolicyEntry) {
        cpu.refusals.bump();
        policy.refusals.fetch_add(1, Relaxed);
    }

    /// The task `ctx.task` is runnable on the run queue of CPU `ctx.cpu`, and its policy's to place. `cpu` is the CPU that
    /// this runs on.
    #[inline]
    pub fn enqueue(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) -> Verdict {
        let Some(slot) = self.by_handle(ctx.task) else { return self.enqueue_unknown() };
        slot.cpu.store(ctx.cpu, Relaxed);
        slot.runtime.store(ctx.runtime, Relaxed);
        if slot.epoch.load(Relaxed) != self.epoch.load(Relaxed) {
            return self.enqueue_slow(frame, cpu, ctx, slot);
        }
        let policy = &self.policies[slot.policy() as usize % BATON_MAX_POLICIES];
        // The two calls of every context switch, with their methods known at compile time.
        match slot.state() {
            TaskState::Sleeping if ctx.flags & BATON_F_WAKEUP != 0 => {
                self.give(frame, cpu, ctx, slot, policy, BatonMethod::TaskWakeup)
            }
            TaskState::Running if ctx.flags & (BATON_F_WAKEUP | BATON_F_RESTORE) == 0 && !slot.has_yielded() => {
                self.give(frame, cpu, ctx, slot, policy, BatonMethod::TaskPreempt)
            }
            _ => self.enqueue_slow(frame, cpu, ctx, slot),
        }
    }

    /// A task that got no slot: the fallback queue has tasks that are not counted, from now on.
    #[cold]
    fn enqueue_unknown(&self) -> Verdict {
        if self.overflow.load(Relaxed) == 0 {
            self.note_overflow();
        }
        Verdict::Fallback
    }

    /// Every other way of becoming runnable.
    #[inline(never)]
    fn enqueue_slow(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot) -> Verdict {
        let (is_leaving, on) = (slot.is_leaving(), ctx.cpu);
        let verdict = self.enqueue_anew(frame, cpu, ctx, slot);
        // Where nothing else makes the CPU look.
        if is_leaving || slot.cpu() != on {
            order::kick(ctx, slot.cpu(), 0);
        }
        verdict
    }

    fn enqueue_anew(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot) -> Verdict {
        let woken = ctx.flags & BATON_F_WAKEUP != 0;
        if woken && slot.state() == TaskState::Running {
            // It slept unseen: a higher class took the CPU just then. Told first, as a policy that fails in this is left.
            self.blocked(frame, cpu, ctx, slot);
        }
        // Noted as looked at before it is: an assignment that comes meanwhile takes the note away again.
        let epoch = if self.is_partitioned() { 0 } else { self.epoch.load(SeqCst) };
        slot.epoch.store(epoch, SeqCst);
        let policy = self.by_id(slot.policy()).filter(|p| p.is_running() && p.id() == self.wanted(slot));
        let home = policy.and_then(|policy| self.home(slot, policy, ctx.cpu));
        let (Some(policy), Some(home)) = (policy, home) else { return self.enqueue_stranger(frame, cpu, ctx, slot) };
        slot.cpu.store(home, Relaxed);
        let method = match slot.state() {
            TaskState::Running if slot.has_yielded() => BatonMethod::TaskYield,
            TaskState::Running if ctx.flags & BATON_F_RESTORE == 0 => BatonMethod::TaskPreempt,
            TaskState::Queued => return self.enqueue_queued(frame, cpu, ctx, slot, policy, woken),
            TaskState::Fallback if slot.is_rescued() => return self.enter_fallback(cpu, ctx, slot),
            TaskState::Fallback => {
                // Rescued from a policy that runs, which does not know.
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
        self.give(frame, cpu, ctx, slot, policy, method)
    }

    /// Mints a token and gives it to the policy.
    #[inline(always)]
    fn give(
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
        // A call that was abandoned has stopped its policy.
        self.tell(frame, cpu, policy, method, ctx, slot, Arg::Word(token));
        if policy.is_running() {
            // One that had to go from a CPU has nobody to send away from there.
            if method != BatonMethod::TaskPreempt {
                self.preempt_later(ctx, slot, policy);
            }
            return Verdict::None;
        }
        // Stopped meanwhile. Whoever takes the task out of the queue puts it on the fallback queue: this, or a rescue.
        if slot.claim(token, TaskState::Fallback) {
            self.fallback.fetch_add(1, Relaxed);
            cpu.fallbacks.bump();
            return Verdict::Fallback;
        }
        Verdict::None
    }

    /// The kernel took a queued task back without a word (a change of attributes, a forced move, a spell in bypass mode) and
    /// enqueues it again: so does the core.
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
        let method = if woken { BatonMethod::TaskWakeup } else { BatonMethod::TaskRestored };
        self.give(frame, cpu, ctx, slot, policy, method)
    }

    /// Asks the policy for the token of a task that it has queued. The token is worthless afterwards whatever the answer.
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
        // Another task's: now nobody holds it.
        if let Some(other) = self.by_token(answer).filter(|other| other.is_fresh(answer)) {
            let fault = Fault { kind: BatonFaultKind::LostTask, method, pid: other.pid(), now: ctx.now };
            self.fault(policy, &fault, Some(cpu));
            return BATON_ABORTED;
        }
        answer
    }

    /// The task is in no running policy, or not in the one that it should be in.
    #[cold]
    fn enqueue_stranger(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot) -> Verdict {
        self.part(frame, cpu, ctx, slot, BatonMethod::TaskDeparted);
        // One that was assigned to a policy which is no more has the default, as if it had not been.
        let assigned = slot.wanted.load(SeqCst);
        let policy = self.by_id(assigned).filter(|p| p.is_running());
        let policy = policy.or_else(|| self.by_id(self.default_policy.load(Relaxed)).filter(|p| p.is_running()));
        let home = policy.and_then(|policy| self.home(slot, policy, ctx.cpu));
        let (Some(policy), Some(home)) = (policy, home) else { return self.enter_fallback(cpu, ctx, slot) };
        if slot.is_rescued() {
            return self.enter_fallback(cpu, ctx, slot);
        }
        slot.cpu.store(home, Relaxed);
        if slot.state() == TaskState::Fallback {
            self.leave_fallback(slot, TaskState::Sleeping);
        }
        if self.by_id(assigned).is_none() {
            // Unless it has just been assigned anew.
            let _ = slot.wanted.compare_exchange(assigned, 0, SeqCst, Relaxed);
        }
        slot.join(policy);
        slot.epoch.store(0, Relaxed);
        self.give(frame, cpu, ctx, slot, policy, BatonMethod::TaskNew)
    }

    /// The task leaves its policy, if it has one. It was queued or running: then it is `Sleeping`, or in the fallback if a rescue
    /// was first; else it is what it was.
    pub(crate) fn part(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot, how: BatonMethod) {
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
        // Before it leaves, as a queued task of no policy would be rescued.
        slot.withdraw();
        if slot.state() == TaskState::Running {
            slot.set(TaskState::Sleeping);
        }
        slot.leave();
    }

    /// CPU `ctx.cpu`, which is `cpu`, on which this runs, needs a task. `ctx.task` ran there last; it can go on if `BATON_F_PREV_RUNNABLE`.
    #[inline]
    pub fn dispatch(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) -> Verdict {
        cpu.dispatches.bump();
        if ctx.flags & BATON_F_PREV_RUNNABLE != 0 {
            return self.dispatch_with_prev(frame, cpu, ctx);
        }
        if let Some(slot) = self.by_handle(ctx.task) {
            self.blocked(frame, cpu, ctx, slot);
        }
        // The call of every context switch: one policy runs, and its first answer is good.
        let Some(policy) = self.policies.get(self.sole.load(Relaxed) as usize) else {
            return self.dispatch_slow(frame, cpu, ctx, None);
        };
        if self.to_rescue.load(Relaxed) | self.fallback.load(Relaxed) != 0 {
            return self.dispatch_slow(frame, cpu, ctx, None);
        }
        ctx.slice = 0;
        cpu.note(ctx.now, u64::from(policy.index()), BatonMethod::PickNextTask);
        let (which, none) = (Arg::Word(ctx.cpu as u64), Arg::Word(0));
        let answer = self.host.call(frame, policy, BatonMethod::PickNextTask, ctx, which, none);
        if let Some(slot) = self.by_token(answer) {
            if slot.policy() == policy.id()
                && self.host.may_run(slot, ctx.cpu)
                && slot.claim(answer, TaskState::Running)
            {
                return self.run(cpu, ctx, slot, answer);
            }
        }
        self.dispatch_on(frame, cpu, ctx, policy, answer)
    }

    #[inline(always)]
    fn run(&self, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot, token: u64) -> Verdict {
        if ctx.slice == 0 {
            ctx.slice = DEFAULT_SLICE;
        }
        slot.cpu.store(ctx.cpu, Relaxed);
        cpu.picks.bump();
        ctx.task = token;
        Verdict::Run
    }

    /// The sole policy's first answer was not a good token: goes on from there.
    #[inline(never)]
    fn dispatch_on(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        policy: &PolicyEntry,
        first: u64,
    ) -> Verdict {
        // Mostly it has nothing, and nothing to take from other CPUs either.
        let mut answer = first;
        if answer == BATON_PICK_NONE {
            let which = ctx.cpu;
            answer = self.tell_cpu(frame, cpu, policy, BatonMethod::NewlyIdle, ctx, which, Arg::Word(0));
            if answer == BATON_PICK_NONE {
                return self.found_nothing(cpu);
            }
        }
        match self.pick(frame, cpu, ctx, policy, None, Some(answer)) {
            Verdict::None => self.found_nothing(cpu),
            verdict => verdict,
        }
    }

    /// The task that ran last could go on, and does, if there is nothing else.
    #[inline(never)]
    fn dispatch_with_prev(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) -> Verdict {
        let prev = self.by_handle(ctx.task);
        // One that is to change over, or to leave this CPU, must be enqueued for that: it is not there to be kept.
        let stays = prev.is_none_or(|slot| !self.moves(slot) && self.may_stay(slot, cpu));
        if let Some(slot) = prev.filter(|_| !stays) {
            slot.set_leaving();
        }
        let prev = prev.filter(|slot| slot.state() == TaskState::Running && stays);
        if let Some(slot) = prev {
            slot.runtime.store(ctx.runtime, Relaxed);
        }
        let verdict = self.dispatch_slow(frame, cpu, ctx, prev);
        if !stays && matches!(verdict, Verdict::Fallback | Verdict::Nothing) {
            self.host.evict(cpu.number());
        }
        verdict
    }

    #[inline(never)]
    fn dispatch_slow(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, prev: Option<&Slot>) -> Verdict {
        if self.rescue_pending() {
            return Verdict::Rescue;
        }
        self.charge(cpu, ctx.task, ctx.runtime);
        if self.is_fallbacks_turn(cpu) {
            self.runs(cpu, order::FALLBACK, None);
            return Verdict::Turn;
        }
        let owed = self.owed(cpu);
        for policy in owed.into_iter().chain(self.running().filter(|policy| self.serves(policy, cpu))) {
            let prev = prev.filter(|slot| slot.policy() == policy.id());
            match self.pick(frame, cpu, ctx, policy, prev, None) {
                Verdict::None => self.wants_nothing(cpu, policy),
                verdict => {
                    cpu.by_right.store(u32::from(owed.is_some_and(|owed| owed.index() == policy.index())), Relaxed);
                    return verdict;
                }
            }
        }
        self.found_nothing(cpu)
    }

    /// Asks one policy for a task; `first` is its answer if it was asked once already.
    fn pick(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        policy: &PolicyEntry,
        prev: Option<&Slot>,
        mut first: Option<u64>,
    ) -> Verdict {
        let task = prev.map(view);
        let which = ctx.cpu;
        for _ in 0..MAX_REFUSALS {
            let answer = first.take().unwrap_or_else(|| {
                ctx.slice = 0;
                let prev = task.as_ref().map_or(Arg::Word(0), Arg::Task);
                self.tell_cpu(frame, cpu, policy, BatonMethod::PickNextTask, ctx, which, prev)
            });
            let answer = match answer {
                BATON_ABORTED => return Verdict::None,
                BATON_PICK_KEEP => {
                    let Some(slot) = prev else {
                        self.count_refusal(cpu, policy);
                        continue;
                    };
                    // If it has asked to yield, that is answered.
                    slot.set(TaskState::Running);
                    self.runs(cpu, policy.index(), prev);
                    ctx.slice = if ctx.slice == 0 { DEFAULT_SLICE } else { ctx.slice };
                    return Verdict::Keep;
                }
                BATON_PICK_NONE if prev.is_some() => return Verdict::None,
                BATON_PICK_NONE => {
                    match self.tell_cpu(frame, cpu, policy, BatonMethod::NewlyIdle, ctx, which, Arg::Word(0)) {
                        BATON_PICK_NONE | BATON_ABORTED => return Verdict::None,
                        token => token,
                    }
                }
                token => token,
            };
            match self.check(answer, policy, which) {
                Ok(slot) => {
                    self.runs(cpu, policy.index(), Some(slot));
                    return self.run(cpu, ctx, slot, answer);
                }
                Err(why) => {
                    self.count_refusal(cpu, policy);
                    cpu.note(ctx.now, u64::from(policy.index()), BatonMethod::PickRefused);
                    let (token, why) = (Arg::Word(answer), Arg::Word(why as u64));
                    self.host.call(frame, policy, BatonMethod::PickRefused, ctx, token, why);
                    if !policy.is_running() {
                        return Verdict::None;
                    }
                }
            }
        }
        let fault =
            Fault { kind: BatonFaultKind::RefusalLoop, method: BatonMethod::PickNextTask, pid: 0, now: ctx.now };
        self.fault(policy, &fault, Some(cpu));
        Verdict::None
    }

    /// Is this token good for running its task on `cpu`? If so the task is claimed.
    #[inline]
    fn check(&self, token: u64, policy: &PolicyEntry, cpu: i32) -> Result<&Slot, BatonRefusal> {
        let slot = self.by_token(token).ok_or(BatonRefusal::Stale)?;
        if !slot.is_fresh(token) {
            return Err(BatonRefusal::Stale);
        }
        if slot.policy() != policy.id() {
            return Err(BatonRefusal::Foreign);
        }
        if !self.host.may_run(slot, cpu) {
            return Err(BatonRefusal::NotAllowed);
        }
        if slot.claim(token, TaskState::Running) {
            Ok(slot)
        } else {
            Err(BatonRefusal::Stale)
        }
    }

    /// A policy dropped a `Schedulable` in the call that `cpu` made last. True when that lost the task, and the policy has been
    /// stopped for it.
    pub fn dropped(&self, token: u64, cpu: &CpuState) -> bool {
        let Some(slot) = self.by_token(token).filter(|slot| slot.is_fresh(token)) else { return false };
        let (index, event) = cpu.event(0);
        let Some(policy) = self.policies.get(index as usize) else { return false };
        let method = BatonMethod::of(event.method);
        let fault = Fault { kind: BatonFaultKind::LostTask, method, pid: slot.pid(), now: event.now };
        self.fault(policy, &fault, Some(cpu));
        core::sync::atomic::fence(SeqCst);
        true
    }
}
