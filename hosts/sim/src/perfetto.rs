// SPDX-License-Identifier: GPL-2.0-only
//! A trace for ui.perfetto.dev: a track for each CPU (the current task), a track for each task
//! (running, waiting, sleeping), counters of waiting tasks and idle CPUs, and marks for faults,
//! upgrades and CPUs that go online or offline.
//!
//! Perfetto's own scheduling events come from the kernel's ftrace, and its page interprets them as
//! the kernel's. Plain track events are used instead, which mean what their names say. Names are
//! written once and then referenced by number. The file is written during the run. A few bytes for
//! each task and CPU are kept between events.

use std::collections::HashMap;
use std::io::{self, Write};

use prost::Message;

use crate::trace::{Event, Left, Sink};
use crate::world::TaskRef;

use schema::{Counter, EventName, Interned, Packet, Track, TrackEvent};

/// The parts of Perfetto's messages that are used here, with the official numbers of
/// `protos/perfetto/trace` in Perfetto's source. `hosts/sim/tests/perfetto.proto` has the same
/// parts for the test's decoder.
mod schema {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Packet {
        #[prost(uint64, optional, tag = "8")]
        pub timestamp: Option<u64>,
        #[prost(uint32, tag = "10")]
        pub trusted_packet_sequence_id: u32,
        #[prost(message, optional, tag = "11")]
        pub track_event: Option<TrackEvent>,
        #[prost(message, optional, tag = "12")]
        pub interned_data: Option<Interned>,
        #[prost(uint32, tag = "13")]
        pub sequence_flags: u32,
        #[prost(message, optional, tag = "60")]
        pub track_descriptor: Option<Track>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Interned {
        #[prost(message, repeated, tag = "2")]
        pub event_names: Vec<EventName>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct EventName {
        #[prost(uint64, tag = "1")]
        pub iid: u64,
        #[prost(string, tag = "2")]
        pub name: String,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Track {
        #[prost(uint64, tag = "1")]
        pub uuid: u64,
        #[prost(string, tag = "2")]
        pub name: String,
        #[prost(uint64, optional, tag = "5")]
        pub parent_uuid: Option<u64>,
        #[prost(message, optional, tag = "8")]
        pub counter: Option<Counter>,
        #[prost(int32, tag = "11")]
        pub child_ordering: i32,
        #[prost(int32, optional, tag = "12")]
        pub sibling_order_rank: Option<i32>,
    }
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Counter {
        #[prost(int32, tag = "3")]
        pub unit: i32,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TrackEvent {
        #[prost(int32, tag = "9")]
        pub kind: i32,
        #[prost(uint64, optional, tag = "10")]
        pub name_iid: Option<u64>,
        #[prost(uint64, tag = "11")]
        pub track_uuid: u64,
        #[prost(string, optional, tag = "23")]
        pub name: Option<String>,
        #[prost(int64, optional, tag = "30")]
        pub counter_value: Option<i64>,
    }
}

const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

const UNIT_COUNT: i32 = 2;

/// Child tracks are ordered by their rank.
const EXPLICIT: i32 = 3;

/// The only sequence of packets.
const SEQUENCE: u32 = 1;
/// SEQ_INCREMENTAL_STATE_CLEARED, in the first packet: from then on names are referenced by number.
const CLEARED: u32 = 1;
/// SEQ_NEEDS_INCREMENTAL_STATE, in all packets that use or add such names.
const NEEDS: u32 = 2;

/// Ids of tracks. The first six tracks always exist.
mod track {
    pub const MACHINE: u64 = 1;
    pub const WAITING: u64 = 2;
    pub const IDLE: u64 = 3;
    pub const EVENTS: u64 = 4;
    pub const CPUS: u64 = 5;
    pub const TASKS: u64 = 6;
    /// First ids of CPUs, groups and tasks.
    pub const CPU: u64 = 1 << 16;
    pub const GROUP: u64 = 1 << 24;
    pub const TASK: u64 = 1 << 32;
}

/// Numbers of names.
mod name {
    pub const WAITING: u64 = 1;
    pub const SLEEPING: u64 = 2;
    pub const HIGHER: u64 = 3;
    pub const OFFLINE: u64 = 4;
    /// First numbers of "running on CPU n", and of the names of tasks.
    pub const ON_CPU: u64 = 1 << 16;
    pub const TASK: u64 = 1 << 32;
}

/// The state of a CPU. Its track shows offline before a higher class, and that before the task.
/// `shown` is the number of the slice's name; 0 is no slice.
#[derive(Clone, Copy, Default)]
struct Cpu {
    task: Option<TaskRef>,
    higher: bool,
    offline: bool,
    shown: u64,
}

impl Cpu {
    fn shows(&self) -> u64 {
        match self {
            Self { offline: true, .. } => name::OFFLINE,
            Self { higher: true, .. } => name::HIGHER,
            Self {
                task: Some(task), ..
            } => name::TASK + u64::from(task.0),
            _ => 0,
        }
    }
}

/// Number of bytes that are collected before they are written.
const BLOCK: usize = 1 << 16;

/// Writes a trace.
pub struct Perfetto<W: Write> {
    out: W,
    block: Vec<u8>,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
    cpus: Vec<Cpu>,
    /// By task: the number of its slice's name; 0 is no slice.
    tasks: Vec<u64>,
    groups: HashMap<Box<str>, u64>,
    waiting: Option<u32>,
    idle: Option<u32>,
}

impl<W: Write> Perfetto<W> {
    /// A trace of a machine with this number of CPUs.
    pub fn new(out: W, cpus: usize) -> Self {
        let mut trace = Self {
            out,
            block: Vec::with_capacity(BLOCK + 4096),
            error: None,
            cpus: vec![Cpu::default(); cpus],
            tasks: Vec::new(),
            groups: HashMap::new(),
            waiting: None,
            idle: None,
        };
        let fixed = [
            (name::WAITING, "waiting"),
            (name::SLEEPING, "sleeping"),
            (name::HIGHER, "higher class"),
            (name::OFFLINE, "offline"),
        ];
        let of_cpus =
            (0..cpus as u64).map(|cpu| (name::ON_CPU + cpu, format!("running on CPU {cpu}")));
        let names = fixed
            .map(|(iid, name)| (iid, name.to_owned()))
            .into_iter()
            .chain(of_cpus);
        let event_names = names.map(|(iid, name)| EventName { iid, name }).collect();
        trace.packet(Packet {
            sequence_flags: CLEARED | NEEDS,
            interned_data: Some(Interned { event_names }),
            ..Packet::default()
        });
        trace.track(track::MACHINE, None, "Machine", 0, false);
        trace.track(
            track::WAITING,
            Some(track::MACHINE),
            "waiting tasks",
            0,
            true,
        );
        trace.track(track::IDLE, Some(track::MACHINE), "idle CPUs", 1, true);
        trace.track(track::EVENTS, Some(track::MACHINE), "events", 2, false);
        trace.track(track::CPUS, Some(track::MACHINE), "CPUs", 3, false);
        trace.track(track::TASKS, Some(track::MACHINE), "tasks", 4, false);
        for cpu in 0..cpus {
            trace.track(
                track::CPU + cpu as u64,
                Some(track::CPUS),
                &format!("CPU {cpu}"),
                cpu as u64,
                false,
            );
        }
        trace
    }

    /// Ends all open slices at this time, and returns the file.
    pub fn finish(mut self, now: u64) -> io::Result<W> {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].shown != 0 {
                self.slice(now, track::CPU + cpu as u64, SLICE_END, None);
            }
        }
        for task in 0..self.tasks.len() {
            self.task_shows(now, TaskRef(task as u32), 0);
        }
        self.flush();
        self.error.map_or(Ok(()), Err)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.out.write_all(&self.block).err();
        }
        self.block.clear();
    }

    fn packet(&mut self, packet: Packet) {
        let packet = Packet {
            trusted_packet_sequence_id: SEQUENCE,
            ..packet
        };
        // The file is one message, `Trace`, which repeats field 1.
        self.block.push(1 << 3 | 2);
        prost::encoding::encode_varint(packet.encoded_len() as u64, &mut self.block);
        packet.encode_raw(&mut self.block);
        if self.block.len() >= BLOCK {
            self.flush();
        }
    }

    fn track(&mut self, uuid: u64, parent: Option<u64>, name: &str, rank: u64, is_counter: bool) {
        self.packet(Packet {
            track_descriptor: Some(descriptor(uuid, parent, name, rank, is_counter)),
            ..Packet::default()
        });
    }

    fn event(&mut self, now: u64, event: TrackEvent) {
        self.packet(Packet {
            timestamp: Some(now),
            sequence_flags: NEEDS,
            track_event: Some(event),
            ..Packet::default()
        });
    }

    fn slice(&mut self, now: u64, track_uuid: u64, kind: i32, name_iid: Option<u64>) {
        self.event(
            now,
            TrackEvent {
                kind,
                track_uuid,
                name_iid,
                ..TrackEvent::default()
            },
        );
    }

    fn mark(&mut self, now: u64, name: String) {
        let event = TrackEvent {
            kind: INSTANT,
            track_uuid: track::EVENTS,
            name: Some(name),
            ..TrackEvent::default()
        };
        self.event(now, event);
    }

    fn count(&mut self, now: u64, track_uuid: u64, value: u32) {
        let counter_value = Some(value.into());
        self.event(
            now,
            TrackEvent {
                kind: COUNTER,
                track_uuid,
                counter_value,
                ..TrackEvent::default()
            },
        );
    }

    /// Changes the slice of a task's track.
    fn task_shows(&mut self, now: u64, task: TaskRef, shows: u64) {
        let Some(shown) = self.tasks.get_mut(task.0 as usize) else {
            return;
        };
        let before = std::mem::replace(shown, shows);
        self.change(now, track::TASK + u64::from(task.0), before, shows);
    }

    /// Changes the state of a CPU, and updates the slice of its track.
    fn cpu(&mut self, now: u64, cpu: u32, change: impl FnOnce(&mut Cpu)) {
        let Some(state) = self.cpus.get_mut(cpu as usize) else {
            return;
        };
        change(state);
        let shows = state.shows();
        let before = std::mem::replace(&mut state.shown, shows);
        self.change(now, track::CPU + u64::from(cpu), before, shows);
    }

    fn change(&mut self, now: u64, track: u64, before: u64, shows: u64) {
        if before == shows {
            return;
        }
        if before != 0 {
            self.slice(now, track, SLICE_END, None);
        }
        if shows != 0 {
            self.slice(now, track, SLICE_BEGIN, Some(shows));
        }
    }
}

fn descriptor(
    uuid: u64,
    parent_uuid: Option<u64>,
    name: &str,
    rank: u64,
    is_counter: bool,
) -> Track {
    let sibling_order_rank = i32::try_from(rank).ok();
    let counter = is_counter.then_some(Counter { unit: UNIT_COUNT });
    Track {
        uuid,
        name: name.into(),
        parent_uuid,
        counter,
        child_ordering: EXPLICIT,
        sibling_order_rank,
    }
}

impl<W: Write> Sink for Perfetto<W> {
    fn task(&mut self, task: TaskRef, group: &str, name: &str) {
        let next = self.groups.len() as u64;
        let group_track = match self.groups.get(group) {
            Some(&found) => found,
            None => {
                self.groups.insert(group.into(), track::GROUP + next);
                self.track(track::GROUP + next, Some(track::TASKS), group, next, false);
                track::GROUP + next
            }
        };
        // Tasks may share a name, and tracks of the same name would be drawn as one.
        let (number, name) = (u64::from(task.0), format!("{name} {}", task.0));
        let descriptor = descriptor(
            track::TASK + number,
            Some(group_track),
            &name,
            number,
            false,
        );
        self.packet(Packet {
            sequence_flags: NEEDS,
            interned_data: Some(Interned {
                event_names: vec![EventName {
                    iid: name::TASK + number,
                    name,
                }],
            }),
            track_descriptor: Some(descriptor),
            ..Packet::default()
        });
        if self.tasks.len() <= task.0 as usize {
            self.tasks.resize(task.0 as usize + 1, 0);
        }
    }

    fn event(&mut self, now: u64, event: &Event) {
        match *event {
            // The track of a task begins with its first wakeup.
            Event::New { .. } => {}
            Event::Wake { task, .. } => self.task_shows(now, task, name::WAITING),
            Event::Switch {
                cpu, prev, next, ..
            } => {
                if let Some((task, left)) = prev {
                    let shows = match left {
                        Left::Blocked => name::SLEEPING,
                        Left::Preempted | Left::Yielded => name::WAITING,
                        Left::Dead => 0,
                    };
                    self.task_shows(now, task, shows);
                }
                if let Some(task) = next {
                    self.task_shows(now, task, name::ON_CPU + u64::from(cpu));
                }
                self.cpu(now, cpu, |state| state.task = next);
            }
            Event::Higher { cpu, begins } => self.cpu(now, cpu, |state| state.higher = begins),
            Event::Online { cpu, online } => {
                self.mark(
                    now,
                    format!("CPU {cpu} {}", if online { "online" } else { "offline" }),
                );
                self.cpu(now, cpu, |state| state.offline = !online);
            }
            Event::Load { waiting, idle } => {
                if self.waiting.replace(waiting) != Some(waiting) {
                    self.count(now, track::WAITING, waiting);
                }
                if self.idle.replace(idle) != Some(idle) {
                    self.count(now, track::IDLE, idle);
                }
            }
            Event::Fault { policy } => self.mark(now, format!("fault of policy {policy}")),
            Event::Upgrade {
                policy,
                version,
                done,
            } => {
                let what = if done { "is upgraded to" } else { "refuses" };
                self.mark(now, format!("policy {policy} {what} version {version}"));
            }
        }
    }
}
