// SPDX-License-Identifier: GPL-2.0-only
//! The paper's setting, simulated: 5 CPUs, 50 workers, slices of 10 us. `cfs_like` represents the
//! paper's baseline CFS, `eevdf_like` the present kernel's scheduler.

use baton_native::Policy;
use baton_sim::topology::Topology;
use baton_sim::{AgentSpec, Config, Outcome, PolicySpec};

use super::{Found, Place, Point, Saturation, BATCH, LONG, MEAN, OVERLOAD, SHORT};
use crate::simulate;
use baton_control::error::{Error, Result};

const CPUS: usize = 5;
const DURATION: u64 = 2_000_000_000;
/// Per cent of the CPUs' time.
const LOADS: &[u64] = &[10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 95];
const POLICIES: &[&str] = &["cfs_like", "eevdf_like", "wfq", "central", "shinjuku"];
/// The policies that also run beside a batch program.
const BESIDE: &[&str] = &["cfs_like", "shinjuku"];
/// The policy that also runs in a global agent.
const IN_AGENT: &str = "shinjuku";

pub fn sweep() -> Result<Found> {
    eprintln!("baton: simulating {CPUS} CPUs");
    let batch_policy = baton_build::native(BATCH)?;
    let mut found = Found::default();
    for name in POLICIES {
        let policy = baton_build::native(name)?;
        let outcome = run(&[policy], &requests(OVERLOAD))?;
        let answered = per_second(&outcome);
        found.saturations.push(Saturation {
            place: Place::Simulator,
            subject: name.to_string(),
            answered,
        });
        for &load in LOADS {
            let spec = requests(load as f64 / 100.0);
            found
                .points
                .push(point(name, load, &run(&[policy], &spec)?));
            if BESIDE.contains(name) {
                let spec = format!("{spec}+hogs:n={CPUS},nice=19");
                // The fair policy has both programs, with their nice values, as in the paper.
                let policies = if *name == "cfs_like" {
                    vec![policy]
                } else {
                    vec![policy, batch_policy]
                };
                found
                    .points
                    .push(point(name, load, &run(&policies, &spec)?));
            }
        }
    }
    let agent = simulate::agent(IN_AGENT)?;
    let name = format!("{IN_AGENT} --global");
    let answered = per_second(&run_in_agent(&agent, &requests(OVERLOAD))?);
    found.saturations.push(Saturation {
        place: Place::Simulator,
        subject: name.clone(),
        answered,
    });
    for &load in LOADS {
        let outcome = run_in_agent(&agent, &requests(load as f64 / 100.0))?;
        found.points.push(point(&name, load, &outcome));
    }
    Ok(found)
}

fn run(policies: &[Policy], workload: &str) -> Result<Outcome> {
    let topology = Topology::new(1, CPUS, 1, CPUS).map_err(Error::baton)?;
    let mut config = Config::new(topology);
    config.policies = policies
        .iter()
        .map(|&policy| PolicySpec {
            policy,
            options: String::new(),
        })
        .collect();
    config.assign = vec![("rocksdb".into(), 0)];
    run_as(config, workload)
}

/// The requests have as many CPUs as without an agent, which has one more.
fn run_in_agent(agent: &AgentSpec, workload: &str) -> Result<Outcome> {
    let all = CPUS + 1;
    let topology = Topology::new(1, all, 1, all).map_err(Error::baton)?;
    let mut config = Config::new(topology);
    config.agent = Some(agent.clone());
    run_as(config, workload)
}

fn run_as(mut config: Config, workload: &str) -> Result<Outcome> {
    config.duration = DURATION;
    let world = simulate::world(workload, config.seed, CPUS)?;
    simulate::run(&config, world, None)
}

/// The workload that needs this share of the CPUs' time.
fn requests(load: f64) -> String {
    format!("rocksdb:only-short=1,nice=-20,load={load:.6},on={CPUS},short={SHORT}ns,long={LONG}ns")
}

fn per_second(outcome: &Outcome) -> f64 {
    outcome.stats.groups[0].done as f64 * 1e9 / DURATION as f64
}

fn point(subject: &str, load: u64, outcome: &Outcome) -> Point {
    let groups = &outcome.stats.groups;
    let times = groups[0].responses.percentiles();
    let [p50, p99, p999] = [times.p50, times.p99, times.p999].map(|ns| ns as f64 / 1e3);
    let all = (CPUS as u64 * DURATION) as f64;
    Point {
        place: Place::Simulator,
        subject: subject.into(),
        batch: groups.len() > 1,
        load,
        offered: load as f64 / 100.0 * CPUS as f64 * 1e9 / MEAN,
        answered: per_second(outcome),
        p50,
        p99,
        p999,
        batch_share: groups
            .get(1)
            .map(|batch| batch.runtime as f64 * 100.0 / all),
    }
}
