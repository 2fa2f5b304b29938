// SPDX-License-Identifier: GPL-2.0-only
//! The report of a run: the numbers to compare. `baton sim --json` prints it as JSON, and `baton
//! report` reads that.
//!
//! All times are in ns. The format is the JSON form of [`Run`]. Its version is [`VERSION`], and a
//! reader refuses any other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::detail::Detail;
use crate::timeline::{Timeline, Times};

/// The version of the format. It increases when a field changes its meaning or is removed.
pub const VERSION: u32 = 1;

/// One run of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// The policy, or the policies in their order.
    pub policy: String,
    /// The workload.
    pub workload: String,
    /// The machine, as `2x16x2`.
    pub topology: String,
    /// The seed; in a series, the first one.
    pub seed: u64,
    /// Number of seeds, from that one on. With more than one the run is a series, and its numbers
    /// are means (`series.rs`).
    #[serde(default = "one")]
    pub seeds: u64,
    /// In a series, the 95 % confidence intervals of the means. It has the shape of this struct,
    /// with a pair `[low, high]` in place of each number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Value>,
    /// The most by which computing times differ from those of the programs, in parts per million.
    #[serde(default)]
    pub jitter_ppm: u32,
    /// Simulated time.
    pub duration_ns: u64,
    /// When a task last left a CPU, if at the end all tasks slept and no coming event could have
    /// woken one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_ns: Option<u64>,
    /// Hash of all events, in hexadecimal. Equal runs have equal hashes.
    pub hash: String,
    /// Number of events.
    pub events: u64,
    /// By group of tasks, in the workload's order.
    pub groups: Vec<GroupReport>,
    /// Totals of the whole machine.
    pub cpu: CpuTotals,
    /// `None` if there are no tasks to compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// Number of upgrades of policies.
    #[serde(default)]
    pub upgrades: u64,
    /// The reason of each refused upgrade, in one line.
    #[serde(default)]
    pub refused_upgrades: Vec<String>,
    /// Tasks that were not created for lack of a slot.
    #[serde(default)]
    pub tasks_not_made: u64,
    /// Hints that tasks sent to their policies.
    #[serde(default)]
    pub hints: u64,
    /// Hints that were refused.
    #[serde(default)]
    pub hints_refused: u64,
    /// Faults, one line each.
    #[serde(default)]
    pub faults: Vec<String>,
    /// The state of each CPU over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// A part of the run in full; in a series, a part of the first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

fn one() -> u64 {
    1
}

/// Tasks that are counted together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// Number of tasks that it ever had.
    pub tasks: u64,
    /// CPU time of all of them.
    pub cpu_ns: u64,
    /// Time from becoming runnable to running.
    pub wakeup: Percentiles,
    /// The same as a curve.
    pub wakeup_curve: Vec<Point>,
    /// Time from when a request was due to its answer, if the workload records that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Percentiles>,
    /// The same as a curve.
    #[serde(default)]
    pub response_curve: Vec<Point>,
    /// Units of work that the workload recorded as done.
    pub operations: u64,
    /// How long it had tasks: until the last of them exited, or until the end of the run. Rates
    /// refer to this time.
    #[serde(default)]
    pub active_ns: u64,
}

/// Totals of all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTotals {
    /// Context switches from one task to another, or from or to idle.
    pub switches: u64,
    /// Number of migrations, by distance.
    pub migrations: Migrations,
    /// CPU time of tasks.
    pub busy_ns: u64,
    /// Idle time of all online CPUs.
    pub idle_ns: u64,
    /// The part of the idle time while at least one task waited for a CPU.
    pub idle_while_waiting_ns: u64,
    /// CPU time that waiting tasks could have had: the lesser of idle CPUs and waiting tasks, over
    /// time.
    pub wasted_ns: u64,
    /// CPU time that higher classes took.
    pub higher_ns: u64,
    /// Time that CPUs were offline.
    pub offline_ns: u64,
}

impl CpuTotals {
    /// Totals from the times of [`crate::timeline::Collector`], and the counts that only the
    /// machine has.
    pub fn new(times: Times, switches: u64, migrations: Migrations) -> Self {
        Self {
            switches,
            migrations,
            busy_ns: times.busy,
            idle_ns: times.idle,
            idle_while_waiting_ns: times.idle_while_waiting,
            wasted_ns: times.wasted,
            higher_ns: times.higher,
            offline_ns: times.offline,
        }
    }
}

/// Migrations by distance: the closest level that the old and the new CPU share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migrations {
    /// A physical core.
    pub core: u64,
    /// A last-level cache.
    pub llc: u64,
    /// A NUMA node.
    pub node: u64,
    /// The machine only.
    pub machine: u64,
}

/// How CPU time was shared, compared with the due of each task: its share by weight, at every
/// moment, among the tasks that wanted to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// Jain's index of the ratio of CPU time to due, weighted by the due. 1 is fair; near 0 the
    /// tasks with a small due had most.
    pub jain: f64,
    /// The most that a task is behind its due.
    pub worst_lag_ns: u64,
}

/// Statistics of a set of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Number of times.
    pub count: u64,
    /// Mean, rounded.
    pub mean: u64,
    /// Half of the times are not above it.
    pub p50: u64,
    /// 90 % are not above it.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// A point of a curve: a time, and the share of times that are not above it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point(pub u64, pub f64);

/// Counts times in buckets of 0.1 % width. It takes a few tens of KB for any number of times. Mean
/// and maximum are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        // The library documents three digits as valid. The histogram grows with the largest value.
        let buckets = hdrhistogram::Histogram::new(3).expect("three digits are valid");
        Self {
            buckets,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Limit of the points of a curve.
    const POINTS: usize = 400;

    /// Records a time, ns.
    pub fn record(&mut self, ns: u64) {
        // The histogram can count times up to half of the range of u64, 292 years.
        self.buckets
            .record(ns.min(u64::MAX >> 1))
            .expect("the histogram grows up to there");
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// Adds all times of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.buckets
            .add(&other.buckets)
            .expect("both count alike, and grow");
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Number of recorded times.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Statistics of the recorded times.
    pub fn percentiles(&self) -> Percentiles {
        let count = self.count();
        if count == 0 {
            return Percentiles::default();
        }
        // The value of a bucket is its end, which may be above the times in it.
        let at = |quantile| self.buckets.value_at_quantile(quantile).min(self.max);
        let mean = ((self.sum + u128::from(count) / 2) / u128::from(count)) as u64;
        Percentiles {
            count,
            mean,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.max,
        }
    }

    /// The cumulative distribution. Both values increase from point to point, and the last point is
    /// the maximum and 1. Empty if no time was recorded.
    pub fn curve(&self) -> Vec<Point> {
        let count = self.count();
        let mut points: Vec<Point> = Vec::new();
        let mut below = 0;
        for bucket in self.buckets.iter_recorded() {
            below += bucket.count_at_value();
            points.push(Point(
                bucket.value_iterated_to().min(self.max),
                below as f64 / count as f64,
            ));
        }
        thin(points)
    }
}

/// Thins a curve to at most [`Histogram::POINTS`] points, of which the last is kept.
pub(crate) fn thin(mut points: Vec<Point>) -> Vec<Point> {
    // Drops points that are too close to distinguish on the page. A kept point must be later than
    // the one before it by the factor `apart`, and its share must differ. The tail is drawn on a
    // logarithmic scale, so there the shares of longer times are compared, which keeps its last
    // points.
    let mut apart = 1.002_f64;
    while points.len() > Histogram::POINTS {
        let (mut kept, last): (Vec<Point>, usize) = (Vec::new(), points.len() - 1);
        for (at, point) in points.iter().enumerate() {
            let far = kept.last().is_none_or(|before| {
                let longer = point.0 as f64 >= (before.0.max(1)) as f64 * apart;
                let rarer = (1.0 - point.1) * apart < 1.0 - before.1;
                longer && (rarer || point.1 - before.1 > (apart - 1.0) / 4.0)
            });
            if far || at == last {
                kept.push(*point);
            }
        }
        points = kept;
        apart = 1.0 + (apart - 1.0) * 1.5;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn histogram(times: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        times.into_iter().for_each(|ns| histogram.record(ns));
        histogram
    }

    #[test]
    fn percentiles_of_known_times() {
        let check = |times: Vec<u64>, expected: [u64; 7]| {
            let p = histogram(times).percentiles();
            let got = [p.count, p.mean, p.p50, p.p90, p.p99, p.p999, p.max];
            for (got, expected) in got.iter().zip(expected) {
                assert!(
                    got.abs_diff(expected) * 1000 <= expected,
                    "{got} for {expected}"
                );
            }
        };
        check(vec![], [0; 7]);
        check(vec![0], [1, 0, 0, 0, 0, 0, 0]);
        check(vec![7, 8], [2, 8, 7, 8, 8, 8, 8]);
        check((1..=1000).collect(), [1000, 501, 500, 900, 990, 999, 1000]);
        check(
            (1..=1000).map(|n| n * 1_000_000).collect(),
            [
                1000,
                500_500_000,
                500_000_000,
                900_000_000,
                990_000_000,
                999_000_000,
                1_000_000_000,
            ],
        );
        check(
            vec![u64::MAX],
            [
                1,
                u64::MAX,
                u64::MAX >> 1,
                u64::MAX >> 1,
                u64::MAX >> 1,
                u64::MAX >> 1,
                u64::MAX,
            ],
        );
    }

    #[test]
    fn curves_rise_to_one() {
        let check = |times: Vec<u64>| {
            let (count, max) = (times.len() as f64, *times.iter().max().unwrap());
            let curve = histogram(times.iter().copied()).curve();
            assert!(curve.len() <= Histogram::POINTS, "{} points", curve.len());
            assert_eq!(*curve.last().unwrap(), Point(max, 1.0));
            assert!(curve
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
            for Point(ns, share) in curve {
                let true_share = times.iter().filter(|&&time| time <= ns).count() as f64 / count;
                assert!(
                    (true_share - share).abs() < 0.01,
                    "{ns}: {share} for {true_share}"
                );
            }
        };
        let mut rng = Rng::new(1, 2);
        check(vec![5]);
        check((0..20_000).map(|_| rng.below(1_000_000)).collect());
        check((0..20_000).map(|_| rng.exponential(50_000)).collect());
        check(
            (0..20_000)
                .map(|n| {
                    if n % 200 == 0 {
                        10_000_000 + n
                    } else {
                        4000 + n % 100
                    }
                })
                .collect(),
        );
    }
}
