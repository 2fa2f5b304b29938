// SPDX-License-Identifier: GPL-2.0-only
//! The interface that the rules require of a host.

use crate::{CpuState, PolicyEntry, Slot};
use baton_abi::{Arg, BatonCtx, BatonFaultKind, BatonMethod};

/// The machine below the core.
pub trait Host {
    /// The host's data for one kernel event on one CPU.
    type Frame: Copy;

    /// Calls a method of a policy. Returns [`baton_abi::BATON_ABORTED`] if the call was abandoned;
    /// the host has then reported the fault through [`crate::Core::fault`]. An absent method
    /// answers 0. `a` and `b` are the method's arguments as the C interface passes them.
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

    /// Has the task that runs on `cpu` enqueued soon: it must not stay there, and there is no other
    /// task to run. Called in a dispatch on that CPU.
    fn evict(&self, cpu: i32);

    /// Limits the task that this CPU now takes from the fallback to `after` ns. The host calls
    /// [`crate::Core::end_slice`] then, if its ticks are too coarse to notice. Called in a
    /// dispatch, on the CPU in question.
    fn end_slice(&self, after: u64);

    /// Keeps the report of a fault that has just stopped a policy. Any context; at most once per
    /// start of a policy.
    fn report(&self, policy: &PolicyEntry, fault: &Fault, cpu: Option<&CpuState>);

    /// Runs `f` with the list of free slots locked.
    fn with_slots_locked<R>(&self, f: impl FnOnce() -> R) -> R;
}

/// A fault, as the core reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: BatonFaultKind,
    /// The method; `None` if the core found the fault outside a call.
    pub method: BatonMethod,
    /// The task concerned; 0 if none.
    pub pid: u32,
    /// The time, ns; 0 if not known.
    pub now: u64,
}
