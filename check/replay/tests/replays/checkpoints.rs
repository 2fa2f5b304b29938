// SPDX-License-Identifier: GPL-2.0-only
//! Replays that begin at a checkpoint.

use baton_native::Policy;
use baton_replay::{checkpoint_after, checkpoint_before, replay, End, Options, Outcome, Until};
use baton_trace::{Event, Item, Mark, Recording, Told, Words, BLOCK_SIZE, HEAD_SIZE};

use crate::{
    cfs_cwc_flat, config, damaged, parse, record, record_with, relay_v1, run, ule_cwc, wfq, woven,
    SINGLE, THREADS,
};

/// wfq, with a checkpoint every millisecond.
fn with_checkpoints(workload: &str, topology: &str, ms: u64, seed: u64) -> Vec<u8> {
    with_checkpoints_of(wfq(), workload, topology, ms, seed)
}

fn with_checkpoints_of(
    policy: Policy,
    workload: &str,
    topology: &str,
    ms: u64,
    seed: u64,
) -> Vec<u8> {
    record_with(
        &config(policy, "", topology, ms, seed),
        workload,
        Some(1_000_000),
    )
}

fn from(recording: &Recording, policy: Policy, mark: Mark, single: bool) -> Outcome {
    replay(
        recording,
        policy,
        &Options {
            from: Some(mark),
            single,
            ..Options::default()
        },
    )
    .unwrap()
}

/// Number of events before a checkpoint.
fn before(recording: &Recording, mark: Mark) -> u64 {
    let stamp = |told: &Told| {
        if let Item::Event(event) = told.item {
            Event::stamp(&event)
        } else {
            None
        }
    };
    recording
        .merged()
        .take_while(|told| stamp(told).is_none_or(|stamp| stamp < mark.stamp))
        .count() as u64
}

#[test]
fn every_checkpoint_replays_to_the_end() {
    const RANDOM: &str = "random:tasks=24,happenings=2000";
    for (policy, workload) in [
        (wfq(), "hackbench:groups=2,fds=4"),
        (wfq(), RANDOM),
        // In Baton's language.
        (ule_cwc(), RANDOM),
        (cfs_cwc_flat(), RANDOM),
    ] {
        let recording = parse(&with_checkpoints_of(policy, workload, "1x4x1", 30, 3));
        let whole = run(&recording, policy, SINGLE);
        assert_eq!(whole.end, End::Whole);
        let marks = recording.marks();
        assert!(marks.len() > 20, "{}", marks.len());
        for mark in marks {
            assert_eq!(mark.number, before(&recording, mark));
            for single in [SINGLE, THREADS] {
                let outcome = from(&recording, policy, mark, single);
                assert_eq!(outcome.end, End::Whole, "{workload}, from {mark:?}");
                assert_eq!(
                    (outcome.first, outcome.first + outcome.events),
                    (mark.number, whole.events)
                );
            }
        }
    }
}

/// A checkpoint does not change the policy's behaviour.
#[test]
fn checkpoints_change_no_event() {
    let without = parse(&record(
        wfq(),
        "",
        "random:tasks=24,happenings=500",
        "1x4x1",
        30,
        5,
    ));
    let with = parse(&with_checkpoints(
        "random:tasks=24,happenings=500",
        "1x4x1",
        30,
        5,
    ));
    assert!(without.checkpoints.is_empty() && without.header.state.is_none());
    let print = |recording: &Recording| {
        let words = Words::of(recording);
        let lines = recording.merged().map(|told| words.line(&told));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(print(&with), print(&without));
}

#[test]
fn the_last_checkpoint_before_a_place_is_found() {
    let recording = parse(&with_checkpoints(
        "hackbench:groups=2,fds=4",
        "1x4x1",
        20,
        1,
    ));
    let marks = recording.marks();
    let found = |place| checkpoint_before(&recording, place);
    for (at, mark) in marks.iter().enumerate() {
        assert_eq!(found(Until::Event(mark.number)).unwrap(), *mark);
        assert_eq!(
            found(Until::Time(mark.now - recording.begin())).unwrap(),
            *mark
        );
        if let Some(earlier) = at.checked_sub(1) {
            assert_eq!(
                found(Until::Event(mark.number - 1)).unwrap(),
                marks[earlier]
            );
            assert_eq!(
                found(Until::Time(mark.now - recording.begin() - 1)).unwrap(),
                marks[earlier]
            );
        }
    }
    let why = found(Until::Event(0)).unwrap_err();
    let (first, last) = (marks[0].number, marks.last().unwrap().number);
    assert_eq!(
        why,
        format!(
            "its {} checkpoints are later: before events {first} to {last}",
            marks.len()
        )
    );
    let none = parse(&record(wfq(), "", "hackbench", "1x4x1", 5, 1));
    assert_eq!(
        checkpoint_before(&none, Until::Event(1)).unwrap_err(),
        "it has no checkpoints"
    );
}

/// Stops at a place given by the numbers and times of the whole recording.
#[test]
fn a_replay_from_a_checkpoint_stops_where_it_is_told() {
    let recording = parse(&with_checkpoints(
        "hackbench:groups=2,fds=4",
        "1x4x1",
        20,
        1,
    ));
    let mark = recording.marks()[9];
    for single in [SINGLE, THREADS] {
        let until = |until| {
            let options = Options {
                from: Some(mark),
                until: Some(until),
                single,
                ..Options::default()
            };
            replay(&recording, wfq(), &options).unwrap()
        };
        let outcome = until(Until::Event(mark.number + 100));
        assert_eq!(outcome.end, End::Until);
        assert!((100..130).contains(&outcome.events), "{outcome:?}");
        let after = mark.now - recording.begin() + 2_000_000;
        let outcome = until(Until::Time(after));
        assert_eq!(outcome.end, End::Until);
        assert!(
            outcome.recorded < 2_000_000 && outcome.events > 100,
            "{outcome:?}"
        );
    }
}

/// A replay from a checkpoint, too, detects other options, and reports numbers of the whole
/// recording.
#[test]
fn a_divergence_after_a_checkpoint_has_its_number() {
    let recording = parse(&with_checkpoints("hackbench", "1x4x1", 60, 1));
    let policy_options = Some("period=1ms,min_slice=100us".to_owned());
    let mark = recording.marks()[30];
    let options = Options {
        from: Some(mark),
        policy_options,
        single: SINGLE,
        ..Options::default()
    };
    let outcome = replay(&recording, wfq(), &options).unwrap();
    let End::Diverged(found) = &outcome.end else {
        panic!("{outcome:?}")
    };
    assert!(
        found.number > mark.number && found.call >= mark.number && found.call < found.number,
        "{found:?}"
    );
    assert_eq!(outcome.first + outcome.events, found.number);
}

/// A gap before a checkpoint does not affect a replay that begins at the checkpoint.
#[test]
fn a_gap_ends_a_replay_and_the_next_checkpoint_is_after_it() {
    let recording = parse(&with_checkpoints("hackbench", "1x4x1", 100, 1));
    let all = run(&recording, wfq(), SINGLE).events;
    let streams = damaged::streams(&recording);
    let state = recording.state.as_deref();
    let whole = woven::file_from(
        &recording.header,
        state,
        &recording.checkpoints,
        &streams,
        BLOCK_SIZE,
    );
    let blocks: Vec<usize> = (0..whole.len() - 9)
        .filter(|&at| whole[at..].starts_with(b"BBLK") && whole[at + 8] == 1)
        .collect();
    let mut gaps = 0;
    'blocks: for block in blocks.iter().step_by(blocks.len() / 12) {
        let mut torn = whole.clone();
        torn[block + HEAD_SIZE] ^= 1;
        let torn = Recording::parse(&torn).unwrap();
        assert_eq!(
            (torn.damage.len(), torn.checkpoints.len()),
            (1, recording.checkpoints.len())
        );
        for single in [SINGLE, THREADS] {
            let mut outcome = run(&torn, wfq(), single);
            assert!(matches!(outcome.end, End::Gap { .. }), "{:?}", outcome.end);
            let mut options = Options {
                single,
                ..Options::default()
            };
            // A checkpoint may be between the last event before the gap and the gap, or in the gap.
            while matches!(outcome.end, End::Gap { .. }) {
                let Some(mark) = checkpoint_after(&torn, &outcome, &options) else {
                    continue 'blocks;
                };
                options.from = Some(mark);
                outcome = from(&torn, wfq(), mark, single);
            }
            assert_eq!(outcome.end, End::Whole);
            let missing = all - (outcome.first + outcome.events);
            assert!(
                missing > 0 && outcome.events > 0,
                "{missing} of {all} are missing"
            );
            gaps += 1;
        }
    }
    assert!(gaps > 10, "{gaps}");
}

/// An incomplete state is not a checkpoint, and does not affect the others.
#[test]
fn a_damaged_state_is_no_checkpoint() {
    let bytes = with_checkpoints("hackbench:groups=2", "1x4x1", 20, 1);
    let whole = parse(&bytes);
    let states: Vec<usize> = (0..bytes.len() - 9)
        .filter(|&at| bytes[at..].starts_with(b"BBLK") && bytes[at + 8] == 2)
        .collect();
    let damaged = |at: usize| {
        let mut torn = bytes.clone();
        torn[at + HEAD_SIZE] ^= 1;
        Recording::parse(&torn).unwrap()
    };
    let torn = damaged(states[5]);
    assert_eq!(
        (torn.damage.len(), torn.checkpoints.len()),
        (1, whole.checkpoints.len() - 1)
    );
    for single in [SINGLE, THREADS] {
        assert_eq!(run(&torn, wfq(), single).end, End::Whole);
        torn.marks()
            .into_iter()
            .for_each(|mark| assert_eq!(from(&torn, wfq(), mark, single).end, End::Whole));
    }
    // The state at the beginning of the recording.
    let torn = damaged(states[0]);
    assert_eq!(
        (&torn.state, torn.checkpoints.len()),
        (&None, whole.checkpoints.len())
    );
    let why = replay(&torn, wfq(), &Options::default()).err().unwrap();
    assert_eq!(
        why,
        "the state that it begins with is damaged, or not there"
    );
    assert_eq!(from(&torn, wfq(), torn.marks()[3], SINGLE).end, End::Whole);
}

/// A policy cannot use the state of another one.
#[test]
fn another_policy_does_not_begin_at_a_checkpoint() {
    let recording = parse(&with_checkpoints("hackbench", "1x4x1", 10, 1));
    let options = Options {
        from: Some(recording.marks()[2]),
        ..Options::default()
    };
    let why = replay(&recording, relay_v1(), &options).err().unwrap();
    assert!(
        why.starts_with("the recording begins with a state (Kept, version 2), and relay has "),
        "{why}"
    );
}
