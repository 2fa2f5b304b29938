// SPDX-License-Identifier: GPL-2.0-only
//! Damaged files, and files that are not recordings.

use std::sync::LazyLock;

use baton_replay::{replay, End, Options, Until};
use baton_sim::Config;
use baton_trace::{Checkpoint, Event, Header, Item, Recording, BLOCK_SIZE, HEAD_SIZE};
use proptest::prelude::*;
use proptest::{collection::vec, sample::Index};

use crate::{config, is_same, parse, record, record_with, run, wfq, woven, SINGLE, THREADS};

/// Number of inputs for each property; more with BATON_FUZZ=1000000.
fn cases() -> ProptestConfig {
    let cases = std::env::var("BATON_FUZZ")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(200);
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

/// A recording with checkpoints and several blocks per CPU: parsed, as events, and as a file.
struct Whole {
    recording: Recording,
    streams: Vec<Vec<Event>>,
    file: Vec<u8>,
}

static WHOLE: LazyLock<Whole> = LazyLock::new(|| {
    let config = Config {
        max_tasks: 64,
        ..config(wfq(), "", "1x4x1", 8, 5)
    };
    let recording = parse(&record_with(&config, "random:tasks=12", Some(1_000_000)));
    assert!(recording.checkpoints.len() > 4);
    let streams = streams(&recording);
    let file = in_small_blocks(&recording, &recording.checkpoints, &streams);
    Whole {
        recording,
        streams,
        file,
    }
});

fn whole() -> &'static [u8] {
    &WHOLE.file
}

/// Several blocks for each CPU.
fn in_small_blocks(
    recording: &Recording,
    points: &[Checkpoint],
    streams: &[Vec<Event>],
) -> Vec<u8> {
    woven::file_from(
        &recording.header,
        recording.state.as_deref(),
        points,
        streams,
        HEAD_SIZE + 600,
    )
}

pub fn streams(recording: &Recording) -> Vec<Vec<Event>> {
    let mut streams = vec![Vec::new(); recording.header.cpus.len()];
    for told in recording.merged() {
        let Item::Event(event) = told.item else {
            panic!("{told:?}")
        };
        streams[usize::from(told.cpu)].push(event);
    }
    streams
}

/// Parsing and replay may fail or end early, but must not panic or hang.
fn survives(bytes: &[u8], single: bool) {
    let Ok(recording) = Recording::parse(bytes) else {
        return;
    };
    let count = recording.merged().count() as u64;
    let mut words = baton_trace::Words::default();
    for entry in recording.merged() {
        words.line(&entry);
        if let Item::Event(event) = entry.item {
            words.note(entry.cpu, &event);
        }
    }
    let marks = recording.marks();
    // From the beginning, and from one of the checkpoints.
    for from in [None, marks.get(bytes.len() % marks.len().max(1)).copied()] {
        if let Ok(outcome) = replay(
            &recording,
            wfq(),
            &Options {
                single,
                from,
                ..Options::default()
            },
        ) {
            assert!(outcome.first + outcome.events <= count);
        }
    }
}

/// The intact part is replayed, up to the gap.
#[test]
fn a_missing_block_ends_a_replay_there() {
    let recording = parse(&record(wfq(), "", "hackbench", "1x4x1", 600, 1));
    let all = recording
        .streams
        .iter()
        .map(|stream| stream.len())
        .sum::<u64>();
    let bytes = record(wfq(), "", "hackbench", "1x4x1", 600, 1);
    let blocks = bytes.len() / BLOCK_SIZE;
    assert!(blocks > 10);
    for block in [blocks / 2, blocks - 1] {
        let mut torn = bytes.clone();
        torn[block * BLOCK_SIZE] ^= 1;
        let torn = Recording::parse(&torn).unwrap();
        assert_eq!(torn.damage.len(), 1);
        for single in [SINGLE, THREADS] {
            let outcome = run(&torn, wfq(), single);
            let End::Gap { what, .. } = &outcome.end else {
                panic!("{:?}", outcome.end)
            };
            assert!(
                what.contains("missing in the file") || what.contains("without the mark"),
                "{what}"
            );
            assert!(
                outcome.events > all / 5 && outcome.events < all,
                "{} of {all}",
                outcome.events
            );
        }
    }
}

#[test]
fn a_torn_file_is_replayed_as_far_as_it_goes() {
    let bytes = record(wfq(), "", "hackbench", "1x4x1", 600, 1);
    let torn = Recording::parse(&bytes[..bytes.len() / 2]).unwrap();
    for single in [SINGLE, THREADS] {
        let outcome = run(&torn, wfq(), single);
        assert!(matches!(outcome.end, End::Gap { .. }), "{:?}", outcome.end);
        assert!(outcome.events > 10_000, "{}", outcome.events);
    }
    // All events of CPU 2 are missing. The replay ends where it needs the first of them.
    let mut streams = streams(&parse(&record(wfq(), "", "hackbench", "1x4x1", 20, 1)));
    streams[2].clear();
    streams[3].pop();
    let recording = parse(&woven::file(&parse(&bytes).header, &streams, BLOCK_SIZE));
    for single in [SINGLE, THREADS] {
        let End::Gap { cpu: 2, what } = run(&recording, wfq(), single).end else {
            panic!()
        };
        assert!(what.starts_with("the file was torn before anything of this CPU was written"));
    }
}

#[test]
fn a_replay_stops_where_it_is_told() {
    let recording = parse(whole());
    let all = is_same(&recording, wfq(), SINGLE);
    for single in [SINGLE, THREADS] {
        let until = |until| {
            replay(
                &recording,
                wfq(),
                &Options {
                    single,
                    until: Some(until),
                    ..Options::default()
                },
            )
            .unwrap()
        };
        let outcome = until(Until::Event(100));
        assert_eq!(outcome.end, End::Until);
        assert!((100..130).contains(&outcome.events), "{}", outcome.events);
        let outcome = until(Until::Time(all.recorded / 2));
        assert_eq!(outcome.end, End::Until);
        assert!(
            outcome.recorded < all.recorded / 2 && outcome.events > 100,
            "{outcome:?}"
        );
    }
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let refused = |header: Header| {
        let recording = parse(&woven::file(&header, &[], BLOCK_SIZE));
        replay(&recording, wfq(), &Options::default())
            .err()
            .unwrap()
    };
    let good = woven::header(2);
    let other = refused(Header {
        state: Some(("Other".into(), 1, 2)),
        ..good.clone()
    });
    assert_eq!(
        other,
        "the recording begins with a state (Other, version 1), and wfq has Kept, version 2"
    );
    // The right type, but the recording has no state.
    refused(Header {
        state: Some(("Kept".into(), 2, 2)),
        ..good.clone()
    });
    assert!(refused(Header {
        cpus: vec![],
        ..good.clone()
    })
    .contains("without CPUs"));
    assert!(refused(Header {
        max_tasks: 1 << 21,
        ..good.clone()
    })
    .contains("task slots"));
    assert!(refused(Header {
        options: "nonsense=1".into(),
        ..good.clone()
    })
    .contains("option"));
    let many = Header {
        cpus: vec![(0, 0, 0, true); 10_000],
        ..good
    };
    assert!(refused(many).contains("CPUs"));
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn flipped_bits(flips in vec((any::<Index>(), 0u8..8), 1..6), single in any::<bool>()) {
        let mut bytes = whole().to_vec();
        for (place, bit) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        survives(&bytes, single);
    }

    #[test]
    fn torn_files(from in any::<Index>(), to in any::<Index>(), single in any::<bool>()) {
        let (from, to) = (from.index(whole().len()), to.index(whole().len()));
        // The end is missing, or a part in the middle.
        survives(&whole()[..to], single);
        let (from, to) = (from.min(to), from.max(to));
        survives(&[&whole()[..from], &whole()[to..]].concat(), single);
    }

    /// Random bytes, alone and after the head of a file, with any version.
    #[test]
    fn foreign_files(bytes in vec(any::<u8>(), 0..300), version in 0u32..4, single in any::<bool>()) {
        survives(&bytes, single);
        let mut file = whole()[..20].to_vec();
        file[8..12].copy_from_slice(&version.to_le_bytes());
        file.extend(&bytes);
        survives(&file, single);
    }

    /// The checksums are right, but states are damaged: one is replaced by another, cut, extended,
    /// or has a flipped bit.
    #[test]
    fn wrong_states(
        changes in vec((any::<Index>(), any::<Index>(), any::<Index>(), 0u8..4), 1..6),
        stamps in vec((any::<Index>(), -2i64..3), 0..3),
        single in any::<bool>(),
    ) {
        let mut points = WHOLE.recording.checkpoints.clone();
        for (point, other, place, what) in changes {
            let other = other.get(&points).state.clone();
            let point = point.index(points.len());
            let state = &mut points[point].state;
            match what {
                0 => *state = other,
                1 => state.truncate(place.index(state.len() + 1)),
                2 => state.extend_from_slice(&other),
                _ if state.is_empty() => {}
                _ => {
                    let place = place.index(state.len());
                    state[place] ^= 1 << (place % 8);
                }
            }
        }
        // The stamp of a checkpoint is wrong.
        for (point, by) in stamps {
            let point = point.index(points.len());
            points[point].stamp = points[point].stamp.saturating_add_signed(by);
        }
        survives(&in_small_blocks(&WHOLE.recording, &points, &WHOLE.streams), single);
    }

    /// The checksums are right, but the events are nonsense: some are exchanged, some repeated,
    /// some missing.
    #[test]
    fn shuffled_events(
        moves in vec((any::<Index>(), any::<Index>(), any::<Index>(), 0u8..4), 1..8),
        single in any::<bool>(),
    ) {
        let Whole { recording, streams, .. } = &*WHOLE;
        let mut streams = streams.clone();
        for (cpu, a, b, what) in moves {
            let stream = cpu.get(&streams).len();
            if stream < 2 {
                continue;
            }
            let cpu = cpu.index(streams.len());
            let (a, b) = (a.index(stream), b.index(stream));
            match what {
                0 => streams[cpu].swap(a, b),
                1 => streams[cpu][a] = streams[cpu][b],
                2 => drop(streams[cpu].remove(a)),
                _ => {
                    let event = streams[cpu][a];
                    let other = b % streams.len();
                    let place = b % (streams[other].len() + 1);
                    streams[other].insert(place, event);
                }
            }
        }
        survives(&in_small_blocks(recording, &recording.checkpoints, &streams), single);
    }
}
