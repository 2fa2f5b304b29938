// SPDX-License-Identifier: GPL-2.0-only
//! Written recordings are read back, and damage costs only the block that it is in.

use baton_abi::{BatonHint, BatonTask, BatonWake};
use baton_trace::{
    last_stamp, About, Call, Carried, Codec, Event, FileWriter, Header, Item, OpenError, Question,
    Recorder, Recording, Return, BLOCK_SIZE, HEAD_SIZE, MAX_EVENT,
};
use proptest::{collection::vec, prelude::*, sample::Index};

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..200,
        any::<u64>(),
        (0u32..64).prop_map(|bit| (1u64 << bit).wrapping_sub(1))
    ]
}

fn task() -> impl Strategy<Value = BatonTask> {
    (
        prop_oneof![0u32..20, any::<u32>()],
        any::<u32>(),
        -2..9i32,
        any::<i32>(),
        number(),
    )
        .prop_map(|(slot, pid, cpu, nice, runtime)| BatonTask {
            slot,
            pid,
            cpu,
            nice,
            runtime,
        })
}

fn hint(thread: impl Strategy<Value = u32>) -> impl Strategy<Value = BatonHint> {
    let words = [
        number().boxed(),
        number().boxed(),
        Just(0).boxed(),
        number().boxed(),
        Just(0).boxed(),
    ];
    let words =
        (words, prop_oneof![Just(0), number()]).prop_map(|([a, b, c, d, e], f)| [a, b, c, d, e, f]);
    (any::<u32>(), thread, words).prop_map(|(tag, thread, words)| BatonHint { tag, thread, words })
}

fn about() -> impl Strategy<Value = (u8, About)> {
    let wake =
        (any::<i32>(), any::<i32>(), any::<u16>()).prop_map(|(prev_cpu, waker_cpu, flags)| {
            BatonWake {
                prev_cpu,
                waker_cpu,
                flags,
            }
        });
    let own = (task(), any::<u32>()).prop_map(|(task, generation)| {
        (
            task,
            u64::from(generation) << 32 | u64::from(task.slot.wrapping_add(1)),
        )
    });
    let given = prop_oneof![own, (task(), number())];
    prop_oneof![
        (task(), wake).prop_map(|(task, wake)| (3, About::Waking(task, wake))),
        (4u8..9, given).prop_map(|(method, (task, token))| (method, About::Given(task, token))),
        (13u8..20, task()).prop_map(|(method, task)| (method, About::Task(task))),
        (any::<i32>(), proptest::option::of(task()))
            .prop_map(|(cpu, prev)| (9, About::Pick(cpu, prev))),
        (20u8..25, any::<i32>()).prop_map(|(method, cpu)| (method, About::Cpu(cpu))),
        (number(), any::<u8>()).prop_map(|(token, why)| (11, About::Refused(token, why))),
        (task(), hint(any::<u32>())).prop_map(|(task, hint)| (25, About::Hint(task, hint))),
    ]
}

fn carried() -> impl Strategy<Value = Carried> {
    (prop_oneof![Just(0), number()], 0u16..5, any::<[u16; 4]>()).prop_map(
        |(slice, nr_kicks, all)| {
            let mut kicks = [0; 4];
            kicks[..usize::from(nr_kicks)].copy_from_slice(&all[..usize::from(nr_kicks)]);
            Carried {
                slice,
                nr_kicks,
                kicks,
            }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let question = prop_oneof![
        Just(Question::Online),
        Just(Question::Idle),
        Just(Question::Claim)
    ];
    prop_oneof![
        (
            number(),
            number(),
            -2..9i32,
            any::<u16>(),
            carried(),
            about()
        )
            .prop_map(|(stamp, now, cpu, flags, carried, (method, about))| {
                Event::Call(Call {
                    stamp,
                    method,
                    now,
                    cpu,
                    flags,
                    carried,
                    about,
                })
            }),
        (number(), number(), carried()).prop_map(|(stamp, answer, carried)| Event::Return(
            Return {
                stamp,
                answer,
                carried
            }
        )),
        (number(), any::<u8>()).prop_map(|(stamp, kind)| Event::Abandoned { stamp, kind }),
        (number(), number()).prop_map(|(stamp, id)| Event::Lock { stamp, id }),
        number().prop_map(|id| Event::Busy { id }),
        number().prop_map(Event::Now),
        number().prop_map(Event::Random),
        number().prop_map(Event::Read),
        (any::<u32>(), any::<i32>(), any::<bool>()).prop_map(|(slot, cpu, yes)| Event::MayRun {
            slot,
            cpu,
            yes
        }),
        (question, any::<i32>(), any::<bool>()).prop_map(|(question, cpu, yes)| Event::Cpu {
            question,
            cpu,
            yes
        }),
        any::<bool>().prop_map(Event::AnyIdle),
        number().prop_map(Event::ArmTimer),
        Just(Event::CancelTimer),
        any::<u64>().prop_map(|after| Event::NoMemory { after }),
        number().prop_map(Event::Dropped),
        (any::<u32>(), hint(Just(0)), any::<u8>()).prop_map(|(slot, reply, answer)| Event::Reply {
            slot,
            reply,
            answer
        }),
        number().prop_map(|stamp| Event::End { stamp }),
    ]
}

/// Writes the events of each CPU, in small blocks to get several of them.
fn file(cpus: &[Vec<Event>], size: usize) -> Vec<u8> {
    let header = Header {
        policy: "wfq".into(),
        cpus: vec![(0, 0, 0, true)],
        ..Header::default()
    };
    let mut out = FileWriter::new(Vec::new(), &header).unwrap();
    for (cpu, events) in cpus.iter().enumerate() {
        let (mut recorder, mut block) = (Recorder::default(), vec![0; size]);
        recorder.open(cpu as u32, 7);
        for event in events {
            if !recorder.put(&mut block, event) {
                assert!(recorder.close(&mut block));
                out.block(&block, 0).unwrap();
                recorder.open(cpu as u32, 9);
                assert!(recorder.put(&mut block, event));
            }
        }
        if recorder.close(&mut block) {
            out.block(&block, 0).unwrap();
        }
    }
    std::mem::take(out.get_mut())
}

fn events(recording: &Recording, cpu: usize) -> Vec<Event> {
    let stream = recording
        .streams
        .iter()
        .find(|stream| usize::from(stream.cpu) == cpu);
    let items = stream.into_iter().flat_map(|stream| stream.items());
    items
        .map(|item| {
            if let Item::Event(event) = item {
                event
            } else {
                panic!("{item:?}")
            }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn events_are_read_as_they_were_written(cpus in vec(vec(event(), 0..60), 1..4)) {
        let recording = Recording::parse(&file(&cpus, HEAD_SIZE + 4 * MAX_EVENT)).unwrap();
        prop_assert_eq!(&recording.damage, &[]);
        for (cpu, written) in cpus.iter().enumerate() {
            prop_assert_eq!(&events(&recording, cpu), written);
        }
    }

    #[test]
    fn any_bytes_are_read(bytes in vec(any::<u8>(), 0..400)) {
        let mut codec = Codec::default();
        let mut rest = bytes.as_slice();
        while let Ok((_, length)) = codec.read(rest) {
            prop_assert!(length != 0 && length <= rest.len());
            rest = &rest[length..];
        }
        prop_assert!(Recording::parse(&bytes).is_err());
    }

    /// One wrong byte costs one block, or the header.
    #[test]
    fn a_wrong_byte_costs_its_block(events in vec(event(), 60..200), place in any::<Index>(), flip in 1u8..=255) {
        let whole = file(&[events], HEAD_SIZE + 4 * MAX_EVENT);
        let blocks = |recording: &Recording| recording.streams.iter().map(|s| s.items().count()).sum::<usize>();
        let all = blocks(&Recording::parse(&whole).unwrap());
        let mut bytes = whole.clone();
        let place = place.index(bytes.len());
        bytes[place] ^= flip;
        match Recording::parse(&bytes) {
            Ok(recording) => {
                prop_assert_eq!(recording.damage.len(), 1);
                prop_assert!(recording.damage[0].place.contains(&place));
                // A block has at most half as many events as bytes.
                prop_assert!(blocks(&recording) + 4 * MAX_EVENT >= all);
            }
            Err(_) => prop_assert!(place < 20 + u32::from_le_bytes(*whole[12..].first_chunk().unwrap()) as usize),
        }
    }

    #[test]
    fn a_torn_file_keeps_its_whole_blocks(events in vec(event(), 60..200), cut in any::<Index>()) {
        let whole = file(&[events], HEAD_SIZE + 4 * MAX_EVENT);
        let cut = cut.index(whole.len());
        let Ok(recording) = Recording::parse(&whole[..cut]) else { return Ok(()) };
        let written = Recording::parse(&whole).unwrap();
        let (kept, all) = (recording.streams.first(), &written.streams[0]);
        let kept: Vec<Item> = kept.into_iter().flat_map(|stream| stream.items()).collect();
        prop_assert_eq!(&kept[..], &all.items().take(kept.len()).collect::<Vec<_>>()[..]);
    }
}

#[test]
fn other_files_are_refused() {
    let refused = |bytes: &[u8]| Recording::parse(bytes).err();
    assert_eq!(refused(b""), Some(OpenError::Foreign));
    assert_eq!(refused(b"\x7fELF and so on"), Some(OpenError::Foreign));
    let mut bytes = file(&[vec![Event::CancelTimer]], BLOCK_SIZE);
    bytes[8] = 2;
    assert_eq!(refused(&bytes), Some(OpenError::Version(2)));
}

#[test]
fn what_was_lost_is_told() {
    let (mut recorder, mut block) = (Recorder::default(), vec![0; BLOCK_SIZE]);
    let mut out = FileWriter::new(Vec::new(), &Header::default()).unwrap();
    recorder.open(3, 0);
    recorder.put(&mut block, &Event::Now(1));
    recorder.close(&mut block);
    out.block(&block, 0).unwrap();
    assert!(
        !recorder.put(&mut block, &Event::Now(2)),
        "there is no block"
    );
    recorder.lose();
    recorder.open(3, 5);
    recorder.put(&mut block, &Event::Now(3));
    recorder.close(&mut block);
    out.block(&block, 0).unwrap();
    let recording = Recording::parse(out.get_mut()).unwrap();
    let items: Vec<_> = recording.streams[0].items().collect();
    assert_eq!(
        items,
        [
            Item::Event(Event::Now(1)),
            Item::Gap { lost: 1, blocks: 0 },
            Item::Event(Event::Now(3))
        ]
    );
}

#[test]
fn a_blocks_last_stamp_is_that_of_its_last_event() {
    let (mut recorder, mut block) = (Recorder::default(), vec![0; BLOCK_SIZE]);
    recorder.open(3, 5);
    recorder.put(&mut block, &Event::Now(1));
    recorder.close(&mut block);
    assert_eq!(last_stamp(&block), Some(5), "none has one");
    recorder.open(3, 5);
    recorder.put(
        &mut block,
        &Event::Lock {
            id: 1,
            stamp: 300_000,
        },
    );
    recorder.put(&mut block, &Event::End { stamp: 1_000_005 });
    recorder.put(&mut block, &Event::Now(1));
    recorder.close(&mut block);
    assert_eq!(last_stamp(&block), Some(1_000_005));
    assert_eq!(last_stamp(&block[..HEAD_SIZE + 3]), None, "it is torn");
}

/// A file with a state at the beginning and at these stamps, with these numbers of bytes.
fn states(lengths: &[(u64, usize)]) -> Vec<u8> {
    let mut out = FileWriter::new(Vec::new(), &Header::default()).unwrap();
    for &(stamp, length) in lengths {
        out.state(
            stamp,
            &(0..length).map(|at| (at / 7) as u8).collect::<Vec<_>>(),
        )
        .unwrap();
    }
    std::mem::take(out.get_mut())
}

/// Lengths of the states that are read.
fn lengths(bytes: &[u8]) -> (Option<usize>, Vec<(u64, usize)>) {
    let recording = Recording::parse(bytes).unwrap();
    let points = recording
        .checkpoints
        .iter()
        .map(|point| (point.stamp, point.state.len()));
    (recording.state.as_ref().map(Vec::len), points.collect())
}

#[test]
fn states_are_read_where_all_of_them_is_there() {
    let long = 2 * BLOCK_SIZE + 5;
    // A state may have no bytes. States are read in the order of their stamps.
    let bytes = states(&[(0, 0), (900, 1), (7, long)]);
    assert_eq!(lengths(&bytes), (Some(0), vec![(7, long), (900, 1)]));
    assert_eq!(lengths(&states(&[(5, 3)])), (None, vec![(5, 3)]));
    let state = Recording::parse(&bytes)
        .unwrap()
        .checkpoints
        .remove(0)
        .state;
    assert!(state
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte == (at / 7) as u8));
    // Each part of the long state is needed; the last bytes are a part of their own.
    for part in 0..3 {
        let mut torn = bytes.clone();
        torn[bytes.len() - 1 - part * (HEAD_SIZE + BLOCK_SIZE)] ^= 1;
        assert_eq!(lengths(&torn), (Some(0), vec![(900, 1)]));
    }
    assert_eq!(
        lengths(&bytes[..bytes.len() - HEAD_SIZE - 5]),
        (Some(0), vec![(900, 1)])
    );
}

/// A file written before parts were counted.
#[test]
fn a_state_of_yesterday_is_read() {
    let mut bytes = states(&[(0, BLOCK_SIZE + 9)]);
    let first = bytes.windows(4).position(|four| four == b"BBLK").unwrap();
    for (at, length) in [(first, BLOCK_SIZE), (first + HEAD_SIZE + BLOCK_SIZE, 9)] {
        bytes[at + 16..at + 20].fill(0);
        let crc = crc32fast::hash(&bytes[at + 8..at + HEAD_SIZE + length]);
        bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
    }
    assert_eq!(lengths(&bytes), (Some(BLOCK_SIZE + 9), vec![]));
}
