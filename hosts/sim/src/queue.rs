// SPDX-License-Identifier: GPL-2.0-only
//! The queue of coming events, in order of time. Of two events at the same time, the first one
//! pushed comes first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An event of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The task on a CPU has done its work, if it has not left the CPU since.
    Done { cpu: u32, turn: u32 },
    /// A CPU reschedules.
    Resched { cpu: u32, turn: u32 },
    /// A CPU's tick.
    Tick { cpu: u32 },
    /// A policy's timer on a CPU expires, if it has not been set again since.
    Timer { cpu: u32, policy: u32, turn: u32 },
    /// A task's sleep is over, if it has not been woken since.
    WakeUp { task: u32, turn: u32 },
    /// A task of the workload starts.
    Start { task: u32 },
    /// A source's next item arrives.
    Arrival { source: u32 },
    /// Something from outside.
    Happening { at: u32 },
    /// A task of a higher class leaves its CPU.
    HigherEnds { cpu: u32, turn: u32 },
    /// Noise on a CPU: an interrupt, or a task of a higher class.
    Noise { cpu: u32, interrupt: bool },
    /// Another thread takes a CPU for a moment, to evict its task.
    Evict { cpu: u32 },
    /// The agent of the enclave looks, if nothing has made it look before.
    Agent { turn: u32 },
    /// The agent makes a CPU look for a task.
    Kick { cpu: u32, preempt: bool },
    /// The watch for stalls.
    Watch,
    /// The turn of a CPU ends, where all CPUs share one stream of instructions.
    TurnEnds { turn: u32 },
}

/// A coming event. The earliest is the greatest in the heap.
struct Entry {
    /// Time, ns, in the upper half, and a count that orders events of the same time.
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

/// The coming events.
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

    /// Pushes an event before all others of that time.
    pub fn push_first(&mut self, at: u64, next: Next) {
        self.heap.push(Entry {
            key: u128::from(at) << 64,
            next,
        });
    }

    /// All events, in no particular order.
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
