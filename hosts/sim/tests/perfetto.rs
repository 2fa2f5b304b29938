// SPDX-License-Identifier: GPL-2.0-only
//! The Perfetto trace of a small machine, decoded by protoc (of Debian's protobuf-compiler), which
//! shares no code with the writer. Times, names and nesting are compared with what happened.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::process::{Command, Stdio};

use baton_sim::perfetto::Perfetto;
use baton_sim::trace::{Event, Left, Sink};
use baton_sim::world::TaskRef;

/// A message in protoc's text: fields in order, each a text or a message.
#[derive(Debug, Default)]
struct Message(Vec<(String, Field)>);

#[derive(Debug)]
enum Field {
    Text(String),
    Message(Message),
}

impl Message {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|(field, value)| match value {
            Field::Text(text) if field == name => Some(&**text),
            _ => None,
        })
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).map(|text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{name}: {text} is no number"))
        })
    }

    fn messages<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Message> {
        self.0.iter().filter_map(move |(field, value)| match value {
            Field::Message(message) if field == name => Some(message),
            _ => None,
        })
    }

    fn message<'a>(&'a self, name: &'a str) -> Option<&'a Message> {
        self.messages(name).next()
    }

    fn parse<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Self {
        let mut message = Self::default();
        while let Some(line) = lines.next().map(str::trim).filter(|&line| line != "}") {
            match line.split_once(": ") {
                Some((name, text)) => message
                    .0
                    .push((name.into(), Field::Text(text.trim_matches('"').into()))),
                None => {
                    let name = line
                        .strip_suffix(" {")
                        .unwrap_or_else(|| panic!("protoc wrote '{line}'"));
                    // protoc writes a number for a field that is missing in the description.
                    assert!(name.parse::<u32>().is_err(), "field {name} is unknown");
                    message
                        .0
                        .push((name.into(), Field::Message(Self::parse(lines))));
                }
            }
        }
        message
    }
}

/// The contents of tracks, by the path of the track's names: what begins, ends, is marked or is
/// counted.
type Tracks = BTreeMap<String, Vec<String>>;

fn decode(file: &[u8]) -> Tracks {
    let here = env!("CARGO_MANIFEST_DIR");
    let mut protoc = Command::new("protoc")
        .args([
            &format!("--proto_path={here}/tests"),
            "--decode=perfetto.protos.Trace",
            "perfetto.proto",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("protoc is needed: vm/enter has it");
    protoc.stdin.take().unwrap().write_all(file).unwrap();
    let output = protoc.wait_with_output().unwrap();
    assert!(output.status.success(), "protoc could not decode it");
    read(&Message::parse(
        &mut String::from_utf8(output.stdout).unwrap().lines(),
    ))
}

/// Reads the trace as Perfetto's page does: names are referenced by number, and the end of a slice
/// is that of the innermost one.
fn read(trace: &Message) -> Tracks {
    let (mut names, mut paths, mut open) = (
        HashMap::new(),
        HashMap::new(),
        HashMap::<u64, Vec<String>>::new(),
    );
    let (mut tracks, mut last) = (Tracks::new(), 0);
    for (at, packet) in trace.messages("packet").enumerate() {
        assert_eq!(packet.number("trusted_packet_sequence_id"), Some(1));
        let flags = packet.number("sequence_flags").unwrap_or(0);
        assert_eq!(
            flags & 1 == 1,
            at == 0,
            "the state is cleared by the first packet and by no other"
        );
        for name in packet
            .message("interned_data")
            .into_iter()
            .flat_map(|data| data.messages("event_names"))
        {
            assert!(flags & 2 == 2);
            let before = names.insert(
                name.number("iid").unwrap(),
                name.text("name").unwrap().to_owned(),
            );
            assert!(before.is_none(), "a number names one thing");
        }
        if let Some(track) = packet.message("track_descriptor") {
            let mut path = match track.number("parent_uuid") {
                Some(parent) => format!("{}/", paths[&parent]),
                None => String::new(),
            };
            path += track.text("name").unwrap();
            assert_eq!(track.text("child_ordering"), Some("EXPLICIT"));
            assert!(track.number("sibling_order_rank").is_some());
            if track
                .message("counter")
                .is_some_and(|counter| counter.text("unit") == Some("UNIT_COUNT"))
            {
                path += " (counter)";
            }
            tracks.insert(path.clone(), Vec::new());
            assert!(
                paths.insert(track.number("uuid").unwrap(), path).is_none(),
                "a track is described once"
            );
        }
        let Some(event) = packet.message("track_event") else {
            continue;
        };
        let now = packet.number("timestamp").unwrap();
        assert!(now >= last && flags == 2);
        last = now;
        let uuid = event.number("track_uuid").unwrap();
        let name = event.text("name").map(str::to_owned);
        let name = name.or_else(|| event.number("name_iid").map(|iid| names[&iid].clone()));
        let open = open.entry(uuid).or_default();
        let what = match event.text("type").unwrap() {
            "TYPE_SLICE_BEGIN" => {
                open.push(name.clone().unwrap());
                format!("{now} begin {}", name.unwrap())
            }
            "TYPE_SLICE_END" => format!("{now} end {}", open.pop().expect("something is open")),
            "TYPE_INSTANT" => format!("{now} mark {}", name.unwrap()),
            "TYPE_COUNTER" => format!("{now} = {}", event.number("counter_value").unwrap()),
            other => panic!("an event of type {other}"),
        };
        assert!(open.len() <= 1, "slices of a track follow each other");
        tracks.get_mut(&paths[&uuid]).unwrap().push(what);
    }
    assert!(open.values().all(Vec::is_empty), "all slices are ended");
    tracks
}

fn switch(cpu: u32, prev: Option<(u32, Left)>, next: Option<u32>) -> Event {
    let prev = prev.map(|(task, left)| (TaskRef(task), left));
    Event::Switch {
        cpu,
        prev,
        next: next.map(TaskRef),
        migrated: false,
    }
}

fn wake(task: u32) -> Event {
    Event::Wake {
        task: TaskRef(task),
        cpu: 0,
        waker: 1,
    }
}

#[test]
fn protoc_reads_what_happened() {
    let mut trace = Perfetto::new(Vec::new(), 2);
    for (task, group, name) in [
        (0, "web", "worker"),
        (1, "web", "worker"),
        (2, "batch", "say \"<hi>\""),
    ] {
        trace.task(TaskRef(task), group, name);
        trace.event(
            0,
            &Event::New {
                task: TaskRef(task),
            },
        );
    }
    let events = [
        (
            0,
            Event::Load {
                waiting: 0,
                idle: 2,
            },
        ),
        (100, wake(0)),
        (
            100,
            Event::Load {
                waiting: 1,
                idle: 2,
            },
        ),
        (150, switch(0, None, Some(0))),
        (
            150,
            Event::Load {
                waiting: 0,
                idle: 1,
            },
        ),
        (200, wake(1)),
        (1 << 40, switch(0, Some((0, Left::Preempted)), Some(1))),
        ((1 << 40) + 1, switch(1, None, Some(0))),
        (
            (1 << 40) + 5,
            Event::Higher {
                cpu: 1,
                begins: true,
            },
        ),
        ((1 << 40) + 5, switch(1, Some((0, Left::Blocked)), None)),
        ((1 << 40) + 7, Event::Fault { policy: 3 }),
        (
            (1 << 40) + 8,
            Event::Higher {
                cpu: 1,
                begins: false,
            },
        ),
        (
            (1 << 40) + 8,
            Event::Upgrade {
                policy: 3,
                version: 2,
                done: true,
            },
        ),
        (
            (1 << 40) + 9,
            Event::Online {
                cpu: 1,
                online: false,
            },
        ),
        ((1 << 40) + 10, switch(0, Some((1, Left::Dead)), None)),
        (
            (1 << 40) + 11,
            Event::Load {
                waiting: 0,
                idle: 1,
            },
        ),
        (
            (1 << 40) + 12,
            Event::Online {
                cpu: 1,
                online: true,
            },
        ),
        ((1 << 40) + 13, wake(0)),
    ];
    events
        .iter()
        .for_each(|(now, event)| trace.event(*now, event));
    let file = trace.finish((1 << 40) + 20).unwrap();
    let tracks = decode(&file);
    let check = |track: &str, expected: &[(u64, &str)]| {
        let expected: Vec<_> = expected
            .iter()
            .map(|(now, what)| format!("{now} {what}"))
            .collect();
        assert_eq!(
            tracks.get(track),
            Some(&expected),
            "{track}; there are {:?}",
            tracks.keys()
        );
    };
    let late = |after: u64| (1 << 40) + after;
    check("Machine", &[]);
    check(
        "Machine/waiting tasks (counter)",
        &[(0, "= 0"), (100, "= 1"), (150, "= 0")],
    );
    check("Machine/idle CPUs (counter)", &[(0, "= 2"), (150, "= 1")]);
    check(
        "Machine/events",
        &[
            (late(7), "mark fault of policy 3"),
            (late(8), "mark policy 3 is upgraded to version 2"),
            (late(9), "mark CPU 1 offline"),
            (late(12), "mark CPU 1 online"),
        ],
    );
    check(
        "Machine/CPUs/CPU 0",
        &[
            (150, "begin worker 0"),
            (late(0), "end worker 0"),
            (late(0), "begin worker 1"),
            (late(10), "end worker 1"),
        ],
    );
    check(
        "Machine/CPUs/CPU 1",
        &[
            (late(1), "begin worker 0"),
            (late(5), "end worker 0"),
            (late(5), "begin higher class"),
            (late(8), "end higher class"),
            (late(9), "begin offline"),
            (late(12), "end offline"),
        ],
    );
    check(
        "Machine/tasks/web/worker 0",
        &[
            (100, "begin waiting"),
            (150, "end waiting"),
            (150, "begin running on CPU 0"),
            (late(0), "end running on CPU 0"),
            (late(0), "begin waiting"),
            (late(1), "end waiting"),
            (late(1), "begin running on CPU 1"),
            (late(5), "end running on CPU 1"),
            (late(5), "begin sleeping"),
            (late(13), "end sleeping"),
            (late(13), "begin waiting"),
            (late(20), "end waiting"),
        ],
    );
    check(
        "Machine/tasks/web/worker 1",
        &[
            (200, "begin waiting"),
            (late(0), "end waiting"),
            (late(0), "begin running on CPU 0"),
            (late(10), "end running on CPU 0"),
        ],
    );
    check("Machine/tasks/batch/say \\\"<hi>\\\" 2", &[]);
    assert_eq!(tracks.len(), 13, "{:?}", tracks.keys());
}

#[test]
fn a_large_machine_is_written_in_pieces() {
    // Records the largest piece and the total.
    struct Pieces(usize, usize);
    impl Write for Pieces {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.0 = self.0.max(piece.len());
            self.1 += piece.len();
            Ok(piece.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut trace = Perfetto::new(Pieces(0, 0), 64);
    trace.task(TaskRef(0), "g", "t");
    for now in 0..100_000 {
        let (cpu, other) = ((now % 64) as u32, Some((0, Left::Preempted)));
        trace.event(now, &switch(cpu, other.filter(|_| now % 2 == 1), Some(0)));
    }
    let Pieces(largest, all) = trace.finish(100_000).unwrap();
    assert!(
        largest < 100_000 && all > 1_000_000,
        "{largest} of {all} bytes at once"
    );
}

#[test]
fn the_first_error_is_told() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = Perfetto::new(Full, 1).finish(0).err();
    assert_eq!(
        error.map(|error| error.kind()),
        Some(io::ErrorKind::StorageFull)
    );
}
