// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's trace of context switches, as pages of its ring buffers.
//!
//! A page is copied as it is, so a switch costs the reader some hundred instructions. A line of
//! `trace_pipe` costs a thousand times as many, most of them in the kernel: a reader of lines holds
//! a CPU, and the agent of that CPU gets what the kernel leaves it.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::{self, File},
    io::{ErrorKind, Read},
    thread,
};

use rustix::fs::{Mode, OFlags};

use crate::tool::{check, must};

const TRACING: &str = "/sys/kernel/tracing";
const EVENT: &str = "events/sched/sched_switch";
/// Bytes of a page, and of its header: the time of its first event, and the bytes that follow.
const PAGE: usize = 4096;
const HEADER: usize = 16;
/// Flag in the header: events before this page were lost (`RB_MISSED_EVENTS` in the kernel's
/// ring_buffer.c).
const LOST: u64 = 1 << 31;
/// Bits of the header that count bytes.
const COUNT: u64 = 0xfffff;
/// Bytes of a task's name, with the zero at its end.
const NAME: usize = 16;

/// A context switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Switch {
    /// Cycles of the clock that all CPUs share.
    pub time: u64,
    pub cpu: usize,
    /// Name of the task that runs from now on.
    pub next: String,
}

/// The switches of all CPUs in their order, while they are traced.
pub struct Switches {
    cpus: Vec<File>,
    layout: Layout,
    /// Those that may be preceded by one that was not read yet.
    held: BinaryHeap<Reverse<Switch>>,
    /// The last times that were read in the last rounds, the newest first.
    ends: [u64; 2],
}

impl Switches {
    /// Traces the switches to and from tasks whose names begin with `prefix`.
    pub fn begin(prefix: &str) -> Result<Self, String> {
        if !fs::exists(format!("{TRACING}/trace_pipe")).unwrap_or(false) {
            must("mount", &["-t", "tracefs", "tracefs", TRACING])?;
        }
        set("trace_clock", "x86-tsc")?;
        set("buffer_size_kb", "8192")?;
        set(
            &format!("{EVENT}/filter"),
            &format!("prev_comm ~ \"{prefix}*\" || next_comm ~ \"{prefix}*\""),
        )?;
        let layout = Layout::read()?;
        let cpus = thread::available_parallelism().map_or(0, usize::from);
        let open = |cpu| {
            let path = format!("{TRACING}/per_cpu/cpu{cpu}/trace_pipe_raw");
            let file = rustix::fs::open(&*path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
            file.map(File::from).map_err(|e| format!("{path}: {e}"))
        };
        let switches = Self {
            cpus: (0..cpus).map(open).collect::<Result<_, _>>()?,
            layout,
            held: BinaryHeap::new(),
            ends: [0; 2],
        };
        set(&format!("{EVENT}/enable"), "1")?;
        Ok(switches)
    }

    /// Ends the trace. What it holds can still be read.
    pub fn end(&self) -> Result<(), String> {
        set(&format!("{EVENT}/enable"), "0")
    }

    /// Reads what all CPUs have traced, and gives `take` those switches that nothing unread can
    /// precede: what comes in a later round happened after the round before this one ended.
    pub fn round(&mut self, take: impl FnMut(Switch) -> Result<(), String>) -> Result<(), String> {
        let mut page = [0; PAGE];
        let mut end = self.ends[0];
        for (cpu, file) in self.cpus.iter_mut().enumerate() {
            loop {
                match file.read(&mut page) {
                    Ok(0) => break,
                    Ok(size) => {
                        let found = events(&page[..size], &self.layout)?;
                        for (time, next) in found {
                            end = end.max(time);
                            self.held.push(Reverse(Switch { time, cpu, next }));
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => return Err(format!("the trace of CPU {cpu}: {e}")),
                }
            }
        }
        let [last, before] = self.ends;
        self.ends = [end, last];
        self.give(before, take)
    }

    /// Gives `take` the rest.
    pub fn rest(&mut self, take: impl FnMut(Switch) -> Result<(), String>) -> Result<(), String> {
        self.give(u64::MAX, take)
    }

    /// Gives `take` what is held up to `end`.
    fn give(
        &mut self,
        end: u64,
        mut take: impl FnMut(Switch) -> Result<(), String>,
    ) -> Result<(), String> {
        while let Some(Reverse(switch)) = self.held.peek() {
            if switch.time > end {
                break;
            }
            if let Some(Reverse(switch)) = self.held.pop() {
                take(switch)?;
            }
        }
        Ok(())
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn set(file: &str, text: &str) -> Result<(), String> {
    let path = format!("{TRACING}/{file}");
    fs::write(&path, text).map_err(|e| format!("{path}: {e}"))
}

/// Where a switch's event has what.
struct Layout {
    /// The number of this kind of event, in its first two bytes.
    id: u16,
    /// Offset of the next task's name.
    next: usize,
}

impl Layout {
    fn read() -> Result<Self, String> {
        let path = format!("{TRACING}/{EVENT}/format");
        let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        Self::parse(&text).ok_or_else(|| format!("{path} cannot be read:\n{text}"))
    }

    fn parse(text: &str) -> Option<Self> {
        let after = |text: &str, word: &str| {
            let (_, rest) = text.split_once(word)?;
            rest.split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse()
                .ok()
        };
        let next = text.lines().find(|line| line.contains(" next_comm["))?;
        Some(Self {
            id: after(text, "ID: ")?,
            next: after(next, "offset:")?.into(),
        })
    }
}

/// The times and next tasks of a page's events. The format is that of the kernel's
/// include/linux/ring_buffer.h.
fn events(page: &[u8], layout: &Layout) -> Result<Vec<(u64, String)>, String> {
    let bad = || "a page of the trace cannot be read".to_owned();
    let word = |at: usize| {
        let bytes = page.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let long = |at| Some(u64::from(word(at)?) | u64::from(word(at + 4)?) << 32);
    let mut time = long(0).ok_or_else(bad)?;
    let commit = long(8).ok_or_else(bad)?;
    check(commit & LOST == 0, || {
        "the trace has a gap: its buffer was full".to_owned()
    })?;
    let end = HEADER + usize::try_from(commit & COUNT).map_err(|_| bad())?;
    let mut found = Vec::new();
    let mut at = HEADER;
    while at < end {
        let head = word(at).ok_or_else(bad)?;
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        let second = || word(at + 4).ok_or_else(bad);
        let (data, size) = match kind {
            // The rest of the page is empty.
            29 if delta == 0 => break,
            29 => (None, 4 + second()? as usize),
            30 => {
                time += u64::from(second()?) << 27;
                (None, 8)
            }
            31 => {
                // The high bits stay: the stamp has 59.
                time = (time >> 59 << 59) | u64::from(second()?) << 27;
                (None, 8)
            }
            0 => (Some(at + 8), 4 + second()? as usize),
            words => (Some(at + 4), 4 + 4 * words as usize),
        };
        time += delta;
        if let Some(data) = data {
            let event = page.get(data..at + size).ok_or_else(bad)?;
            let id = event.get(..2).ok_or_else(bad)?;
            check(id == layout.id.to_le_bytes(), bad)?;
            let name = event.get(layout.next..layout.next + NAME).ok_or_else(bad)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            found.push((time, String::from_utf8_lossy(name).into_owned()));
        }
        at += size;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { id: 7, next: 4 };

    /// A page whose first event is at 1000.
    fn page(flags: u64, events: &[Vec<u32>]) -> Vec<u8> {
        let words: Vec<u32> = events.concat();
        let mut page = 1000_u64.to_le_bytes().to_vec();
        page.extend((flags | (4 * words.len() as u64)).to_le_bytes());
        page.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        page.resize(PAGE, 0);
        page
    }

    fn event(id: u32, delta: u32, name: [u8; 4]) -> Vec<u32> {
        vec![5 | delta << 5, id, u32::from_le_bytes(name), 0, 0, 0]
    }

    fn times(events: &[Vec<u32>]) -> Vec<(u64, String)> {
        super::events(&page(0, events), &LAYOUT).unwrap()
    }

    #[test]
    fn times_add_up() {
        let found = times(&[
            event(7, 3, *b"one\0"),
            // An event that was given up, of eight bytes.
            vec![29 | 10 << 5, 4],
            event(7, 4, *b"two\0"),
            // An extension of the time.
            vec![30 | 1 << 5, 2],
            event(7, 0, *b"abcd"),
            // A whole stamp.
            vec![31 | 9 << 5, 1],
            event(7, 1, *b"end\0"),
            // Nothing follows.
            vec![29, 0],
        ]);
        let extended = 1017 + 1 + (2 << 27);
        let expected = [
            (1003, "one"),
            (1017, "two"),
            (extended, "abcd"),
            ((1 << 27) + 10, "end"),
        ];
        assert_eq!(found, expected.map(|(time, name)| (time, name.to_owned())));
    }

    #[test]
    fn an_event_can_have_its_length_in_a_word() {
        let mut long = vec![1 << 5, 24];
        long.extend(&event(7, 0, *b"one\0")[1..]);
        assert_eq!(times(&[long]), [(1001, "one".to_owned())]);
    }

    #[test]
    fn what_is_no_switch_is_an_error() {
        assert!(super::events(&page(0, &[event(8, 0, *b"one\0")]), &LAYOUT).is_err());
    }

    #[test]
    fn a_gap_is_an_error() {
        let lost = super::events(&page(LOST, &[event(7, 0, *b"one\0")]), &LAYOUT);
        assert!(lost.unwrap_err().contains("gap"));
    }

    #[test]
    fn a_page_that_ends_early_is_an_error() {
        let page = page(0, &[event(7, 0, *b"one\0")]);
        assert!(super::events(&page[..30], &LAYOUT).is_err());
    }

    #[test]
    fn switches_are_given_in_order_and_up_to_a_time() {
        let mut switches = Switches {
            cpus: Vec::new(),
            layout: LAYOUT,
            held: BinaryHeap::new(),
            ends: [0; 2],
        };
        for (cpu, time) in [(0, 7), (1, 3), (1, 9), (0, 5)] {
            let next = String::new();
            switches.held.push(Reverse(Switch { time, cpu, next }));
        }
        let mut given = Vec::new();
        let mut give = |switches: &mut Switches, end| {
            let take = |switch: Switch| {
                given.push(switch.time);
                Ok(())
            };
            switches.give(end, take).unwrap();
            std::mem::take(&mut given)
        };
        assert_eq!(give(&mut switches, 6), [3, 5]);
        assert_eq!(give(&mut switches, u64::MAX), [7, 9]);
    }

    #[test]
    fn the_layout_is_the_kernels() {
        let text = "name: sched_switch\nID: 312\nformat:\n\tfield:char prev_comm[16];\toffset:8;\n\
                    \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n";
        let layout = Layout::parse(text).unwrap();
        assert_eq!((layout.id, layout.next), (312, 40));
    }
}
