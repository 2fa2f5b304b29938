// SPDX-License-Identifier: GPL-2.0-only
//! Restores tasks to the state in which a recording left them, for a host that continues from
//! there: the simulator.

use crate::{Core, Host, PolicyEntry, TaskState};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// The state in which a task was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// It slept.
    Asleep,
    /// The policy had it, with this token.
    Queued(u64),
    /// It ran.
    Running,
}

/// A task that its policy knows.
#[derive(Clone, Copy, Debug)]
pub struct Resumed {
    /// Its slot.
    pub slot: u32,
    /// The host's identifier of the task; not 0.
    pub opaque: usize,
    /// Thread id.
    pub pid: u32,
    /// Nice value.
    pub nice: i32,
    /// CPU time that it has used, ns.
    pub runtime: u64,
    /// The CPU on whose run queue it was.
    pub cpu: i32,
    /// The state in which it was.
    pub whereabouts: Whereabouts,
}

impl<H: Host> Core<'_, H> {
    /// Restores a task of a policy in its slot and returns its handle. `None` if there is no such
    /// slot, or it is in use. Called before any other event, and followed by [`Core::resumed`].
    pub fn resume(&self, task: &Resumed, policy: &PolicyEntry, now: u64) -> Option<u64> {
        let slot = self
            .slots
            .get(task.slot as usize)
            .filter(|slot| slot.state() == TaskState::Free)?;
        slot.occupy(task.slot, task.opaque, task.pid);
        slot.nice.store(task.nice, Relaxed);
        slot.runtime.store(task.runtime, Relaxed);
        slot.cpu.store(task.cpu, Relaxed);
        slot.queued_at.store(now, Relaxed);
        slot.join(policy);
        match task.whereabouts {
            Whereabouts::Asleep => slot.set(TaskState::Sleeping),
            Whereabouts::Running => slot.set(TaskState::Running),
            Whereabouts::Queued(token) => slot.set_queued(token),
        }
        self.in_use.fetch_add(1, Relaxed);
        self.used.fetch_max(task.slot.saturating_add(1), Relaxed);
        Some(slot.handle())
    }

    /// Ends the restoration: all other slots become free, and the CPUs in `idle` idle.
    pub fn resumed(&self, idle: impl Iterator<Item = i32>) {
        let mut head = 0;
        for (index, slot) in self.slots.iter().enumerate().rev() {
            if slot.state() == TaskState::Free {
                slot.next_free.store(head, Relaxed);
                head = index as u32 + 1;
            }
        }
        self.free.store(head, Release);
        for cpu in idle.filter_map(|cpu| self.cpu(cpu)) {
            self.mark_idle(cpu, true);
            cpu.asleep.store(1, Relaxed);
        }
    }
}
