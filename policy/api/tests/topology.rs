// SPDX-License-Identifier: GPL-2.0-only
//! Distances between CPUs.

use baton::{Cpu, Place, Topology};

/// `nodes` of `llcs` of `cores` of `threads`; thread 0 of all cores first, as x86 numbers them.
fn machine(nodes: u32, llcs: u32, cores: u32, threads: u32) -> Topology {
    let per_node = llcs * cores;
    let core = |core: u32| Place {
        core,
        llc: core / cores,
        node: core / per_node,
    };
    Topology::new(
        (0..threads)
            .flat_map(|_| (0..nodes * per_node).map(core))
            .collect(),
    )
}

fn numbers(cpus: &[Cpu]) -> Vec<i32> {
    cpus.iter().map(|cpu| cpu.number()).collect()
}

#[test]
fn levels_part_what_is_near() {
    let machine = machine(2, 2, 2, 2);
    let cpu = Cpu::new(3);
    assert!(machine.has_smt());
    assert_eq!(numbers(machine.core(cpu)), [3, 11]);
    let [llc, node, rest] = machine.levels(cpu).map(numbers);
    assert_eq!(llc, [3, 11, 10, 2]);
    assert_eq!(node, [8, 9, 0, 1]);
    assert_eq!(rest, [4, 5, 6, 7, 12, 13, 14, 15]);
    assert_eq!(numbers(machine.near(cpu)), [llc, node, rest].concat());
}

#[test]
fn a_machine_without_smt() {
    let machine = machine(1, 1, 3, 1);
    assert!(!machine.has_smt());
    assert_eq!(numbers(machine.core(Cpu::new(1))), [1]);
    assert_eq!(
        machine.levels(Cpu::new(1)).map(numbers),
        [vec![1, 2, 0], vec![], vec![]]
    );
}
