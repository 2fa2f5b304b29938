// SPDX-License-Identifier: GPL-2.0-only
//! The rules that every host of policies keeps: which task belongs to which policy, who holds its
//! `Schedulable`, which answers of a policy are taken, and what happens to its tasks when it fails.
//!
//! The kernel module, the simulator and the agent run this same code. It does no I/O, takes no lock
//! and allocates nothing; what differs between hosts is behind [`Host`]. It does not panic: the
//! kernel build checks that no panic is linked in.
//!
//! **Concurrency.** Shared state is in atomics. What the kernel does to one task is ordered by the
//! run-queue lock of that task; only a pick comes from elsewhere, so a pick claims its task by
//! compare-and-swap ([`Slot::claim`]).
//!
//! **Lazy notices.** A task that blocks is noticed when its CPU next dispatches or the task next
//! wakes, whichever is first: two crossings into the kernel module per context switch, not three
//! (sched_ext's `quiescent` would be the third).
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
pub use fallback::TURN_IS_VAIN;
pub use hints::Drained;
pub use host::{Arg, Fault, Host};
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
    /// Nothing: the policy has it, or there is nothing to do.
    None = 0,
    /// Dispatch: run `ctx.task` on this CPU for `ctx.slice`. Select: run the task on `ctx.cpu` at
    /// once.
    Run = 1,
    /// Dispatch: let the running task go on for `ctx.slice`.
    Keep = 2,
    /// Enqueue: put the task on the fallback queue. Dispatch: take one from there.
    Fallback = 3,
    /// Tick or yield: end the running task's slice.
    Expire = 4,
    /// Dispatch: move what [`Core::rescue_one`] gives to the fallback queue, then take one from
    /// there; if there is none that may run here, dispatch again, as no policy has been asked.
    Rescue = 5,
    /// Dispatch: it is the fallback queue's turn. Take one from there; if there is none that may
    /// run here, dispatch again.
    Turn = 6,
    /// Enqueue: put the task on the queue of the CPU that it is on.
    Local = 7,
    /// Dispatch: there is nothing, on the fallback queue neither.
    Nothing = 8,
}

/// A refused pick is asked again; after this many in one dispatch the policy is stopped.
pub const MAX_REFUSALS: u32 = 64;

/// The slice where a policy gives none, ns (the kernel's SCX_SLICE_DFL).
const DEFAULT_SLICE: u64 = 20_000_000;

/// No place in the table.
const NO_SOLE: u32 = u32::MAX;

/// A CPU calls `balance` every this many ticks.
const BALANCE_TICKS: u32 = 16;

/// The state of a host.
pub struct Core<'a, H: Host> {
    host: H,
    slots: &'a [Slot],
    cpus: &'a [CpuState],
    policies: [PolicyEntry; BATON_MAX_POLICIES],
    /// Policy of tasks that were assigned to none; 0 for none. Written under the control mutex.
    default_policy: AtomicU32,
    /// Ids given so far. Written under the control mutex.
    last_id: AtomicU32,
    /// One bit for each running policy, by place in the table. Written under the control mutex and
    /// by faults.
    running: AtomicU32,
    /// In which order policies are asked: places, four bits each, the first lowest. Written under
    /// the control mutex.
    order: AtomicU64,
    /// Place of the running policy if there is exactly one and all tasks have slots, else
    /// [`NO_SOLE`]. Written as `running`.
    sole: AtomicU32,
    /// The policies that have shares, as `running`. Written under the control mutex.
    shared: AtomicU32,
    /// 1 while there is a partition. Written while all other CPUs stand still.
    partitioned: AtomicU32,
    /// 1 while a partition's CPUs may run what is on the fallback queue. Written by the watch and
    /// with `partitioned`.
    relief: AtomicU32,
    /// 1 since a task got no slot. Such tasks are on the fallback queue, and nobody counts them
    /// there.
    overflow: AtomicU32,
    /// The events that some running policy wants. Written as `running`.
    wants: AtomicU32,
    /// Counts the changes that can put a task into another policy. Never 0.
    epoch: AtomicU32,
    /// CPUs that are idle and claimed by nobody.
    idle_cpus: AtomicU32,
    /// Tasks under the fallback: queued or running.
    fallback: AtomicU32,
    /// When the watch looked for stalls last, ns. Written by the watch.
    watched_at: AtomicU64,
    /// When the first of those under the fallback came there, ns.
    fallback_since: AtomicU64,
    /// Not 0 while tasks of a stopped policy may be left in its queues: the number of slots yet to
    /// look at.
    to_rescue: AtomicU32,
    /// Head of the list of free slots, plus one; 0 when none is free. Guarded by the host's slot
    /// lock.
    free: AtomicU32,
    in_use: AtomicU32,
    /// Slots below this have been in use. Guarded by the host's slot lock; only grows.
    used: AtomicU32,
}

impl<'a, H: Host> Core<'a, H> {
    /// A core over zeroed slots and CPUs, which it numbers. All slots are put on the free list.
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

    /// Has every task look again at which policy it belongs to, when it is next enqueued.
    fn next_epoch(&self) {
        if self.epoch.fetch_add(1, SeqCst) == u32::MAX {
            self.epoch.fetch_add(1, SeqCst);
        }
    }

    /// All slots.
    pub fn slots(&self) -> &'a [Slot] {
        self.slots
    }

    /// The slots that have ever been in use.
    pub fn used(&self) -> &'a [Slot] {
        self.slots
            .get(..self.used.load(Relaxed) as usize)
            .unwrap_or(self.slots)
    }

    /// A CPU's state.
    pub fn cpu(&self, cpu: i32) -> Option<&'a CpuState> {
        self.cpus.get(cpu as usize)
    }

    /// The slot that a handle of the shim names, if it is still that task's.
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

    /// Number of a slot.
    fn index_of(&self, slot: &Slot) -> u32 {
        slot.index()
    }

    /// Slots in use.
    pub fn tasks(&self) -> u32 {
        self.in_use.load(Relaxed)
    }

    /// Tasks that run under the fallback.
    pub fn fallback_tasks(&self) -> u32 {
        self.fallback.load(Relaxed)
    }

    /// The policy of tasks that were assigned to none; 0 for none.
    pub fn default_policy(&self) -> u32 {
        self.default_policy.load(Relaxed)
    }
}

/// A context for a call that no kernel event carries.
pub fn plain_ctx(now: u64) -> BatonCtx {
    BatonCtx {
        now,
        ..BatonCtx::default()
    }
}
