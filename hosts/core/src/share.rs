// SPDX-License-Identifier: GPL-2.0-only
//! Shares: the part of each CPU's time that a policy is guaranteed while it has tasks for the CPU,
//! whichever policies precede it in the order. Without shares the first policy could starve the
//! rest.
//!
//! Each CPU counts the CPU time (ns) that it owes to each policy with a share. The debt grows by
//! that share of all the time for which policies' tasks run there, and falls by the time for which
//! the policy's own tasks run. A policy that is owed [`GRAIN`] is asked first. Until the debt is
//! paid, its task is not preempted by policies earlier in the order. A policy that has no task to
//! run is owed nothing.

use crate::{Core, CpuState, Host, PolicyEntry, Slot, NO_SOLE};
use baton_abi::BATON_MAX_POLICIES;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Debt at which a CPU asks out of order, ns: a tick at 250 Hz.
const GRAIN: i64 = 4_000_000;

/// Maximum debt of a CPU, ns.
const MAX_OWED: i64 = 100_000_000;

impl<H: Host> Core<'_, H> {
    /// Guarantees a policy this much of each CPU's time, in percent; 0 for nothing. Returns false
    /// and changes nothing if the sum of all shares would exceed 100. Under the control mutex.
    pub fn set_share(&self, entry: &PolicyEntry, percent: u32) -> bool {
        let others = self
            .policies
            .iter()
            .filter(|other| other.index() != entry.index());
        let others: u32 = others.map(|other| other.share.load(Relaxed)).sum();
        if percent > 100 || others > 100_u32.wrapping_sub(percent) {
            return false;
        }
        entry.share.store(percent, Relaxed);
        let bit = 1 << entry.index();
        if percent == 0 {
            self.shared.fetch_and(!bit, SeqCst);
            let owed = self
                .cpus
                .iter()
                .filter_map(|cpu| cpu.owed.get(entry.index() as usize));
            owed.for_each(|owed| owed.store(0, Relaxed));
        } else {
            self.shared.fetch_or(bit, SeqCst);
        }
        true
    }

    /// The policies that have shares.
    fn sharers(&self) -> impl Iterator<Item = &PolicyEntry> {
        let shared = self.shared.load(Relaxed);
        self.policies
            .iter()
            .filter(move |entry| shared & 1 << entry.index() != 0)
    }

    /// Notes the policy whose task a CPU runs from now on, or that it runs no policy's task.
    pub(crate) fn runs(&self, cpu: &CpuState, place: u32, slot: Option<&Slot>) {
        cpu.current.store(place, Relaxed);
        if self.shared.load(Relaxed) != 0 {
            cpu.charged_task
                .store(slot.map_or(0, Slot::handle), Relaxed);
            cpu.charged
                .store(slot.map_or(0, |slot| slot.runtime.load(Relaxed)), Relaxed);
        }
    }

    /// Charges the policies for the task with this handle (0 for none), which runs on `cpu` or did
    /// until now, and whose total CPU time is `runtime` ns.
    pub(crate) fn charge(&self, cpu: &CpuState, task: u64, runtime: u64) {
        if self.shared.load(Relaxed) == 0 || task == 0 || cpu.charged_task.load(Relaxed) != task {
            return;
        }
        let ran = runtime
            .saturating_sub(cpu.charged.load(Relaxed))
            .min(MAX_OWED as u64) as i64;
        cpu.charged.store(runtime, Relaxed);
        let current = cpu.current.load(Relaxed);
        for policy in self.sharers() {
            let due = ran * i64::from(policy.share.load(Relaxed)) / 100;
            let own = if policy.index() == current { ran } else { 0 };
            let owed = &cpu.owed[policy.index() as usize % BATON_MAX_POLICIES];
            // Time that no other policy wanted costs little: the debt does not fall below `-GRAIN`.
            let sum = owed.load(Relaxed).saturating_add(due).saturating_sub(own);
            owed.store(sum.clamp(-GRAIN, MAX_OWED), Relaxed);
        }
    }

    fn is_owed(&self, cpu: &CpuState, place: u32) -> i64 {
        cpu.owed
            .get(place as usize)
            .map_or(0, |owed| owed.load(Relaxed))
    }

    /// The policy that a CPU must ask first, if any: the one to which it owes most.
    pub(crate) fn owed(&self, cpu: &CpuState) -> Option<&PolicyEntry> {
        if self.shared.load(Relaxed) == 0 {
            return None;
        }
        let asked = self
            .sharers()
            .filter(|policy| policy.is_running() && self.serves(policy, cpu));
        let owed = asked.filter(|policy| self.is_owed(cpu, policy.index()) >= GRAIN);
        owed.max_by_key(|policy| self.is_owed(cpu, policy.index()))
    }

    /// Clears the debt to a policy that was asked and has no task for this CPU.
    pub(crate) fn wants_nothing(&self, cpu: &CpuState, policy: &PolicyEntry) {
        if let Some(owed) = cpu.owed.get(policy.index() as usize) {
            owed.store(owed.load(Relaxed).min(0), Relaxed);
        }
    }

    /// Does the current task run because of its policy's share, and is the policy still owed time?
    pub(crate) fn is_by_right(&self, cpu: &CpuState) -> bool {
        cpu.by_right.load(Relaxed) != 0 && self.is_owed(cpu, cpu.current.load(Relaxed)) > 0
    }

    /// At a tick: must this CPU ask for another task, because one policy has had its share or
    /// another has not?
    pub(crate) fn share_ends(&self, cpu: &CpuState, task: u64, runtime: u64) -> bool {
        if self.sole.load(Relaxed) != NO_SOLE || self.shared.load(Relaxed) == 0 {
            return false;
        }
        self.charge(cpu, task, runtime);
        if cpu.by_right.load(Relaxed) != 0 && !self.is_by_right(cpu) {
            cpu.by_right.store(0, Relaxed);
            return true;
        }
        let current = cpu.current.load(Relaxed);
        self.owed(cpu)
            .is_some_and(|policy| policy.index() != current)
    }
}
