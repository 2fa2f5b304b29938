// SPDX-License-Identifier: GPL-2.0-only
//! Runs as text.

use baton_sim::report::{Percentiles, Run};
use serde_json::Value;

use baton_control::report::{percent, table, time};

/// Percentiles of a group. `name` is their name in the group's report.
fn times(run: &Run, group: &str, name: &str, of: &Percentiles) -> [String; 3] {
    if of.count == 0 {
        return ["-".into(), "-".into(), "-".into()];
    }
    let with = |ns, key| {
        format!(
            "{}{}",
            time(ns),
            within(in_group(run, group).and_then(|group| group.get(name)?.get(key)))
        )
    };
    [
        with(of.p50, "p50"),
        with(of.p99, "p99"),
        with(of.max, "max"),
    ]
}

/// The confidence intervals of a group's numbers, if the run is a series.
fn in_group<'r>(run: &'r Run, group: &str) -> Option<&'r Value> {
    let groups = run.confidence.as_ref()?.get("groups")?.as_array()?;
    groups
        .iter()
        .find(|one| one.get("name").and_then(Value::as_str) == Some(group))
}

/// The confidence interval of a mean, in per cent of it; empty for a single run.
fn within(interval: Option<&Value>) -> String {
    let end = |at| interval.and_then(|interval| interval.get(at)?.as_f64());
    let (Some(low), Some(high)) = (end(0), end(1)) else {
        return String::new();
    };
    let (mean, half) = ((low + high) / 2.0, (high - low) / 2.0);
    match half / mean * 100.0 {
        _ if mean == 0.0 => String::new(),
        percent if percent < 9.95 => format!(" ±{percent:.1}%"),
        percent => format!(" ±{percent:.0}%"),
    }
}

/// The policy of a run, and whether the run was completed.
fn policy(run: &Run) -> String {
    if run.faults.is_empty() {
        run.policy.clone()
    } else {
        format!("{} (failed at {})", run.policy, time(run.duration_ns))
    }
}

/// The output of `baton sim`.
pub fn runs(runs: &[&Run]) -> String {
    let mut text = String::new();
    if let Some(first) = runs.first() {
        let longest = runs.iter().map(|run| run.duration_ns).max().unwrap_or(0);
        let seeds = match first.seeds {
            1 => format!("seed {}", first.seed),
            more => format!(
                "means of seeds {} to {}",
                first.seed,
                first.seed.wrapping_add(more - 1)
            ),
        };
        let jitter = f64::from(first.jitter_ppm) / 10_000.0;
        text = format!(
            "{} on {}, {seeds}, jitter {jitter} %, {}\n\n",
            first.workload,
            first.topology,
            time(longest)
        );
    }
    let groups = runs
        .iter()
        .flat_map(|run| run.groups.iter().map(move |group| (run, group)));
    let rows = groups.map(|(run, group)| {
        // A file of another version of the report has no such time.
        let seconds = if group.active_ns == 0 {
            run.duration_ns
        } else {
            group.active_ns
        }
        .max(1) as f64
            / 1e9;
        let operations =
            within(in_group(run, &group.name).and_then(|group| group.get("operations")));
        let rate = match group.operations {
            0 => "-".into(),
            count => format!("{:.0}{operations}", count as f64 / seconds),
        };
        let [w50, w99, wmax] = times(run, &group.name, "wakeup", &group.wakeup);
        let [r50, r99, rmax] = times(
            run,
            &group.name,
            "response",
            &group.response.unwrap_or_default(),
        );
        vec![
            policy(run),
            group.name.clone(),
            group.tasks.to_string(),
            w50,
            w99,
            wmax,
            r50,
            r99,
            rmax,
            rate,
        ]
    });
    let titles = [
        "POLICY",
        "GROUP",
        "TASKS",
        "WAKEUP p50",
        "p99",
        "max",
        "RESPONSE p50",
        "p99",
        "max",
        "OPERATIONS/s",
    ];
    text.push_str(&table(&titles, &rows.collect::<Vec<_>>()));
    text.push('\n');
    let rows = runs.iter().map(|run| {
        let cpu = &run.cpu;
        let all = cpu.busy_ns + cpu.idle_ns + cpu.higher_ns + cpu.offline_ns;
        let moved = &cpu.migrations;
        let of = |part: &str, key: &str| {
            within(
                run.confidence
                    .as_ref()
                    .and_then(|confidence| confidence.get(part)?.get(key)),
            )
        };
        vec![
            run.policy.clone(),
            run.events.to_string(),
            format!("{}{}", cpu.switches, of("cpu", "switches")),
            format!(
                "{}/{}/{}/{}",
                moved.core, moved.llc, moved.node, moved.machine
            ),
            percent(cpu.idle_ns, all) + &of("cpu", "idle_ns"),
            percent(cpu.wasted_ns, all) + &of("cpu", "wasted_ns"),
            run.fairness.map_or("-".into(), |fairness| {
                format!("{:.3}{}", fairness.jain, of("fairness", "jain"))
            }),
            run.hash.clone(),
        ]
    });
    let titles = [
        "POLICY",
        "EVENTS",
        "SWITCHES",
        "MIGRATIONS core/llc/node/machine",
        "IDLE",
        "WASTED",
        "FAIRNESS",
        "LOG",
    ];
    text.push_str(&table(&titles, &rows.collect::<Vec<_>>()));
    for run in runs.iter().filter(|run| run.upgrades > 0) {
        text.push_str(&format!(
            "\n{}: upgrades that took place: {}\n",
            run.policy, run.upgrades
        ));
    }
    if runs.iter().any(|run| run.seeds > 1) {
        text.push_str(
            "\n±: the true mean is within that with a probability of 95 %; no sign: one run had \
             it, or it is 0.\n",
        );
    }
    text.push_str(
        "\nWASTED: CPU time idle while a task waited for a CPU. LOG: two runs with the same number \
         are the same run.\n",
    );
    text
}

/// The output of `baton sim --workloads`.
pub fn workloads() -> String {
    baton_sim::workloads::listing()
}
