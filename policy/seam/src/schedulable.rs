// SPDX-License-Identifier: GPL-2.0-only
//! The baton: [`Schedulable`].

use crate::host;
use core::num::NonZeroU32;

/// Proof that one task is runnable and that this policy decides where it runs.
///
/// At any time at most one exists per task. A policy can neither copy nor create one. It receives a
/// `Schedulable` from the methods that report a runnable task, keeps it in a run queue, and returns
/// it when it picks the task or when the host asks for it. Dropping one loses the task: the host
/// detects this at once and reports the policy, the task and the method.
///
/// It holds the task's slot and a generation. The host stores the newest generation of each task,
/// and refuses an older `Schedulable` as stale (Enoki 3.1 checks only the CPU).
#[derive(PartialEq, Eq, Hash)]
#[must_use = "a dropped Schedulable is a lost task"]
pub struct Schedulable {
    slot: u32,
    generation: NonZeroU32,
}

impl Schedulable {
    /// Index of the task's slot, below the host's `max_tasks`.
    #[inline]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Number of this hand-over of the task.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.get()
    }

    /// Creates a `Schedulable` from the value that [`Schedulable::into_raw`] returned: slot plus
    /// one in the low half, generation in the high half. `None` if `raw` does not have that form.
    ///
    /// # Safety
    /// One-baton: no other `Schedulable` of the same raw value exists, and none will be
    /// made while this one exists.
    #[inline]
    pub unsafe fn from_raw(raw: u64) -> Option<Self> {
        let generation = NonZeroU32::new((raw >> 32) as u32)?;
        let slot = (raw as u32).checked_sub(1)?;
        Some(Self { slot, generation })
    }

    /// Creates a `Schedulable` from its slot and its generation.
    ///
    /// # Safety
    /// One-baton: as for [`Schedulable::from_raw`].
    #[inline]
    pub(crate) unsafe fn from_parts(slot: u32, generation: NonZeroU32) -> Self {
        Self { slot, generation }
    }

    /// Consumes the `Schedulable` without losing the task.
    #[inline]
    pub fn into_raw(self) -> u64 {
        let raw = self.raw();
        core::mem::forget(self);
        raw
    }

    #[inline]
    fn raw(&self) -> u64 {
        u64::from(self.generation.get()) << 32 | u64::from(self.slot.wrapping_add(1))
    }
}

impl Drop for Schedulable {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        host::token_dropped(self.raw());
    }
}

impl core::fmt::Debug for Schedulable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Schedulable(slot {}, generation {})",
            self.slot, self.generation
        )
    }
}
