// SPDX-License-Identifier: GPL-2.0-only
//! Files of recordings.
//!
//! ```text
//! file := "BATONREC" version:u32 length:u32 crc:u32 header block*
//! ```
//! The header is JSON, `length` bytes ([`Header`]); `crc` is its checksum. Blocks are as in `block.rs`, one after the other, in the order
//! in which each CPU wrote them. A block whose checksum is wrong is left out: the next is found by its magic number.

extern crate alloc;
extern crate std;

use crate::{BlockHead, Codec, Event, Kind, BLOCK_SIZE, HEAD_SIZE};
use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::ops::Range;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Of the format. A file of another is refused.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"BATONREC";
/// Before the header.
const LEAD: usize = 20;
/// No header is longer: 64 bytes for each of 8,192 CPUs, and some.
const MAX_HEADER: u32 = 1 << 20;

/// What a recording is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the policy.
    pub policy: String,
    /// Its version.
    pub version: u32,
    /// Its options.
    pub options: String,
    /// Where it ran: "kernel 7.2.0 ...", or "simulator".
    pub host: String,
    /// The CPUs that it was told of: core, last-level cache, node, and whether it was online.
    pub cpus: Vec<(u32, u32, u32, bool)>,
    /// Number of task slots.
    pub max_tasks: u32,
    /// Stamps per second.
    pub stamp_hz: u64,
    /// The type of its state, when the recording begins with one and not with a new instance.
    pub state: Option<(String, u32, u64)>,
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

    /// Adds a block, as [`crate::Recorder::close`] left it. What is no block is an error. `first` is the number of its CPU's first in
    /// the file.
    pub fn block(&mut self, block: &[u8], first: u64) -> io::Result<()> {
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "this is no block of a recording");
        let mut head = block.first_chunk::<HEAD_SIZE>().and_then(BlockHead::from_bytes).ok_or_else(malformed)?;
        let payload = block.get(HEAD_SIZE..HEAD_SIZE + head.used as usize).ok_or_else(malformed)?;
        head.number = head.number.wrapping_sub(first);
        head.crc = checksum(&head.to_bytes(), payload);
        self.out.write_all(&head.to_bytes())?;
        self.out.write_all(payload)
    }

    /// Adds the state that the recording begins with.
    pub fn state(&mut self, state: &[u8]) -> io::Result<()> {
        for (number, part) in state.chunks(BLOCK_SIZE).enumerate() {
            let mut head = BlockHead {
                crc: 0,
                kind: Kind::State,
                cpu: 0,
                used: part.len() as u32,
                events: 0,
                number: number as u64,
                stamp: 0,
                lost: 0,
            };
            head.crc = checksum(&head.to_bytes(), part);
            self.out.write_all(&head.to_bytes())?;
            self.out.write_all(part)?;
        }
        Ok(())
    }

    /// What it writes to.
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

/// Why a file is no recording that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// It does not begin as one.
    Foreign,
    /// It was written by another version of Baton.
    Version(u32),
    /// Its header is damaged, or torn off. What is wrong with it.
    Header(String),
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OpenError::Foreign => f.write_str("it is no recording of Baton's"),
            OpenError::Version(found) => {
                write!(f, "it is of version {found} of the format, and this Baton reads version {VERSION}")
            }
            OpenError::Header(why) => write!(f, "its header is damaged: {why}"),
        }
    }
}

/// A place in a file that is no block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where, in bytes.
    pub place: Range<usize>,
}

/// A recording, read whole.
pub struct Recording {
    /// What it is of.
    pub header: Header,
    /// The events of each CPU that has any, by CPU.
    pub streams: Vec<Stream>,
    /// The policy's state at the beginning, where it has one.
    pub state: Vec<u8>,
    /// What could not be read.
    pub damage: Vec<Damage>,
}

/// One CPU's events.
pub struct Stream {
    /// Which CPU.
    pub cpu: u16,
    blocks: Vec<(BlockHead, Vec<u8>)>,
}

/// What a stream is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// Events are missing here: so many were lost as it was recorded, and blocks that are damaged in the file.
    Gap {
        /// Events that there was no room for.
        lost: u64,
        /// Blocks that are not there.
        blocks: u64,
    },
    /// The rest of the block cannot be read: it was written wrong, or its checksum fits by chance.
    Malformed,
}

impl Recording {
    /// Reads one. Damaged blocks are left out and noted.
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
            return Err(OpenError::Header("it says that it is longer than any is".into()));
        }
        let end = LEAD + length as usize;
        let text = bytes.get(LEAD..end).ok_or_else(torn)?;
        if crc32fast::hash(text) != crc {
            return Err(OpenError::Header("its checksum is wrong".into()));
        }
        let header = serde_json::from_slice(text).map_err(|e| OpenError::Header(alloc::format!("{e}")))?;
        let mut recording = Self { header, streams: Vec::new(), state: Vec::new(), damage: Vec::new() };
        recording.read_blocks(bytes, end);
        Ok(recording)
    }

    fn read_blocks(&mut self, bytes: &[u8], mut at: usize) {
        let mut cpus: BTreeMap<u16, Vec<(BlockHead, Vec<u8>)>> = BTreeMap::new();
        let mut bad = at;
        while at < bytes.len() {
            let Some((head, payload)) = block_at(&bytes[at..]) else {
                // To the next that may be one.
                at += 1;
                continue;
            };
            if bad < at {
                self.damage.push(Damage { place: bad..at });
            }
            match head.kind {
                Kind::Events => cpus.entry(head.cpu).or_default().push((head, payload.to_vec())),
                Kind::State => self.state.extend_from_slice(payload),
            }
            at += HEAD_SIZE + payload.len();
            bad = at;
        }
        if bad < bytes.len() {
            self.damage.push(Damage { place: bad..bytes.len() });
        }
        self.streams = cpus.into_iter().map(|(cpu, blocks)| Stream { cpu, blocks }).collect();
    }
}

fn block_at(bytes: &[u8]) -> Option<(BlockHead, &[u8])> {
    let raw = bytes.first_chunk()?;
    let head = BlockHead::from_bytes(raw)?;
    let payload = bytes.get(HEAD_SIZE..)?.get(..head.used as usize)?;
    (checksum(raw, payload) == head.crc).then_some((head, payload))
}

impl Recording {
    /// When the first call was, ns of the recorded machine's clock; 0 without one.
    pub fn begin(&self) -> u64 {
        let call = |item| if let Item::Event(Event::Call(call)) = item { Some(call.now) } else { None };
        self.streams.iter().filter_map(|stream| stream.items().find_map(call)).min().unwrap_or(0)
    }
}

impl Stream {
    /// Its events in their order, and what is missing between them.
    pub fn items(&self) -> Items<'_> {
        Items { blocks: self.blocks.iter(), number: 0, codec: Codec::default(), rest: &[] }
    }

    /// How many events it says that it has.
    pub fn len(&self) -> u64 {
        self.blocks.iter().map(|(head, _)| u64::from(head.events)).sum()
    }

    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Are blocks missing before its last, or does it not end with the mark that no more come?
    pub fn has_gap(&self) -> bool {
        let in_order = self.blocks.iter().enumerate().all(|(at, (head, _))| head.number == at as u64 && head.lost == 0);
        let last = Self { cpu: self.cpu, blocks: self.blocks.last().cloned().into_iter().collect() };
        let end = last.items().last();
        !in_order || !matches!(end, Some(Item::Event(Event::End { .. })))
    }

    /// Bytes of its blocks, with their heads.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|(_, payload)| (HEAD_SIZE + payload.len()) as u64).sum()
    }
}

/// Reads a stream.
#[derive(Clone)]
pub struct Items<'r> {
    blocks: core::slice::Iter<'r, (BlockHead, Vec<u8>)>,
    /// Of the block that should come next.
    number: u64,
    codec: Codec,
    rest: &'r [u8],
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
            if missing != 0 || head.lost != 0 {
                return Some(Item::Gap { lost: head.lost, blocks: missing });
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
