// SPDX-License-Identifier: GPL-2.0-only
//! The timers of sleeping user-level threads.

use crate::task::Task;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No thread sleeps.
const NEVER: u64 = u64::MAX;

/// Sleeping threads, ordered by the time at which they wake.
pub(crate) struct Timers {
    begin: Instant,
    /// Time at which the first one wakes, ns from `begin`.
    first: AtomicU64,
    /// Time at which the first idle activation that waits for a sleeping thread wakes. This is an
    /// upper bound: after one of several has left, the times of the others are not known.
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

    /// Wakes the threads whose time has come.
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

    /// Called by an activation before it sleeps. If there is a sleeping thread and no activation
    /// waits for the first one, the caller waits for it until [`Timers::leave`], and gets the time
    /// until then.
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

    /// Is there a sleeping thread that no activation waits for?
    pub fn want_someone(&self) -> bool {
        self.first.load(SeqCst) < self.awaited.load(SeqCst)
    }

    /// The activation that waited no longer sleeps. If another one waits for a later thread, this
    /// is forgotten, and one activation more than necessary wakes.
    pub fn leave(&self) {
        self.awaited.store(NEVER, SeqCst);
    }
}
