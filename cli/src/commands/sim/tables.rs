// SPDX-License-Identifier: GPL-2.0-only
//! Runs in words.

use baton_sim::report::{Percentiles, Run};

use crate::report::table;

/// A time to three digits.
pub fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value {
        0.0..9.995 => format!("{value:.2} {unit}"),
        9.995..99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2} %", part as f64 * 100.0 / whole.max(1) as f64)
}

fn times(of: &Percentiles) -> [String; 3] {
    match of.count {
        0 => ["-".into(), "-".into(), "-".into()],
        _ => [time(of.p50), time(of.p99), time(of.max)],
    }
}

/// The policy of a run, and whether the run came to its end.
fn policy(run: &Run) -> String {
    match run.faults.is_empty() {
        true => run.policy.clone(),
        false => format!("{} (failed at {})", run.policy, time(run.duration_ns)),
    }
}

/// What `baton sim` prints.
pub fn runs(runs: &[&Run]) -> String {
    let mut text = String::new();
    if let Some(first) = runs.first() {
        let longest = runs.iter().map(|run| run.duration_ns).max().unwrap_or(0);
        text = format!("{} on {}, seed {}, {}\n\n", first.workload, first.topology, first.seed, time(longest));
    }
    let groups = runs.iter().flat_map(|run| run.groups.iter().map(move |group| (run, group)));
    let rows = groups.map(|(run, group)| {
        let seconds = run.duration_ns.max(1) as f64 / 1e9;
        let rate = if group.operations == 0 { "-".into() } else { format!("{:.0}", group.operations as f64 / seconds) };
        let [w50, w99, wmax] = times(&group.wakeup);
        let [r50, r99, rmax] = times(&group.response.unwrap_or_default());
        vec![policy(run), group.name.clone(), group.tasks.to_string(), w50, w99, wmax, r50, r99, rmax, rate]
    });
    let titles = ["POLICY", "GROUP", "TASKS", "WAKEUP p50", "p99", "max", "RESPONSE p50", "p99", "max", "OPERATIONS/s"];
    text.push_str(&table(&titles, &rows.collect::<Vec<_>>()));
    text.push('\n');
    let rows = runs.iter().map(|run| {
        let cpu = &run.cpu;
        let all = cpu.busy_ns + cpu.idle_ns + cpu.higher_ns + cpu.offline_ns;
        let moved = &cpu.migrations;
        vec![
            run.policy.clone(),
            run.events.to_string(),
            cpu.switches.to_string(),
            format!("{}/{}/{}/{}", moved.core, moved.llc, moved.node, moved.machine),
            percent(cpu.idle_ns, all),
            percent(cpu.wasted_ns, all),
            run.fairness.map_or("-".into(), |fairness| format!("{:.3}", fairness.jain)),
            run.hash.clone(),
        ]
    });
    let titles =
        ["POLICY", "EVENTS", "SWITCHES", "MIGRATIONS core/llc/node/machine", "IDLE", "WASTED", "FAIRNESS", "LOG"];
    text.push_str(&table(&titles, &rows.collect::<Vec<_>>()));
    for run in runs.iter().filter(|run| run.upgrades > 0) {
        text.push_str(&format!("\n{}: upgrades that took place: {}\n", run.policy, run.upgrades));
    }
    text.push_str(
        "\nWASTED: CPU time idle while a task waited for a CPU. LOG: two runs with the same number are the same run.\n",
    );
    text
}

/// What `baton sim --workloads` prints.
pub fn workloads() -> String {
    baton_sim::workloads::listing()
}
