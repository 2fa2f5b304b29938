// SPDX-License-Identifier: GPL-2.0-only
//! The table of policies.

use crate::{Core, Fault, Host};
use baton_abi::{BatonFaultKind, BatonMethod, BatonPolicyState};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use Ordering::{Relaxed, SeqCst};

/// A place in the table of policies. See [`BatonPolicyState`] for its states.
pub struct PolicyEntry {
    pub(crate) state: AtomicU32,
    /// Unique over the life of the core; 0 when the place is free.
    pub(crate) id: AtomicU32,
    pub(crate) events: AtomicU32,
    /// Place in the table.
    pub(crate) index: AtomicU32,
    /// Guaranteed share of each CPU's time, percent; 0 for none. Written under the control mutex.
    pub share: AtomicU32,
    /// Number of its partition; 0 for none. Written while all other CPUs are stopped.
    pub(crate) partition: AtomicU32,
    /// How many times the interval at which each CPU asks it is halved. Written by the watch
    /// (`stall.rs`).
    pub(crate) hurry: AtomicU32,
    /// For the host: the version of the policy that runs. An upgrade is one store to it. It is kept
    /// after a stop, for calls that are under way.
    pub version: AtomicUsize,
    /// For the host: how it observes calls of the policy; 0 when it does not.
    pub observers: AtomicUsize,
    /// Answers refused.
    pub refusals: AtomicU64,
    /// Faults.
    pub faults: AtomicU64,
}

/// Why a policy was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// There is no such place, or it is free.
    Absent,
    /// It is running, or was stopped by a fault and has not been unloaded.
    Busy,
}

impl PolicyEntry {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(BatonPolicyState::Absent as u32),
            id: AtomicU32::new(0),
            events: AtomicU32::new(0),
            index: AtomicU32::new(0),
            share: AtomicU32::new(0),
            partition: AtomicU32::new(0),
            hurry: AtomicU32::new(0),
            version: AtomicUsize::new(0),
            observers: AtomicUsize::new(0),
            refusals: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        }
    }

    /// Its state.
    #[inline]
    pub fn state(&self) -> BatonPolicyState {
        match self.state.load(Relaxed) {
            1 => BatonPolicyState::Registered,
            2 => BatonPolicyState::Running,
            3 => BatonPolicyState::Faulted,
            _ => BatonPolicyState::Absent,
        }
    }

    /// Does it schedule tasks?
    #[inline]
    pub fn is_running(&self) -> bool {
        self.state.load(Relaxed) == BatonPolicyState::Running as u32
    }

    /// Its id; 0 when the place is free.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id.load(Relaxed)
    }

    /// The partition that it is in; [`crate::FREE`] for none.
    pub fn partition(&self) -> u32 {
        self.partition.load(Relaxed)
    }

    /// Its place in the table.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index.load(Relaxed)
    }

    #[inline]
    pub(crate) fn wants(&self, event: u32) -> bool {
        self.events.load(Relaxed) & event != 0
    }
}

impl<H: Host> Core<'_, H> {
    /// All places of the table.
    pub fn policies(&self) -> &[PolicyEntry] {
        &self.policies
    }

    /// The policy with this id, if it is still there.
    #[inline]
    pub(crate) fn by_id(&self, id: u32) -> Option<&PolicyEntry> {
        let entry = self.policies.get(id as usize % self.policies.len())?;
        (id != 0 && entry.id() == id).then_some(entry)
    }

    /// Allocates a place for a policy. Under the control mutex. `None` if the table is full.
    pub fn register(&self, events: u32) -> Option<&PolicyEntry> {
        // The id determines the place, so that finding a policy by id is one lookup.
        let places = self.policies.len() as u32;
        let mut id = self.last_id.load(Relaxed);
        for _ in 0..places {
            id = id.wrapping_add(1).max(1);
            let entry = self.policies.get((id % places) as usize)?;
            if entry.state() == BatonPolicyState::Absent {
                self.last_id.store(id, Relaxed);
                self.put_last(id % places);
                entry.index.store(id % places, Relaxed);
                entry.events.store(events, Relaxed);
                entry.refusals.store(0, Relaxed);
                entry.faults.store(0, Relaxed);
                entry.id.store(id, Relaxed);
                entry
                    .state
                    .store(BatonPolicyState::Registered as u32, SeqCst);
                return Some(entry);
            }
        }
        None
    }

    /// Frees the place of a policy that is not running and is in no partition. Under the control
    /// mutex.
    pub fn unregister(&self, entry: &PolicyEntry) {
        debug_assert!(!entry.is_running() && entry.partition.load(Relaxed) == crate::FREE);
        self.set_share(entry, 0);
        if self.default_policy.load(Relaxed) == entry.id() {
            self.default_policy.store(0, Relaxed);
        }
        entry.state.store(BatonPolicyState::Absent as u32, SeqCst);
        entry.id.store(0, Relaxed);
    }

    /// Sets the events that a policy wants. Under the control mutex; the policy is not running.
    pub fn set_events(&self, entry: &PolicyEntry, events: u32) {
        entry.events.store(events, Relaxed);
    }

    /// Starts a registered policy. Under the control mutex; `version` must be ready.
    pub fn start(&self, entry: &PolicyEntry, version: usize) -> Result<(), StartError> {
        match entry.state() {
            BatonPolicyState::Registered => {}
            BatonPolicyState::Absent => return Err(StartError::Absent),
            _ => return Err(StartError::Busy),
        }
        // Forget which tasks it had in its last run, and rescue tasks that are still in its queues.
        for slot in self.used() {
            slot.forget(entry.id());
        }
        self.rescue_stranded();
        entry.version.store(version, Relaxed);
        self.wants.fetch_or(entry.events.load(Relaxed), SeqCst);
        entry.state.store(BatonPolicyState::Running as u32, SeqCst);
        self.running.fetch_or(1 << entry.index(), SeqCst);
        // A fault in its first call may already have stopped it.
        if entry.state.load(SeqCst) != BatonPolicyState::Running as u32 {
            self.running.fetch_and(!(1 << entry.index()), SeqCst);
        }
        self.note_sole();
        self.next_epoch();
        self.relieve();
        Ok(())
    }

    /// Stops a policy. Under the control mutex. Its tasks go to the fallback as the core meets
    /// them. Calls that began before may still be under way: the host must wait for them before it
    /// frees the policy. False if there was nothing to stop.
    pub fn stop(&self, entry: &PolicyEntry) -> bool {
        if self.default_policy.load(Relaxed) == entry.id() {
            self.default_policy.store(0, Relaxed);
        }
        self.next_epoch();
        match entry.state() {
            BatonPolicyState::Running => {
                if self.halt(entry, BatonPolicyState::Registered) {
                    self.host.kick_all();
                } else {
                    // A fault has stopped it since its state was read.
                    entry
                        .state
                        .store(BatonPolicyState::Registered as u32, SeqCst);
                }
            }
            BatonPolicyState::Faulted => entry
                .state
                .store(BatonPolicyState::Registered as u32, SeqCst),
            _ => return false,
        }
        true
    }

    /// Replaces the running version of a policy: the next call that begins is the new version's.
    /// Calls of the old version may still be under way: the host must wait for them before it frees
    /// that version. No task is touched. Under the control mutex. `events` are the events
    /// that the new version wants. They may take effect before the version does.
    pub fn swap(&self, entry: &PolicyEntry, version: usize, events: u32) {
        entry.events.store(events, Relaxed);
        self.wants.fetch_or(events, SeqCst);
        entry.version.store(version, Ordering::Release);
    }

    /// Sets the policy of the tasks that are assigned to none. Under the control mutex.
    pub fn set_default(&self, entry: Option<&PolicyEntry>) {
        self.default_policy
            .store(entry.map_or(0, PolicyEntry::id), Relaxed);
        self.next_epoch();
        self.host.kick_all();
    }

    /// Assigns a task. It leaves its old policy and joins the new one when it is next enqueued.
    /// Under the control mutex; the agent of a CPU joins its enclave without it.
    pub fn assign(&self, slot: &crate::Slot, entry: Option<&PolicyEntry>) {
        slot.by_rule.store(0, Relaxed);
        // A concurrent enqueue that reads both relies on this order.
        slot.wanted.store(entry.map_or(0, PolicyEntry::id), SeqCst);
        slot.epoch.store(0, SeqCst);
    }

    /// Assigns a task by a rule, such as that of its cgroup. A task that was assigned by name stays
    /// as it is. Any other task is assigned to `entry`. `None` removes an assignment that a rule
    /// made. Returns true if the assignment changed. Under the control mutex.
    pub fn assign_by_rule(&self, slot: &crate::Slot, entry: Option<&PolicyEntry>) -> bool {
        let (wanted, by_rule) = (slot.wanted.load(SeqCst), slot.by_rule.load(SeqCst) != 0);
        let is_free = by_rule || self.by_id(wanted).is_none();
        let new = entry.map_or(0, PolicyEntry::id);
        if slot.state() == crate::TaskState::Free
            || !is_free
            || wanted == new
            || (new == 0 && !by_rule)
        {
            return false;
        }
        // `by_rule` is set before `wanted`, and is not cleared here, because a fork may copy both
        // to a child at the same time (`wanted` first, see events.rs).
        slot.by_rule.store(1, SeqCst);
        slot.wanted.store(new, SeqCst);
        slot.epoch.store(0, SeqCst);
        true
    }

    /// Stops a policy because of a fault, once. Any context. False when it was not running.
    pub fn fault(&self, entry: &PolicyEntry, fault: &Fault, cpu: Option<&crate::CpuState>) -> bool {
        debug_assert!(fault.kind != BatonFaultKind::None);
        if !self.halt(entry, BatonPolicyState::Faulted) {
            return false;
        }
        entry.faults.fetch_add(1, Relaxed);
        self.host.report(entry, fault, cpu);
        self.host.kick_all();
        true
    }

    /// As [`Core::fault`], for the last call on this CPU.
    pub fn fault_in_call(&self, cpu: &crate::CpuState, kind: BatonFaultKind) -> bool {
        let (index, event) = cpu.event(0);
        let Some(entry) = self.policies.get(index as usize) else {
            return false;
        };
        self.fault(
            entry,
            &Fault {
                kind,
                method: BatonMethod::of(event.method),
                pid: event.pid,
                now: event.now,
            },
            Some(cpu),
        )
    }

    /// Updates `sole` after a change of `running`, `overflow` or `partitioned`. Several CPUs may do
    /// so at once. Each checks its inputs again after its store, so the last store is never stale.
    /// This matters: the fast path calls the sole policy without checking whether it has stopped.
    pub(crate) fn note_sole(&self) {
        loop {
            let look = || {
                (
                    self.running.load(SeqCst),
                    self.overflow.load(SeqCst) | self.partitioned.load(SeqCst),
                )
            };
            let before = look();
            let is_sole = before.0.is_power_of_two() && before.1 == 0;
            self.sole.store(
                if is_sole {
                    before.0.trailing_zeros()
                } else {
                    crate::NO_SOLE
                },
                SeqCst,
            );
            if before == look() {
                return;
            }
        }
    }

    fn halt(&self, entry: &PolicyEntry, to: BatonPolicyState) -> bool {
        if entry
            .state
            .compare_exchange(BatonPolicyState::Running as u32, to as u32, SeqCst, Relaxed)
            .is_err()
        {
            return false;
        }
        self.running.fetch_and(!(1 << entry.index()), SeqCst);
        self.note_sole();
        self.next_epoch();
        self.rescue_all();
        true
    }
}
