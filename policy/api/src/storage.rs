// SPDX-License-Identifier: GPL-2.0-only
//! Per-CPU and per-task storage.

use crate::{
    saved::{Load, Unlike},
    Cpu, State, Task,
};
use alloc::{sync::Arc, vec::Vec};
use core::ops::Index;

/// A value on cache lines of its own. The alignment is 128 bytes because x86 fetches lines in
/// pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// One value for each CPU, indexed by [`Cpu`]. A clone refers to the same values, which is how one
/// version of a policy shares them with the next.
#[derive(Debug)]
pub struct PerCpu<T>(Arc<[Padded<T>]>);

impl<T> Clone for PerCpu<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PerCpu<T> {
    pub(crate) fn new(cpus: impl Iterator<Item = Cpu>, mut make: impl FnMut(Cpu) -> T) -> Self {
        Self(cpus.map(|cpu| Padded(make(cpu))).collect())
    }

    pub(crate) fn load(from: &mut Load<'_>) -> Result<Self, Unlike>
    where
        T: State,
    {
        let values: Result<Vec<_>, _> = from
            .env()
            .topology()
            .cpus()
            .map(|_| T::load(from).map(Padded))
            .collect();
        Ok(Self(values?.into()))
    }

    /// All values, by CPU number.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}

impl<T> Index<Cpu> for PerCpu<T> {
    type Output = T;

    /// Panics for a CPU that the machine does not have.
    #[inline]
    fn index(&self, cpu: Cpu) -> &T {
        &self.0[cpu.index()].0
    }
}

/// One value for each task slot. Values that change must be atomics (relaxed) or protected by a
/// lock. The host never makes two calls about the same task at once, except to pick it. A clone
/// refers to the same values.
#[derive(Debug)]
pub struct PerTask<T>(Arc<[T]>);

impl<T> Clone for PerTask<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Default> PerTask<T> {
    pub(crate) fn new(max_tasks: u32) -> Self {
        let mut values = Vec::with_capacity(max_tasks as usize);
        values.resize_with(max_tasks as usize, T::default);
        Self(values.into())
    }
}

impl<T> PerTask<T> {
    /// The value of a task.
    #[inline]
    pub fn of(&self, task: &Task) -> &T {
        &self.0[task.slot as usize]
    }

    pub(crate) fn load(from: &mut Load<'_>) -> Result<Self, Unlike>
    where
        T: State,
    {
        let values: Result<Vec<T>, _> =
            (0..from.env().max_tasks()).map(|_| T::load(from)).collect();
        Ok(Self(values?.into()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// Number of slots.
    #[allow(
        clippy::len_without_is_empty,
        reason = "a host without slots there is not"
    )]
    pub fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// The value of a slot. Panics for a slot that the host does not have.
    #[inline]
    pub fn slot(&self, slot: u32) -> &T {
        &self.0[slot as usize]
    }
}
