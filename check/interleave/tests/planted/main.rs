// SPDX-License-Identifier: GPL-2.0-only
//! Small policies with one mistake each. The checker finds the mistake, and reproduces its story.
#![forbid(unsafe_code)]

mod aborts;
mod affinity_while_queued;
mod any_idle_cpu;
mod asks_for_ever;
mod balance_once;
mod base;
mod claimed_idle;
mod clock_twice;
mod deep_tree;
mod double_insert;
mod dropped_on_yield;
mod endless_recursion;
mod exit_and_steal;
mod forgotten_offline;
mod hint_lock;
mod hint_of_large_numbers;
mod index_of_online;
mod kept_after_migration;
mod late_kick;
mod length_then_take;
mod light_starves;
mod lock_order;
mod lost_wakeup;
mod refused_twice;
mod siblings_only;
mod spins;
mod steal_of_running;
mod steal_off_by_one;
mod upgrade_forgets;
mod wakeup_credit;

use baton_interleave::{check, replay, Finding, Options, Outcome, Property};
use baton_native::Policy;
use std::time::Duration;

/// Checks a policy with a mistake that violates this property.
fn finds(name: &str, policy: Policy, property: Property, options: &Options) -> Finding {
    let outcome = check(policy, options, &mut |_| ()).expect("the policy can be made");
    let Outcome {
        schedules,
        elapsed,
        story,
        first_lines,
        ..
    } = outcome;
    let story =
        story.unwrap_or_else(|| panic!("{name}: nothing was found in {schedules} schedules"));
    let lines = story.abridged().len();
    println!(
        "{name}: {} in schedule {schedules}, after {:.2} s, {first_lines} lines, shortened to \
         {lines}",
        story
            .finding
            .as_ref()
            .map_or("-", |finding| finding.property.name()),
        elapsed.as_secs_f64()
    );
    let finding = story
        .finding
        .as_ref()
        .expect("a story that was found has an end");
    assert_eq!(finding.property, property, "{story}");
    let again = replay(
        policy,
        options,
        story.seed.to_string().parse().expect("a seed can be read"),
    )
    .expect("as before");
    assert_eq!(again, story, "the same seed gives another story");
    println!("{story}");
    assert!(story.to_string().contains(&finding.what));
    finding.clone()
}

/// The number of schedules is fixed, however slow this machine is. An optimized build runs 2,000 to
/// 6,000 in a second.
fn options() -> Options {
    let time = Duration::from_secs(3600);
    Options {
        schedules: 20_000,
        time,
        shorten: Duration::from_millis(700),
        ..Options::default()
    }
}

macro_rules! planted {
    ($($name:ident: $property:ident $(without $without:ident)?,)*) => {$(
        #[test]
        fn $name() {
            let without = vec![$(Property::$without)?];
            let policy = Policy::linked(baton_native::module!($name::BatonPolicy));
            finds(stringify!($name), policy, Property::$property, &Options { without, ..options() });
        }
    )*};
}

planted! {
    lock_order: Deadlock,
    dropped_on_yield: LostTask,
    kept_after_migration: Discipline,
    lost_wakeup: LostTask without WorkConservation,
    claimed_idle: ClaimedIdle,
    steal_of_running: Panic,
    light_starves: BoundedWait,
    steal_off_by_one: WorkConservation without IdleBeside,
    balance_once: WorkConservation without IdleBeside,
    exit_and_steal: Panic,
    affinity_while_queued: Discipline,
    double_insert: Panic,
    wakeup_credit: BoundedWait,
    upgrade_forgets: LostTask,
    refused_twice: Deadlock,
    index_of_online: Panic,
    forgotten_offline: LostTask without WorkConservation,
    length_then_take: Panic,
    any_idle_cpu: Discipline,
    hint_lock: Deadlock,
    clock_twice: Panic,
    late_kick: IdleBeside,
    asks_for_ever: Endless,
}

/// A loop that only its duration distinguishes from a long call.
#[test]
fn a_loop_without_questions_is_ended() {
    let options = Options {
        call_limit: Duration::from_millis(100),
        ..options()
    };
    let policy = Policy::linked(baton_native::module!(spins::BatonPolicy));
    finds("spins", policy, Property::Endless, &options);
}

/// `WorkConservation` is checked only after 128 ticks.
#[test]
fn a_late_kick_keeps_the_weaker_property() {
    let options = Options {
        schedules: 2_000,
        without: vec![Property::IdleBeside],
        ..options()
    };
    let policy = Policy::linked(baton_native::module!(late_kick::BatonPolicy));
    let outcome = check(policy, &options, &mut |_| ()).expect("the policy can be made");
    assert!(outcome.story.is_none(), "{:?}", outcome.story);
}

/// A mistake that needs a machine of a certain shape.
#[test]
fn a_machine_is_of_the_shape_that_was_asked_for() {
    let policy = Policy::linked(baton_native::module!(siblings_only::BatonPolicy));
    let plain = Options {
        schedules: 2_000,
        ..options()
    };
    let outcome = check(policy, &plain, &mut |_| ()).expect("the policy can be made");
    assert!(outcome.story.is_none(), "{:?}", outcome.story);
    let place = |cpu: u32| baton_abi::BatonCpu {
        core: cpu / 2,
        llc: 0,
        node: 0,
        online: 1,
        cluster: cpu / 2,
    };
    let options = Options {
        topology: (0..4).map(place).collect(),
        ..options()
    };
    finds("siblings_only", policy, Property::IdleBeside, &options);
}

/// A mistake that needs a hint with numbers in a certain range.
#[test]
fn hints_are_what_was_asked_for() {
    let policy = Policy::linked(baton_native::module!(hint_of_large_numbers::BatonPolicy));
    let outcome = check(
        policy,
        &Options {
            schedules: 2_000,
            ..options()
        },
        &mut |_| (),
    )
    .expect("the policy can be made");
    assert!(outcome.story.is_none(), "{:?}", outcome.story);
    let hints = vec!["77 1000-9999 0-5".parse().expect("a hint")];
    finds(
        "hint_of_large_numbers",
        policy,
        Property::Panic,
        &Options { hints, ..options() },
    );
}

/// A waiting task is in some queue; the story names the queue's lock.
#[test]
fn a_story_says_who_has_the_task_that_waits() {
    let policy = Policy::linked(baton_native::module!(late_kick::BatonPolicy));
    let holder = finds("late_kick", policy, Property::IdleBeside, &options())
        .holder
        .expect("a task has it");
    assert!(
        holder.contains("which took lock #") && holder.contains("planted/base.rs:"),
        "{holder}"
    );
}

/// The search reaches every state of a small machine, and counts it.
#[test]
fn coverage_is_counted() {
    let policy = Policy::linked(baton_native::module!(base::BatonPolicy));
    let of = |schedules| {
        let options = Options {
            schedules,
            cpus: 1,
            tasks: 1,
            ..options()
        };
        check(policy, &options, &mut |_| ())
            .expect("the policy can be made")
            .coverage
    };
    let (few, many) = (of(100), of(2_000));
    assert!(
        few.schedules() <= 100 && few.schedules() > 20,
        "{}",
        few.schedules()
    );
    assert!(many.schedules() > few.schedules() && many.states() > few.states());
    // One CPU permits few orders.
    assert!(many.schedules() < 1_900, "{}", many.schedules());
    assert!(many.last_schedule() >= many.last_state());
}

/// A crash is found like any other mistake, and does not disturb the policies that are checked
/// afterwards.
#[test]
fn what_ends_a_process_is_found() {
    let check = |name: &str, policy: Policy, verdict: &str| {
        let finding = finds(name, policy, Property::Panic, &options());
        assert_eq!(finding.what, verdict);
        the_right_one_passes();
    };
    let overflow =
        "the call used up its stack (the kernel grants 4096 bytes); is there a recursion?";
    let linked = Policy::linked;
    let policy = linked(baton_native::module!(endless_recursion::BatonPolicy));
    check(
        "endless_recursion",
        policy,
        &format!("stack overflow in newly_idle: {overflow}"),
    );
    let policy = linked(baton_native::module!(deep_tree::BatonPolicy));
    check(
        "deep_tree",
        policy,
        &format!("stack overflow in task_yield: {overflow}"),
    );
    let policy = linked(baton_native::module!(aborts::BatonPolicy));
    check(
        "aborts",
        policy,
        "panic in task_preempt: the call ended the process: abort()",
    );
}

#[test]
fn the_right_one_passes() {
    let options = Options {
        schedules: 5_000,
        time: Duration::from_secs(20),
        ..options()
    };
    let policy = Policy::linked(baton_native::module!(base::BatonPolicy));
    let outcome = check(policy, &options, &mut |_| ()).expect("the policy can be made");
    println!(
        "the right one passes {} schedules in {:.1} s",
        outcome.schedules,
        outcome.elapsed.as_secs_f64()
    );
    if let Some(story) = outcome.story {
        panic!("{story}");
    }
}
