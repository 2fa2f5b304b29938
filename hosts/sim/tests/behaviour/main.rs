// SPDX-License-Identifier: GPL-2.0-only
//! The behaviour of tasks on the simulated machine, under all policies.

mod arbiter;
mod conforms;
mod faults;
mod hints;
mod latency;
mod life;
mod locality;
mod same;
mod shares;

use baton_native::{module, Policy};
use baton_sim::{topology::Topology, world::World, Config, Outcome, PolicySpec};

/// The policies of this tree, in Rust.
pub fn shipped() -> [Policy; 11] {
    [
        fifo(),
        wfq(),
        template(),
        relay_v1(),
        relay_v2(),
        cfs_like(),
        eevdf_like(),
        central(),
        shinjuku(),
        locality(),
        arbiter(),
    ]
}

pub fn fifo() -> Policy {
    Policy::linked(module!(fifo::BatonPolicy))
}

pub fn wfq() -> Policy {
    Policy::linked(module!(wfq::BatonPolicy))
}

pub fn template() -> Policy {
    Policy::linked(module!(template::BatonPolicy))
}

pub fn relay_v1() -> Policy {
    Policy::linked(module!(relay_v1::BatonPolicy))
}

pub fn relay_v2() -> Policy {
    Policy::linked(module!(relay_v2::BatonPolicy))
}

pub fn cfs_like() -> Policy {
    Policy::linked(module!(cfs_like::BatonPolicy))
}

pub fn eevdf_like() -> Policy {
    Policy::linked(module!(eevdf_like::BatonPolicy))
}

pub fn central() -> Policy {
    Policy::linked(module!(central::BatonPolicy))
}

pub fn shinjuku() -> Policy {
    Policy::linked(module!(shinjuku::BatonPolicy))
}

pub fn locality() -> Policy {
    Policy::linked(module!(::locality::BatonPolicy))
}

pub fn arbiter() -> Policy {
    Policy::linked(module!(::arbiter::BatonPolicy))
}

pub fn witness() -> Policy {
    Policy::linked(module!(witness::BatonPolicy))
}

pub fn echo() -> Policy {
    Policy::linked(module!(echo::BatonPolicy))
}

pub fn faulty() -> Policy {
    Policy::linked(module!(faulty::BatonPolicy))
}

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
    baton_sim::workloads::build(text, config.seed, config.topology.cpus().len(), &mut world)
        .unwrap();
    world
}
