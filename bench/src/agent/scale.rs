// SPDX-License-Identifier: GPL-2.0-only
//! How many decisions a global agent makes in a second, by the number of CPUs that it decides for:
//! figure 5 of the paper on ghOSt, simulated with the costs of an agent that were measured.

use baton_sim::topology::Topology;
use baton_sim::{AgentSpec, Config};

use crate::arguments::Arguments;
use crate::report::{entries, Entry, Series};
use crate::simulate;
use crate::subject::Subject;
use baton_control::error::{Error, Result};

/// The numbers of CPUs that are decided for; the agent has one more.
const CPUS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The schedulers, if none is named.
const SCHEDULERS: [&str; 3] = ["sol", "edf", "central"];
/// The simulated time, ns.
const DURATION: u64 = 50_000_000;
/// The load: for each CPU, two pairs of tasks that wake each other after this work. Each message is
/// a decision.
const WORK: &str = "5us";
const METRIC: &str = "decisions_per_second";

/// Simulates the schedulers that are wanted.
pub fn measure(args: &Arguments) -> Result<Vec<Entry>> {
    let wanted = args.subjects.iter().filter_map(|subject| match subject {
        Subject::Agent { policy, .. } => Some(policy.as_str()),
        Subject::Policy(policy) => Some(policy.as_str()),
        _ => None,
    });
    let wanted: Vec<&str> = if args.subjects.is_empty() {
        SCHEDULERS.into()
    } else {
        wanted.collect()
    };
    if wanted.is_empty() {
        return Err(Error::user(
            "none of these subjects is an agent",
            "name one: --subject sol",
        ));
    }
    let mut results = Vec::new();
    for name in wanted {
        let agent = simulate::agent(name)?;
        for cpus in CPUS {
            let series = Series {
                subject: name.into(),
                values: vec![decisions(&agent, cpus)?],
            };
            results.extend(entries(cpus as u32, METRIC, "1/s", &[series], false));
        }
    }
    Ok(results)
}

/// The decisions in a second for so many CPUs.
fn decisions(agent: &AgentSpec, cpus: usize) -> Result<f64> {
    let all = cpus + 1;
    let topology = Topology::new(1, all, 1, all).map_err(Error::baton)?;
    let mut config = Config::new(topology);
    config.agent = Some(agent.clone());
    config.duration = DURATION;
    let workload = format!("pipe:pairs={},work={WORK}", 2 * cpus);
    let world = simulate::world(&workload, config.seed, all)?;
    let outcome = simulate::run(&config, world, None)?;
    Ok(2.0 * outcome.stats.groups[0].done as f64 * 1e9 / DURATION as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_decides_for_more_cpus_until_it_is_busy() {
        let agent = simulate::agent("sol").unwrap();
        let [one, four, many] = [1, 4, 64].map(|cpus| decisions(&agent, cpus).unwrap());
        assert!(four > 2.0 * one, "{one} and {four}");
        assert!(many < 64.0 * one, "{one} and {many}");
    }
}
