// SPDX-License-Identifier: GPL-2.0-only
//! Who sleeps, and until when.

use crate::task::Task;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// None sleeps.
const NEVER: u64 = u64::MAX;

/// Sleepers by when they wake.
pub(crate) struct Timers {
    begin: Instant,
    /// When the first one wakes, ns from `begin`.
    first: AtomicU64,
    /// When the first one of those wakes up who sleep with their cores and wait for a sleeper. At
    /// latest: it may be that nobody waits.
    awaited: AtomicU64,
    heap: Mutex<BinaryHeap<Reverse<Sleeper>>>,
}

struct Sleeper(u64, Arc<Task>);

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Sleeper {}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl Timers {
    pub fn new() -> Self {
        Self {
            begin: Instant::now(),
            first: AtomicU64::new(NEVER),
            awaited: AtomicU64::new(NEVER),
            heap: Mutex::default(),
        }
    }

    fn ns(&self, when: Instant) -> u64 {
        when.saturating_duration_since(self.begin).as_nanos() as u64
    }

    pub fn add(&self, until: Instant, task: Arc<Task>) {
        let mut heap = self.heap.lock();
        heap.push(Reverse(Sleeper(self.ns(until), task)));
        self.first
            .store(heap.peek().map_or(NEVER, |first| first.0 .0), SeqCst);
    }

    /// Wakes those whose time has come.
    #[inline]
    pub fn wake_due(&self) {
        if self.first.load(SeqCst) != NEVER {
            self.wake_until_now();
        }
    }

    fn wake_until_now(&self) {
        let now = self.ns(Instant::now());
        while self.first.load(SeqCst) <= now {
            let mut heap = self.heap.lock();
            let due = heap
                .peek()
                .is_some_and(|first| first.0 .0 <= now)
                .then(|| heap.pop())
                .flatten();
            self.first
                .store(heap.peek().map_or(NEVER, |first| first.0 .0), SeqCst);
            drop(heap);
            due.into_iter().for_each(|sleeper| sleeper.0 .1.wake());
        }
    }

    /// The caller is about to sleep, and waits for the first one, until [`Timers::leave`]; if there
    /// is one, and nobody else waits for it. How long that is.
    pub fn await_first(&self) -> Option<Duration> {
        let first = self.first.load(SeqCst);
        if first >= self.awaited.load(SeqCst) {
            return None;
        }
        self.awaited.store(first, SeqCst);
        Some(Duration::from_nanos(
            first.saturating_sub(self.ns(Instant::now())),
        ))
    }

    /// Is there one that nobody waits for?
    pub fn want_someone(&self) -> bool {
        self.first.load(SeqCst) < self.awaited.load(SeqCst)
    }

    /// It sleeps no more. If another one does, for a later one, nobody knows that any more, and one
    /// more wakes up.
    pub fn leave(&self) {
        self.awaited.store(NEVER, SeqCst);
    }
}
