// SPDX-License-Identifier: GPL-2.0-only
//! Runs that benches simulate.

use baton_sim::trace::Sink;
use baton_sim::world::World;
use baton_sim::{Config, Outcome};

use baton_control::error::{Error, Result};

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
