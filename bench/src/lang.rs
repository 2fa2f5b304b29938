// SPDX-License-Identifier: GPL-2.0-only
//! `baton bench lang`: policies in Baton's language beside models of the kernel's fair class, on
//! the simulated machine of Ipanema (EuroSys '20, section 5): 4 nodes of 20 cores with 2 threads
//! each.
//!
//! The loads are those of its figures 4 and 6: parallel programs (alone, and beside a few tasks
//! that always want a CPU), the build of a kernel, and clients of a database. The paper's figure 5
//! is the state of each CPU over time, which `baton report` draws of a run.

use std::collections::BTreeMap;
use std::process::ExitCode;

use baton_native::Policy;
use baton_sim::parallel::side_by_side;
use baton_sim::topology::Topology;
use baton_sim::workloads::npb;
use baton_sim::{Config, PolicySpec};
use serde::Serialize;

use super::judged::{self, rounded, verdict, Bound};
use super::simulate;
use super::subject::Subject;
use super::{Arguments, Bench};
use baton_control::error::{Error, Result};
use baton_control::kernel;
use baton_control::modules::Search;
use baton_control::report::table;

/// All others are compared with it.
const BASELINE: &str = "cfs_like";
const SUBJECTS: [&str; 7] = [
    BASELINE,
    "eevdf_like",
    "cfs_ipanema",
    "ule",
    "ule_cwc",
    "cfs_cwc",
    "cfs_cwc_flat",
];
/// The policies that are judged. They are proved to conserve work, as some others are.
const JUDGED: [&str; 3] = ["ule_cwc", "cfs_cwc", "cfs_cwc_flat"];

/// The tasks beside which parallel programs run.
const HOGS: u32 = 4;
/// Jobs of a build, and clients of a database.
const SIZES: [u32; 4] = [32, 64, 128, 256];
const S: u64 = 1_000_000_000;

/// Something that is run.
#[derive(Clone, Debug)]
struct Load {
    /// Loads of one family have one mean.
    family: &'static str,
    name: String,
    spec: String,
    /// ns
    duration: u64,
    metric: Metric,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    /// How long a program ran, s. Less is better.
    Time,
    /// Operations per second.
    Rate,
}

impl Metric {
    fn unit(self) -> &'static str {
        match self {
            Self::Time => "s",
            Self::Rate => "1/s",
        }
    }
}

const ALONE: &str = "npb";
const BESIDE: &str = "npb beside hogs";

/// The loads. `quick` makes them a tenth as long.
fn loads(quick: bool) -> Vec<Load> {
    let part = if quick { 0.1 } else { 1.0 };
    let mut loads = Vec::new();
    for (family, beside) in [(ALONE, String::new()), (BESIDE, format!("+hogs:n={HOGS}"))] {
        for program in npb::NAMES {
            let scale = 0.2 * part;
            loads.push(Load {
                family,
                name: program.to_uppercase(),
                spec: format!("npb:program={program},runs=1,scale={scale}{beside}"),
                duration: 10 * S,
                metric: Metric::Time,
            });
        }
    }
    let mut rate = |family, name, spec, seconds: f64| {
        loads.push(Load {
            family,
            name,
            spec,
            duration: (seconds * part * S as f64) as u64,
            metric: Metric::Rate,
        });
    };
    for size in SIZES {
        let spec = format!("build:jobs={size},objects=1000000");
        rate("build", format!("{size} jobs"), spec, 5.0);
    }
    for size in SIZES {
        let spec = format!("oltp:clients={size}");
        rate("oltp", format!("{size} clients"), spec, 0.2);
    }
    loads
}

/// A load under a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    family: &'static str,
    load: String,
    subject: String,
    unit: &'static str,
    /// The mean over all runs. NaN if the program did not end in time.
    value: f64,
    /// How much better than the baseline: above 1, the program is faster, or the rate higher.
    gain: f64,
    /// Percent of the time of all CPUs that was idle while a task waited for a CPU.
    idle_beside_waiting: f64,
}

/// A bound, applied.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Verdict {
    what: String,
    value: f64,
    bound: String,
    holds: bool,
}

pub struct Lang;

impl Bench for Lang {
    fn cpus(&self) -> &'static [u32] {
        &[]
    }

    fn subjects(&self) -> Vec<Subject> {
        SUBJECTS.map(|name| Subject::Policy(name.into())).to_vec()
    }

    fn run(&self, _: &Search, args: &Arguments) -> Result<ExitCode> {
        if !args.cpus.is_empty() {
            return Err(Error::user(
                "bench lang has the paper's machine, with 160 CPUs",
                "leave --cpus out",
            ));
        }
        let rows = measure(args)?;
        let means = means(&rows);
        let verdicts = verdicts(&means, &rows);
        let report = judged::Report {
            bench: "lang",
            kernel: &kernel::release(),
            results: &rows,
            verdicts: &verdicts,
        };
        let text = text(&rows, &means, &verdicts);
        let all_hold = verdicts.iter().all(|verdict| verdict.holds);
        judged::end(args, &report, text, String::new, all_hold)
    }
}

/// The policies: the baseline first.
fn policies(args: &Arguments) -> Result<Vec<String>> {
    let mut names = vec![BASELINE.to_owned()];
    for subject in args.subjects() {
        match subject {
            Subject::Policy(name) if name == BASELINE => {}
            Subject::Policy(name) => names.push(name),
            other => {
                return Err(Error::user(
                    format!("{} cannot be simulated", other.name()),
                    "name a policy",
                ))
            }
        }
    }
    Ok(names)
}

/// What one run gave: the value, and the percentage of the CPUs' time that was idle beside a
/// waiting task.
type Found = (f64, f64);

/// Simulates all loads under all policies, as many at once as this machine has CPUs.
fn measure(args: &Arguments) -> Result<Vec<Row>> {
    let names = policies(args)?;
    let policies = names
        .iter()
        .map(|name| baton_build::native(name))
        .collect::<Result<Vec<Policy>>>()?;
    let loads = loads(args.quick);
    let jobs: Vec<(&Load, usize)> = loads
        .iter()
        .flat_map(|load| (0..names.len()).map(move |policy| (load, policy)))
        .collect();
    let simulate = |&(load, policy): &(&Load, usize)| {
        if policy == 0 {
            eprintln!("baton: simulating {} {}", load.family, load.name);
        }
        mean_of_runs(load, policies[policy], args.runs())
    };
    let found = side_by_side(&jobs, simulate, || ());
    let found = found.into_iter().collect::<Result<Vec<Found>>>()?;
    let mut rows = Vec::new();
    for (load, found) in loads.iter().zip(found.chunks(names.len())) {
        for (name, &(value, idle)) in names.iter().zip(found) {
            let gain = match load.metric {
                Metric::Time => found[0].0 / value,
                Metric::Rate => value / found[0].0,
            };
            rows.push(Row {
                family: load.family,
                load: load.name.clone(),
                subject: name.clone(),
                unit: load.metric.unit(),
                value: rounded(value),
                gain: rounded(gain),
                idle_beside_waiting: rounded(idle),
            });
        }
    }
    Ok(rows)
}

/// Runs with the seeds from 1 on.
fn mean_of_runs(load: &Load, policy: Policy, runs: u32) -> Result<Found> {
    let mut sum = (0.0, 0.0);
    for seed in 1..=runs {
        let (value, idle) = run(load, policy, u64::from(seed))?;
        sum = (sum.0 + value, sum.1 + idle);
    }
    let runs = f64::from(runs);
    Ok((sum.0 / runs, sum.1 / runs))
}

fn run(load: &Load, policy: Policy, seed: u64) -> Result<Found> {
    let mut config = Config::new(Topology::new(4, 20, 2, 20).map_err(Error::baton)?);
    let cpus = config.topology.cpus().len();
    config.policies = vec![PolicySpec {
        policy,
        options: String::new(),
    }];
    config.duration = load.duration;
    config.seed = seed;
    let world = simulate::world(&load.spec, seed, cpus)?;
    let outcome = simulate::run(&config, world, None)?;
    let stats = &outcome.stats;
    let group = &stats.groups[0];
    let (value, time) = match load.metric {
        Metric::Time if group.done == 0 => (f64::NAN, stats.duration),
        Metric::Time => {
            let time = group.responses.percentiles().max;
            (time as f64 / 1e9, time)
        }
        Metric::Rate => {
            let seconds = stats.duration as f64 / 1e9;
            (group.done as f64 / seconds, stats.duration)
        }
    };
    let idle = 100.0 * stats.wasted as f64 / (time as f64 * cpus as f64);
    Ok((value, idle))
}

/// The geometric mean of the gains, for each family and subject.
fn means(rows: &[Row]) -> BTreeMap<(&'static str, String), f64> {
    let mut logs: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let key = (row.family, row.subject.clone());
        logs.entry(key).or_default().push(row.gain.ln());
    }
    let mean = |logs: Vec<f64>| (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    logs.into_iter()
        .map(|(key, logs)| (key, mean(logs)))
        .collect()
}

/// Each policy of [`JUDGED`] must gain 10 % in the parallel programs (the paper: 11.8 to 15.5 %).
/// It may lose 2 % in builds, and 3 % with the database.
fn verdicts(means: &BTreeMap<(&'static str, String), f64>, rows: &[Row]) -> Vec<Verdict> {
    const BOUNDS: [(&str, Bound); 4] = [
        (ALONE, Bound::Least(1.1)),
        (BESIDE, Bound::Least(1.1)),
        ("build", Bound::Least(0.98)),
        ("oltp", Bound::Least(0.97)),
    ];
    let mut verdicts = Vec::new();
    for name in JUDGED {
        let is_measured = |row: &Row| row.subject == name;
        if !rows.iter().any(is_measured) {
            continue;
        }
        for (family, bound) in BOUNDS {
            let mean = means.get(&(family, name.to_owned())).copied();
            let value = rounded(mean.unwrap_or(f64::NAN));
            verdicts.push(Verdict {
                what: format!("{family}: mean gain of {name} over {BASELINE}"),
                value,
                bound: bound.text(),
                holds: bound.holds(value),
            });
        }
    }
    verdicts
}

fn text(
    rows: &[Row],
    means: &BTreeMap<(&'static str, String), f64>,
    verdicts: &[Verdict],
) -> String {
    let mut text = String::from(
        "lang, simulated: 4 nodes of 20 cores of 2 threads. GAIN is over cfs_like. IDLE is the \
         time that CPUs\nidled while a task waited, of the time of all CPUs.\n",
    );
    let mut families: Vec<&str> = rows.iter().map(|row| row.family).collect();
    families.dedup();
    for family in families {
        text += &format!("\n{family}\n");
        let of_family = rows.iter().filter(|row| row.family == family);
        let mut lines: Vec<Vec<String>> = of_family
            .map(|row| {
                vec![
                    row.load.clone(),
                    row.subject.clone(),
                    format!("{:.3} {}", row.value, row.unit),
                    format!("{:.3}", row.gain),
                    format!("{:.2} %", row.idle_beside_waiting),
                ]
            })
            .collect();
        for ((_, subject), mean) in means.iter().filter(|((of, _), _)| *of == family) {
            lines.push(vec![
                "geometric mean".into(),
                subject.clone(),
                String::new(),
                format!("{mean:.3}"),
                String::new(),
            ]);
        }
        text += &table(&["LOAD", "SUBJECT", "VALUE", "GAIN", "IDLE"], &lines);
    }
    if !verdicts.is_empty() {
        let lines: Vec<_> = verdicts
            .iter()
            .map(|it| {
                vec![
                    it.what.clone(),
                    format!("{:.3}", it.value),
                    it.bound.clone(),
                    verdict(it.holds).into(),
                ]
            })
            .collect();
        text += "\n";
        text += &table(&["WHAT", "VALUE", "BOUND", "VERDICT"], &lines);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(family: &'static str, subject: &str, gain: f64) -> Row {
        Row {
            family,
            load: "x".into(),
            subject: subject.into(),
            unit: "s",
            value: 1.0,
            gain,
            idle_beside_waiting: 0.0,
        }
    }

    #[test]
    fn a_mean_of_gains_is_geometric() {
        let rows = [row(ALONE, "ule", 0.5), row(ALONE, "ule", 2.0)];
        assert_eq!(means(&rows)[&(ALONE, "ule".to_owned())], 1.0);
    }

    #[test]
    fn a_bound_holds_or_not() {
        let rows: Vec<Row> = [(ALONE, 1.2), (BESIDE, 1.05), ("build", 1.0), ("oltp", 1.0)]
            .map(|(family, gain)| row(family, "ule_cwc", gain))
            .to_vec();
        let holds = |rows: &[Row]| {
            let verdicts = verdicts(&means(rows), rows);
            verdicts.iter().map(|it| it.holds).collect::<Vec<_>>()
        };
        assert_eq!(holds(&rows), [true, false, true, true]);
        // A program that did not end holds nothing, and what was not measured is not judged.
        let mut lost = rows.clone();
        lost.push(row("oltp", "ule_cwc", f64::NAN));
        assert_eq!(holds(&lost), [true, false, true, false]);
        assert!(holds(&[row(ALONE, "ule", 1.0)]).is_empty());
    }

    #[test]
    fn each_load_is_one_of_the_simulator() {
        for load in loads(true).iter().chain(&loads(false)) {
            assert!(simulate::world(&load.spec, 1, 160).is_ok(), "{}", load.spec);
        }
    }
}
