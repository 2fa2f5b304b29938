// SPDX-License-Identifier: GPL-2.0-only
//! One call into a policy: what the policy gets, and which parts of the context are restored
//! afterwards.

use crate::{Core, CpuState, Host, PolicyEntry, Slot};
use baton_abi::{Arg, BatonCtx, BatonMethod, BatonTask, BATON_MAX_KICKS};
use core::sync::atomic::Ordering::Relaxed;

/// The description of the task in `slot` that a policy gets.
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

/// The fields of a context that the core and other policies rely on. A policy in C can write
/// anything there, so they are restored after its call.
pub(crate) struct Given {
    now: u64,
    task: u64,
    runtime: u64,
    cpu: i32,
    flags: u16,
    nr_kicks: u16,
    kicks: [u16; BATON_MAX_KICKS],
}

impl Given {
    pub(crate) fn of(ctx: &BatonCtx) -> Self {
        let BatonCtx {
            now,
            task,
            runtime,
            cpu,
            flags,
            nr_kicks,
            kicks,
            ..
        } = *ctx;
        Self {
            now,
            task,
            runtime,
            cpu,
            flags,
            nr_kicks,
            kicks,
        }
    }

    /// Restores the context, but keeps the policy's slice and the kicks that it added.
    pub(crate) fn restore(self, ctx: &mut BatonCtx) {
        (ctx.now, ctx.task, ctx.runtime, ctx.cpu, ctx.flags) =
            (self.now, self.task, self.runtime, self.cpu, self.flags);
        ctx.nr_kicks = ctx.nr_kicks.min(BATON_MAX_KICKS as u16).max(self.nr_kicks);
        let before = self.kicks.iter().take(usize::from(self.nr_kicks));
        ctx.kicks
            .iter_mut()
            .zip(before)
            .for_each(|(kick, before)| *kick = *before);
    }
}

impl<H: Host> Core<'_, H> {
    /// Calls a method that is about a task. Only the kicks that the policy asked for remain in the
    /// context. The slice is restored too, as the next call in this event may be another policy's.
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
        let (given, slice) = (Given::of(ctx), ctx.slice);
        let answer = self.tell_quickly(frame, cpu, policy, method, ctx, slot, b);
        given.restore(ctx);
        ctx.slice = slice;
        answer
    }

    /// As [`Core::tell`], but restores nothing. For events in which no other policy is called; the
    /// caller corrects the fields of the context that it reads afterwards.
    #[inline(always)]
    pub(crate) fn tell_quickly(
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
        self.host
            .call(frame, policy, method, ctx, Arg::Task(&view(slot)), b)
    }

    /// Calls a method that is about a CPU. Only the policy's slice and kicks remain in the context.
    #[inline(always)]
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
        let given = Given::of(ctx);
        let answer = self.tell_cpu_quickly(frame, cpu, policy, method, ctx, which, b);
        given.restore(ctx);
        answer
    }

    /// As [`Core::tell_quickly`].
    #[inline(always)]
    pub(crate) fn tell_cpu_quickly(
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
        self.host
            .call(frame, policy, method, ctx, Arg::Word(which as u64), b)
    }
}
