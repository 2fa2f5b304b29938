// SPDX-License-Identifier: GPL-2.0-only
//! Runs that benches simulate.

use baton_agents::Native;
use baton_sim::trace::Sink;
use baton_sim::workloads::{build, no_files};
use baton_sim::world::World;
use baton_sim::{AgentSpec, Config, Outcome};

use baton_control::error::{Error, Result};

/// A policy as a global agent, or a scheduler that is written for agents.
pub fn agent(name: &str) -> Result<AgentSpec> {
    match baton_agents::find(name) {
        Some(native) => native_agent(native),
        None => Ok(AgentSpec::of_policy(baton_build::native(name)?, "")),
    }
}

/// A scheduler that is written for agents, for a model of the kernel.
pub fn native_agent(native: &'static Native) -> Result<AgentSpec> {
    let polling = native.polling.ok_or_else(|| {
        Error::user(
            format!(
                "{} has an agent on each CPU, which is not simulated",
                native.name
            ),
            "baton agent run runs it in a guest: see docs/agents.md",
        )
    })?;
    let make = move |agent, own| Ok(polling(agent, own));
    Ok(AgentSpec::of_scheduler(native.name, native.events, make))
}

/// A workload of the simulator's, on so many CPUs.
pub fn world(spec: &str, seed: u64, cpus: usize) -> Result<World> {
    let mut world = World::new();
    build(spec, seed, cpus, &no_files, &mut world)
        .map_err(|why| Error::baton(format!("the workload {spec} is wrong: {why}")))?;
    Ok(world)
}

/// Simulates a run. Returns an error if a policy failed in it.
pub fn run(config: &Config, world: World, sink: Option<&mut dyn Sink>) -> Result<Outcome> {
    let outcome = baton_sim::run(config, world, sink)
        .map_err(|e| Error::baton(format!("the simulation failed: {e:?}")))?;
    match outcome.faults.first() {
        None => Ok(outcome),
        Some(fault) => {
            let fault = baton_control::status::Fault::new(fault, None);
            let what = format!("it failed: {}", fault.message);
            Err(Error::policy(&fault.policy, what, "see it with: baton sim"))
        }
    }
}
