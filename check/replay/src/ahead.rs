// SPDX-License-Identifier: GPL-2.0-only
//! Reads the events of one CPU up to the next stamped one, so that the other CPUs know which stamp
//! to wait for.

use baton_trace::{Event, Item, Items, Stream};

/// The stamp after the last stamped event; no event has it.
pub(crate) const NEVER: u64 = u64::MAX;

/// Reads the events of one CPU in advance.
pub(crate) struct Ahead<'r> {
    items: Items<'r>,
    /// Events; the last one has a stamp, unless `stamp` is [`NEVER`].
    events: Vec<Event>,
    at: usize,
    /// Stamp of the last one.
    pub stamp: u64,
    /// Whether the CPU's recording was ended on purpose.
    ended: bool,
    /// What is missing after `events`.
    pub missing: Option<String>,
}

impl<'r> Ahead<'r> {
    /// Begins at the checkpoint with this stamp; 0 is the beginning.
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

    /// Removes the next event.
    #[inline]
    pub fn pop(&mut self) {
        self.at += 1;
    }

    /// Number of events before the stamped one.
    #[inline]
    pub fn unstamped(&self) -> u64 {
        (self.events.len() - usize::from(self.stamp != NEVER)) as u64
    }

    /// Whether an allocation failed and the call was abandoned for that.
    pub fn ends_for_want_of_memory(&self) -> bool {
        matches!(
            self.events[self.at.min(self.events.len())..],
            [Event::NoMemory { .. }, Event::Abandoned { .. }]
        )
    }

    /// Whether the next event is the stamped one.
    #[inline]
    pub fn is_stamped(&self) -> bool {
        self.stamp != NEVER && self.at + 1 == self.events.len()
    }

    /// Reads up to the next stamped event, once all earlier ones are removed.
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
