// SPDX-License-Identifier: GPL-2.0-only
//! The rules that every host of policies keeps: which policy a task belongs to, which `Schedulable`
//! is valid, which answers of a policy are accepted, and what happens to its tasks when it fails.
//!
//! The kernel module, the simulator and the agent run this same code. It does no I/O, takes no lock
//! and allocates nothing. Whatever differs between hosts is behind [`Host`]. It does not panic: the
//! kernel build checks that no panic is linked in.
//!
//! **Concurrency.** Shared state is in atomics. The run-queue lock of a task serialises what the
//! kernel does to that task. Only a pick comes from elsewhere, so a pick claims its task by
//! compare-and-swap ([`Slot::claim`]).
//!
//! **Lazy notices.** The core notices that a task has blocked when its CPU next dispatches or when
//! the task next wakes, whichever is first. A context switch thus costs two crossings into the
//! kernel module, not three (sched_ext's `quiescent` would be the third).
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod calls;
mod cpu;
mod dispatch;
mod events;
mod fallback;
mod handover;
mod hints;
pub mod histogram;
mod host;
mod order;
mod partition;
mod policy;
mod rescue;
mod resume;
mod share;
mod slot;
mod stall;
mod tell;

pub use cpu::{CpuState, EVENTS_KEPT};
pub use events::{Init, TaskFacts};
pub use fallback::TURN_WAS_EMPTY;
pub use hints::Drained;
pub use host::{Fault, Host};
pub use partition::{Partition, FREE};
pub use policy::{PolicyEntry, StartError};
pub use resume::{Resumed, Whereabouts};
pub use slot::{Slot, TaskState};

use baton_abi::{BatonCtx, BATON_MAX_POLICIES};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// What the shim does with a task or a CPU after a call.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the policy has the task, or there is nothing to do.
    None = 0,
    /// Dispatch: run `ctx.task` on this CPU for `ctx.slice`. Select: insert the task on `ctx.cpu`
    /// directly.
    Run = 1,
    /// Dispatch: let the running task go on for `ctx.slice`.
    Keep = 2,
    /// Enqueue: put the task on the fallback queue. Dispatch: take a task from it.
    Fallback = 3,
    /// Tick or yield: end the running task's slice.
    Expire = 4,
    /// Dispatch: move the tasks that [`Core::rescue_one`] returns to the fallback queue, then take
    /// a task from that queue. If it has none that may run here, dispatch again, as no policy has
    /// been asked.
    Rescue = 5,
    /// Dispatch: it is the fallback queue's turn. Take a task from it. If it has none that may run
    /// here, dispatch again.
    Turn = 6,
    /// Enqueue: put the task on the local queue of its CPU.
    Local = 7,
    /// Dispatch: there is no task, on the fallback queue either.
    Nothing = 8,
}

/// Refused picks in one dispatch after which the policy is stopped. Until then it is asked again.
pub const MAX_REFUSALS: u32 = 64;

/// The slice if a policy gives none, ns (the kernel's SCX_SLICE_DFL).
pub const DEFAULT_SLICE: u64 = 20_000_000;

/// Value of `sole` when no policy is the only one.
const NO_SOLE: u32 = u32::MAX;

/// Ticks between two calls of `balance` on a CPU.
const BALANCE_TICKS: u32 = 16;

/// The state of a host.
pub struct Core<'a, H: Host> {
    host: H,
    slots: &'a [Slot],
    cpus: &'a [CpuState],
    policies: [PolicyEntry; BATON_MAX_POLICIES],
    /// Policy of the tasks that are assigned to none; 0 for none. Written under the control mutex.
    default_policy: AtomicU32,
    /// Last id that was given. Written under the control mutex.
    last_id: AtomicU32,
    /// One bit for each running policy, by place in the table. Written under the control mutex and
    /// on faults.
    running: AtomicU32,
    /// The order in which policies are asked: places of four bits each, the first in the lowest
    /// bits. Written under the control mutex.
    order: AtomicU64,
    /// Place of the running policy if there is exactly one and all tasks have slots, else
    /// [`NO_SOLE`]. Written with `running`.
    sole: AtomicU32,
    /// One bit for each policy that has a share, by place. Written under the control mutex.
    shared: AtomicU32,
    /// 1 while there is a partition. Written while all other CPUs stand still.
    partitioned: AtomicU32,
    /// 1 while a partition's CPUs may run tasks of the fallback queue. Written by the watch and
    /// with `partitioned`.
    relief: AtomicU32,
    /// 1 once a task has got no slot. Such tasks are on the fallback queue and are not counted
    /// there.
    overflow: AtomicU32,
    /// The events that some running policy wants. Written with `running`.
    wants: AtomicU32,
    /// Counts the changes that can move a task to another policy. Never 0.
    epoch: AtomicU32,
    /// Number of CPUs that are idle and not claimed.
    idle_cpus: AtomicU32,
    /// Number of tasks in the fallback, queued or running.
    fallback: AtomicU32,
    /// Time of the watch's last look for stalls, ns. Written by the watch.
    watched_at: AtomicU64,
    /// Time at which the fallback last went from empty to one task, ns.
    fallback_since: AtomicU64,
    /// Number of slots that the rescue has still to look at. Not 0 while tasks of a stopped policy
    /// may be left in its queues.
    to_rescue: AtomicU32,
    /// Head of the list of free slots, plus one; 0 when none is free. Guarded by the host's slot
    /// lock.
    free: AtomicU32,
    in_use: AtomicU32,
    /// Number of slots below which slots have been in use. Guarded by the host's slot lock; only
    /// grows.
    used: AtomicU32,
}

impl<'a, H: Host> Core<'a, H> {
    /// Creates a core over zeroed slots and CPUs, and numbers them. All slots go on the free list.
    pub fn new(host: H, slots: &'a [Slot], cpus: &'a [CpuState]) -> Self {
        for (index, slot) in slots.iter().enumerate() {
            let next = if index + 1 < slots.len() {
                index as u32 + 2
            } else {
                0
            };
            slot.next_free.store(next, Relaxed);
        }
        for (number, cpu) in cpus.iter().enumerate() {
            cpu.set_number(number as u32);
        }
        Self {
            host,
            slots,
            cpus,
            policies: [const { PolicyEntry::new() }; BATON_MAX_POLICIES],
            default_policy: AtomicU32::new(0),
            last_id: AtomicU32::new(0),
            running: AtomicU32::new(0),
            order: AtomicU64::new(order::AS_IN_TABLE),
            sole: AtomicU32::new(NO_SOLE),
            shared: AtomicU32::new(0),
            partitioned: AtomicU32::new(0),
            relief: AtomicU32::new(0),
            overflow: AtomicU32::new(0),
            wants: AtomicU32::new(0),
            epoch: AtomicU32::new(1),
            idle_cpus: AtomicU32::new(0),
            fallback: AtomicU32::new(0),
            watched_at: AtomicU64::new(0),
            fallback_since: AtomicU64::new(0),
            to_rescue: AtomicU32::new(0),
            free: AtomicU32::new(u32::from(!slots.is_empty())),
            in_use: AtomicU32::new(0),
            used: AtomicU32::new(0),
        }
    }

    /// The host.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Makes every task check which policy it belongs to when it is next enqueued.
    fn next_epoch(&self) {
        if self.epoch.fetch_add(1, SeqCst) == u32::MAX {
            self.epoch.fetch_add(1, SeqCst);
        }
    }

    /// All slots.
    pub fn slots(&self) -> &'a [Slot] {
        self.slots
    }

    /// The slots that have been in use at some time.
    pub fn used(&self) -> &'a [Slot] {
        self.slots
            .get(..self.used.load(Relaxed) as usize)
            .unwrap_or(self.slots)
    }

    /// The state of a CPU.
    pub fn cpu(&self, cpu: i32) -> Option<&'a CpuState> {
        self.cpus.get(cpu as usize)
    }

    /// The slot that a handle of the shim names, if it still belongs to that task.
    #[inline]
    pub fn by_handle(&self, handle: u64) -> Option<&'a Slot> {
        let slot = self.slots.get((handle as u32).wrapping_sub(1) as usize)?;
        (slot.serial() == (handle >> 32) as u32).then_some(slot)
    }

    /// The slot that a token names, whether or not the token is fresh.
    #[inline]
    fn by_token(&self, token: u64) -> Option<&'a Slot> {
        self.slots.get((token as u32).wrapping_sub(1) as usize)
    }

    /// The number of slots in use.
    pub fn tasks(&self) -> u32 {
        self.in_use.load(Relaxed)
    }

    /// The number of tasks in the fallback.
    pub fn fallback_tasks(&self) -> u32 {
        self.fallback.load(Relaxed)
    }

    /// The policy of the tasks that are assigned to none; 0 for none.
    pub fn default_policy(&self) -> u32 {
        self.default_policy.load(Relaxed)
    }
}

/// A context for a call that comes from no kernel event.
pub fn plain_ctx(now: u64) -> BatonCtx {
    BatonCtx {
        now,
        ..BatonCtx::default()
    }
}
