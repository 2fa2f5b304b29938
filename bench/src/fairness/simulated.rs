// SPDX-License-Identifier: GPL-2.0-only
//! Simulates the task mixes of the booted tests on 64 CPUs, with as many tasks per CPU. The policy
//! `eevdf_like`, a model of EEVDF, stands for the kernel's own scheduler.

use baton_sim::topology::Topology;
use baton_sim::world::{Cx, Op, Spawn, World};
use baton_sim::{Config, PolicySpec};

use super::{rate_of_mix, worst, Kind, BURST};
use crate::judged::verdict;
use crate::report::{entries, Series, BASELINE};
use crate::simulate;
use crate::subject::Subject;
use crate::table::Measured;
use baton_control::error::{Error, Result};

/// NUMA nodes, cores per node, and hardware threads per core.
const SHAPE: (usize, usize, usize) = (2, 32, 1);
const CPUS: usize = 64;
const DURATION: u64 = 4_000_000_000;
/// The time that a hog computes in one piece, ns.
const PIECE: u64 = 1_000_000;
/// The most migrations per task and second, on average, that a fair policy may make.
const MOST_MOVES: f64 = 100.0;

/// A metric of a policy, and the most that a fair policy may have.
struct Bound {
    metric: &'static str,
    unit: &'static str,
    what: &'static str,
    most: f64,
}

const BOUNDS: [Bound; 4] = [
    Bound {
        metric: "simulated_machine_shares",
        unit: "percent",
        what: "96 equal hogs on 64 CPUs: the largest distance from two thirds of a CPU",
        most: 5.0,
    },
    Bound {
        metric: "simulated_machine_moves",
        unit: "moves per task and second",
        what: "96 equal hogs on 64 CPUs: how often a task migrates",
        most: MOST_MOVES,
    },
    Bound {
        metric: "simulated_mixed_shares",
        unit: "percent",
        what:
            "96 hogs of nice 0, 48 of nice 19, and 64 tasks that sleep after each burst of 2 ms, \
            on 64 CPUs: \
               the largest distance of a task of nice 0 from its due",
        most: 5.0,
    },
    Bound {
        metric: "simulated_mixed_moves",
        unit: "moves per task and second",
        what: "the same mix: how often a task migrates",
        most: MOST_MOVES,
    },
];

/// The same kinds of tasks in the same proportion as in the booted tests.
fn equal() -> Vec<Kind> {
    vec![Kind::Hog { nice: 0 }; CPUS * 6 / 4]
}

fn mixed() -> Vec<Kind> {
    let of = |kind, many| std::iter::repeat_n(kind, CPUS * many / 4);
    let heavy = of(Kind::Hog { nice: 0 }, 6);
    heavy
        .chain(of(Kind::Hog { nice: 19 }, 3))
        .chain(of(Kind::Burst, 4))
        .collect()
}

fn spawn(kind: Kind) -> Spawn {
    match kind {
        Kind::Hog { nice } => Spawn::new("hog", |_: &mut Cx<'_>| Op::Run(PIECE)).nice(nice),
        Kind::Burst => {
            let burst = BURST.as_nanos() as u64;
            let mut works = false;
            Spawn::new("burst", move |_: &mut Cx<'_>| {
                works = !works;
                if works {
                    Op::Run(burst)
                } else {
                    Op::Sleep(burst)
                }
            })
        }
    }
}

/// Returns the CPU time of each task as a fraction of one CPU, and the average number of migrations
/// per task and second.
fn run(policy: &str, kinds: &[Kind]) -> Result<(Vec<f64>, f64)> {
    let (nodes, cores, threads) = SHAPE;
    let topology = Topology::new(nodes, cores, threads, cores).map_err(Error::baton)?;
    let mut config = Config::new(topology);
    let policy = baton_build::native(policy)?;
    config.policies = vec![PolicySpec {
        policy,
        options: String::new(),
    }];
    config.duration = DURATION;
    let mut world = World::new();
    for &kind in kinds {
        world.task(spawn(kind));
    }
    let stats = simulate::run(&config, world, None)?.stats;
    let ran = stats.groups.iter().flat_map(|group| &group.ran);
    let had = ran.map(|&ran| ran as f64 / DURATION as f64).collect();
    let moves: u64 = stats.migrations.iter().sum();
    Ok((
        had,
        moves as f64 / kinds.len() as f64 / (DURATION as f64 / 1e9),
    ))
}

/// The values of [`BOUNDS`].
fn measure(policy: &str) -> Result<[f64; 4]> {
    let equal = equal();
    let (had, equal_moves) = run(policy, &equal)?;
    let equal_shares = worst(&had, &equal, |_| Some(CPUS as f64 / equal.len() as f64));
    let mixed = mixed();
    let (had, mixed_moves) = run(policy, &mixed)?;
    let (rate, wants) = rate_of_mix();
    let mixed_shares = worst(&had, &mixed, |kind| match kind {
        Kind::Burst => Some(rate * wants),
        Kind::Hog { nice } => (nice == 0).then_some(rate),
    });
    Ok([equal_shares, equal_moves, mixed_shares, mixed_moves])
}

/// Measures all subjects that can be simulated. Those in `judged` must stay within every bound.
pub fn measure_all(subjects: &[Subject], judged: &[&str]) -> Result<Measured> {
    let mut found = Measured::default();
    for subject in subjects {
        let policy = match subject {
            Subject::Eevdf => "eevdf_like",
            Subject::Policy(name) => name,
            Subject::Scx { .. } | Subject::Agent { .. } => continue,
        };
        eprintln!("baton: simulating {policy} on {CPUS} CPUs");
        for (bound, value) in BOUNDS.iter().zip(measure(policy)?) {
            let is_judged = judged.contains(&policy);
            let is_broken = is_judged && value.is_nan() | (value > bound.most);
            found.broken |= is_broken;
            let verdict = if is_judged {
                verdict(!is_broken)
            } else {
                "for comparison"
            };
            let Bound {
                what, unit, most, ..
            } = bound;
            eprintln!("baton: {policy}: {what}: {value:.3} {unit}, at most {most}: {verdict}");
            let name = if policy == "eevdf_like" {
                BASELINE
            } else {
                policy
            };
            let series = [Series {
                subject: name.into(),
                values: vec![value],
            }];
            found.entries.extend(entries(
                CPUS as u32,
                bound.metric,
                bound.unit,
                &series,
                false,
            ));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_in_the_proportion_of_the_booted_mix() {
        let count = |kind| mixed().iter().filter(|&&other| other == kind).count();
        let counts = [Kind::Hog { nice: 0 }, Kind::Hog { nice: 19 }, Kind::Burst].map(count);
        assert_eq!(counts, [96, 48, 64]);
        assert_eq!(equal().len(), 96);
    }
}
