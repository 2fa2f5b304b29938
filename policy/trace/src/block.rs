// SPDX-License-Identifier: GPL-2.0-only
//! Blocks of events. A CPU writes its events into blocks, and damage to a file costs whole blocks.
//!
//! ```text
//! block := "BBLK" crc:u32 kind:u8 0:u8 cpu:u16 used:u32 events:u32 0:u32 number:u64 stamp:u64 lost:u64 0:u128 payload
//! ```
//! Numbers are little-endian. `crc` is the checksum of everything after it, to the end of the
//! payload (CRC-32 as in zlib). `used` is the length of the payload. `number` counts the blocks of
//! a CPU. The first stamp of the block is relative to `stamp`. `lost` is the number of events of
//! this CPU that were lost before the block.

use crate::{codec::MAX_EVENT, Codec, Event};

/// Size of a block with its head, as CPUs write it, in bytes.
pub const BLOCK_SIZE: usize = 64 << 10;

/// Size of the head of a block, in bytes.
pub const HEAD_SIZE: usize = 64;

const MAGIC: [u8; 4] = *b"BBLK";

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Events of a CPU.
    Events = 1,
    /// A part of the policy's state, at the beginning of the recording (`stamp` is 0) or at a
    /// checkpoint. `number` counts the parts of the state, and `events` is their total.
    State = 2,
}

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Checksum of the head behind this field and of the payload.
    pub crc: u32,
    /// The contents.
    pub kind: Kind,
    /// The CPU of the events.
    pub cpu: u16,
    /// Length of the payload.
    pub used: u32,
    /// Number of events; for a state, the number of all its parts.
    pub events: u32,
    /// Number of the block on this CPU.
    pub number: u64,
    /// The stamp that the first stamp of the block is relative to.
    pub stamp: u64,
    /// Number of events that were lost before the block.
    pub lost: u64,
}

impl BlockHead {
    /// Encodes the head.
    pub fn to_bytes(&self) -> [u8; HEAD_SIZE] {
        let mut out = [0; HEAD_SIZE];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            for byte in bytes {
                out[at % HEAD_SIZE] = *byte;
                at += 1;
            }
        };
        put(&MAGIC);
        put(&self.crc.to_le_bytes());
        put(&[self.kind as u8, 0]);
        put(&self.cpu.to_le_bytes());
        put(&self.used.to_le_bytes());
        put(&self.events.to_le_bytes());
        put(&[0; 4]);
        put(&self.number.to_le_bytes());
        put(&self.stamp.to_le_bytes());
        put(&self.lost.to_le_bytes());
        out
    }

    /// Decodes a head; `None` when the bytes are not the head of a block.
    pub fn from_bytes(bytes: &[u8; HEAD_SIZE]) -> Option<Self> {
        let four = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let eight = |at: usize| u64::from(four(at)) | u64::from(four(at + 4)) << 32;
        if bytes[..4] != MAGIC {
            return None;
        }
        let kind = match bytes[8] {
            1 => Kind::Events,
            2 => Kind::State,
            _ => return None,
        };
        Some(Self {
            crc: four(4),
            kind,
            cpu: u16::from_le_bytes([bytes[10], bytes[11]]),
            used: four(12),
            events: four(16),
            number: eight(24),
            stamp: eight(32),
            lost: eight(40),
        })
    }
}

/// The last stamp in a block: that of its last event with a stamp, or the stamp in its head. `None`
/// when the block is not complete.
pub fn last_stamp(block: &[u8]) -> Option<u64> {
    let head = BlockHead::from_bytes(block.first_chunk()?)?;
    let mut rest = block.get(HEAD_SIZE..)?.get(..head.used as usize)?;
    let mut codec = Codec::default();
    codec.begin(i32::from(head.cpu), head.stamp);
    while !rest.is_empty() {
        let (_, length) = codec.read(rest).ok()?;
        rest = rest.get(length..)?;
    }
    Some(codec.last_stamp())
}

/// Writes the blocks of one CPU, and is used by that CPU alone. An all-zero value is a recorder
/// without a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorder {
    codec: Codec,
    /// Where the next event goes; 0 while there is no block.
    at: u32,
    events: u32,
    cpu: u32,
    reserved: u32,
    number: u64,
    stamp: u64,
    lost: u64,
}

impl Recorder {
    /// Is there a block?
    #[inline]
    pub fn is_open(&self) -> bool {
        self.at != 0
    }

    /// Is there a block, with no event in it?
    pub fn is_empty(&self) -> bool {
        self.at as usize == HEAD_SIZE
    }

    /// Were events lost that no block reports yet?
    pub fn has_lost(&self) -> bool {
        self.lost != 0
    }

    /// Forgets the lost events, because the events before them are dropped, too.
    pub fn forget_lost(&mut self) {
        self.lost = 0;
    }

    /// Sets the stamp after which the next block begins, while there is no block.
    pub fn wait_from(&mut self, stamp: u64) {
        self.codec.begin(self.cpu as i32, stamp);
    }

    /// The last stamp that was written.
    pub fn last_stamp(&self) -> u64 {
        self.codec.last_stamp()
    }

    /// Begins a block of this CPU whose events are later than `stamp`.
    pub fn open(&mut self, cpu: u32, stamp: u64) {
        self.codec.begin(cpu as i32, stamp);
        self.at = HEAD_SIZE as u32;
        self.events = 0;
        self.cpu = cpu;
        self.stamp = stamp;
    }

    /// Adds an event. Returns false and changes nothing when the block is full or there is none.
    #[inline(always)]
    pub fn put(&mut self, block: &mut [u8], event: &Event) -> bool {
        if self.at == 0 {
            return false;
        }
        let Some(room) = block
            .get_mut(self.at as usize..)
            .and_then(|room| room.first_chunk_mut::<MAX_EVENT>())
        else {
            return false;
        };
        self.at += self.codec.write(event, room) as u32;
        self.events += 1;
        true
    }

    /// Counts an event that there was no room for.
    pub fn lose(&mut self) {
        self.lost += 1;
    }

    /// Ends the block, except for its checksum. Returns false when there is no block, or when it is
    /// empty and no event was lost before it.
    pub fn close(&mut self, block: &mut [u8]) -> bool {
        let is_worth_it = self.is_open() && (!self.is_empty() || self.has_lost());
        let used = core::mem::take(&mut self.at).saturating_sub(HEAD_SIZE as u32);
        let Some(head) = block.first_chunk_mut::<HEAD_SIZE>().filter(|_| is_worth_it) else {
            return false;
        };
        *head = BlockHead {
            crc: 0,
            kind: Kind::Events,
            cpu: self.cpu as u16,
            used,
            events: self.events,
            number: self.number,
            stamp: self.stamp,
            lost: core::mem::take(&mut self.lost),
        }
        .to_bytes();
        self.number += 1;
        true
    }
}
