// SPDX-License-Identifier: GPL-2.0-only
//! `locality`: tasks of the same hinted group share a CPU, unless that would be too crowded.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::locality::Hint;
use baton::{Message, Thread};
use baton_sim::idle::TABLES;
use baton_sim::topology::CpuMask;
use baton_sim::world::{Cx, Happening, Op, Spawn, TaskRef, World};
use baton_sim::Outcome;

use crate::life::{sleeper, watched};
use crate::{cfs_like, locality, machine, run, workload};

/// Adds a task that sends a hint for the group of each task, one after the other, and exits.
fn talker(world: &mut World, at: u64, said: Vec<(TaskRef, u32)>) {
    let mut said = said.into_iter();
    let program = move |_: &mut Cx<'_>| match said.next() {
        // The id is ignored: `Op::Hint` names the task.
        Some((task, group)) => Op::Hint {
            hint: Hint::Group {
                thread: Thread::of_id(1),
                group,
            }
            .encode(),
            thread: Some(task),
        },
        None => Op::Exit,
    };
    world.task(Spawn {
        at,
        ..Spawn::new("talker", program)
    });
}

/// The CPUs on which tasks began to run in this period, ms.
fn cpus(runs: &[(u64, u32, TaskRef)], tasks: &[TaskRef], from: u64, to: u64) -> BTreeSet<u32> {
    let then = |run: &&(u64, u32, TaskRef)| run.0 >= from * 1_000_000 && run.0 < to * 1_000_000;
    runs.iter()
        .filter(then)
        .filter(|run| tasks.contains(&run.2))
        .map(|run| run.1)
        .collect()
}

/// Runs two groups of three tasks that sleep often, and returns the record of their runs.
fn groups(
    happens: impl FnOnce(&mut World, &[TaskRef]),
) -> (Vec<TaskRef>, Outcome, Vec<(u64, u32, TaskRef)>) {
    let mut world = World::new();
    let tasks: Vec<_> = (0..6)
        .map(|nr| world.task(sleeper(90_000 + 7_000 * nr)))
        .collect();
    talker(
        &mut world,
        1_000_000,
        tasks
            .iter()
            .zip([1, 1, 1, 2, 2, 2])
            .map(|(task, group)| (*task, group))
            .collect(),
    );
    happens(&mut world, &tasks);
    let (outcome, runs) = watched(&machine("1x4x1", locality(), 60), world);
    assert_eq!((outcome.stats.hints_refused, outcome.refusals), (0, 0));
    (tasks, outcome, runs)
}

#[test]
fn a_group_is_together_and_groups_are_apart() {
    let (tasks, outcome, runs) = groups(|_, _| ());
    assert_eq!(outcome.stats.hints, 6);
    assert!(
        cpus(&runs, &tasks, 0, 1).len() > 2,
        "without hints they are spread"
    );
    let homes = [0..3, 3..6].map(|group| cpus(&runs, &tasks[group], 2, 60));
    assert!(
        homes.iter().all(|home| home.len() == 1) && homes[0] != homes[1],
        "{homes:?}"
    );
}

#[test]
fn who_leaves_a_group_goes_anywhere() {
    let (tasks, _, runs) = groups(|world, tasks| talker(world, 30_000_000, vec![(tasks[0], 0)]));
    // Each sender has its own groups, group 0 included. This was another sender, but a task is in
    // one group only.
    let alone = cpus(&runs, &tasks[..1], 40, 60);
    let others = cpus(&runs, &tasks[1..3], 40, 60);
    assert!(
        others.len() == 1 && alone != others,
        "{alone:?} and {others:?}"
    );
}

#[test]
fn a_home_that_goes_offline_is_changed_for_another() {
    let (tasks, _, runs) = groups(|world, _| {
        world.happens(20_000_000, Happening::Online(0, false));
        world.happens(40_000_000, Happening::Online(0, true));
    });
    assert_eq!(cpus(&runs, &tasks[..3], 2, 20), BTreeSet::from([0]));
    let homes = [0..3, 3..6].map(|group| cpus(&runs, &tasks[group], 21, 60));
    assert!(
        homes.iter().all(|home| home.len() == 1) && homes[0] != homes[1],
        "{homes:?}"
    );
}

/// Groups get homes in turn. The home of this one would be CPU 1, but it gets one that its tasks
/// may use.
#[test]
fn a_home_is_where_the_thread_may_run() {
    let mut world = World::new();
    let allowed = Some(Arc::new(CpuMask::of([2, 3])));
    let free = world.task(sleeper(90_000));
    let bound: Vec<_> = (1..5)
        .map(|nr| {
            world.task(Spawn {
                affinity: allowed.clone(),
                ..sleeper(90_000 + 7_000 * nr)
            })
        })
        .collect();
    let groups = [
        (free, 1),
        (bound[0], 2),
        (bound[1], 2),
        (bound[2], 3),
        (bound[3], 3),
    ];
    talker(&mut world, 1_000_000, groups.into());
    let (_, runs) = watched(&machine("1x4x1", locality(), 60), world);
    let homes = [0..2, 2..4].map(|group| cpus(&runs, &bound[group], 2, 60));
    assert!(
        homes.iter().all(|home| home.len() == 1) && homes[0] != homes[1],
        "{homes:?}"
    );
}

/// Twelve tasks that compute for longer than they sleep are too many for one CPU.
#[test]
fn a_hint_that_would_crowd_a_cpu_is_ignored() {
    let used = |options: &str| {
        let mut config = machine("1x4x1", locality(), 200);
        config.policies[0].options = options.into();
        let mut world = World::new();
        let busy = |_| {
            let mut computes = false;
            let program = move |_: &mut Cx<'_>| {
                computes = !computes;
                if computes {
                    Op::Run(1_000_000)
                } else {
                    Op::Sleep(500_000)
                }
            };
            world.task(Spawn::new("busy", program))
        };
        let tasks: Vec<_> = (0..12).map(busy).collect();
        talker(
            &mut world,
            1_000_000,
            tasks.iter().map(|task| (*task, 1)).collect(),
        );
        let (outcome, _) = watched(&config, world);
        outcome.stats.groups[0].runtime / 1_000_000
    };
    // Of 800 ms on four CPUs.
    let (usual, all) = (used(""), used("crowd=100"));
    assert!(
        usual > 700 && all < 250,
        "{usual} ms and, with any crowd, {all} ms"
    );
}

/// Enoki's table 6, with idle states.
#[test]
fn hints_spare_the_wakeup_of_a_cpu() {
    let p99 = |policy, hints: u64| {
        let mut config = machine("1x8x1", policy, 1_000);
        config.idle_states = TABLES.iter().find(|(name, _)| *name == "skl").unwrap().1;
        let spec = format!("schbench:messengers=2,workers=2,wakeups=1,hints={hints}");
        let outcome = run(&config, workload(&spec, &config));
        outcome.stats.groups[0].responses.percentiles().p99
    };
    let (with, without, fair) = (p99(locality(), 1), p99(locality(), 0), p99(cfs_like(), 0));
    assert!(
        with * 5 < without && with * 5 < fair,
        "{with} ns with hints, {without} without, {fair} under cfs_like"
    );
}
