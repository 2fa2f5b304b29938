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
        Self { begin: Instant::now(), first: AtomicU64::new(NEVER), heap: Mutex::default() }
    }

    fn ns(&self, when: Instant) -> u64 {
        when.saturating_duration_since(self.begin).as_nanos() as u64
    }

    pub fn add(&self, until: Instant, task: Arc<Task>) {
        let mut heap = self.heap.lock();
        heap.push(Reverse(Sleeper(self.ns(until), task)));
        self.first.store(heap.peek().map_or(NEVER, |first| first.0 .0), SeqCst);
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
            let due = heap.peek().is_some_and(|first| first.0 .0 <= now).then(|| heap.pop()).flatten();
            self.first.store(heap.peek().map_or(NEVER, |first| first.0 .0), SeqCst);
            drop(heap);
            due.into_iter().for_each(|sleeper| sleeper.0 .1.wake());
        }
    }

    /// How long until the first one wakes, but not longer than that.
    pub fn until_first(&self, most: Duration) -> Duration {
        match self.first.load(SeqCst) {
            NEVER => most,
            first => Duration::from_nanos(first.saturating_sub(self.ns(Instant::now()))).min(most),
        }
    }
}
