// SPDX-License-Identifier: GPL-2.0-only
//! The purpose of `central` and `shinjuku`: which tasks wait for which others.

use baton_native::Policy;
use baton_sim::world::{Cx, Op, Spawn, World};
use baton_sim::{Outcome, PolicySpec};

use crate::{central, cfs_like, machine, run, shinjuku, wfq, workload};

const MS: u64 = 1_000_000;

fn hog(name: &'static str) -> Spawn {
    Spawn::new(name, |_: &mut Cx<'_>| Op::Run(100 * MS))
}

/// Enoki's setting: 99.5 % of the requests take 4 us, 0.5 % 10 ms; 50 workers on 5 CPUs.
fn requests(policy: Policy, load: &str) -> Outcome {
    let config = machine("1x5x1", policy, 500);
    run(
        &config,
        workload(&format!("rocksdb:only-short=1,{load}"), &config),
    )
}

fn p99(outcome: &Outcome, group: usize) -> u64 {
    outcome.stats.groups[group].responses.percentiles().p99
}

#[test]
fn short_requests_do_not_wait_for_long_ones() {
    for load in ["load=0.5", "load=0.7", "load=0.8"] {
        let (quick, fair) = (
            p99(&requests(shinjuku(), load), 0),
            p99(&requests(cfs_like(), load), 0),
        );
        assert!(
            quick < 15_000 && quick * 10 < fair,
            "{load}: {quick} ns under shinjuku, {fair} under cfs_like"
        );
    }
    // Only responses to short requests are recorded.
    let group = &requests(shinjuku(), "load=0.5").stats.groups[0];
    let noted = group.responses.count();
    assert!(
        (group.done - 3 * group.done / 200..group.done).contains(&noted),
        "{noted} of {}",
        group.done
    );
    // The short slice makes the difference.
    let mut config = machine("1x5x1", shinjuku(), 500);
    config.policies[0].options = "slice=100ms".into();
    let slow = p99(
        &run(&config, workload("rocksdb:only-short=1,load=0.7", &config)),
        0,
    );
    assert!(slow > 1_000_000, "{slow} ns without preemption");
}

/// Almost as many requests are answered as under `cfs_like`.
#[test]
fn preemption_costs_few_requests() {
    let done = |policy| requests(policy, "load=2").stats.groups[0].done;
    let (quick, fair) = (done(shinjuku()), done(cfs_like()));
    assert!(
        quick * 10 > fair * 9,
        "{quick} answered under shinjuku, {fair} under cfs_like"
    );
}

/// `shinjuku` before `wfq`: no CPU is reserved, and batch work does not change the response times
/// of requests.
#[test]
fn a_batch_program_has_what_is_left() {
    let alone = p99(&requests(shinjuku(), "load=0.6"), 0);
    let mut config = machine("1x5x1", shinjuku(), 500);
    config.policies.push(PolicySpec {
        policy: wfq(),
        options: String::new(),
    });
    config.assign = vec![("rocksdb".into(), 0)];
    let outcome = run(
        &config,
        workload("rocksdb:only-short=1,load=0.6+hogs:nice=19", &config),
    );
    let beside = p99(&outcome, 0);
    assert!(
        beside.abs_diff(alone) * 5 < alone,
        "{beside} ns beside a batch program, {alone} without"
    );
    let share = outcome.stats.groups[1].runtime * 100 / (5 * 500 * MS);
    assert!((30..=42).contains(&share), "{share} %");
}

/// Rule 3 of `shinjuku`: a task is not interrupted while no other task waits.
#[test]
fn nobody_is_preempted_for_nobody() {
    let mut world = World::new();
    (0..2).for_each(|_| _ = world.task(hog("hog")));
    let outcome = run(&machine("1x2x1", shinjuku(), 100), world);
    assert!(
        outcome.stats.switches < 10,
        "{} switches",
        outcome.stats.switches
    );
}

/// Rule 5: long tasks take turns of a tick, on all CPUs. Rule 6: tasks with a positive nice value
/// do not starve.
#[test]
fn long_ones_share_the_machine() {
    let mut world = World::new();
    (0..3).for_each(|_| _ = world.task(hog("hog")));
    let outcome = run(&machine("1x2x1", shinjuku(), 1_200), world);
    for ns in &outcome.stats.groups[0].ran {
        assert!(
            ns.abs_diff(800 * MS) < 50 * MS,
            "{:?}",
            outcome.stats.groups[0].ran
        );
    }
    assert!(
        outcome.stats.switches < 1_000,
        "{} switches",
        outcome.stats.switches
    );
    let config = machine("1x1x1", shinjuku(), 1_000);
    let outcome = run(
        &config,
        workload("rocksdb:longs=0,load=3+hogs:n=1,nice=19", &config),
    );
    let ran = outcome.stats.groups[1].runtime;
    assert!((MS..100 * MS).contains(&ran), "{ran} ns of a second");
}

/// Rule 3 of `central`: three hogs on two CPUs have two thirds each.
#[test]
fn one_queue_is_fair_to_all_cpus() {
    let mut world = World::new();
    (0..3).for_each(|_| _ = world.task(hog("hog")));
    let outcome = run(&machine("1x2x1", central(), 1_200), world);
    for ns in &outcome.stats.groups[0].ran {
        assert!(
            ns.abs_diff(800 * MS) < 50 * MS,
            "{:?}",
            outcome.stats.groups[0].ran
        );
    }
}

/// Rule 4 of `central`: the task of a later policy is preempted on any CPU.
#[test]
fn a_later_policy_makes_way_on_every_cpu() {
    let mut config = machine("1x4x1", central(), 500);
    config.policies.push(PolicySpec {
        policy: wfq(),
        options: String::new(),
    });
    config.assign = vec![("forkjoin".into(), 0)];
    let outcome = run(&config, workload("forkjoin:threads=4+hogs:n=4", &config));
    let waits = outcome.stats.groups[0].wakeups.percentiles();
    assert!(waits.count > 1_000 && waits.p99 < 20_000, "{waits:?}");
}
