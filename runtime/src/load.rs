// SPDX-License-Identifier: GPL-2.0-only
//! The number of cores that a process wants: as many as the work that arrived would have kept busy.
//! Arachne's estimator adds one core when threads wait and removes one when the others would
//! suffice, every 50 ms. Where a grant takes microseconds, that time would be most of the wait.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time within which waiting work must be done, in addition to arriving work.
const CATCH_UP: Duration = Duration::from_millis(20);
/// Weight of the last interval in the mean run time of a thread until it gives way.
const LAST: f64 = 0.25;

/// Measurements since the number of cores was last computed.
#[derive(Default)]
pub(crate) struct Load {
    /// Time that cores were busy, ns, and number of threads that they ran.
    busy: AtomicU64,
    ran: AtomicU64,
    /// Maximum number of threads that ran or waited at once.
    most: AtomicU64,
    /// From the last computation: the number of waiting threads, and the bits of the mean run time
    /// of a thread until it gives way, ns.
    waited: AtomicU64,
    each: AtomicU64,
}

impl Load {
    /// Adds the busy time of a core, and the number of threads that it ran.
    pub fn worked(&self, time: Duration, ran: u32) {
        self.busy.fetch_add(time.as_nanos() as u64, Relaxed);
        self.ran.fetch_add(u64::from(ran), Relaxed);
    }

    /// Notes how many threads run or wait.
    #[inline]
    pub fn are_ready(&self, threads: usize) {
        self.most.fetch_max(threads as u64, Relaxed);
    }

    /// The number of cores wanted, after an interval of `time` with `waiting` threads waiting now.
    /// Called by one thread at a time.
    pub fn wanted(&self, time: Duration, waiting: usize) -> u32 {
        let (busy, ran) = (
            self.busy.swap(0, Relaxed) as f64,
            self.ran.swap(0, Relaxed) as f64,
        );
        let before = f64::from_bits(self.each.load(Relaxed));
        let each = match (ran > 0.0, before > 0.0) {
            (true, true) => before + LAST * (busy / ran - before),
            (true, false) => busy / ran,
            (false, _) => before,
        };
        self.each.store(each.to_bits(), Relaxed);
        let waiting = waiting as f64;
        let more = waiting - self.waited.swap(waiting as u64, Relaxed) as f64;
        let came = (busy + more * each) / time.as_nanos().max(1) as f64;
        let late = waiting * each / CATCH_UP.as_nanos() as f64;
        // No more cores than threads that ran or waited.
        (came + late)
            .ceil()
            .clamp(0.0, self.most.swap(0, Relaxed) as f64) as u32
    }
}

/// A periodic interval.
pub(crate) struct Interval {
    begin: Instant,
    length: Duration,
    /// Start of the current interval.
    last: AtomicU64,
}

impl Interval {
    pub fn new(length: Duration) -> Self {
        Self {
            begin: Instant::now(),
            length: length.max(Duration::from_micros(1)),
            last: AtomicU64::new(0),
        }
    }

    /// The length of the interval that has ended. Only one of several callers gets it.
    pub fn is_over(&self, now: Instant) -> Option<Duration> {
        let now = now.saturating_duration_since(self.begin).as_nanos() as u64;
        let last = self.last.load(Relaxed);
        let is_due = now.saturating_sub(last) >= self.length.as_nanos() as u64;
        let is_mine = is_due
            && self
                .last
                .compare_exchange(last, now, Relaxed, Relaxed)
                .is_ok();
        is_mine.then(|| Duration::from_nanos(now - last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_cores_as_the_work_that_came_needs() {
        let interval = Duration::from_millis(4);
        // Each thread takes 100 us.
        let after = |load: &Load, ran: u32, waiting, most| {
            load.worked(Duration::from_micros(100) * ran, ran);
            load.are_ready(most);
            load.wanted(interval, waiting)
        };
        let load = Load::default();
        assert_eq!(after(&load, 40, 0, 9), 1, "all of one");
        assert_eq!(after(&load, 41, 0, 9), 2);
        assert_eq!(after(&load, 41, 0, 1), 1, "no other would run");
        // Twice the capacity of the core arrived: 40 threads wait, to be done in 20 ms.
        assert_eq!(
            after(&load, 40, 40, 41),
            3,
            "2, and 0.2 for those that wait"
        );
        // Three cores have run them, and little arrived.
        assert_eq!(after(&load, 60, 0, 41), 1);
        assert_eq!(after(&load, 0, 0, 0), 0);
    }

    #[test]
    fn an_interval_is_over_once() {
        let interval = Interval::new(Duration::from_millis(10));
        let at = |ms| interval.begin + Duration::from_millis(ms);
        assert_eq!(interval.is_over(at(9)), None);
        assert_eq!(interval.is_over(at(12)), Some(Duration::from_millis(12)));
        assert_eq!(
            (interval.is_over(at(12)), interval.is_over(at(21))),
            (None, None)
        );
        assert_eq!(interval.is_over(at(22)), Some(Duration::from_millis(10)));
    }
}
