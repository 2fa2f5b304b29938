// SPDX-License-Identifier: GPL-2.0-only
//! A ring of messages in memory that two sides share, of whom neither trusts the other.
//!
//! Each entry is one cache line. Its first word, the sequence, says whose it is: twice the number
//! of the lap while it is the writer's, one more while it is the reader's; so memory that is all
//! zero is an empty ring. Each side keeps its own place in the ring to itself and believes nothing
//! but the sequence of the entry that it is at: whatever the other side writes there, a place is
//! looked at once, a message is copied once, and nothing beyond that entry is touched.
//!
//! A message costs the line once on its way to the reader, and once on its way back, when it is
//! used again.

use crate::Raw;
use baton_abi::BATON_HINT_WORDS;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A place for one message: `BatonHintsEntry`.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Entry {
    sequence: AtomicU32,
    tag: AtomicU32,
    thread: AtomicU32,
    reserved: AtomicU32,
    words: [AtomicU64; BATON_HINT_WORDS],
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// Its words, sequence first, as whoever shares the memory sees them.
    pub fn all_words(&self) -> (u32, [u32; 3], [u64; BATON_HINT_WORDS]) {
        let small = [&self.tag, &self.thread, &self.reserved].map(|word| word.load(Relaxed));
        (
            self.sequence.load(Relaxed),
            small,
            core::array::from_fn(|i| self.words[i].load(Relaxed)),
        )
    }

    /// Writes whatever one likes into it, as whoever shares the memory can.
    pub fn scribble(&self, sequence: u32, small: [u32; 3], words: [u64; BATON_HINT_WORDS]) {
        self.tag.store(small[0], Relaxed);
        self.thread.store(small[1], Relaxed);
        self.reserved.store(small[2], Relaxed);
        self.words
            .iter()
            .zip(words)
            .for_each(|(place, word)| place.store(word, Relaxed));
        self.sequence.store(sequence, Release);
    }
}

/// The ring is full: the other side has yet to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The entry at a place, and the sequence that it has as the writer's. `None` where there is no
/// ring. The number of entries is a power of two.
#[inline]
fn at(entries: &[Entry], place: u64) -> Option<(&Entry, u32)> {
    let count = entries.len() as u64;
    let entry = entries.get((place & count.wrapping_sub(1)) as usize)?;
    let lap = place >> count.trailing_zeros();
    Some((entry, (lap as u32).wrapping_mul(2)))
}

/// Writes a message at the writer's place, which goes one on.
#[inline]
pub fn put(entries: &[Entry], place: &mut u64, message: &Raw) -> Result<(), Full> {
    let (entry, free) = at(entries, *place).ok_or(Full)?;
    if entry.sequence.load(Acquire) != free {
        return Err(Full);
    }
    entry.tag.store(message.tag, Relaxed);
    entry.thread.store(message.thread, Relaxed);
    for (place, word) in entry.words.iter().zip(message.words) {
        place.store(word, Relaxed);
    }
    entry.sequence.store(free.wrapping_add(1), Release);
    *place = place.wrapping_add(1);
    Ok(())
}

/// Is there a message at the reader's place?
#[inline]
pub fn is_ready(entries: &[Entry], place: u64) -> bool {
    at(entries, place)
        .is_some_and(|(entry, free)| entry.sequence.load(Acquire) == free.wrapping_add(1))
}

/// Has the reader yet to read the message that was written last, before the writer's place?
#[inline]
pub fn is_unread(entries: &[Entry], place: u64) -> bool {
    place != 0 && is_ready(entries, place.wrapping_sub(1))
}

/// Reads the message at the reader's place, which goes one on; `None` if there is none.
#[inline]
pub fn take(entries: &[Entry], place: &mut u64) -> Option<Raw> {
    let (entry, free) = at(entries, *place)?;
    if entry.sequence.load(Acquire) != free.wrapping_add(1) {
        return None;
    }
    let mut message = Raw {
        tag: entry.tag.load(Relaxed),
        thread: entry.thread.load(Relaxed),
        ..Raw::default()
    };
    for (word, place) in message.words.iter_mut().zip(&entry.words) {
        *word = place.load(Relaxed);
    }
    entry.sequence.store(free.wrapping_add(2), Release);
    *place = place.wrapping_add(1);
    Some(message)
}
