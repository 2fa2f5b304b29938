// SPDX-License-Identifier: GPL-2.0-only
//! Workloads as threads of this machine: they do what their programs contain, as often as they
//! contain it.

use baton_sim::threads::{run, GroupRan, Plan, Speed};
use baton_sim::workloads;
use baton_sim::world::World;

/// Runs a workload for this time, ms.
fn ran(spec: &str, ms: u64) -> Result<Vec<GroupRan>, String> {
    let mut world = World::new();
    workloads::build(spec, 1, 1, &workloads::no_files, &mut world).unwrap();
    let plan = Plan {
        seed: 1,
        duration: ms * 1_000_000,
        speed: Speed::calibrate(),
        align: 4_000_000,
    };
    let mut begun = 0;
    let groups = run(world, plan, |begin| begun = begin);
    assert!(begun > 0 && begun.is_multiple_of(4_000_000));
    groups
}

#[test]
fn what_ends_is_counted_to_the_last() {
    // Each of 3 senders has 2 messages for each of 3 receivers. The time is enough even on a busy
    // machine.
    let groups = ran("hackbench:groups=1,fds=3,loops=2,work=1us", 3_000).unwrap();
    let counted: Vec<_> = groups
        .iter()
        .map(|group| (&*group.name, group.done, group.responses.count()))
        .collect();
    assert_eq!(counted, [("hackbench", 18, 18)]);
}

#[test]
fn a_round_computes_what_it_says() {
    // The duration depends on the machine. At the end a round may be under way, and the one before
    // it may not be counted yet.
    let check = |spec: &str, of_a_round: u64| {
        let group = &ran(spec, 400).unwrap()[0];
        assert!(
            group.done > 0 && group.responses.count() >= group.done,
            "{spec}: {group:?}"
        );
        let rounds = of_a_round * group.done..=of_a_round * (group.done + 2);
        assert!(
            rounds.contains(&group.computed),
            "{spec}: {} rounds, {} ns",
            group.done,
            group.computed
        );
    };
    check("pipe:work=500us", 1_000_000);
    check("forkjoin:threads=2,work=2ms,imbalance=0", 2 * 2_000_000);
}

#[test]
fn requests_come_when_they_are_due() {
    // One request in 2 ms on average, each answered once.
    let groups = ran("rocksdb:workers=4,short=20us,long=20us,load=0.01", 1_000).unwrap();
    assert!((1..=800).contains(&groups[0].done), "{}", groups[0].done);
}

#[test]
fn what_cannot_be_done_is_said() {
    let why = ran("build:jobs=1", 200).unwrap_err();
    assert!(why.contains("cannot be done by threads"), "{why}");
}
