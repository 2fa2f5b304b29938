// SPDX-License-Identifier: GPL-2.0-only
//! `baton bench sim`: the cost of the simulator, for several numbers of CPUs and tasks.
//!
//! The bench runs on this machine and not in a guest. It measures the CPU time of one thread,
//! because other load of the machine has little effect on that.

use std::process::ExitCode;
use std::time::Duration;

use baton_sim::topology::Topology;
use baton_sim::world::{Cx, Op, Spawn, World};
use baton_sim::{Config, PolicySpec};
use rustix::time::{clock_gettime, ClockId};

use super::report::{entries, median, Report, Series};
use super::simulate;
use super::subject::Subject;
use super::table;
use super::{Arguments, Bench};
use baton_control::error::{Error, Result};
use baton_control::kernel;
use baton_control::modules::Search;

/// The default sizes: numbers of CPUs and of tasks.
const USUAL: [(u32, u32); 7] = [
    (1, 8),
    (4, 16),
    (16, 64),
    (64, 1_000),
    (256, 5_000),
    (1024, 20_000),
    (4096, 100_000),
];
const EVENTS: u64 = 2_000_000;

/// A task that works for 50 to 500 µs and sleeps for 0.1 to 1.5 ms, which causes wakeups, picks,
/// preemption and ticks.
fn task() -> Spawn {
    let mut works = false;
    Spawn::new("task", move |cx: &mut Cx<'_>| {
        works = !works;
        if works {
            Op::Run(cx.rng.between(50_000, 500_000))
        } else {
            Op::Sleep(cx.rng.between(100_000, 1_500_000))
        }
    })
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Resident memory of this process, bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// Makes one measurement. Returns the number of events, the seconds of CPU time that they took, and
/// the bytes of memory for each task.
fn measure(spec: &PolicySpec, cpus: u32, tasks: u32) -> Result<(f64, f64, f64)> {
    // A NUMA node has at most 64 cores.
    let nodes = cpus.div_ceil(64);
    if !cpus.is_multiple_of(nodes) {
        let next = format!(
            "give a number of CPUs that the nodes can share equally: {}",
            cpus - cpus % nodes
        );
        return Err(Error::user(
            format!("{cpus} CPUs cannot be divided equally among {nodes} nodes"),
            next,
        ));
    }
    let topology = Topology::new(
        nodes as usize,
        (cpus / nodes) as usize,
        1,
        (cpus / nodes) as usize,
    );
    let mut config = Config::new(topology.map_err(|why| Error::user(why, "change --cpus"))?);
    config.policies = vec![spec.clone()];
    config.max_tasks = tasks;
    // A task works and sleeps once in about a millisecond. That causes about four events, if the
    // task need not wait for a CPU.
    let busy = f64::from(cpus) / (f64::from(tasks) * 0.26);
    let rounds = f64::from(tasks) * busy.min(1.0) * 4.0;
    config.duration = (EVENTS as f64 / rounds * 1e6) as u64;
    let before = memory();
    let mut peak = Peak {
        before,
        most: 0,
        told: 0,
    };
    let mut world = World::new();
    for _ in 0..tasks {
        world.task(task());
    }
    let begin = cpu_time();
    let outcome = simulate::run(&config, world, None)?;
    let seconds = (cpu_time() - begin).as_secs_f64();
    // Simulate again, and measure the memory meanwhile.
    config.duration = 1_000_000;
    let mut world = World::new();
    for _ in 0..tasks {
        world.task(task());
    }
    simulate::run(&config, world, Some(&mut peak))?;
    let bytes = peak.most.saturating_sub(before) as f64 / f64::from(tasks);
    Ok((outcome.stats.events as f64, seconds, bytes))
}

/// Reads the size of the process at intervals, and keeps the maximum.
struct Peak {
    before: u64,
    most: u64,
    told: u64,
}

impl baton_sim::trace::Sink for Peak {
    fn task(&mut self, _: baton_sim::world::TaskRef, _: &str, _: &str) {}

    fn event(&mut self, _: u64, _: &baton_sim::trace::Event) {
        self.told += 1;
        if self.told.is_multiple_of(4096) {
            self.most = self.most.max(memory()).max(self.before);
        }
    }
}

/// The sizes for `--cpus`, with as many tasks per CPU as the nearest default size has.
fn sizes(args: &Arguments) -> Vec<(u32, u32)> {
    let tasks = |cpus: u32| {
        let (of, tasks) = USUAL
            .iter()
            .min_by_key(|(of, _)| of.abs_diff(cpus))
            .copied()
            .unwrap_or(USUAL[0]);
        (u64::from(cpus) * u64::from(tasks) / u64::from(of)).max(1) as u32
    };
    if args.cpus.is_empty() {
        USUAL.to_vec()
    } else {
        args.cpus.iter().map(|&cpus| (cpus, tasks(cpus))).collect()
    }
}

pub struct Sim;

impl Bench for Sim {
    fn runs(&self) -> u32 {
        3
    }

    fn cpus(&self) -> &'static [u32] {
        // No guest is booted. `sizes` gives the numbers of simulated CPUs, each with a number of
        // tasks.
        &[]
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Policy("wfq".into())]
    }

    fn run(&self, _search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::show(&bench(args)?, args)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn bench(args: &Arguments) -> Result<Report> {
    let subjects = args.subjects();
    let names = subjects.iter().filter_map(|subject| match subject {
        Subject::Policy(name) => Some(name.clone()),
        _ => None,
    });
    let mut report = Report {
        bench: "sim".into(),
        kernel: kernel::release(),
        machine: "one thread of this machine, its CPU time".into(),
        results: Vec::new(),
    };
    for name in names {
        let spec = PolicySpec {
            policy: baton_build::native(&name)?,
            options: String::new(),
        };
        for (cpus, tasks) in sizes(args) {
            let [mut speed, mut cost, mut bytes] = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..args.runs() {
                let (events, seconds, memory) = measure(&spec, cpus, tasks)?;
                speed.push(events / seconds);
                cost.push(seconds * 1e9 / events);
                bytes.push(memory);
            }
            eprintln!(
                "baton: {name} on {cpus} CPUs with {tasks} tasks: {}",
                bar(median(&cost))
            );
            let subject = format!("{name}, {tasks} tasks");
            for (metric, unit, values) in [
                ("events_per_second", "1/s", speed),
                ("cost", "ns/event", cost),
                ("memory", "bytes/task", bytes),
            ] {
                report.results.extend(entries(
                    cpus,
                    metric,
                    unit,
                    &[Series {
                        subject: subject.clone(),
                        values,
                    }],
                    false,
                ));
            }
        }
    }
    Ok(report)
}

/// A cost per event as a bar, with 20 ns per mark.
fn bar(ns: f64) -> String {
    format!(
        "{} {ns:.0} ns/event",
        "█".repeat((ns / 20.0).ceil() as usize)
    )
}
