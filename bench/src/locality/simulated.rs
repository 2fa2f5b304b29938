// SPDX-License-Identifier: GPL-2.0-only
//! The paper's setting, simulated: an i7-9700 (8 cores). Idle CPUs use the idle states of the
//! kernel's table for this processor (`skl`). The same machine is also simulated with a server's
//! idle states (`skx`), and with none. `cfs_like` represents CFS.

use baton_sim::idle::TABLES;
use baton_sim::topology::Topology;
use baton_sim::{Config, PolicySpec};

use super::{judge::JUDGED, Place, Row, Way, LONG, MESSENGERS, WORKERS};
use crate::simulate;
use baton_control::error::{Error, Result};

const CPUS: usize = 8;
const DURATION: u64 = 30_000_000_000;
/// The paper's machine first.
const IDLE_STATES: &[&str] = &["skl", "skx", "none"];
const SUBJECTS: &[(&str, Way)] = &[
    ("cfs_like", Way::Free),
    ("cfs_like", Way::Pinned),
    (JUDGED, Way::Free),
    (JUDGED, Way::Hints),
];

pub fn rows() -> Result<Vec<Row>> {
    eprintln!("baton: simulating {CPUS} CPUs");
    let all = IDLE_STATES.iter().flat_map(|states| {
        SUBJECTS
            .iter()
            .map(move |(policy, way)| (states, policy, way))
    });
    all.map(|(states, policy, way)| run(states, policy, *way))
        .collect()
}

fn run(idle_states: &str, policy: &str, way: Way) -> Result<Row> {
    let topology = Topology::new(1, CPUS, 1, CPUS).map_err(Error::baton)?;
    let mut config = Config::new(topology);
    config.policies = vec![PolicySpec {
        policy: baton_build::native(policy)?,
        options: String::new(),
    }];
    config.duration = DURATION;
    let table = TABLES.iter().find(|(name, _)| *name == idle_states);
    config.idle_states = table
        .ok_or_else(|| Error::baton(format!("no idle states {idle_states}")))?
        .1;
    let how = match way {
        Way::Free => "",
        Way::Pinned => ",pinned=1",
        Way::Hints => ",hints=1",
    };
    let workload = format!("schbench:messengers={MESSENGERS},workers={WORKERS},wakeups=1{how}");
    let world = simulate::world(&workload, config.seed, CPUS)?;
    let outcome = simulate::run(&config, world, None)?;
    if outcome.stats.hints_refused > 0 {
        return Err(Error::policy(
            policy,
            "it refused hints of its own type",
            format!("reproduce this: baton sim {policy} -w {workload}"),
        ));
    }
    let waits = outcome.stats.groups[0].responses.percentiles();
    let [p50, p99, max] = [waits.p50, waits.p99, waits.max].map(|ns| ns as f64 / 1e3);
    let (subject, idle_states) = (way.of(policy), idle_states.into());
    Ok(Row {
        place: Place::Simulator,
        idle_states,
        subject,
        work: LONG,
        wakeups: waits.count,
        p50,
        p99,
        max,
    })
}
