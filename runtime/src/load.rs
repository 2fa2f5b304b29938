// SPDX-License-Identifier: GPL-2.0-only
//! How many cores a process wants: one more when threads wait, one less when the others would do, as Arachne's core estimator.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Threads that wait for each core in use, on average, above which one more is wanted.
const CROWDED: f64 = 1.0;
/// The part of the cores' time that must have been used with one core less, at most, for it to be wanted no more.
const ROOMY: f64 = 0.75;

/// What was seen since the number was last thought over.
#[derive(Default)]
pub(crate) struct Load {
    /// Time that cores were at work, ns.
    busy: AtomicU64,
    /// How many waited for each core, in thousandths: the sum of samples, and how many.
    waiting: AtomicU64,
    samples: AtomicU64,
}

impl Load {
    /// A core was at work for so long.
    pub fn worked(&self, time: Duration) {
        self.busy.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// So many wait, for so many cores.
    pub fn waits(&self, waiting: usize, cores: usize) {
        self.waiting.fetch_add(waiting as u64 * 1_000 / cores.max(1) as u64, Relaxed);
        self.samples.fetch_add(1, Relaxed);
    }

    /// How many are wanted after so long with so many.
    pub fn wanted(&self, cores: u32, time: Duration) -> u32 {
        let (busy, waiting) = (self.busy.swap(0, Relaxed) as f64, self.waiting.swap(0, Relaxed) as f64 / 1e3);
        let waiting = waiting / self.samples.swap(0, Relaxed).max(1) as f64;
        let used = busy / time.as_nanos().max(1) as f64;
        match (waiting > CROWDED, used < ROOMY * f64::from(cores.saturating_sub(1))) {
            (true, _) => cores + 1,
            (false, true) => cores - 1,
            (false, false) => cores,
        }
    }
}

/// When something is due again and again.
pub(crate) struct Interval {
    begin: Instant,
    length: Duration,
    /// The last one that was begun.
    last: AtomicU64,
}

impl Interval {
    pub fn new(length: Duration) -> Self {
        Self { begin: Instant::now(), length: length.max(Duration::from_micros(1)), last: AtomicU64::new(0) }
    }

    /// How long the one took that is over, for one caller of several.
    pub fn is_over(&self, now: Instant) -> Option<Duration> {
        let now = now.saturating_duration_since(self.begin).as_nanos() as u64;
        let last = self.last.load(Relaxed);
        let is_due = now.saturating_sub(last) >= self.length.as_nanos() as u64;
        let is_mine = is_due && self.last.compare_exchange(last, now, Relaxed, Relaxed).is_ok();
        is_mine.then(|| Duration::from_nanos(now - last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_more_or_less() {
        let second = Duration::from_secs(1);
        let check = |cores, busy_ms, waiting: &[usize], expected| {
            let load = Load::default();
            load.worked(Duration::from_millis(busy_ms));
            waiting.iter().for_each(|&waiting| load.waits(waiting, cores as usize));
            assert_eq!(load.wanted(cores, second), expected, "{cores} cores, {busy_ms} ms, {waiting:?}");
        };
        check(2, 2_000, &[6, 0], 3);
        check(2, 2_000, &[4, 0], 2);
        // One of two would be used for 75 %.
        check(2, 751, &[0], 2);
        check(2, 749, &[0], 1);
        check(4, 2_240, &[0], 3);
        check(1, 0, &[], 1);
    }

    #[test]
    fn an_interval_is_over_once() {
        let interval = Interval::new(Duration::from_millis(10));
        let at = |ms| interval.begin + Duration::from_millis(ms);
        assert_eq!(interval.is_over(at(9)), None);
        assert_eq!(interval.is_over(at(12)), Some(Duration::from_millis(12)));
        assert_eq!((interval.is_over(at(12)), interval.is_over(at(21))), (None, None));
        assert_eq!(interval.is_over(at(22)), Some(Duration::from_millis(10)));
    }
}
