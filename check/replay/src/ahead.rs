// SPDX-License-Identifier: GPL-2.0-only
//! One CPU's events, read up to the next that has a stamp, so that other CPUs know what to wait
//! for.

use baton_trace::{Event, Item, Items, Stream};

/// No stamp is this: there is no event with one any more.
pub(crate) const NEVER: u64 = u64::MAX;

/// Reads ahead.
pub(crate) struct Ahead<'r> {
    items: Items<'r>,
    /// Events, of which the last has a stamp if `stamp` says so.
    events: Vec<Event>,
    at: usize,
    /// Of the last of them.
    pub stamp: u64,
    /// The CPU's recording was ended on purpose.
    ended: bool,
    /// What is missing after `events`.
    pub missing: Option<String>,
}

impl<'r> Ahead<'r> {
    /// From the checkpoint with this stamp; 0 is the beginning.
    pub fn new(stream: &'r Stream, from: u64) -> Self {
        let items = stream.items_from(from);
        let mut ahead = Self {
            items,
            events: Vec::new(),
            at: 0,
            stamp: NEVER,
            ended: false,
            missing: None,
        };
        ahead.fill();
        ahead
    }

    /// The next event.
    #[inline]
    pub fn front(&self) -> Option<&Event> {
        self.events.get(self.at)
    }

    /// It is done with.
    #[inline]
    pub fn pop(&mut self) {
        self.at += 1;
    }

    /// How many events come before the one with a stamp.
    #[inline]
    pub fn unstamped(&self) -> u64 {
        (self.events.len() - usize::from(self.stamp != NEVER)) as u64
    }

    /// Was there no memory, and the call abandoned for that?
    pub fn ends_for_want_of_memory(&self) -> bool {
        matches!(
            self.events[self.at.min(self.events.len())..],
            [Event::NoMemory { .. }, Event::Abandoned { .. }]
        )
    }

    /// Is the next event the one with the stamp?
    #[inline]
    pub fn is_stamped(&self) -> bool {
        self.stamp != NEVER && self.at + 1 == self.events.len()
    }

    /// Reads the next part, when all of this one is done with.
    pub fn fill(&mut self) {
        self.events.clear();
        self.at = 0;
        self.stamp = NEVER;
        loop {
            match self.items.next() {
                Some(Item::Event(event)) => {
                    self.events.push(event);
                    if let Some(stamp) = event.stamp() {
                        self.stamp = stamp.min(NEVER - 1);
                        self.ended = matches!(event, Event::End { .. });
                        return;
                    }
                }
                Some(Item::Gap { lost, blocks }) => {
                    let what = match (lost, blocks) {
                        (0, blocks) => {
                            format!("{blocks} blocks of CPU events are missing in the file")
                        }
                        (lost, 0) => format!("{lost} events were lost as it was recorded"),
                        (lost, blocks) => {
                            format!(
                                "{lost} events were lost as it was recorded, and {blocks} \
                                blocks are missing"
                            )
                        }
                    };
                    return self.miss(what);
                }
                Some(Item::Malformed) => {
                    return self.miss("the rest of a block cannot be read".into())
                }
                None if self.ended => return,
                None => {
                    return self.miss("the events end without the mark that no more come".into())
                }
            }
        }
    }

    #[cold]
    fn miss(&mut self, what: String) {
        self.missing = Some(what);
    }
}
