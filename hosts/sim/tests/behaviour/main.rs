// SPDX-License-Identifier: GPL-2.0-only
//! The behaviour of tasks on the simulated machine, under all policies.

mod agents;
mod arbiter;
mod balancing;
mod conforms;
mod edf;
mod faults;
mod hints;
mod latency;
mod life;
mod locality;
mod same;
mod shares;

pub use baton_linked::*;
use baton_native::Policy;
use baton_sim::{topology::Topology, world::World, Config, Outcome, PolicySpec};

/// A machine with this topology and one policy, for this time, ms.
pub fn machine(topology: &str, policy: Policy, ms: u64) -> Config {
    let topology: Topology = topology.parse().unwrap();
    let spec = PolicySpec {
        policy,
        options: String::new(),
    };
    Config {
        policies: vec![spec],
        duration: ms * 1_000_000,
        max_tasks: 4096,
        ..Config::new(topology)
    }
}

/// Runs to the end, without a fault.
pub fn run(config: &Config, world: World) -> Outcome {
    let outcome = baton_sim::run(config, world, None).unwrap();
    let said = outcome
        .faults
        .first()
        .map(|fault| String::from_utf8_lossy(&fault.message).into_owned());
    assert_eq!(said, None);
    outcome
}

/// A workload, by its spec.
pub fn workload(text: &str, config: &Config) -> World {
    let mut world = World::new();
    baton_sim::workloads::build(
        text,
        config.seed,
        config.topology.cpus().len(),
        &|path| std::fs::read(path).map_err(|why| format!("{path}: {why}")),
        &mut world,
    )
    .unwrap();
    world
}

/// The text in a field of a fault, which ends at the first 0.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
