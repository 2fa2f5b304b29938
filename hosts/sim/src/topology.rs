// SPDX-License-Identifier: GPL-2.0-only
//! The shape of a machine, and sets of its CPUs.

use std::str::FromStr;

use baton_abi::BatonCpu;

/// Limit of the CPUs of a machine.
pub const MAX_CPUS: usize = 4096;

/// The closest level that two CPUs share, from the nearest to the farthest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// They are the same CPU.
    Same,
    /// A physical core.
    Core,
    /// A last-level cache.
    Llc,
    /// A NUMA node.
    Node,
    /// The machine.
    Machine,
}

/// The places of the CPUs of a machine. `2x16x2` is 2 NUMA nodes, each with 16 cores of 2 hardware
/// threads and one last-level cache. `2x16x2/4` is the same with a last-level cache for every 4
/// cores, and `2x16x2/4/2` has a second-level cache for every 2 of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<BatonCpu>,
}

impl Topology {
    /// A machine with this number of nodes, cores in each node, threads in each core, and cores
    /// that share a last-level cache.
    pub fn new(
        nodes: usize,
        cores: usize,
        threads: usize,
        cores_per_llc: usize,
    ) -> Result<Self, String> {
        let count = nodes
            .checked_mul(cores)
            .and_then(|n| n.checked_mul(threads))
            .filter(|&n| n <= MAX_CPUS && n > 0);
        let count = count.ok_or_else(|| format!("a machine has 1 to {MAX_CPUS} CPUs"))?;
        if cores_per_llc == 0 || !cores.is_multiple_of(cores_per_llc) {
            return Err(format!(
                "{cores} cores cannot be shared out to caches of {cores_per_llc}"
            ));
        }
        let place = |cpu: usize| {
            let core = cpu / threads;
            let (core, llc, node) = (
                core as u32,
                (core / cores_per_llc) as u32,
                (core / cores) as u32,
            );
            BatonCpu {
                core,
                llc,
                node,
                online: 1,
                cluster: core,
            }
        };
        Ok(Self {
            cpus: (0..count).map(place).collect(),
        })
    }

    /// The machine with a second-level cache for so many cores, not for each. All of them have the
    /// same last-level cache.
    pub fn with_clusters(mut self, cores: usize) -> Result<Self, String> {
        let cluster = |cpu: &BatonCpu| cpu.core.checked_div(cores as u32);
        let wrong = || format!("the cores of a last-level cache cannot be shared out by {cores}");
        for cpu in &mut self.cpus {
            cpu.cluster = cluster(cpu).ok_or_else(wrong)?;
        }
        let is_split =
            |pair: &[BatonCpu]| pair[0].cluster == pair[1].cluster && pair[0].llc != pair[1].llc;
        let of_first = self.cpus.iter().filter(|cpu| cpu.cluster == 0).count();
        let is_uneven = !self.cpus.len().is_multiple_of(of_first);
        if is_uneven || self.cpus.windows(2).any(is_split) {
            Err(wrong())
        } else {
            Ok(self)
        }
    }

    /// A machine with CPUs 0, 1, ... in these places. Ids are dense, from 0.
    pub fn of(cpus: Vec<BatonCpu>) -> Result<Self, String> {
        match cpus.len() {
            1..=MAX_CPUS => Ok(Self { cpus }),
            _ => Err(format!("a machine has 1 to {MAX_CPUS} CPUs")),
        }
    }

    /// The places of the CPUs, by CPU number.
    pub fn cpus(&self) -> &[BatonCpu] {
        &self.cpus
    }

    /// The distance between two CPUs.
    pub fn distance(&self, a: usize, b: usize) -> Distance {
        let (x, y) = (self.cpus[a], self.cpus[b]);
        if a == b {
            Distance::Same
        } else if x.core == y.core {
            Distance::Core
        } else if x.llc == y.llc {
            Distance::Llc
        } else if x.node == y.node {
            Distance::Node
        } else {
            Distance::Machine
        }
    }
}

impl FromStr for Topology {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no topology: NODESxCORESxTHREADS, \
                NODESxCORESxTHREADS/CORES_PER_LLC or \
                NODESxCORESxTHREADS/CORES_PER_LLC/CORES_PER_L2, as 2x16x2/8"
            )
        };
        let mut parts = text.split('/');
        let (shape, llc, cluster) = (parts.next().unwrap_or(""), parts.next(), parts.next());
        if parts.next().is_some() {
            return Err(wrong());
        }
        let numbers: Result<Vec<usize>, _> = shape.split('x').map(str::parse).collect();
        let [nodes, cores, threads] = numbers.map_err(|_| wrong())?[..] else {
            return Err(wrong());
        };
        let llc = llc.map_or(Ok(cores), |llc| llc.parse().map_err(|_| wrong()))?;
        let machine = Self::new(nodes, cores, threads, llc)?;
        match cluster {
            Some(cores) => machine.with_clusters(cores.parse().map_err(|_| wrong())?),
            None => Ok(machine),
        }
    }
}

/// A set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuMask(Vec<u64>);

impl CpuMask {
    /// The set of these CPUs.
    pub fn of(cpus: impl IntoIterator<Item = usize>) -> Self {
        let mut mask = Self::default();
        for cpu in cpus {
            if mask.0.len() <= cpu / 64 {
                mask.0.resize(cpu / 64 + 1, 0);
            }
            mask.0[cpu / 64] |= 1 << (cpu % 64);
        }
        mask
    }

    /// Is the CPU in the set?
    #[inline]
    pub fn has(&self, cpu: usize) -> bool {
        self.0
            .get(cpu / 64)
            .is_some_and(|word| word & 1 << (cpu % 64) != 0)
    }

    /// The CPUs in the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            (0..64)
                .filter(move |bit| word & 1 << bit != 0)
                .map(move |bit| at * 64 + bit)
        })
    }

    /// Number of CPUs in the set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let check = |text: &str, expected: Result<usize, &str>| match (
            text.parse::<Topology>(),
            expected,
        ) {
            (Ok(topology), Ok(cpus)) => assert_eq!(topology.cpus().len(), cpus, "{text}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
            (got, _) => panic!("{text}: {got:?}"),
        };
        check("2x16x2", Ok(64));
        check("1x8x1/4", Ok(8));
        check("64x64x1", Ok(4096));
        check("64x64x2", Err("1 to 4096"));
        check("0x1x1", Err("1 to 4096"));
        check("1x8x1/3", Err("shared out"));
        check("1x8x1/8/2", Ok(8));
        check("1x8x1/4/3", Err("shared out"));
        check("1x3x1/3/2", Err("shared out"));
        check("1x8x1/4/0", Err("shared out"));
        check("1x8x1/4/8", Err("shared out"));
        check("1x8x1/4/2/2", Err("no topology"));
        check("8", Err("no topology"));
        check("axbxc", Err("no topology"));
        let clusters = |text: &str| -> Vec<u32> {
            let topology: Topology = text.parse().unwrap();
            topology.cpus().iter().map(|cpu| cpu.cluster).collect()
        };
        assert_eq!(clusters("1x4x2/4/2"), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(clusters("1x2x2"), [0, 0, 1, 1]);
        let topology: Topology = "2x4x2/2".parse().unwrap();
        let far = |b| topology.distance(0, b);
        assert_eq!([far(0), far(1), far(2), far(4), far(8)], {
            use Distance::*;
            [Same, Core, Llc, Node, Machine]
        });
    }

    #[test]
    fn sets_of_cpus() {
        let mask = CpuMask::of([3, 64, 200]);
        assert_eq!(mask.iter().collect::<Vec<_>>(), [3, 64, 200]);
        assert!(mask.has(64) && !mask.has(65) && !mask.has(4000) && mask.count() == 3);
    }
}
