// SPDX-License-Identifier: GPL-2.0-only
//! Files of recordings.
//!
//! ```text
//! file := "BATONREC" version:u32 length:u32 crc:u32 header block*
//! ```
//! The header ([`Header`]) is JSON of `length` bytes, and `crc` is its checksum. The blocks, as in
//! `block.rs`, follow one after the other, those of each CPU in the order in which it wrote them. A
//! block with a wrong checksum is left out; the next block is found by its magic number.

extern crate alloc;
extern crate std;

use crate::{BlockHead, Codec, Event, Kind, BLOCK_SIZE, HEAD_SIZE};
use alloc::{collections::BTreeMap, string::String, vec, vec::Vec};
use baton_abi::{BatonCpu, BatonStateType};
use core::ops::Range;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Version of the format. A file of another version is refused.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"BATONREC";
/// Number of bytes before the header.
const LEAD: usize = 20;
/// Maximum length of a header: 64 bytes for each of 8,192 CPUs, and a margin.
const MAX_HEADER: u32 = 1 << 20;

/// The policy and the machine of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the policy.
    pub policy: String,
    /// Its version.
    pub version: u32,
    /// Its options.
    pub options: String,
    /// The host on which it ran: "kernel 7.2.0 ...", or "simulator".
    pub host: String,
    /// The CPUs given to the policy: core, last-level cache, node, and whether the CPU was online.
    pub cpus: Vec<(u32, u32, u32, bool)>,
    /// Their clusters. Files of earlier versions have none.
    #[serde(default)]
    pub clusters: Vec<u32>,
    /// Number of task slots.
    pub max_tasks: u32,
    /// Stamps per second.
    pub stamp_hz: u64,
    /// The type of the policy's state, if the recording begins with a state and not with a new
    /// instance.
    pub state: Option<(String, u32, u64)>,
}

impl Header {
    /// Sets the CPUs that were given to the policy.
    pub fn set_places(&mut self, cpus: &[BatonCpu]) {
        let place = |cpu: &BatonCpu| (cpu.core, cpu.llc, cpu.node, cpu.online != 0);
        self.cpus = cpus.iter().map(place).collect();
        self.clusters = cpus.iter().map(|cpu| cpu.cluster).collect();
    }

    /// The CPUs that were given to the policy. A cluster that is not known is a core.
    pub fn places(&self) -> Vec<BatonCpu> {
        let cpus = self.cpus.iter().enumerate();
        let place =
            |(number, &(core, llc, node, online)): (usize, &(u32, u32, u32, bool))| BatonCpu {
                core,
                llc,
                node,
                online: u32::from(online),
                cluster: self.clusters.get(number).copied().unwrap_or(core),
            };
        cpus.map(place).collect()
    }

    /// The number of CPUs.
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The type of a state as a header has it: name, version and layout.
    pub fn state_type(raw: &BatonStateType) -> (String, u32, u64) {
        let name = raw.name.iter().take_while(|c| **c != 0);
        let name = name.map(|c| char::from(*c as u8)).collect();
        (name, raw.version, raw.layout)
    }
}

/// Writes a file.
pub struct FileWriter<W: Write> {
    out: W,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        let text = serde_json::to_vec(header)?;
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&(text.len() as u32).to_le_bytes())?;
        out.write_all(&crc32fast::hash(&text).to_le_bytes())?;
        out.write_all(&text)?;
        Ok(Self { out })
    }

    /// Adds a block, as [`crate::Recorder::close`] left it. Bytes that are not a block are an
    /// error. `first` is the number of the first block of its CPU in the file.
    pub fn block(&mut self, block: &[u8], first: u64) -> io::Result<()> {
        let malformed = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "this is no block of a recording",
            )
        };
        let mut head = block
            .first_chunk::<HEAD_SIZE>()
            .and_then(BlockHead::from_bytes)
            .ok_or_else(malformed)?;
        let payload = block
            .get(HEAD_SIZE..HEAD_SIZE + head.used as usize)
            .ok_or_else(malformed)?;
        head.number = head.number.wrapping_sub(first);
        head.crc = checksum(&head.to_bytes(), payload);
        self.out.write_all(&head.to_bytes())?;
        self.out.write_all(payload)
    }

    /// Adds the policy's state at a checkpoint, or with the stamp 0 the state that the recording
    /// begins with.
    pub fn state(&mut self, stamp: u64, state: &[u8]) -> io::Result<()> {
        let parts: Vec<&[u8]> = if state.is_empty() {
            vec![state]
        } else {
            state.chunks(BLOCK_SIZE).collect()
        };
        for (number, part) in parts.iter().enumerate() {
            let mut head = BlockHead {
                crc: 0,
                kind: Kind::State,
                cpu: 0,
                used: part.len() as u32,
                events: parts.len() as u32,
                number: number as u64,
                stamp,
                lost: 0,
            };
            head.crc = checksum(&head.to_bytes(), part);
            self.out.write_all(&head.to_bytes())?;
            self.out.write_all(part)?;
        }
        Ok(())
    }

    /// The underlying writer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }
}

fn checksum(head: &[u8; HEAD_SIZE], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[8..]);
    crc.update(payload);
    crc.finalize()
}

/// Why a file cannot be read as a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The file does not begin as a recording.
    Foreign,
    /// The file has another version of the format.
    Version(u32),
    /// The header is damaged or truncated. Holds the reason.
    Header(String),
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OpenError::Foreign => f.write_str("it is no recording of Baton's"),
            OpenError::Version(found) => {
                write!(
                    f,
                    "it is of version {found} of the format, and this Baton reads version \
                    {VERSION}"
                )
            }
            OpenError::Header(why) => write!(f, "its header is damaged: {why}"),
        }
    }
}

/// A place in a file that is not a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The range of bytes.
    pub place: Range<usize>,
}

/// A complete recording in memory.
pub struct Recording {
    /// The policy and the machine.
    pub header: Header,
    /// The events of each CPU that has events, by CPU.
    pub streams: Vec<Stream>,
    /// The policy's state at the beginning, if it was recorded and is complete.
    pub state: Option<Vec<u8>>,
    /// The later states that are complete, in order.
    pub checkpoints: Vec<Checkpoint>,
    /// The places that could not be read.
    pub damage: Vec<Damage>,
}

/// The policy's state between two events.
#[derive(Clone)]
pub struct Checkpoint {
    /// Stamp of the checkpoint. Later events have higher stamps, in blocks whose own stamps are not
    /// lower.
    pub stamp: u64,
    /// The state as the policy saved it.
    pub state: Vec<u8>,
}

/// One CPU's events.
pub struct Stream {
    /// The CPU.
    pub cpu: u16,
    blocks: Vec<(BlockHead, Vec<u8>)>,
}

/// An element of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// Events are missing here: they were lost during the recording, or their blocks are damaged in
    /// the file.
    Gap {
        /// Number of events that there was no room for.
        lost: u64,
        /// Number of missing blocks.
        blocks: u64,
    },
    /// The rest of the block cannot be read: it was written incorrectly, or its checksum matches by
    /// chance.
    Malformed,
}

impl Recording {
    /// Reads a recording. Damaged blocks are left out and listed in `damage`.
    pub fn parse(bytes: &[u8]) -> Result<Self, OpenError> {
        let four = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes.get(..8) != Some(MAGIC) {
            return Err(OpenError::Foreign);
        }
        let torn = || OpenError::Header("the file ends in it".into());
        let version = four(8).ok_or_else(torn)?;
        if version != VERSION {
            return Err(OpenError::Version(version));
        }
        let (length, crc) = (four(12).ok_or_else(torn)?, four(16).ok_or_else(torn)?);
        if length > MAX_HEADER {
            return Err(OpenError::Header(
                "it says that it is longer than any is".into(),
            ));
        }
        let end = LEAD + length as usize;
        let text = bytes.get(LEAD..end).ok_or_else(torn)?;
        if crc32fast::hash(text) != crc {
            return Err(OpenError::Header("its checksum is wrong".into()));
        }
        let header =
            serde_json::from_slice(text).map_err(|e| OpenError::Header(alloc::format!("{e}")))?;
        let mut recording = Self {
            header,
            streams: Vec::new(),
            state: None,
            checkpoints: Vec::new(),
            damage: Vec::new(),
        };
        recording.read_blocks(bytes, end);
        Ok(recording)
    }

    fn read_blocks(&mut self, bytes: &[u8], mut at: usize) {
        let mut cpus: BTreeMap<u16, Vec<(BlockHead, Vec<u8>)>> = BTreeMap::new();
        let mut states: BTreeMap<u64, Parts<'_>> = BTreeMap::new();
        let mut bad = at;
        while at < bytes.len() {
            let Some((head, payload)) = block_at(&bytes[at..]) else {
                // Go on to the next place where a block may begin.
                at += 1;
                continue;
            };
            if bad < at {
                self.damage.push(Damage { place: bad..at });
            }
            match head.kind {
                Kind::Events => cpus
                    .entry(head.cpu)
                    .or_default()
                    .push((head, payload.to_vec())),
                Kind::State => drop(
                    states
                        .entry(head.stamp)
                        .or_default()
                        .insert(head.number, (head.events, payload)),
                ),
            }
            at += HEAD_SIZE + payload.len();
            bad = at;
        }
        if bad < bytes.len() {
            self.damage.push(Damage {
                place: bad..bytes.len(),
            });
        }
        self.streams = cpus
            .into_iter()
            .map(|(cpu, blocks)| Stream { cpu, blocks })
            .collect();
        self.state = states.remove(&0).and_then(|parts| joined(&parts));
        let whole = states.iter().filter_map(|(&stamp, parts)| {
            Some(Checkpoint {
                stamp,
                state: joined(parts)?,
            })
        });
        self.checkpoints = whole.collect();
    }
}

/// The parts of a state by number. Each has the total number of parts according to its head, and
/// its bytes.
type Parts<'f> = BTreeMap<u64, (u32, &'f [u8])>;

/// Joins the parts of a state if all are present. A total of 0 means that the state was written
/// before parts were counted.
fn joined(parts: &Parts<'_>) -> Option<Vec<u8>> {
    let &(count, _) = parts.values().next()?;
    let is_whole = (count == 0 || parts.len() == count as usize)
        && parts.values().all(|part| part.0 == count)
        && parts.keys().copied().eq(0..parts.len() as u64);
    is_whole.then(|| parts.values().flat_map(|part| part.1).copied().collect())
}

fn block_at(bytes: &[u8]) -> Option<(BlockHead, &[u8])> {
    let raw = bytes.first_chunk()?;
    let head = BlockHead::from_bytes(raw)?;
    let payload = bytes.get(HEAD_SIZE..)?.get(..head.used as usize)?;
    (checksum(raw, payload) == head.crc).then_some((head, payload))
}

impl Recording {
    /// Time of the first call, ns of the recorded machine's clock; 0 if there is none.
    pub fn begin(&self) -> u64 {
        let call = |item| {
            if let Item::Event(Event::Call(call)) = item {
                Some(call.now)
            } else {
                None
            }
        };
        self.streams
            .iter()
            .filter_map(|stream| stream.items().find_map(call))
            .min()
            .unwrap_or(0)
    }
}

impl Stream {
    /// The events in order, and the gaps between them.
    pub fn items(&self) -> Items<'_> {
        self.items_from(0)
    }

    /// Like [`Stream::items`], from the checkpoint with this stamp on; 0 is the beginning.
    pub fn items_from(&self, stamp: u64) -> Items<'_> {
        let before = self
            .blocks
            .iter()
            .take_while(|(head, _)| head.stamp < stamp)
            .count();
        let (before, after) = self.blocks.split_at(before);
        let number = match (before.last(), after.first()) {
            // After a checkpoint, each CPU continues in a block that begins at its stamp.
            (_, Some((first, _))) if stamp != 0 && first.stamp == stamp => first.number,
            (Some((last, _)), _) => last.number.wrapping_add(1),
            (None, _) => 0,
        };
        Items {
            blocks: after.iter(),
            number,
            reached: 0,
            codec: Codec::default(),
            rest: &[],
        }
    }

    /// Number of events according to the heads of the blocks.
    pub fn len(&self) -> u64 {
        self.blocks
            .iter()
            .map(|(head, _)| u64::from(head.events))
            .sum()
    }

    /// Does the stream have no events?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Are events or blocks missing, or does the stream not end with [`Event::End`]?
    pub fn has_gap(&self) -> bool {
        let in_order = self
            .blocks
            .iter()
            .enumerate()
            .all(|(at, (head, _))| head.number == at as u64 && head.lost == 0);
        let last = Self {
            cpu: self.cpu,
            blocks: self.blocks.last().cloned().into_iter().collect(),
        };
        let end = last.items().last();
        !in_order || !matches!(end, Some(Item::Event(Event::End { .. })))
    }

    /// Size of the blocks with their heads, in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks
            .iter()
            .map(|(_, payload)| (HEAD_SIZE + payload.len()) as u64)
            .sum()
    }
}

/// Reads a stream.
#[derive(Clone)]
pub struct Items<'r> {
    blocks: core::slice::Iter<'r, (BlockHead, Vec<u8>)>,
    /// Number of the block that should come next.
    number: u64,
    /// The latest stamp of a block so far.
    reached: u64,
    codec: Codec,
    rest: &'r [u8],
}

impl Items<'_> {
    /// The latest stamp of a block so far. Checkpoints with later stamps follow.
    pub fn reached(&self) -> u64 {
        self.reached
    }
}

impl Iterator for Items<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        while self.rest.is_empty() {
            let (head, payload) = self.blocks.next()?;
            self.codec.begin(i32::from(head.cpu), head.stamp);
            self.rest = payload;
            let missing = head.number.wrapping_sub(self.number);
            self.number = head.number.wrapping_add(1);
            self.reached = self.reached.max(head.stamp);
            if missing != 0 || head.lost != 0 {
                return Some(Item::Gap {
                    lost: head.lost,
                    blocks: missing,
                });
            }
        }
        let Ok((event, length)) = self.codec.read(self.rest) else {
            self.rest = &[];
            return Some(Item::Malformed);
        };
        self.rest = &self.rest[length..];
        Some(Item::Event(event))
    }
}
