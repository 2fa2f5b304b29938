// SPDX-License-Identifier: GPL-2.0-only
//! What is to happen, in order of time; of two at one time, the one that was said first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What happens next to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// What the task on a CPU was to do is done, if it has not left since.
    Done { cpu: u32, turn: u32 },
    /// A CPU looks whom to run.
    Resched { cpu: u32, turn: u32 },
    /// A CPU's tick.
    Tick { cpu: u32 },
    /// A policy's timer on a CPU, if it has not been set anew since.
    Timer { cpu: u32, policy: u32, turn: u32 },
    /// A task's sleep is over, if it has not been woken since.
    WakeUp { task: u32, turn: u32 },
    /// A task of the workload comes.
    Start { task: u32 },
    /// A source's next item.
    Arrival { source: u32 },
    /// Something from outside.
    Happening { at: u32 },
    /// A task of a higher class leaves its CPU.
    HigherEnds { cpu: u32, turn: u32 },
    /// The chance of a higher class, or of an interrupt, on a CPU.
    Noise { cpu: u32, interrupt: bool },
    /// Another thread comes to a CPU for a moment.
    Evict { cpu: u32 },
    /// The watch for stalls.
    Watch,
    /// Another CPU executes, where all share one stream of instructions.
    TurnEnds { turn: u32 },
}

/// An event to come. The greatest of the heap is the earliest.
struct Entry {
    /// Time, ns, in the high half, and a count that orders those of one time.
    key: u128,
    next: Next,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

/// The events to come.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    count: u64,
}

impl Queue {
    pub fn push(&mut self, at: u64, next: Next) {
        self.count += 1;
        self.heap.push(Entry {
            key: u128::from(at) << 64 | u128::from(self.count),
            next,
        });
    }

    /// Before all others of that time.
    pub fn push_first(&mut self, at: u64, next: Next) {
        self.heap.push(Entry {
            key: u128::from(at) << 64,
            next,
        });
    }

    /// In no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Next)> + '_ {
        self.heap
            .iter()
            .map(|entry| ((entry.key >> 64) as u64, entry.next))
    }

    pub fn pop(&mut self) -> Option<(u64, Next)> {
        let Entry { key, next } = self.heap.pop()?;
        Some(((key >> 64) as u64, next))
    }
}
