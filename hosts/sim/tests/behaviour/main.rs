// SPDX-License-Identifier: GPL-2.0-only
//! What runs on the simulated machine, and how, under the policies that there are.

mod plain;

use baton_native::{module, Policy};
use baton_sim::{topology::Topology, world::World, Config, Outcome, PolicySpec};

pub fn fifo() -> Policy {
    Policy::linked(module!(fifo::BatonPolicy))
}

pub fn wfq() -> Policy {
    Policy::linked(module!(wfq::BatonPolicy))
}

/// A machine of that shape under one policy, for so long, ms.
pub fn machine(topology: &str, policy: Policy, ms: u64) -> Config {
    let topology: Topology = topology.parse().unwrap();
    let spec = PolicySpec { policy, options: String::new() };
    Config { policies: vec![spec], duration: ms * 1_000_000, max_tasks: 4096, ..Config::new(topology) }
}

/// Runs to the end, without a fault.
pub fn run(config: &Config, world: World) -> Outcome {
    let outcome = baton_sim::run(config, world, None).unwrap();
    assert!(outcome.faults.is_empty(), "{:?}", String::from_utf8_lossy(&outcome.faults[0].message));
    outcome
}
