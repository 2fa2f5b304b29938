// SPDX-License-Identifier: GPL-2.0-only
//! Events in the life of tasks and CPUs.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use baton_sim::topology::CpuMask;
use baton_sim::trace::{Event, Sink};
use baton_sim::world::{Cx, Happening, Op, Spawn, TaskRef, World};
use baton_sim::{Config, Outcome, PolicySpec};

use crate::{
    arbiter, central, cfs_cwc_flat, cfs_like, echo, edf, eevdf_like, faulty, fifo, locality,
    lottery, machine, relay_v1, relay_v2, run, shinjuku, sound, template, ule, ule_cwc, wfq,
    workload,
};

pub fn hog(name: &str) -> Spawn {
    Spawn::new(name, |_: &mut Cx<'_>| Op::Run(1_000_000))
}

/// A task that computes for `ns` and then sleeps as long, repeatedly.
pub fn sleeper(ns: u64) -> Spawn {
    let mut works = false;
    Spawn::new("sleeper", move |_: &mut Cx<'_>| {
        works = !works;
        if works {
            Op::Run(ns)
        } else {
            Op::Sleep(ns)
        }
    })
}

/// Records where each task runs. Checks that no task is in two places, or on a CPU where it must
/// not be.
struct Watcher {
    runs: Rc<RefCell<Vec<(u64, u32, TaskRef)>>>,
    on: Vec<Option<TaskRef>>,
    offline: Vec<bool>,
    higher: Vec<bool>,
}

impl Watcher {
    fn new(cpus: usize) -> Self {
        Self {
            runs: Rc::default(),
            on: vec![None; cpus],
            offline: vec![false; cpus],
            higher: vec![false; cpus],
        }
    }
}

impl Sink for Watcher {
    fn task(&mut self, _: TaskRef, _: &str, _: &str) {}

    fn event(&mut self, now: u64, event: &Event) {
        match *event {
            Event::Switch {
                cpu, prev, next, ..
            } => {
                assert_eq!(
                    self.on[cpu as usize],
                    prev.map(|(task, _)| task),
                    "at {now}: another left CPU {cpu} than was there"
                );
                assert!(
                    next.is_none() || !self.on.contains(&next) || prev.map(|p| p.0) == next,
                    "at {now}: {next:?} is in two places"
                );
                assert!(
                    next.is_none() || !self.offline[cpu as usize],
                    "at {now}: CPU {cpu} runs a task and is offline"
                );
                assert!(
                    next.is_none() || !self.higher[cpu as usize],
                    "at {now}: CPU {cpu} is of a higher class"
                );
                self.on[cpu as usize] = next;
                self.runs
                    .borrow_mut()
                    .extend(next.map(|task| (now, cpu, task)));
            }
            Event::Online { cpu, online } => self.offline[cpu as usize] = !online,
            Event::Higher { cpu, begins } => self.higher[cpu as usize] = begins,
            _ => {}
        }
    }
}

pub fn watched(config: &baton_sim::Config, world: World) -> (Outcome, Vec<(u64, u32, TaskRef)>) {
    let mut watcher = Watcher::new(config.topology.cpus().len());
    let runs = watcher.runs.clone();
    let outcome = baton_sim::run(config, world, Some(&mut watcher)).unwrap();
    assert!(
        outcome.faults.is_empty(),
        "{}",
        String::from_utf8_lossy(&outcome.faults[0].message)
    );
    let runs = runs.borrow().clone();
    (outcome, runs)
}

#[test]
fn hogs_share_by_weight() {
    for policy in [wfq(), cfs_like(), eevdf_like()] {
        let mut world = World::new();
        for nice in [0, 0, 5] {
            world.task(hog("hog").nice(nice));
        }
        let outcome = run(&machine("1x1x1", policy, 4_000), world);
        let shares: Vec<u64> = outcome.stats.groups[0]
            .ran
            .iter()
            .map(|ran| ran / 1_000_000)
            .collect();
        // 1024, 1024 and 335 of 2383
        for (got, expected) in shares.iter().zip([1718, 1718, 562]) {
            assert!(got.abs_diff(expected) < 40, "{}: {shares:?}", policy.name());
        }
    }
}

/// A policy that places tasks prefers idle cores to idle SMT siblings: two threads of a core do
/// 1.24 times the work of one.
#[test]
fn as_many_hogs_as_cores_have_a_core_each() {
    for shape in ["1x4x2", "2x2x2/1"] {
        let placing = [
            fifo(),
            wfq(),
            template(),
            cfs_like(),
            eevdf_like(),
            central(),
            shinjuku(),
            locality(),
            arbiter(),
            echo(),
        ];
        for policy in placing {
            let name = policy.name().to_owned();
            let config = machine(shape, policy, 1_000);
            let done = run(&config, workload("hogs:n=4", &config)).stats.groups[0].done;
            assert!(done >= 390, "{name} on {shape}: {done} operations of 400");
        }
    }
}

/// Rule 8 of `cfs_like`: four hogs begin on one CPU and one on the other; then all may use both.
#[test]
fn busy_cpus_are_evened_out() {
    let mut world = World::new();
    let bound = |cpu| Some(Arc::new(CpuMask::of([cpu])));
    for cpu in [0, 0, 0, 0, 1] {
        let task = world.task(Spawn {
            affinity: bound(cpu),
            ..hog("hog")
        });
        world.happens(10_000_000, Happening::Affinity(task, None));
    }
    let outcome = run(&machine("1x2x1", cfs_like(), 2_000), world);
    let shares: Vec<u64> = outcome.stats.groups[0]
        .ran
        .iter()
        .map(|ran| ran / 1_000_000)
        .collect();
    // Of 2 s, three tasks have a third of a CPU and two have half. Without the rule the last has
    // all of its CPU, and the others a quarter each.
    assert!(
        shares.iter().all(|share| (600..1_200).contains(share)),
        "{shares:?}"
    );
}

/// Rules 4 and 5 of `cfs_like`: a task that sleeps much has credit, and does not wait for the tick.
#[test]
fn a_sleeper_preempts_a_hog() {
    let mut world = World::new();
    let (hogs, sleepers) = (world.group("hogs"), world.group("sleepers"));
    world.task(hog("hog").group(hogs));
    world.task(sleeper(1_000_000).group(sleepers));
    let outcome = run(&machine("1x1x1", cfs_like(), 2_000), world);
    let waits = outcome.stats.groups[1].wakeups.percentiles();
    assert!(waits.p50 < 20_000, "{waits:?}");
    let mut config = machine("1x1x1", cfs_like(), 2_000);
    config.policies[0].options = "wakeup_granularity=1s".into();
    let mut world = World::new();
    world.task(hog("hog"));
    world.task(sleeper(1_000_000));
    let waits = run(&config, world).stats.groups[0].wakeups.percentiles();
    assert!(waits.p50 > 1_000_000, "{waits:?}");
}

/// Rules 3 to 6 of `eevdf_like`, on one CPU: base slices are 0.7 ms. A task that slept was owed
/// time, so it has the earliest deadline when it wakes. The hog continues until its own deadline
/// while it is eligible, and no longer.
#[test]
fn a_running_task_is_protected_until_its_deadline() {
    let waits = |options: &str| {
        let mut config = machine("1x1x1", eevdf_like(), 4_000);
        config.policies[0].options = options.into();
        let mut world = World::new();
        let (hogs, sleepers) = (world.group("hogs"), world.group("sleepers"));
        world.task(hog("hog").group(hogs));
        world.task(sleeper(200_000).group(sleepers));
        let outcome = run(&config, world);
        outcome.stats.groups[1].wakeups.percentiles()
    };
    let short = waits("");
    assert!(short.p99 <= 720_000, "{short:?}");
    let long = waits("base_slice=10ms");
    assert!(long.max > 1_000_000 && long.max <= 10_100_000, "{long:?}");
}

/// Rule 5 of `eevdf_like`: a task that ran for longer than it was due and then sleeps briefly is
/// owed nothing afterwards. It gets its share and no more.
#[test]
fn a_short_sleep_pays_no_debt() {
    let mut world = World::new();
    let (hogs, nappers) = (world.group("hogs"), world.group("nappers"));
    world.task(hog("hog").group(hogs));
    let mut works = false;
    world.task(
        Spawn::new("napper", move |_: &mut Cx<'_>| {
            works = !works;
            if works {
                Op::Run(5_000_000)
            } else {
                Op::Sleep(50_000)
            }
        })
        .group(nappers),
    );
    let outcome = run(&machine("1x1x1", eevdf_like(), 4_000), world);
    let shares = [0, 1].map(|group: usize| outcome.stats.groups[group].ran[0] / 1_000_000);
    assert!(
        shares.iter().all(|share| share.abs_diff(2_000) < 60),
        "{shares:?}"
    );
}

#[test]
fn a_task_keeps_to_its_cpus() {
    for policy in sound() {
        let mut world = World::new();
        let bound = world.task(Spawn {
            affinity: Some(Arc::new(CpuMask::of([1, 2]))),
            ..sleeper(100_000)
        });
        (0..6).for_each(|_| _ = world.task(sleeper(150_000)));
        world.happens(
            10_000_000,
            Happening::Affinity(bound, Some(Arc::new(CpuMask::of([3])))),
        );
        let (_, runs) = watched(&machine("1x4x1", policy, 20), world);
        let mine = |after: u64| {
            runs.iter()
                .filter(move |run| run.2 == bound && (run.0 >= 10_000_000) == (after > 0))
        };
        assert!(
            mine(0).count() > 5 && mine(0).all(|run| [1, 2].contains(&run.1)),
            "{}",
            policy.name()
        );
        assert!(
            mine(1).count() > 5 && mine(1).all(|run| run.1 == 3),
            "{}",
            policy.name()
        );
    }
}

#[test]
fn a_cpu_that_is_offline_runs_nothing() {
    for policy in sound() {
        let mut world = World::new();
        (0..8).for_each(|_| _ = world.task(sleeper(200_000)));
        (0..4).for_each(|_| _ = world.task(hog("hog")));
        world.happens(10_000_000, Happening::Online(1, false));
        world.happens(30_000_000, Happening::Online(1, true));
        // Behind four hogs with whole slices a task waits for 80 ms.
        let (outcome, runs) = watched(&machine("1x2x1", policy, 300), world);
        assert!(
            runs.iter().any(|run| run.1 == 1 && run.0 >= 30_000_000),
            "{}: CPU 1 is not used again",
            policy.name()
        );
        assert_eq!(outcome.stats.offline, 20_000_000);
    }
}

#[test]
fn a_higher_class_sends_tasks_elsewhere() {
    let mut world = World::new();
    world.task(hog("hog"));
    world.happens(5_000_000, Happening::HigherClass(0, 10_000_000));
    let (outcome, runs) = watched(&machine("1x2x1", wfq(), 20), world);
    assert_eq!((runs[0].1, runs.last().unwrap().1), (0, 1), "{runs:?}");
    assert_eq!(outcome.stats.higher, 10_000_000);
}

#[test]
fn children_come_and_go() {
    let mut world = World::new();
    let mut step = 0;
    world.task(Spawn::new("parent", move |_: &mut Cx<'_>| {
        step += 1;
        match step {
            1..=500 if step % 2 == 1 => {
                let mut done = false;
                Op::Fork(Box::new(Spawn::new("child", move |_: &mut Cx<'_>| {
                    done = !done;
                    if done {
                        Op::Run(10_000)
                    } else {
                        Op::Exit
                    }
                })))
            }
            1..=500 => Op::Sleep(20_000),
            _ => Op::Exit,
        }
    }));
    let mut config = machine("1x2x1", wfq(), 100);
    // Slots are reused.
    config.max_tasks = 16;
    let outcome = run(&config, world);
    assert_eq!(
        (outcome.stats.groups[0].tasks, outcome.stats.no_slot),
        (251, 0)
    );
}

/// Policies in Baton's language pass their threads and cores on to themselves. Those of `ule_cwc` are
/// also `ule`'s. Others have other attributes or queues.
#[test]
fn policies_in_the_language_are_upgraded() {
    for (from, to, is_alike) in [
        (edf(), edf(), true),
        (cfs_cwc_flat(), cfs_cwc_flat(), true),
        (ule_cwc(), ule(), true),
        (ule_cwc(), lottery(), false),
        (cfs_cwc_flat(), edf(), false),
    ] {
        let mut config = machine("2x2x2", from, 50);
        config.versions = vec![to];
        let mut world = workload("random:tasks=24,happenings=200", &config);
        for at in 1..=8 {
            world.happens(at * 5_000_000, Happening::Upgrade(0, 0));
        }
        let (outcome, _) = watched(&config, world);
        let refused = &outcome.stats.refused;
        let expected = if is_alike { 8 } else { 0 };
        assert_eq!(outcome.stats.upgrades, expected, "{refused:?}");
        assert!(
            refused.iter().all(|why| why.contains("not of one type")),
            "{refused:?}"
        );
        assert!(outcome.faults.is_empty());
    }
}

#[test]
fn a_version_takes_anothers_place_in_mid_run() {
    let mut config = machine("1x4x1", relay_v1(), 100);
    config.versions = vec![relay_v2(), relay_v1(), wfq()];
    let mut world = World::new();
    (0..12).for_each(|_| _ = world.task(sleeper(300_000)));
    for (at, version) in [(20, 0), (40, 1), (60, 0), (80, 2)] {
        world.happens(at * 1_000_000, Happening::Upgrade(0, version));
    }
    let (outcome, _) = watched(&config, world);
    assert_eq!(outcome.stats.upgrades, 3, "{:?}", outcome.stats.refused);
    assert!(
        outcome.stats.refused.len() == 1 && outcome.stats.refused[0].contains("not of one type"),
        "{:?}",
        outcome.stats.refused
    );
}

#[test]
fn two_policies_in_order() {
    let mut config = machine("1x1x1", fifo(), 500);
    config.policies.push(PolicySpec {
        policy: wfq(),
        options: String::new(),
    });
    config.assign = vec![("first".into(), 0)];
    let mut world = World::new();
    let (first, rest) = (world.group("first"), world.group("rest"));
    world.task(sleeper(1_000_000).group(first));
    world.task(hog("hog").group(rest));
    let outcome = run(&config, world);
    let [first, rest] = &outcome.stats.groups[..] else {
        panic!("two groups")
    };
    // The first policy's task gets half of the time without waiting, although the hog always wants
    // the CPU.
    assert!(
        first.wakeups.percentiles().p99 < 20_000,
        "{:?}",
        first.wakeups.percentiles()
    );
    assert!(first.runtime.abs_diff(250_000_000) < 10_000_000 && rest.runtime > 200_000_000);
}

#[test]
fn a_sibling_takes_its_part_of_a_core() {
    let done = |topology: &str| {
        let mut world = World::new();
        for _ in 0..2 {
            let mut works = false;
            world.task(Spawn::new("hog", move |_: &mut Cx<'_>| {
                works = !works;
                if works {
                    Op::Run(1_000_000)
                } else {
                    Op::Done(1)
                }
            }));
        }
        run(&machine(topology, wfq(), 200), world).stats.groups[0].done
    };
    let (alone, shared) = (done("1x2x1"), done("1x1x2"));
    let ratio = shared as f64 / alone as f64;
    assert!((ratio - 640.0 / 1024.0).abs() < 0.02, "{ratio}");
}

#[test]
fn a_higher_class_on_a_cpu_that_goes_and_comes() {
    let mut world = World::new();
    (0..3).for_each(|_| _ = world.task(hog("hog")));
    world.happens(5_000_000, Happening::HigherClass(1, 20_000_000));
    world.happens(6_000_000, Happening::HigherClass(1, 50_000));
    world.happens(8_000_000, Happening::Online(1, false));
    world.happens(10_000_000, Happening::Online(1, true));
    world.happens(12_000_000, Happening::HigherClass(0, 4_000_000));
    world.happens(13_000_000, Happening::HigherClass(0, 1_000_000));
    let (outcome, _) = watched(&machine("1x2x1", wfq(), 100), world);
    // 3 ms on CPU 1 until it went offline; 5 ms on CPU 0, one after the other.
    assert_eq!(
        (outcome.stats.higher, outcome.stats.offline),
        (8_000_000, 2_000_000)
    );
    let ran: u64 = outcome.stats.groups[0].runtime;
    assert!(ran > 185_000_000, "a hog was lost: {ran}");
}

#[test]
fn a_policy_that_sends_itself_away_ends_some_day() {
    let mut config = machine("1x1x1", faulty(), 100);
    config.policies[0].options = "fault=kick,after=10".into();
    config.stall = 20_000_000;
    let mut world = World::new();
    (0..2).for_each(|_| _ = world.task(hog("hog")));
    // Each round takes time, so the run ends regardless of the hogs' progress.
    let outcome = baton_sim::run(&config, world, None).unwrap();
    assert!(outcome.stats.switches > 1_000, "{}", outcome.stats.switches);
}

#[test]
fn cpus_that_share_one_stream_are_together_as_fast_as_one() {
    for policy in sound() {
        let done = |topology: &str, one_stream: bool| {
            let config = Config {
                one_stream,
                ..machine(topology, policy, 400)
            };
            let mut world = World::new();
            baton_sim::workloads::build(
                "hogs:n=2,work=1ms",
                1,
                1,
                &baton_sim::workloads::no_files,
                &mut world,
            )
            .unwrap();
            run(&config, world).stats.groups[0].done
        };
        let (one, two, shared) = (
            done("1x1x1", false),
            done("1x2x1", false),
            done("1x2x1", true),
        );
        assert!(
            two > one * 19 / 10,
            "{}: {two} on two CPUs, {one} on one",
            policy.name()
        );
        assert!(
            shared.abs_diff(one) * 20 <= one,
            "{}: {shared} on two that share, {one} on one",
            policy.name()
        );
    }
}

#[test]
fn a_recording_runs_under_every_policy_and_comes_to_its_end() {
    let spec = concat!(
        "perf:",
        env!("CARGO_MANIFEST_DIR"),
        "/src/workloads/recorded/perf.txt"
    );
    for policy in sound() {
        for topology in ["1x1x1", "1x2x1"] {
            let config = machine(topology, policy, 10);
            let [one, two] = [(); 2].map(|()| run(&config, workload(spec, &config)).stats);
            // Both operations of cc1, and those of as before and after its wakeup.
            assert_eq!(one.groups[0].done, 4, "{} on {topology}", policy.name());
            assert_eq!(one.hash, two.hash, "{} on {topology}", policy.name());
        }
    }
}
