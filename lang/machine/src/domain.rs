// SPDX-License-Identifier: GPL-2.0-only
//! Domains of cores.

use baton::{Cpu, Topology};

/// Cores that share something with a core: its SMT siblings, those under its last-level cache,
/// those of its node, or all cores. It is one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    of: Cpu,
    /// How many of the nearest cores it has.
    size: usize,
}

impl Domain {
    /// The domains of a core, from the smallest to the largest, which has all cores. Each has more
    /// cores than the one before, and more than one, but for a machine that has only one.
    pub(crate) fn all(topology: &Topology, of: Cpu) -> impl Iterator<Item = Self> {
        let [llc, node, machine] = topology.levels(of).map(<[Cpu]>::len);
        let sizes = [
            topology.core(of).len(),
            llc,
            llc + node,
            llc + node + machine,
        ];
        let distinct = (0..sizes.len()).filter(move |&at| match sizes.get(at + 1) {
            Some(next) => sizes[at] > 1 && sizes[at] != *next,
            None => true,
        });
        distinct.map(move |at| Self {
            of,
            size: sizes[at],
        })
    }

    /// Its cores, the nearest first.
    pub(crate) fn cores(self, topology: &Topology) -> &[Cpu] {
        &topology.near(self.of)[..self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use baton::Place;

    fn sizes(places: Vec<Place>, of: u32) -> Vec<usize> {
        let topology = Topology::new(places);
        let domains = Domain::all(&topology, Cpu::new(of));
        domains.map(|it| it.cores(&topology).len()).collect()
    }

    #[test]
    fn domains_grow_up_to_the_machine() {
        let place = |cpu: u32| Place {
            core: cpu / 2,
            llc: cpu / 4,
            node: cpu / 8,
        };
        assert_eq!(sizes((0..16).map(place).collect(), 5), [2, 4, 8, 16]);
        // Levels with the same cores are one domain.
        let flat = |cpu: u32| Place {
            core: cpu,
            llc: 0,
            node: 0,
        };
        assert_eq!(sizes((0..4).map(flat).collect(), 3), [4]);
        assert_eq!(sizes(vec![flat(0)], 0), [1]);
    }
}
