// SPDX-License-Identifier: GPL-2.0-only
//! Merges the streams of all CPUs into one. Events are in the order of their stamps; an event
//! without a stamp directly follows the event before it on its CPU. Users and replay refer to
//! events by their numbers in this order.

extern crate alloc;

use crate::{Item, Items, Recording};
use alloc::{collections::BinaryHeap, vec::Vec};
use core::{cmp::Reverse, iter::Peekable};

/// An event, or the gap in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// Number of the event, from 0. A gap has the number of the event after it.
    pub number: u64,
    /// The CPU.
    pub cpu: u16,
    /// The event or the gap.
    pub item: Item,
}

/// All events of a recording, in merged order.
pub struct Merged<'r> {
    lanes: Vec<(u16, Peekable<Items<'r>>)>,
    /// The lanes whose next event has a stamp.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The lanes whose events without a stamp come next, and lanes that have not begun.
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
