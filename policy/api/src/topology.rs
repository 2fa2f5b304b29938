// SPDX-License-Identifier: GPL-2.0-only
//! The machine's CPUs.

use crate::Cpu;
use alloc::{boxed::Box, vec::Vec};

/// The place of a CPU. Ids are dense and start at 0. CPUs with the same id share that unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Physical core: CPUs of one core are SMT siblings.
    pub core: u32,
    /// Last-level cache.
    pub llc: u32,
    /// NUMA node.
    pub node: u32,
}

/// The possible CPUs of the machine (online or not), and the units that they share.
#[derive(Clone, Debug)]
pub struct Topology {
    places: Box<[Place]>,
    near: Box<[Near]>,
    has_smt: bool,
}

/// All CPUs, ordered by distance from one of them.
#[derive(Clone, Debug)]
struct Near {
    /// Nearest first, beginning with the CPU itself.
    cpus: Box<[Cpu]>,
    /// How many of them, from the front, belong to its core, its LLC and its node.
    core: u32,
    llc: u32,
    node: u32,
}

impl Topology {
    /// Creates the topology from the places of CPUs 0, 1, ...
    pub fn new(places: Vec<Place>) -> Self {
        let distance = |a: Place, b: Place| {
            u32::from(a.core != b.core) + u32::from(a.llc != b.llc) + u32::from(a.node != b.node)
        };
        let near = (0..places.len())
            .map(|from| {
                let mut cpus: Vec<Cpu> = (0..places.len() as u32).map(Cpu::new).collect();
                let count = places.len();
                // Nearest first. CPUs at equal distance are in circular order from `from`, to keep
                // all searches from trying CPU 0 first. A stable sort would have a buffer of 4 KiB
                // on the stack.
                cpus.sort_unstable_by_key(|c| {
                    (
                        distance(places[from], places[c.index()]),
                        (c.index() + count - from) % count,
                    )
                });
                let within = |most: u32| {
                    cpus.partition_point(|c| distance(places[from], places[c.index()]) <= most)
                        as u32
                };
                let (core, llc, node) = (within(0), within(1), within(2));
                Near {
                    cpus: cpus.into_boxed_slice(),
                    core,
                    llc,
                    node,
                }
            })
            .collect::<Box<[Near]>>();
        let has_smt = near.iter().any(|near| near.core > 1);
        Self {
            places: places.into_boxed_slice(),
            near,
            has_smt,
        }
    }

    /// Number of CPUs, at least 1; CPU numbers are below it.
    pub fn nr_cpus(&self) -> usize {
        self.places.len()
    }

    /// All CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = Cpu> + '_ {
        (0..self.places.len() as u32).map(Cpu::new)
    }

    /// The place of a CPU. Panics for a CPU that the machine does not have.
    pub fn place(&self, cpu: Cpu) -> Place {
        self.places[cpu.index()]
    }

    /// All CPUs, ordered by distance from `cpu`: the CPU itself, its SMT siblings, the CPUs under
    /// the same LLC, those of the same node, and the rest. Panics for a CPU that the machine does
    /// not have.
    #[inline]
    pub fn near(&self, cpu: Cpu) -> &[Cpu] {
        &self.near[cpu.index()].cpus
    }

    /// [`Topology::near`] in three parts: the CPUs under the LLC of `cpu` (beginning with itself),
    /// the rest of its node, and the rest of the machine. For searches that end at the first part
    /// with a match.
    #[inline]
    pub fn levels(&self, cpu: Cpu) -> [&[Cpu]; 3] {
        let near = &self.near[cpu.index()];
        let (node, machine) = near.cpus.split_at(near.node as usize);
        let (llc, node) = node.split_at(near.llc as usize);
        [llc, node, machine]
    }

    /// The SMT siblings of `cpu`, beginning with itself.
    #[inline]
    pub fn core(&self, cpu: Cpu) -> &[Cpu] {
        let near = &self.near[cpu.index()];
        &near.cpus[..near.core as usize]
    }

    /// Does any core have several CPUs?
    #[inline]
    pub fn has_smt(&self) -> bool {
        self.has_smt
    }

    /// Do the two CPUs share a last-level cache?
    pub fn same_llc(&self, a: Cpu, b: Cpu) -> bool {
        self.place(a).llc == self.place(b).llc
    }
}
