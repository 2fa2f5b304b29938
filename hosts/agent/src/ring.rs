// SPDX-License-Identifier: GPL-2.0-only
//! The ring of messages of one CPU.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release};

use baton_abi::{BatonHint, BatonMethod};

use crate::agent::Message;
use crate::map::Array;

/// The messages of a CPU that were unread when this was made. A reader that goes on until there are
/// none may never come to the other rings.
///
/// A ring has one reader at a time: the caller sees to that.
pub struct Ring<'a> {
    entries: Array<'a, Message>,
    /// The number of the next entry, which the kernel reads.
    read: &'a AtomicU32,
    /// The same.
    next: u32,
    /// The number of the entry after the last one.
    end: u32,
}

impl<'a> Ring<'a> {
    pub(crate) fn new(entries: Array<'a, Message>, read: &'a AtomicU32, end: u32) -> Self {
        Self {
            entries,
            read,
            next: read.load(Relaxed),
            end,
        }
    }

    /// The place of an entry.
    #[inline]
    fn index(&self, number: u32) -> usize {
        // the kernel makes rings of a power of two
        number as usize & (self.entries.len() - 1)
    }

    /// The next message. It stays there until [`Ring::advance`].
    #[inline]
    pub fn message(&self) -> Option<Message> {
        (self.next != self.end).then(|| self.entries.read(self.index(self.next)))
    }

    /// The hint of the next message, which is about one.
    pub fn hint(&self) -> BatonHint {
        self.entries.read_as(self.index(self.next.wrapping_add(1)))
    }

    /// Removes the message that [`Ring::message`] returned.
    #[inline]
    pub fn advance(&mut self, message: &Message) {
        let entries = 1 + u32::from(message.method == BatonMethod::Hint as u16);
        self.next = self.next.wrapping_add(entries);
        self.read.store(self.next, Release);
    }
}
