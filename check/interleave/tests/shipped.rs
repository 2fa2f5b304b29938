// SPDX-License-Identifier: GPL-2.0-only
//! The shipped policies keep all properties, except for those that their documented rules exclude.

use baton_interleave::{check, replay, Options, Property};
use baton_linked::{each_sound_policy, Linked};
use std::time::Duration;

/// Checks a policy. If it replies to hints, it takes some, and sends each of its replies at
/// least ten times.
fn passes(linked: &Linked) {
    const SCHEDULES: u64 = 5_000;
    let policy = (linked.policy)();
    let property = |name: &&str| Property::ALL.into_iter().find(|p| p.name() == *name);
    let without: Vec<_> = linked.excludes.iter().filter_map(property).collect();
    assert_eq!(without.len(), linked.excludes.len(), "{linked:?}");
    let options = Options {
        schedules: SCHEDULES,
        // Long enough for any machine.
        time: Duration::from_secs(3600),
        without,
        next: Some((linked.next)()),
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
    if linked.replies.is_empty() {
        return;
    }
    let said = outcome.said.expect("it takes hints");
    assert!(said.hints > 1_000, "{said:?}");
    for tag in linked.replies {
        assert!(
            said.replies.get(tag) >= Some(&10),
            "reply {tag} in {said:?}"
        );
    }
}

macro_rules! passes {
    ($name:ident) => {
        #[test]
        fn $name() {
            passes(baton_linked::find(stringify!($name)));
        }
    };
}

each_sound_policy!(passes);

/// A CPU stole a task just before the host took it back and ran it elsewhere. The task then ran
/// with the vruntime of another CPU. The schedule that showed it passes now.
#[test]
fn a_stolen_task_has_the_vruntime_of_its_cpu() {
    let seed = "rnd-3c2t16e-0x44ae".parse().unwrap();
    let story = replay(baton_linked::wfq(), &Options::default(), seed).expect("wfq can be made");
    assert!(story.finding.is_none(), "{story}");
}
