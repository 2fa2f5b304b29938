// SPDX-License-Identifier: GPL-2.0-only
//! Per-CPU and per-task storage.

use crate::{Cpu, Task};
use alloc::{boxed::Box, vec::Vec};
use core::ops::Index;

/// On cache lines of its own: 128 bytes, as x86 fetches lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// One value for each CPU, indexed by [`Cpu`].
#[derive(Debug)]
pub struct PerCpu<T>(Box<[Padded<T>]>);

impl<T> PerCpu<T> {
    pub(crate) fn new(cpus: impl Iterator<Item = Cpu>, mut make: impl FnMut(Cpu) -> T) -> Self {
        Self(cpus.map(|cpu| Padded(make(cpu))).collect())
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

/// One value for each task slot. Use atomics (relaxed) or a lock for what changes: the host never makes two calls about the
/// same task at once, except picking it.
#[derive(Debug)]
pub struct PerTask<T>(Box<[T]>);

impl<T: Default> PerTask<T> {
    pub(crate) fn new(max_tasks: u32) -> Self {
        let mut values = Vec::with_capacity(max_tasks as usize);
        values.resize_with(max_tasks as usize, T::default);
        Self(values.into_boxed_slice())
    }
}

impl<T> PerTask<T> {
    /// The value of a task.
    #[inline]
    pub fn of(&self, task: &Task) -> &T {
        &self.0[task.slot as usize]
    }

    /// The value of a slot. Panics for a slot that the host does not have.
    #[inline]
    pub fn slot(&self, slot: u32) -> &T {
        &self.0[slot as usize]
    }
}
