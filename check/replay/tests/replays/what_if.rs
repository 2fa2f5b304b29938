// SPDX-License-Identifier: GPL-2.0-only
//! The simulator goes on from a point of a recording.

use baton_native::Policy;
use baton_replay::up_to;
use baton_sim::scene::{moment, Scene};
use baton_sim::{go_on, Outcome, PolicySpec};
use baton_trace::{method_name, Event, Follow, Item, Recording};

use crate::{fifo, parse, record, relay_v1, template, wfq};

fn simulate(
    recording: &Recording,
    policy: Policy,
    options: &str,
    number: u64,
) -> (Outcome, [usize; 3]) {
    let instance = up_to(recording, policy, Some(options), number).unwrap();
    let scene = Scene::of(recording, number).unwrap();
    let mut config = scene.config(recording).unwrap();
    config.policies.push(PolicySpec {
        policy,
        options: options.into(),
    });
    let counts = scene.counts();
    (go_on(&config, scene, instance, None).unwrap(), counts)
}

/// Number of picks that were answered with a task, from an event on.
fn picks(recording: &Recording, from: u64) -> u64 {
    let (mut follow, mut count) = (Follow::new(recording), 0);
    for told in recording.merged() {
        let Item::Event(event) = told.item else {
            panic!("{told:?}")
        };
        if let (Event::Return(end), Some(call)) = (event, follow.call(told.cpu)) {
            let is_pick = method_name(call.method) == "pick_next_task" && end.answer >> 32 != 0;
            count += u64::from(is_pick && told.number >= from);
        }
        follow.event(told.cpu, &event, |_, _| {});
    }
    count
}

/// The policy's knowledge of its tasks is valid in the simulator: no answer is refused, and no task
/// is lost. The tasks behave much as they did.
#[test]
fn the_recorded_policy_goes_on_from_any_moment() {
    let mut left = 0;
    for (policy, workload, topology) in [
        (fifo(), "pipe", "1x2x1"),
        (wfq(), "hogs", "1x4x1"),
        (wfq(), "hackbench:groups=2", "1x4x2"),
        (relay_v1(), "schbench", "1x4x1"),
        (template(), "random:tasks=24", "1x4x1"),
        (wfq(), "random:tasks=40", "2x4x2/2"),
        (fifo(), "build", "1x4x1"),
    ] {
        for seed in 1..=3 {
            let recording = parse(&record(policy, "", workload, topology, 300, seed));
            let all: u64 = recording.streams.iter().map(|stream| stream.len()).sum();
            for at in [0, 1, all / 7, all / 3, all / 2] {
                let number = moment(&recording, at).unwrap();
                assert!(
                    number <= at && at - number < 500,
                    "{workload}: {number} for {at}"
                );
                let (outcome, [queued, running, asleep]) = simulate(&recording, policy, "", number);
                let what = format!("{workload}, seed {seed}, event {number} of {all}");
                assert!(outcome.faults.is_empty(), "{what}: {:?}", outcome.faults);
                assert_eq!(outcome.refusals, 0, "{what}");
                assert_eq!(outcome.stats.refused, Vec::<String>::new());
                assert!(running <= recording.header.cpus.len(), "{what}");
                if number > all / 8 {
                    assert!(queued + running + asleep > 0, "{what}");
                    left += 1;
                }
                // The program does the same whichever task is first, so the number of switches is
                // as recorded.
                if workload == "pipe" {
                    let (recorded, simulated) = (picks(&recording, number), outcome.stats.switches);
                    let ratio = simulated as f64 / recorded.max(1) as f64;
                    assert!(
                        (0.8..1.25).contains(&ratio),
                        "{what}: {recorded} picks, and {simulated} switches"
                    );
                }
            }
        }
    }
    assert!(left > 50, "{left}");
}

/// The same state, continued in two ways.
#[test]
fn another_option_goes_on_otherwise() {
    let recording = parse(&record(
        wfq(),
        "",
        "schbench:work=1ms+hogs",
        "1x4x1",
        400,
        1,
    ));
    let options = baton_replay::Options {
        policy_options: Some("credit=0".into()),
        ..Default::default()
    };
    let end = baton_replay::replay(&recording, wfq(), &options)
        .unwrap()
        .end;
    let baton_replay::End::Diverged(divergence) = end else {
        panic!("{end:?}")
    };
    let number = moment(&recording, divergence.call).unwrap();
    let (recorded, counts) = simulate(&recording, wfq(), "", number);
    let (other, others) = simulate(&recording, wfq(), "credit=0", number);
    assert_eq!(counts, others);
    assert_ne!(recorded.stats.hash, other.stats.hash);
    assert!(recorded.faults.is_empty() && other.faults.is_empty());
    // The same way twice gives the same result.
    assert_eq!(
        recorded.stats.hash,
        simulate(&recording, wfq(), "", number).0.stats.hash
    );
}

#[test]
fn what_cannot_be_gone_on_from_says_why() {
    let recording = parse(&record(wfq(), "", "pipe", "1x2x1", 20, 1));
    let all: u64 = recording.streams.iter().map(|stream| stream.len()).sum();
    assert!(Scene::of(&recording, all + 1).is_err_and(|why| why.contains("has no event")));
    assert!(up_to(&recording, wfq(), None, all + 1).is_err_and(|why| why.contains("has no event")));
    assert!(
        up_to(&recording, fifo(), None, all / 2).is_err_and(|why| why.contains("something else"))
    );
}
