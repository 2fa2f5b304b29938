// SPDX-License-Identifier: GPL-2.0-only
//! The outcome of a run, and its report.

use baton_abi::BatonFault;
use baton_native::WrongMove;

use crate::report::{CpuTotals, Fairness, GroupReport, Histogram, Migrations, Run, VERSION};
use crate::stats::{GroupStats, Stats};
use crate::timeline::Timeline;
use crate::Config;

/// The outcome of a run.
pub struct Outcome {
    /// Its counts.
    pub stats: Stats,
    /// The number of calls of policies.
    pub calls: u64,
    /// The number of refused answers of policies.
    pub refusals: u64,
    /// The refused changes of threads' states, each once for a place in the policy's source, with
    /// how often it occurred.
    pub wrong_moves: Vec<(WrongMove, u64)>,
    /// The fault that ended the run. There is more than one if several occurred at the same moment.
    pub faults: Vec<BatonFault>,
}

/// The names of a run's parts.
pub struct Names {
    /// The policy, or the policies in their order.
    pub policy: String,
    /// The workload.
    pub workload: String,
    /// The machine.
    pub topology: String,
}

impl Outcome {
    /// The report of the run, without a detail. `faults` has a line for each fault.
    pub fn report(
        &self,
        config: &Config,
        names: Names,
        faults: Vec<String>,
        timeline: Option<Timeline>,
    ) -> Run {
        let stats = &self.stats;
        let cpus = config.topology.cpus().len() as u64;
        let [core, llc, node, machine] = stats.migrations;
        Run {
            version: VERSION,
            policy: names.policy,
            workload: names.workload,
            topology: names.topology,
            seed: config.seed,
            seeds: 1,
            confidence: None,
            jitter_ppm: config.jitter,
            duration_ns: stats.duration,
            stuck_ns: stats.stuck,
            hash: format!("{:016x}", stats.hash.value()),
            events: stats.events,
            groups: stats
                .groups
                .iter()
                .map(|of| group(of, stats.duration))
                .collect(),
            cpu: CpuTotals {
                switches: stats.switches,
                migrations: Migrations {
                    core,
                    llc,
                    node,
                    machine,
                },
                busy_ns: (stats.duration * cpus)
                    .saturating_sub(stats.idle + stats.higher + stats.offline),
                idle_ns: stats.idle,
                idle_while_waiting_ns: stats.idle_while_waiting,
                wasted_ns: stats.wasted,
                higher_ns: stats.higher,
                offline_ns: stats.offline,
            },
            fairness: fairness(stats),
            upgrades: stats.upgrades,
            refused_upgrades: stats.refused.clone(),
            tasks_not_made: stats.no_slot,
            hints: stats.hints,
            hints_refused: stats.hints_refused,
            faults,
            timeline,
            detail: None,
        }
    }
}

fn group(group: &GroupStats, duration: u64) -> GroupReport {
    let response = |histogram: &Histogram| (histogram.count() > 0).then(|| histogram.percentiles());
    GroupReport {
        name: group.name.to_string(),
        tasks: group.tasks,
        cpu_ns: group.runtime,
        wakeup: group.wakeups.percentiles(),
        wakeup_curve: group.wakeups.curve(),
        response: response(&group.responses),
        response_curve: group.responses.curve(),
        operations: group.done,
        active_ns: group.active(duration),
    }
}

fn fairness(stats: &Stats) -> Option<Fairness> {
    let shares = stats.shares?;
    Some(Fairness {
        jain: shares.jain()?,
        worst_lag_ns: shares.worst as u64,
    })
}
