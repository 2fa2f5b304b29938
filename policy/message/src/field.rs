// SPDX-License-Identifier: GPL-2.0-only
//! The fields of messages.

use crate::Raw;

/// A thread that a message names.
///
/// An application creates it from a thread id, as `gettid` returns it. The host looks the id up
/// before a policy sees the message. To a policy it is the slot of one of its tasks, of the
/// sender's process (of any process, if the grant allows it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(u32);

impl Thread {
    /// For applications: the thread with this id. The id 0 names no thread and is refused.
    pub const fn of_id(id: u32) -> Self {
        Self(id)
    }

    /// For policies: the slot of the task.
    pub const fn slot(self) -> u32 {
        self.0.wrapping_sub(1)
    }
}

/// A type that a field can have.
pub trait Field: Sized {
    /// Name of the type.
    const NAME: &'static str;

    /// 1 for [`Thread`], which has a separate place.
    const THREADS: usize = 0;

    /// Writes the value behind those written before.
    fn put(self, to: &mut Writer);

    /// Reads the next value; `None` if it is not of this type.
    fn take(from: &mut Reader<'_>) -> Option<Self>;
}

/// Writes the fields of a message.
#[derive(Debug)]
pub struct Writer {
    raw: Raw,
    next: usize,
}

impl Writer {
    /// Begins a message with this tag.
    pub fn new(tag: u32) -> Self {
        Self {
            raw: Raw {
                tag,
                ..Raw::default()
            },
            next: 0,
        }
    }

    fn word(&mut self, word: u64) {
        // There is a place for each word: see `Kind::field`.
        if let Some(place) = self.raw.words.get_mut(self.next) {
            *place = word;
            self.next += 1;
        }
    }

    /// Returns the message.
    pub fn finish(self) -> Raw {
        self.raw
    }
}

/// Reads the fields of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    raw: &'a Raw,
    next: usize,
    has_thread: bool,
}

impl<'a> Reader<'a> {
    /// Reads this message.
    pub fn new(raw: &'a Raw) -> Self {
        Self {
            raw,
            next: 0,
            has_thread: false,
        }
    }

    fn word(&mut self) -> Option<u64> {
        let word = self.raw.words.get(self.next)?;
        self.next += 1;
        Some(*word)
    }

    /// Are all unread parts 0?
    pub fn is_done(&self) -> bool {
        (self.has_thread || self.raw.thread == 0)
            && self.raw.words.iter().skip(self.next).all(|word| *word == 0)
    }
}

impl Field for Thread {
    const NAME: &'static str = "Thread";
    const THREADS: usize = 1;

    fn put(self, to: &mut Writer) {
        to.raw.thread = self.0;
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        from.has_thread = true;
        (from.raw.thread != 0).then_some(Self(from.raw.thread))
    }
}

impl Field for bool {
    const NAME: &'static str = "bool";

    fn put(self, to: &mut Writer) {
        to.word(u64::from(self));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        match from.word()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

macro_rules! plain {
    ($($type:ty)*) => {$(
        impl Field for $type {
            const NAME: &'static str = stringify!($type);

            #[inline]
            fn put(self, to: &mut Writer) {
                // A signed number is sign-extended.
                to.word(self as i128 as u64);
            }

            #[inline]
            fn take(from: &mut Reader<'_>) -> Option<Self> {
                let word = from.word()?;
                let value = word as $type;
                (value as i128 as u64 == word).then_some(value)
            }
        }
    )*};
}
plain!(u8 u16 u32 u64 i32 i64);
