// SPDX-License-Identifier: GPL-2.0-only
//! Blocks of events: what a CPU writes into, and what is lost at once when a file is torn.
//!
//! ```text
//! block := "BBLK" crc:u32 kind:u8 0:u8 cpu:u16 used:u32 events:u32 0:u32 number:u64 stamp:u64 lost:u64 0:u128 payload
//! ```
//! Numbers are little-endian. `crc` is of all after it, to the end of the payload (CRC-32 as in
//! zlib); `used` is the payload's length, `number` counts the blocks of a CPU, `stamp` is what the
//! first stamp is counted from, `lost` is how many events of this CPU were lost before the block.

use crate::{codec::MAX_EVENT, Codec, Event};

/// Bytes of a block with its head, as CPUs write them.
pub const BLOCK_SIZE: usize = 64 << 10;

/// Bytes of a block's head.
pub const HEAD_SIZE: usize = 64;

const MAGIC: [u8; 4] = *b"BBLK";

/// What a block has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Events of a CPU.
    Events = 1,
    /// A part of the policy's state, where the recording begins (`stamp` is 0) or at a checkpoint:
    /// `number` counts its parts, and `events` says how many there are.
    State = 2,
}

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Of head and payload, but itself.
    pub crc: u32,
    /// What is in it.
    pub kind: Kind,
    /// Whose events.
    pub cpu: u16,
    /// Length of the payload.
    pub used: u32,
    /// Events in it; of a state, all its parts.
    pub events: u32,
    /// Which one of this CPU's.
    pub number: u64,
    /// What its first stamp is counted from.
    pub stamp: u64,
    /// Events that were lost before it.
    pub lost: u64,
}

impl BlockHead {
    /// As bytes.
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

    /// Of bytes; `None` when they are no head of a block.
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

/// The last stamp in a block: of its last event that has one, or its own. `None` when it is no
/// whole block.
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

/// Writes one CPU's blocks, used by that CPU alone. All zero is a recorder without a block.
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

    /// Were events lost that no block tells of yet?
    pub fn has_lost(&self) -> bool {
        self.lost != 0
    }

    /// Events that there was no room for are not missed: what they would follow is dropped, too.
    pub fn forget_lost(&mut self) {
        self.lost = 0;
    }

    /// There is no block: the next that is opened comes after this.
    pub fn wait_from(&mut self, stamp: u64) {
        self.codec.begin(self.cpu as i32, stamp);
    }

    /// The stamp that was written last.
    pub fn last_stamp(&self) -> u64 {
        self.codec.last_stamp()
    }

    /// Begins a block of this CPU's, whose events are later than `stamp`.
    pub fn open(&mut self, cpu: u32, stamp: u64) {
        self.codec.begin(cpu as i32, stamp);
        self.at = HEAD_SIZE as u32;
        self.events = 0;
        self.cpu = cpu;
        self.stamp = stamp;
    }

    /// Adds an event. False when the block is full, or there is none: then nothing has changed.
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

    /// An event that there was no room for.
    pub fn lose(&mut self) {
        self.lost += 1;
    }

    /// Ends the block, all but its checksum. False when there is none, or nothing in it and nothing
    /// lost before it.
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
