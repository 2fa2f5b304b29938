// SPDX-License-Identifier: GPL-2.0-only
//! Small policies with one mistake each: the checker finds it, tells it, and can tell it again.
#![forbid(unsafe_code)]

mod aborts;
mod affinity_while_queued;
mod any_idle_cpu;
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
mod index_of_online;
mod kept_after_migration;
mod length_then_take;
mod light_starves;
mod lock_order;
mod lost_wakeup;
mod refused_twice;
mod steal_of_running;
mod steal_off_by_one;
mod upgrade_forgets;
mod wakeup_credit;

use baton_interleave::{check, replay, Finding, Options, Outcome, Property};
use baton_native::Policy;
use std::time::Duration;

/// Checks a policy with a mistake that breaks this property.
fn finds(name: &str, policy: Policy, property: Property, options: &Options) -> Finding {
    let outcome = check(policy, options, &mut |_| ()).expect("the policy can be made");
    let Outcome { schedules, elapsed, story, first_lines, .. } = outcome;
    let story = story.unwrap_or_else(|| panic!("{name}: nothing was found in {schedules} schedules"));
    let lines = story.told().len();
    println!(
        "{name}: {} in schedule {schedules}, after {:.2} s, {first_lines} lines, shortened to {lines}",
        story.finding.as_ref().map_or("-", |finding| finding.property.name()),
        elapsed.as_secs_f64()
    );
    let finding = story.finding.as_ref().expect("a story that was found has an end");
    assert_eq!(finding.property, property, "{story}");
    let again =
        replay(policy, options, story.seed.to_string().parse().expect("a seed can be read")).expect("as before");
    assert_eq!(again, story, "the same seed gives another story");
    println!("{story}");
    assert!(story.to_string().contains(&finding.what));
    finding.clone()
}

/// So many schedules, however slow this machine is: an optimized build tries 2,000 to 6,000 in a second.
fn options() -> Options {
    let time = Duration::from_secs(3600);
    Options { schedules: 20_000, time, shorten: Duration::from_millis(700), ..Options::default() }
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
    steal_off_by_one: WorkConservation,
    balance_once: WorkConservation,
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
}

/// What would end the process is found as all else is, and those that are checked afterwards are not disturbed.
#[test]
fn what_ends_a_process_is_found() {
    let check = |name: &str, policy: Policy, verdict: &str| {
        let finding = finds(name, policy, Property::Panic, &options());
        assert_eq!(finding.what, verdict);
        the_right_one_passes();
    };
    let overflow = "the call used up its stack (the kernel grants 4096 bytes); is there a recursion?";
    let linked = Policy::linked;
    let policy = linked(baton_native::module!(endless_recursion::BatonPolicy));
    check("endless_recursion", policy, &format!("stack overflow in newly_idle: {overflow}"));
    let policy = linked(baton_native::module!(deep_tree::BatonPolicy));
    check("deep_tree", policy, &format!("stack overflow in task_yield: {overflow}"));
    let policy = linked(baton_native::module!(aborts::BatonPolicy));
    check("aborts", policy, "panic in task_preempt: the call ended the process: abort()");
}

#[test]
fn the_right_one_passes() {
    let options = Options { schedules: 5_000, time: Duration::from_secs(20), ..options() };
    let policy = Policy::linked(baton_native::module!(base::BatonPolicy));
    let outcome = check(policy, &options, &mut |_| ()).expect("the policy can be made");
    println!("the right one passes {} schedules in {:.1} s", outcome.schedules, outcome.elapsed.as_secs_f64());
    if let Some(story) = outcome.story {
        panic!("{story}");
    }
}
