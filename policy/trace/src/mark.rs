// SPDX-License-Identifier: GPL-2.0-only
//! The places of checkpoints among the events.

extern crate alloc;

use crate::{Event, Item, Recording};
use alloc::{vec, vec::Vec};

/// The place of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Index among the checkpoints of the recording.
    pub index: usize,
    /// Stamp of the checkpoint.
    pub stamp: u64,
    /// Number of the event after it.
    pub number: u64,
    /// Time at which the first call after the checkpoint began, or the last call of all if there is
    /// none; ns of the recorded machine's clock.
    pub now: u64,
}

impl Recording {
    /// The marks of all checkpoints, in order.
    pub fn marks(&self) -> Vec<Mark> {
        let points = &self.checkpoints;
        // Number of events, by the number of checkpoints before them.
        let mut events = vec![0; points.len() + 1];
        let mut calls = vec![u64::MAX; points.len()];
        let mut last = 0;
        for stream in &self.streams {
            let mut items = stream.items();
            let mut passed = 0;
            while let Some(item) = items.next() {
                let Item::Event(event) = item else { continue };
                let before = points.partition_point(|point| point.stamp <= items.reached());
                events[before] += 1;
                if let Event::Call(call) = event {
                    last = last.max(call.now);
                    calls[passed..before]
                        .iter_mut()
                        .for_each(|first| *first = call.now.min(*first));
                    passed = before;
                }
            }
        }
        let mut number = 0;
        let marks = points.iter().zip(events).zip(calls).enumerate().map(
            |(index, ((point, events), call))| {
                number += events;
                let now = if call == u64::MAX { last } else { call };
                Mark {
                    index,
                    stamp: point.stamp,
                    number,
                    now,
                }
            },
        );
        marks.collect()
    }
}
