// SPDX-License-Identifier: GPL-2.0-only
//! The shipped policies keep all properties, except for those that their documented rules exclude.

use baton_interleave::{check, replay, Options, Property, Said};
use baton_native::Policy;
use std::time::Duration;

/// Checks a policy, and returns the counts of its hints and replies.
fn passes(policy: Policy, without: &[Property], next: Option<Policy>) -> Option<Said> {
    const SCHEDULES: u64 = 5_000;
    let options = Options {
        schedules: SCHEDULES,
        // Long enough for any machine.
        time: Duration::from_secs(3600),
        without: without.to_vec(),
        next,
        ..Options::default()
    };
    let outcome = check(policy, &options, &mut |_| ()).expect("the policy can be made");
    println!(
        "{} passes {} schedules with {} scheduling points in {:.1} s: {:?}",
        policy.name(),
        outcome.schedules,
        outcome.points,
        outcome.elapsed.as_secs_f64(),
        outcome.said
    );
    if let Some(story) = outcome.story {
        panic!("{story}");
    }
    assert_eq!(outcome.schedules, SCHEDULES);
    outcome.said
}

/// For a policy with hints: it took some hints, and each of these replies, by tag, was sent in at
/// least one schedule.
fn passes_with(policy: Policy, without: &[Property], replies: &[u32]) {
    let said = passes(policy, without, Some(policy)).expect("it takes hints");
    assert!(said.hints > 1_000, "{said:?}");
    for tag in replies {
        assert!(
            said.replies.get(tag) >= Some(&10),
            "reply {tag} in {said:?}"
        );
    }
}

/// Queues are never balanced: rule 4 of `fifo`, and of the policies derived from it.
const NOT_EVENED_OUT: &[Property] = &[Property::WorkConservation];

macro_rules! linked {
    ($policy:ident) => {
        Policy::linked(baton_native::module!($policy::BatonPolicy))
    };
}

/// A schedule that once failed passes now.
fn is_mended(policy: Policy, seed: &str) {
    let story =
        replay(policy, &Options::default(), seed.parse().unwrap()).expect("the policy can be made");
    assert!(story.finding.is_none(), "{story}");
}

#[test]
fn fifo_passes() {
    assert_eq!(passes(linked!(fifo), NOT_EVENED_OUT, None), None);
}

#[test]
fn wfq_passes() {
    passes(linked!(wfq), &[], None);
    // A CPU stole a task just before the host took it back and ran it elsewhere. The task then ran
    // with the vruntime of another CPU.
    is_mended(linked!(wfq), "rnd-3c2t16e-0x44ae");
}

/// `echo` takes hints and replies. A task that asks to go first precedes all others without a
/// limit.
#[test]
fn echo_passes() {
    passes_with(
        linked!(echo),
        &[Property::WorkConservation, Property::BoundedWait],
        &[1, 2],
    );
}

/// A task of a group waits for the group's CPU while others are idle, as long as that CPU is not
/// crowded. This is the purpose of the hints.
#[test]
fn locality_passes() {
    passes_with(linked!(locality), NOT_EVENED_OUT, &[1]);
}

/// A wait is bounded by weights only, as the end of the policy's rules states.
#[test]
fn cfs_like_passes() {
    passes(linked!(cfs_like), &[Property::BoundedWait], None);
}

/// As `cfs_like`.
#[test]
fn eevdf_like_passes() {
    passes(linked!(eevdf_like), &[Property::BoundedWait], None);
}

#[test]
fn central_passes() {
    passes(linked!(central), &[], Some(linked!(central)));
}

#[test]
fn shinjuku_passes() {
    passes(linked!(shinjuku), &[], Some(linked!(shinjuku)));
}

#[test]
fn arbiter_passes() {
    // Grants, reclaims, and hints without a meaning.
    passes_with(linked!(arbiter), &[], &[1, 2, 3]);
}

#[test]
fn template_passes() {
    passes(linked!(template), NOT_EVENED_OUT, None);
}

#[test]
fn relay_passes_and_is_upgraded_to_its_second_version() {
    passes(linked!(relay_v1), NOT_EVENED_OUT, Some(linked!(relay_v2)));
}

#[test]
fn the_second_relay_passes_and_is_followed_by_the_first() {
    passes(linked!(relay_v2), NOT_EVENED_OUT, Some(linked!(relay_v1)));
}
