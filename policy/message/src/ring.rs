// SPDX-License-Identifier: GPL-2.0-only
//! A ring of messages in memory shared by two sides that do not trust each other.
//!
//! Each entry is one cache line. Its first word, the sequence, shows which side owns the entry: it
//! is twice the number of the lap while the writer owns it, and one more while the reader does.
//! All-zero memory is therefore an empty ring. Each side keeps its own place in the ring private,
//! and relies only on the sequence of the entry at that place. For any data of the other side, an
//! operation checks the sequence once, copies a message once, and touches no other entry.
//!
//! A message transfers the cache line once to the reader, and once back when the entry is used
//! again.

use crate::Raw;
use baton_abi::BATON_HINT_WORDS;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// An entry for one message: `BatonHintsEntry`.
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
    /// The words of the entry, sequence first, as the other side sees them.
    pub fn all_words(&self) -> (u32, [u32; 3], [u64; BATON_HINT_WORDS]) {
        let small = [&self.tag, &self.thread, &self.reserved].map(|word| word.load(Relaxed));
        (
            self.sequence.load(Relaxed),
            small,
            core::array::from_fn(|i| self.words[i].load(Relaxed)),
        )
    }

    /// Writes arbitrary words into the entry, as the other side can.
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

/// The ring is full: the other side has not read it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The entry at a place, and its sequence while the writer owns it. `None` if the ring has no
/// entries. The number of entries must be a power of two.
#[inline]
fn at(entries: &[Entry], place: u64) -> Option<(&Entry, u32)> {
    let count = entries.len() as u64;
    let entry = entries.get((place & count.wrapping_sub(1)) as usize)?;
    let lap = place >> count.trailing_zeros();
    Some((entry, (lap as u32).wrapping_mul(2)))
}

/// Writes a message at the writer's place, and advances the place.
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

/// Is the last message written, before the writer's place, still unread?
#[inline]
pub fn is_unread(entries: &[Entry], place: u64) -> bool {
    place != 0 && is_ready(entries, place.wrapping_sub(1))
}

/// Reads the message at the reader's place, and advances the place; `None` if there is none.
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
