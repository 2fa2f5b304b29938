// SPDX-License-Identifier: GPL-2.0-only
//! How long tasks have no scheduler while one version of a policy replaces another, and whether any
//! task is left behind.
//!
//! Three ways are measured, all under hackbench: `wfq` with its state shared, `relay` with its
//! state converted, and, as the only way without Baton, one of the kernel's examples stopped and
//! started again.

use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{kill_process_group, setpriority_process, Pid, Signal};

use super::report::{entries, Entry, Series};
use super::subject::{self, Subject};
use super::table::{self, Measured, Table};
use super::{Arguments, Bench};
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::exchange::exchange;
use baton_control::modules::{module_of, Search};
use baton_control::status::Change;
use baton_control::{load, unload};

const EXAMPLE: &str = "scx_simple";
/// Upgrades of `wfq` for each upgrade of the others, which take longer.
const FEWER: u32 = 10;
/// Tasks that sleep all the time, beside the 40 of hackbench. If more tasks were awake, the bench
/// would measure how long the tool itself waits.
const SLEEPERS: [u32; 3] = [10, 1_000, 5_000];

pub struct Upgrade;

impl Bench for Upgrade {
    fn runs(&self) -> u32 {
        200
    }

    fn cpus(&self) -> &'static [u32] {
        &[1, 2, 4, 8]
    }

    fn subjects(&self) -> Vec<Subject> {
        subjects()
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::run(self, search, args)
    }
}

impl Table for Upgrade {
    fn tools(&self) -> &'static [&'static str] {
        &["hackbench"]
    }

    fn memory_mb(&self) -> Option<u32> {
        // For the stacks of thousands of tasks.
        Some(4000)
    }

    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
        measure(search, args, cpus).map(Measured::from)
    }
}

/// The policies that the guest needs.
fn subjects() -> Vec<Subject> {
    let policies = ["wfq", "relay_v1", "relay_v2"].map(|name| Subject::Policy(name.into()));
    policies
        .into_iter()
        .chain([Subject::Scx {
            program: EXAMPLE,
            options: &[],
        }])
        .collect()
}

/// Hackbench in a loop, and sleeping tasks, until this value is dropped.
struct Load(Child);

impl Load {
    fn start(sleepers: u32) -> Result<Self> {
        let script = format!(
            "i=0; while [ $i -lt {sleepers} ]; do sleep 100000 & i=$((i + 1)); done; while :; do \
             hackbench -g 1 -l 1000; done"
        );
        let mut command = Command::new("setsid");
        let command = command
            .args(["sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        nice(0)?;
        let child = command
            .spawn()
            .map_err(|e| Error::file("starting hackbench", &e))?;
        // Loading a module needs CPU time, for which 40 tasks compete.
        nice(-20)?;
        let load = Self(child);
        while load.count()? < sleepers as usize {
            std::thread::sleep(Duration::from_millis(20));
        }
        // The tasks of hackbench start soon.
        std::thread::sleep(Duration::from_millis(50));
        Ok(load)
    }

    /// The number of processes that the load has started and not waited for.
    fn count(&self) -> Result<usize> {
        let path = format!("/proc/{0}/task/{0}/children", self.0.id());
        let children = std::fs::read_to_string(&path)
            .map_err(|e| Error::file(format!("reading {path}"), &e))?;
        Ok(children.split_whitespace().count())
    }
}

fn nice(value: i32) -> Result<()> {
    setpriority_process(None, value).map_err(|e| {
        Error::environment(
            format!("nice cannot be set to {value}: {e}"),
            "run this as root",
        )
    })
}

impl Drop for Load {
    fn drop(&mut self) {
        // setsid made it the leader of a process group.
        if let Some(group) = Pid::from_raw(self.0.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// The results of a row of upgrades.
struct Row {
    changes: Vec<Change>,
    /// How often a task ran under the fallback.
    left: u64,
    /// Faults of the policy; a lost task is one.
    lost: u64,
}

fn fallbacks(device: &Device) -> Result<u64> {
    let cpus = device.core()?.nr_cpus;
    (0..cpus).map(|cpu| Ok(device.cpu(cpu)?.fallbacks)).sum()
}

/// Upgrades `policy` this many times under hackbench, to each of these modules in turn.
fn row(search: &Search, policy: &str, modules: &[&str], sleepers: u32, runs: u32) -> Result<Row> {
    let files = modules
        .iter()
        .map(|module| search.find(&module_of(module)))
        .collect::<Result<Vec<_>>>()?;
    let how = load::Options {
        all: true,
        module: files.first().cloned(),
        ..Default::default()
    };
    let device = load::load(search, policy, &how)?;
    eprintln!(
        "baton: {policy}: {runs} upgrades under hackbench, beside {sleepers} tasks that sleep"
    );
    let load = Load::start(sleepers)?;
    let before = fallbacks(&device)?;
    let mut changes = Vec::new();
    for (file, nr) in files.iter().cycle().skip(1).zip(1..=runs) {
        changes.push(exchange(&device, policy, file, None, None)?);
        if nr % (runs / 5).max(1) == 0 {
            eprintln!("baton: {policy}: {nr} of {runs}");
        }
    }
    let left = fallbacks(&device)? - before;
    let lost = device.policy(policy)?.map_or(u64::MAX, |info| info.faults);
    drop(load);
    drop(device);
    unload::unload(None)?;
    Ok(Row {
        changes,
        left,
        lost,
    })
}

/// The smallest value that at least this percentage of the values does not exceed.
fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// One value that is not a median.
fn single(cpus: u32, subject: &str, metric: &str, unit: &str, value: f64) -> Vec<Entry> {
    entries(
        cpus,
        metric,
        unit,
        &[Series {
            subject: subject.into(),
            values: vec![value],
        }],
        false,
    )
}

fn blackout(cpus: u32, subject: &str, unit: &str, ns: &[f64]) -> Vec<Entry> {
    let of = [
        ("blackout_p50", 50),
        ("blackout_p99", 99),
        ("blackout_max", 100),
    ];
    of.iter()
        .flat_map(|(metric, percent)| single(cpus, subject, metric, unit, percentile(ns, *percent)))
        .collect()
}

/// Measures all ways.
fn measure(search: &Search, args: &Arguments, cpus: u32) -> Result<Vec<Entry>> {
    let unit = if args.icount { "instructions" } else { "ns" };
    let mut results = Vec::new();
    let runs = args.runs();
    let few = (runs / FEWER).max(2);
    let ways = [
        ("wfq", "wfq", &["wfq"][..], runs),
        ("relay, converted", "relay", &["relay_v1", "relay_v2"], few),
    ];
    for (subject, policy, modules, runs) in ways {
        let row = row(search, policy, modules, 0, runs)?;
        let of =
            |f: fn(&Change) -> u64| row.changes.iter().map(|c| f(c) as f64).collect::<Vec<_>>();
        eprintln!(
            "baton: {subject}: {runs} upgrades; tasks ran under the fallback {} times; the policy had \
             {} faults",
            row.left, row.lost
        );
        results.extend(blackout(cpus, subject, unit, &of(|c| c.held_ns)));
        results.extend(single(
            cpus,
            subject,
            "policys_own_transfer",
            unit,
            percentile(&of(|c| c.policy_ns), 50),
        ));
        results.extend(single(
            cpus,
            subject,
            "transfer_size",
            "bytes",
            percentile(&of(|c| c.memory_bytes), 100),
        ));
        results.extend(single(
            cpus,
            subject,
            "times_under_fallback",
            "tasks",
            row.left as f64,
        ));
        results.extend(single(cpus, subject, "faults", "faults", row.lost as f64));
    }
    // The core's part does not grow with the number of tasks.
    for sleepers in SLEEPERS
        .into_iter()
        .filter(|&sleepers| cpus == 2 && !(args.quick && sleepers > 1_000))
    {
        let row = row(search, "relay", &["relay_v1", "relay_v2"], sleepers, few)?;
        for (whose, part) in [
            ("core", (|c: &Change| c.core_ns) as fn(&Change) -> u64),
            ("policy", |c| c.policy_ns),
        ] {
            let values: Vec<f64> = row.changes.iter().map(|c| part(c) as f64).collect();
            let metric = format!("held_in_{whose}_with_{sleepers}_tasks");
            results.extend(single(
                cpus,
                "relay, converted",
                &metric,
                unit,
                percentile(&values, 50),
            ));
        }
    }
    eprintln!("baton: {EXAMPLE}: {few} times stopped and started");
    let load = Load::start(0)?;
    let restarts = subject::restarts(EXAMPLE, few)?;
    drop(load);
    let subject = format!("{EXAMPLE}, stopped and started");
    results.extend(blackout(cpus, &subject, unit, &restarts));
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let check = |percent, expected: f64| {
            assert_eq!(percentile(&values, percent), expected, "{percent}")
        };
        check(50, 100.0);
        check(99, 198.0);
        check(100, 200.0);
        assert_eq!(percentile(&[3.0], 50), 3.0);
        assert!(percentile(&[], 50).is_nan());
    }
}
