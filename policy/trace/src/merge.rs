// SPDX-License-Identifier: GPL-2.0-only
//! The streams of all CPUs as one: by stamps, and what a CPU did without a stamp right after the
//! stamp before it. This order numbers the events, for people and for replay.

extern crate alloc;

use crate::{Item, Items, Recording};
use alloc::{collections::BinaryHeap, vec::Vec};
use core::{cmp::Reverse, iter::Peekable};

/// An event, or what is there in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// Its number, from 0; a gap has that of the event after it.
    pub number: u64,
    /// Whose.
    pub cpu: u16,
    /// It.
    pub item: Item,
}

/// All events of a recording in their order.
pub struct Merged<'r> {
    lanes: Vec<(u16, Peekable<Items<'r>>)>,
    /// The lanes whose next event has a stamp.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Whose events without a stamp are told now, and lanes that have not begun.
    open: Vec<usize>,
    number: u64,
}

impl Recording {
    /// All events, in one order.
    pub fn merged(&self) -> Merged<'_> {
        let lanes: Vec<_> = self
            .streams
            .iter()
            .map(|stream| (stream.cpu, stream.items().peekable()))
            .collect();
        let open = (0..lanes.len()).rev().collect();
        Merged {
            lanes,
            waiting: BinaryHeap::new(),
            open,
            number: 0,
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = Told;

    fn next(&mut self) -> Option<Told> {
        while let Some(&at) = self.open.last() {
            let (cpu, items) = &mut self.lanes[at];
            match items.peek() {
                Some(Item::Event(event)) => match event.stamp() {
                    Some(stamp) => self.waiting.push(Reverse((stamp, at))),
                    None => return tell(&mut self.number, *cpu, items),
                },
                Some(_) => return tell(&mut self.number, *cpu, items),
                None => {}
            }
            self.open.pop();
        }
        let Reverse((_, at)) = self.waiting.pop()?;
        self.open.push(at);
        let (cpu, items) = &mut self.lanes[at];
        tell(&mut self.number, *cpu, items)
    }
}

fn tell(number: &mut u64, cpu: u16, items: &mut Peekable<Items<'_>>) -> Option<Told> {
    let told = Told {
        number: *number,
        cpu,
        item: items.next()?,
    };
    if let Item::Event(_) = told.item {
        *number += 1;
    }
    Some(told)
}
