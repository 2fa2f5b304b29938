// SPDX-License-Identifier: GPL-2.0-only
//! Partitions: CPUs reserved for some policies (ghOSt's enclaves, Ipanema's lists of CPUs).
//!
//! A partition has CPUs and policies. Its policies are asked on its CPUs and on no others. The
//! policies of no partition are asked on the CPUs of no partition. To a policy, a CPU on which it
//! is not asked is offline. A task that may use none of its policy's CPUs has no policy for that
//! time.
//!
//! Tasks without a policy do not run on a partition's CPUs. Two cases are exempt: tasks that may
//! run nowhere else, and partitions that have no running policy.
//!
//! While there is a partition, every event takes the slow path: no slot's epoch is current, and no
//! policy is the sole one.

use crate::{plain_ctx, Core, CpuState, Host, PolicyEntry, Slot, TaskState};
use baton_abi::{Arg, BatonCtx, BatonMethod};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The number that stands for no partition.
pub const FREE: u32 = 0;

/// The definition of a partition.
pub struct Partition<C> {
    /// Its number; not [`FREE`].
    pub id: u32,
    /// Does it have this CPU?
    pub cpus: C,
    /// Its policies: one bit each, by place in the table.
    pub policies: u32,
}

impl<H: Host> Core<'_, H> {
    /// Is this policy asked on that CPU?
    pub fn serves(&self, policy: &PolicyEntry, cpu: &CpuState) -> bool {
        policy.partition.load(Relaxed) == cpu.partition.load(Relaxed)
    }

    /// Is there a partition?
    #[inline]
    pub(crate) fn is_partitioned(&self) -> bool {
        self.partitioned.load(Relaxed) != 0
    }

    /// Is some running policy in this partition?
    pub(crate) fn is_manned(&self, partition: u32) -> bool {
        self.running()
            .any(|policy| policy.partition.load(Relaxed) == partition)
    }

    /// A CPU for a task that is on `near`: `near` itself if `fits`, else an idle CPU, else any CPU,
    /// chosen by the number of the task's slot.
    pub(crate) fn near(
        &self,
        slot: &Slot,
        near: i32,
        fits: impl Fn(&CpuState) -> bool,
    ) -> Option<i32> {
        if self.cpu(near).is_some_and(&fits) {
            return Some(near);
        }
        let all = || {
            self.cpus
                .iter()
                .filter(|cpu| fits(cpu) && cpu.is_online() && self.host.may_run(slot, cpu.number()))
        };
        let any = || all().nth(slot.index().checked_rem(all().count() as u32)? as usize);
        all()
            .find(|cpu| cpu.is_idle())
            .or_else(any)
            .map(CpuState::number)
    }

    /// The CPU to name to a policy for a task that is on `near`.
    pub(crate) fn home(&self, slot: &Slot, policy: &PolicyEntry, near: i32) -> Option<i32> {
        if !self.is_partitioned() {
            return Some(near);
        }
        self.near(slot, near, |cpu| self.serves(policy, cpu))
    }

    /// Creates or changes a partition. With no CPU and no policy, ends it. CPUs and policies that
    /// the partition loses are of no partition afterwards. O(tasks). Every other CPU is stopped and
    /// interrupts are off; `here` is this one.
    pub fn set_partition(
        &self,
        to: &Partition<impl Fn(i32) -> bool>,
        now: u64,
        frame: H::Frame,
        here: &CpuState,
    ) {
        let change = |has: bool, partition: u32| match partition {
            _ if has => to.id,
            partition if partition == to.id => FREE,
            partition => partition,
        };
        let policy_change = |policy: &PolicyEntry| {
            change(
                to.policies & 1 << policy.index() != 0 && policy.id() != 0,
                policy.partition.load(Relaxed),
            )
        };
        let cpu_change =
            |cpu: &CpuState| change((to.cpus)(cpu.number()), cpu.partition.load(Relaxed));
        let mut ctx = plain_ctx(now);
        let before = self
            .policies
            .each_ref()
            .map(|policy| policy.partition.load(Relaxed));
        for policy in &self.policies {
            policy.partition.store(policy_change(policy), Relaxed);
        }
        for cpu in self.cpus {
            cpu.was_in.store(cpu.partition.load(Relaxed), Relaxed);
            cpu.partition.store(cpu_change(cpu), Relaxed);
        }
        let any = self
            .cpus
            .iter()
            .any(|cpu| cpu.partition.load(Relaxed) != FREE);
        self.partitioned.store(u32::from(any), SeqCst);
        self.note_sole();
        for online in [true, false] {
            for (policy, before) in self.policies.iter().zip(before) {
                self.tell_change(policy, before, online, &mut ctx, frame, here);
            }
        }
        for slot in self.used() {
            self.rehome(slot, &mut ctx, frame, here);
        }
        self.relieve();
        self.next_epoch();
        self.rescue_all();
        self.host.kick_all();
    }

    /// Notifies a policy, which was in partition `before`, of the CPUs on which it is asked now, or
    /// no longer.
    fn tell_change(
        &self,
        policy: &PolicyEntry,
        before: u32,
        online: bool,
        ctx: &mut BatonCtx,
        frame: H::Frame,
        here: &CpuState,
    ) {
        let method = if online {
            BatonMethod::CpuOnline
        } else {
            BatonMethod::CpuOffline
        };
        for cpu in self.cpus.iter().filter(|cpu| cpu.is_online()) {
            let (had, has) = (before == cpu.was_in.load(Relaxed), self.serves(policy, cpu));
            if has != had && has == online && policy.is_running() {
                ctx.nr_kicks = 0;
                self.tell_cpu(frame, here, policy, method, ctx, cpu.number(), Arg::Word(0));
            }
        }
    }

    /// Moves a queued task whose CPU, as its policy knows it, is no longer the policy's. The policy
    /// gets the task again on another CPU. If there is none, the task leaves the policy.
    fn rehome(&self, slot: &Slot, ctx: &mut BatonCtx, frame: H::Frame, here: &CpuState) {
        let Some(policy) = self
            .by_id(slot.policy())
            .filter(|policy| policy.is_running())
        else {
            return;
        };
        if slot.state() != TaskState::Queued
            || self
                .cpu(slot.cpu())
                .is_some_and(|cpu| self.serves(policy, cpu))
        {
            return;
        }
        ctx.nr_kicks = 0;
        let Some(home) = self.home(slot, policy, slot.cpu()) else {
            self.take_back(frame, here, ctx, slot, policy, BatonMethod::TaskDeparted);
            // A rescue finds a queued task of no policy.
            slot.leave();
            return;
        };
        self.take_back(frame, here, ctx, slot, policy, BatonMethod::TaskDequeued);
        slot.cpu.store(home, Relaxed);
        if let Some(token) = slot.token().filter(|_| policy.is_running()) {
            self.hand(
                frame,
                here,
                ctx,
                slot,
                token,
                policy,
                BatonMethod::TaskRestored,
            );
        }
    }

    /// Decides whether a partition's CPUs may run the tasks of the fallback queue: only while a
    /// task waits there that may run nowhere else, although it could when it was put there. Called
    /// by the watch and on every change of a partition. O(tasks). Any context.
    pub fn relieve(&self) {
        if !self.needs_relief() {
            self.relief.store(0, SeqCst);
        }
        // Checked again, as a rescue may have begun relief between the check and the store.
        if self.needs_relief() {
            self.begin_relief();
        }
    }

    fn needs_relief(&self) -> bool {
        let needs = |slot: &Slot| slot.waits_in_fallback() && !self.may_run_apart(slot);
        self.is_partitioned() && (self.overflow.load(Relaxed) != 0 || self.used().iter().any(needs))
    }

    /// Lets a partition's CPUs run the tasks of the fallback queue until the next check.
    pub(crate) fn begin_relief(&self) {
        if self.relief.swap(1, SeqCst) == 0 {
            self.host.kick_all();
        }
    }

    /// The CPU to kick for a rescued task that is on `near`.
    pub fn rescued_home(&self, slot: &Slot, near: i32) -> i32 {
        if self.is_partitioned() {
            self.near(slot, near, |cpu| self.is_common(cpu))
                .unwrap_or(near)
        } else {
            near
        }
    }

    /// Does the policy have a CPU that the task may use? The last one can go offline while the task
    /// is queued.
    pub(crate) fn has_room(&self, slot: &Slot, policy: &PolicyEntry) -> bool {
        if !self.is_partitioned() {
            return true;
        }
        let mut cpus = self
            .cpus
            .iter()
            .filter(|cpu| cpu.is_online() && self.serves(policy, cpu));
        cpus.any(|cpu| self.host.may_run(slot, cpu.number()))
    }

    /// May the task run on a CPU that runs tasks without a policy even without relief?
    pub(crate) fn may_run_apart(&self, slot: &Slot) -> bool {
        let mut apart = self
            .cpus
            .iter()
            .filter(|cpu| cpu.is_online() && self.is_common(cpu));
        apart.any(|cpu| self.host.may_run(slot, cpu.number()))
    }

    /// Does this CPU run tasks without a policy even without relief?
    pub(crate) fn is_common(&self, cpu: &CpuState) -> bool {
        let partition = cpu.partition.load(Relaxed);
        partition == FREE || !self.is_manned(partition)
    }
}
