// SPDX-License-Identifier: GPL-2.0-only
//! The hot path of a CPU that needs a task. The lock of its run queue is held, interrupts are off.

use crate::{
    order,
    tell::{view, Given},
    Core, CpuState, Fault, Host, PolicyEntry, Slot, TaskState, Verdict, DEFAULT_SLICE,
    MAX_REFUSALS,
};
use baton_abi::{
    Arg, BatonCtx, BatonFaultKind, BatonMethod, BatonRefusal, BATON_ABORTED, BATON_F_PREV_RUNNABLE,
    BATON_PICK_KEEP, BATON_PICK_NONE,
};
use core::sync::atomic::Ordering::Relaxed;

impl<H: Host> Core<'_, H> {
    /// Finds a task for the current CPU: `cpu` is its state, and `ctx.cpu` its number. `ctx.task`
    /// is the previous task, which can continue if `BATON_F_PREV_RUNNABLE` is set.
    #[inline]
    pub fn dispatch(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) -> Verdict {
        cpu.dispatches.bump();
        if ctx.flags & BATON_F_PREV_RUNNABLE != 0 {
            return self.dispatch_with_prev(frame, cpu, ctx);
        }
        if let Some(slot) = self.by_handle(ctx.task) {
            self.blocked(frame, cpu, ctx, slot);
        }
        // The call of every context switch: one policy is running, and its first answer is valid.
        let Some(policy) = self.only_one_to_ask() else {
            return self.dispatch_slow(frame, cpu, ctx, None);
        };
        ctx.slice = 0;
        cpu.note(
            ctx.now,
            u64::from(policy.index()),
            BatonMethod::PickNextTask,
        );
        let (which, none) = (Arg::Word(cpu.number() as u64), Arg::Word(0));
        let answer = self
            .host
            .call(frame, policy, BatonMethod::PickNextTask, ctx, which, none);
        if let Some(slot) = self.by_token(answer) {
            if slot.policy() == policy.id()
                && self.host.may_run(slot, cpu.number())
                && slot.claim(answer, TaskState::Running)
            {
                return self.run(cpu, ctx, slot, answer);
            }
        }
        self.dispatch_on(frame, cpu, ctx, policy, answer)
    }

    /// The policy, if exactly one is running and no task waits in the fallback or for a rescue.
    #[inline(always)]
    fn only_one_to_ask(&self) -> Option<&PolicyEntry> {
        let policy = self.policies.get(self.sole.load(Relaxed) as usize)?;
        (self.to_rescue.load(Relaxed) | self.fallback.load(Relaxed) == 0).then_some(policy)
    }

    #[inline(always)]
    fn run(&self, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot, token: u64) -> Verdict {
        if ctx.slice == 0 {
            ctx.slice = DEFAULT_SLICE;
        }
        ctx.cpu = cpu.number();
        slot.cpu.store(ctx.cpu, Relaxed);
        cpu.picks.bump();
        ctx.task = token;
        Verdict::Run
    }

    /// Continues a dispatch in which the sole policy's first answer was not a valid token. That
    /// call was a quick one, so only the slice and the kicks are taken from the context. The time
    /// is the one noted for that call.
    #[inline(never)]
    fn dispatch_on(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        policy: &PolicyEntry,
        first: u64,
    ) -> Verdict {
        let noted = cpu.event(0).1;
        (ctx.now, ctx.cpu) = (noted.now, cpu.number());
        // Usually the policy has no task, and none to take from other CPUs either.
        let mut answer = first;
        if answer == BATON_PICK_NONE {
            let (method, which) = (BatonMethod::NewlyIdle, cpu.number());
            answer = self.tell_cpu_quickly(frame, cpu, policy, method, ctx, which, Arg::Word(0));
            ctx.now = noted.now;
            if answer == BATON_PICK_NONE {
                return self.found_nothing(cpu, ctx);
            }
        }
        match self.pick(frame, cpu, ctx, policy, None, Some(answer)) {
            Verdict::None => self.found_nothing(cpu, ctx),
            verdict => verdict,
        }
    }

    /// The previous task could continue, and does if there is no other task.
    #[inline(never)]
    fn dispatch_with_prev(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx) -> Verdict {
        let prev = self.by_handle(ctx.task);
        // A task that must join another policy, or leave this CPU, must be enqueued for that. The
        // policy may not keep it.
        let stays = prev.is_none_or(|slot| !self.moves(slot) && self.may_stay(slot, cpu));
        if let Some(slot) = prev.filter(|_| !stays) {
            slot.set_leaving();
        }
        let prev = prev.filter(|slot| slot.state() == TaskState::Running && stays);
        if let Some(slot) = prev {
            slot.runtime.store(ctx.runtime, Relaxed);
        }
        let verdict = match self.only_one_to_ask() {
            // For example, the agent of a CPU has answered its messages and gives up the CPU.
            Some(policy) => {
                let prev = prev.filter(|slot| slot.policy() == policy.id());
                match self.pick(frame, cpu, ctx, policy, prev, None) {
                    Verdict::None => self.found_nothing(cpu, ctx),
                    verdict => verdict,
                }
            }
            None => self.dispatch_slow(frame, cpu, ctx, prev),
        };
        if !stays && matches!(verdict, Verdict::Fallback | Verdict::Nothing) {
            self.host.evict(cpu.number());
        }
        verdict
    }

    #[inline(never)]
    fn dispatch_slow(
        &self,
        frame: H::Frame,
        cpu: &CpuState,
        ctx: &mut BatonCtx,
        prev: Option<&Slot>,
    ) -> Verdict {
        cpu.slow.bump();
        if self.rescue_pending() {
            return Verdict::Rescue;
        }
        self.charge(cpu, ctx.task, ctx.runtime);
        if self.is_fallbacks_turn(cpu, ctx) {
            self.runs(cpu, order::FALLBACK, None);
            return Verdict::Turn;
        }
        let owed = self.owed(cpu);
        let first = owed.or_else(|| self.neglected(cpu, ctx.now));
        for policy in first
            .into_iter()
            .chain(self.running().filter(|policy| self.serves(policy, cpu)))
        {
            let prev = prev.filter(|slot| slot.policy() == policy.id());
            cpu.note_asked(policy, ctx.now);
            match self.pick(frame, cpu, ctx, policy, prev, None) {
                Verdict::None => self.wants_nothing(cpu, policy),
                verdict => {
                    cpu.by_right.store(
                        u32::from(owed.is_some_and(|owed| owed.index() == policy.index())),
                        Relaxed,
                    );
                    return verdict;
                }
            }
        }
        self.found_nothing(cpu, ctx)
    }

    /// Asks one policy for a task. `first` is its answer if it has already been asked once.
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
        let which = cpu.number();
        let mut method = BatonMethod::PickNextTask;
        for _ in 0..MAX_REFUSALS {
            method = BatonMethod::PickNextTask;
            let answer = first.take().unwrap_or_else(|| {
                ctx.slice = 0;
                let prev = task.as_ref().map_or(Arg::Word(0), Arg::Task);
                self.tell_cpu(
                    frame,
                    cpu,
                    policy,
                    BatonMethod::PickNextTask,
                    ctx,
                    which,
                    prev,
                )
            });
            let answer = match answer {
                BATON_ABORTED => return Verdict::None,
                BATON_PICK_KEEP => {
                    let Some(slot) = prev else {
                        self.count_refusal(cpu, policy);
                        continue;
                    };
                    // This answers a request to yield.
                    slot.set(TaskState::Running);
                    self.runs(cpu, policy.index(), prev);
                    ctx.slice = if ctx.slice == 0 {
                        DEFAULT_SLICE
                    } else {
                        ctx.slice
                    };
                    return Verdict::Keep;
                }
                BATON_PICK_NONE if prev.is_some() => return Verdict::None,
                BATON_PICK_NONE => {
                    method = BatonMethod::NewlyIdle;
                    match self.tell_cpu(frame, cpu, policy, method, ctx, which, Arg::Word(0)) {
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
                Err(BatonRefusal::NotAllowed) if self.gives_up(policy, answer) => {
                    return Verdict::Rescue
                }
                Err(why) => {
                    self.count_refusal(cpu, policy);
                    cpu.note(ctx.now, u64::from(policy.index()), BatonMethod::PickRefused);
                    let (token, why) = (Arg::Word(answer), Arg::Word(why as u64));
                    let given = Given::of(ctx);
                    self.host
                        .call(frame, policy, BatonMethod::PickRefused, ctx, token, why);
                    given.restore(ctx);
                    if !policy.is_running() {
                        return Verdict::None;
                    }
                }
            }
        }
        let fault = Fault {
            kind: BatonFaultKind::RefusalLoop,
            method,
            pid: 0,
            now: ctx.now,
        };
        self.fault(policy, &fault, Some(cpu));
        Verdict::None
    }

    /// Is this token valid for running its task on `cpu`? If so, claims the task.
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
}
