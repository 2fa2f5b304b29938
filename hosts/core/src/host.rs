// SPDX-License-Identifier: GPL-2.0-only
//! What the rules need of a host.

use crate::{CpuState, PolicyEntry, Slot};
use baton_abi::{BatonCtx, BatonFaultKind, BatonMethod};

/// The machine under the core.
pub trait Host {
    /// What the host needs at hand during one kernel event on one CPU.
    type Frame: Copy;

    /// Calls a method of a policy; [`baton_abi::BATON_ABORTED`] when the call was abandoned (the
    /// host has then reported the fault through [`crate::Core::fault`]). An absent method answers
    /// 0. `a` and `b` are the method's arguments as the C interface passes them; see
    /// [`crate::PolicyEntry`] for which.
    fn call(
        &self,
        frame: Self::Frame,
        policy: &PolicyEntry,
        method: BatonMethod,
        ctx: &mut BatonCtx,
        a: Arg<'_>,
        b: Arg<'_>,
    ) -> u64;

    /// May the task run on that CPU now?
    fn may_run(&self, slot: &Slot, cpu: i32) -> bool;

    /// Makes every CPU dispatch soon. Any context.
    fn kick_all(&self);

    /// The task that runs on `cpu` is not to stay there, and nothing else is there to run: has it
    /// enqueued, soon. In a dispatch on that CPU.
    fn evict(&self, cpu: i32);

    /// What this CPU takes from the fallback now is to run for `after` ns at most: calls
    /// [`crate::Core::end_slice`] then, if its ticks are too coarse to notice. In a dispatch, on
    /// the CPU in question.
    fn end_slice(&self, after: u64);

    /// A policy has just been stopped by a fault: keep the report. Any context; at most once per
    /// start of a policy.
    fn report(&self, policy: &PolicyEntry, fault: &Fault, cpu: Option<&CpuState>);

    /// Runs `f` while nobody else is in the list of free slots.
    fn with_slots_locked<R>(&self, f: impl FnOnce() -> R) -> R;
}

/// An argument of a policy's method.
#[derive(Clone, Copy)]
pub enum Arg<'t> {
    /// A number or token.
    Word(u64),
    /// The task.
    Task(&'t baton_abi::BatonTask),
    /// The wake.
    Wake(&'t baton_abi::BatonWake),
    /// The hint.
    Hint(&'t baton_abi::BatonHint),
}

/// What went wrong, as the core knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of thing.
    pub kind: BatonFaultKind,
    /// In which method; `None` when the core found it outside a call.
    pub method: BatonMethod,
    /// The task concerned; 0 if none.
    pub pid: u32,
    /// When, ns; 0 if not known.
    pub now: u64,
}
