// SPDX-License-Identifier: GPL-2.0-only
//! Synthetic runs, made with the simulator's own collectors. Tasks compute in phases with a barrier
//! between them, like NAS programs. They are spread over all CPUs, or at first piled on half of
//! them.

use baton_sim::report::{CpuTotals, Fairness, GroupReport, Histogram, Migrations, Run, VERSION};
use baton_sim::rng::Rng;
use baton_sim::timeline::Collector;
use baton_sim::trace::{Event, Left, Sink};
use baton_sim::world::TaskRef;

#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    Piled,
    Spread,
}

const END: u64 = 800_000_000;

/// A run of a machine with this many nodes, and cores in each.
pub fn run(policy: &str, shape: Shape, nodes: u32, cores: u32, seed: u64) -> Run {
    let cpus = nodes * cores;
    let mut rng = Rng::new(seed, 0);
    let mut collector = Collector::new(cpus as usize, END);
    let (mut wakeup, mut response) = (Histogram::default(), Histogram::default());
    let (mut now, mut phase) = (0, 0);
    let mut switches = 0;
    while now < END {
        let piled = shape == Shape::Piled && phase < 8;
        let users = if piled { cpus / 2 } else { cpus };
        let mut events = Vec::new();
        let mut over = now;
        for cpu in 0..users {
            let begin = now + 20_000 + rng.below(400_000);
            // On a piled CPU a second task waits until the first has completed.
            let work = (30_000_000 + rng.below(6_000_000)) * if piled { 2 } else { 1 };
            events.push((begin, cpu, true));
            events.push((begin + work, cpu, false));
            over = over.max(begin + work);
            wakeup.record(2_000 + rng.exponential(if piled { 900_000 } else { 30_000 }));
            response.record(work);
        }
        events.sort();
        let (mut running, before) = (0, now);
        for (at, cpu, begins) in events.into_iter().filter(|(at, ..)| *at < END) {
            running = if begins { running + 1 } else { running - 1 };
            let (task, left) = (TaskRef(cpu), Left::Blocked);
            let (prev, next) = if begins {
                (None, Some(task))
            } else {
                (Some((task, left)), None)
            };
            collector.event(
                at,
                &Event::Switch {
                    cpu,
                    prev,
                    next,
                    migrated: false,
                },
            );
            let waiting = if piled {
                running
            } else {
                u32::from(at < before + 60_000)
            };
            collector.event(
                at,
                &Event::Load {
                    waiting,
                    idle: cpus - running,
                },
            );
            switches += 1;
        }
        (now, phase) = (over + 100_000, phase + 1);
        for begins in [true, false] {
            let at = now.min(END) + if begins { 0 } else { 300_000 };
            collector.event(
                at,
                &Event::Higher {
                    cpu: phase % cpus,
                    begins,
                },
            );
        }
        now += 300_000;
    }
    let (timeline, times) = collector.finish(END);
    for _ in 0..20_000 {
        wakeup.record(1_500 + rng.exponential(if shape == Shape::Piled { 60_000 } else { 9_000 }));
    }
    let group = |name: &str, histogram: &Histogram, answers: Option<&Histogram>| GroupReport {
        name: name.into(),
        tasks: cpus.into(),
        cpu_ns: times.busy,
        wakeup: histogram.percentiles(),
        wakeup_curve: histogram.curve(),
        response: answers.map(Histogram::percentiles),
        response_curve: answers.map_or(Vec::new(), Histogram::curve),
        operations: histogram.count(),
        active_ns: END,
    };
    Run {
        version: VERSION,
        policy: policy.into(),
        workload: "fork-join:tasks=32".into(),
        topology: format!("{nodes}x{cores}x1"),
        seed,
        seeds: 1,
        confidence: None,
        jitter_ppm: 10_000,
        duration_ns: END,
        stuck_ns: None,
        hash: format!("{:016x}", rng.any()),
        events: 4 * switches,
        groups: vec![
            group("workers", &wakeup, Some(&response)),
            group("noise", &wakeup, None),
        ],
        cpu: CpuTotals::new(
            times,
            switches,
            Migrations {
                core: 0,
                llc: 210,
                node: 34,
                machine: rng.below(9),
            },
        ),
        fairness: Some(Fairness {
            jain: 0.9 + rng.unit() / 10.0,
            worst_lag_ns: 3_200_000,
        }),
        upgrades: 0,
        refused_upgrades: vec![],
        tasks_not_made: 0,
        hints: 0,
        hints_refused: 0,
        faults: vec![],
        timeline: Some(timeline),
        detail: None,
    }
}
