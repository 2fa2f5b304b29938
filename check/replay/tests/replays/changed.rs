// SPDX-License-Identifier: GPL-2.0-only
//! A replayed policy that differs from the recorded one.

use std::collections::HashMap;

use baton_native::Policy;
use baton_replay::{replay, Cause, Divergence, End, Options, Outcome};
use baton_trace::{method_name, Event, Item, Recording, Words};

use crate::simple::{simple, Twist};
use crate::{fifo, is_same, parse, record, run, wfq, SINGLE, THREADS};

fn divergence(outcome: Outcome) -> Divergence {
    match outcome.end {
        End::Diverged(divergence) => *divergence,
        end => panic!("{end:?} after {} of {} events", outcome.events, outcome.all),
    }
}

/// The simulator treats two policies alike for as long as they do the same, so the first event in
/// which their two recordings differ is the first different decision. Returns its number, and what
/// the other policy did.
fn first_difference(one: &Recording, other: &Recording) -> (u64, String) {
    let mut words = Words::default();
    for (a, b) in one.merged().zip(other.merged()) {
        let (Item::Event(event), Item::Event(did)) = (a.item, b.item) else {
            panic!("{a:?}")
        };
        // A read returns what was written before: its difference follows from another decision, and
        // is not a decision.
        let both_read = matches!((&event, &did), (Event::Read(_), Event::Read(_)));
        if a != b && !both_read {
            assert_eq!((a.number, a.cpu), (b.number, b.cpu));
            return (a.number, words.tell(b.cpu, &did));
        }
        words.note(a.cpu, &event);
    }
    panic!("the two recordings are the same");
}

/// Rule 3 of wfq with another credit: a change of one number.
#[test]
fn another_credit_is_told_at_the_first_event_that_is_decided_otherwise() {
    let mut methods = Vec::new();
    for (seed, workload, credit) in [
        (1, "schbench:work=1ms+hogs", "credit=0"),
        (2, "rocksdb:workers=8+hogs:nice=5", "credit=1ms"),
        (3, "random:tasks=24", "credit=0"),
        (4, "hackbench:groups=2", "credit=100us"),
    ] {
        let recording = parse(&record(wfq(), "", workload, "1x4x1", 400, seed));
        let other = parse(&record(wfq(), credit, workload, "1x4x1", 400, seed));
        let (number, did) = first_difference(&recording, &other);
        assert!(number > 50, "{workload}: it differs from the beginning");
        for single in [SINGLE, THREADS] {
            let options = Options {
                single,
                policy_options: Some(credit.into()),
                ..Options::default()
            };
            let found = divergence(replay(&recording, wfq(), &options).unwrap());
            assert_eq!(found.number, number, "{workload}: {found:?}");
            assert_eq!(found.cause, Cause::OtherPolicy);
            assert_ne!(found.got, found.expected);
            assert_eq!(found.before.len(), 10);
            let call = recording
                .merged()
                .find(|told| told.number == found.call)
                .unwrap();
            let Item::Event(Event::Call(call)) = call.item else {
                panic!("{call:?}")
            };
            assert_eq!(
                (method_name(call.method), call.now),
                (found.method, found.now)
            );
            // A replay does not know the host's answer to a question that was not recorded.
            assert!(
                did.starts_with(&found.got) || found.got.starts_with("takes "),
                "{did}\n{}",
                found.got
            );
            methods.push(found.method);
        }
        // With its own credit the policy matches its recording.
        is_same(&recording, wfq(), SINGLE);
    }
    println!("{methods:?}");
}

#[test]
fn another_policy_is_told_at_its_first_request() {
    let recording = parse(&record(wfq(), "", "hackbench", "1x4x1", 20, 1));
    for single in [SINGLE, THREADS] {
        let found = divergence(run(&recording, fifo(), single));
        assert_eq!(found.cause, Cause::OtherPolicy);
        // fifo runs the first task at once on the idle CPU that both policies find; wfq puts it
        // into a queue.
        let (fifo, wfq) = (found.got.as_str(), found.expected.as_str());
        assert_eq!(found.method, "select_task_rq");
        assert!(
            fifo.starts_with("select_task_rq answers: run it at once"),
            "{found:?}"
        );
        assert!(
            wfq.starts_with("select_task_rq answers") && wfq != fifo,
            "{found:?}"
        );
    }
}

/// Slices depend on an address of the policy's memory.
struct Address(&'static u64);

impl Twist for Address {
    fn new() -> Self {
        // Never freed, so that no two have the same address.
        Self(Box::leak(Box::new(0)))
    }

    fn slice(&self) -> u64 {
        core::ptr::from_ref(self.0) as u64 & 0xffff_ffff
    }
}

/// Slices depend on the iteration order of a hash map.
struct Hash(HashMap<u64, ()>);

impl Twist for Hash {
    fn new() -> Self {
        Self((1..20).map(|slice| (slice * 100_000, ())).collect())
    }

    fn slice(&self) -> u64 {
        self.0
            .keys()
            .fold(0, |all, slice| (all * 31 + slice) % 1_000_000_007)
    }
}

fn is_nondeterministic(policy: Policy) {
    let recording = parse(&record(policy, "", "hackbench:groups=2", "1x4x1", 5, 1));
    for single in [SINGLE, THREADS] {
        let found = divergence(run(&recording, policy, single));
        assert_eq!(
            (found.cause, found.method),
            (Cause::Nondeterministic, "pick_next_task"),
            "{found:?}"
        );
    }
}

#[test]
fn a_policy_that_reads_an_address_is_called_nondeterministic() {
    is_nondeterministic(simple!(Address));
}

#[test]
fn a_policy_that_goes_by_the_order_of_a_hash_is_called_nondeterministic() {
    is_nondeterministic(simple!(Hash));
}

struct Nothing;

impl Twist for Nothing {
    fn new() -> Self {
        Self
    }
}

/// As `Nothing`, until it panics where `Nothing` does not.
struct Panics(core::sync::atomic::AtomicU32);

impl Twist for Panics {
    fn new() -> Self {
        Self(core::sync::atomic::AtomicU32::new(0))
    }

    fn slice(&self) -> u64 {
        let count = self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        assert!(count < 40, "that is enough");
        1_000_000
    }
}

#[test]
fn a_panic_that_was_not_is_told() {
    let recording = parse(&record(
        simple!(Nothing),
        "",
        "hackbench:groups=2",
        "1x4x1",
        5,
        1,
    ));
    for single in [SINGLE, THREADS] {
        is_same(&recording, simple!(Nothing), single);
        let found = divergence(run(&recording, simple!(Panics), single));
        assert!(
            found.got.contains("panic") && found.got.ends_with("that is enough"),
            "{}",
            found.got
        );
    }
}

/// A policy that panicked in the recording and does not any more.
#[test]
fn a_panic_that_is_mended_is_told() {
    let recording = parse(&record(
        simple!(Panics),
        "",
        "hackbench:groups=2",
        "1x4x1",
        5,
        1,
    ));
    for single in [SINGLE, THREADS] {
        let outcome = is_same(&recording, simple!(Panics), single);
        assert_eq!(outcome.faults.len(), 1);
        let found = divergence(run(&recording, simple!(Nothing), single));
        assert_eq!(found.expected, "pick_next_task is abandoned: panic");
        assert_eq!(found.number, outcome.faults[0].number);
    }
}
