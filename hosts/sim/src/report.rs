// SPDX-License-Identifier: GPL-2.0-only
//! What a run is reduced to: the numbers that people compare. As JSON it is what `baton sim --json`
//! prints and `baton report` reads.
//!
//! All times are in ns. The format is JSON of [`Run`]; its version is [`VERSION`], and a reader
//! refuses any other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::detail::Detail;
use crate::timeline::{Timeline, Times};

/// The version of the format. Counts up when a field changes its meaning, or goes.
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
    /// The seed; of a series the first.
    pub seed: u64,
    /// How many seeds, from that one on: more than one in a series, whose numbers are means then
    /// (`series.rs`).
    #[serde(default = "one")]
    pub seeds: u64,
    /// Of a series: what its mean is within with a probability of 95 %, for each number that
    /// differs from seed to seed. Of the shape of this, with a pair `[low, high]` in the place of a
    /// number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Value>,
    /// By how much computing times differ from what programs say, at most, in parts of a million.
    #[serde(default)]
    pub jitter_ppm: u32,
    /// How much time was simulated.
    pub duration_ns: u64,
    /// When all tasks that there were had come to wait for something that nobody was left to do,
    /// for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_ns: Option<u64>,
    /// Of all events, in hexadecimal: the same for the same run.
    pub hash: String,
    /// How many events there were.
    pub events: u64,
    /// By group of tasks, in the workload's order.
    pub groups: Vec<GroupReport>,
    /// Of the whole machine.
    pub cpu: CpuTotals,
    /// Where the workload has tasks to compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// Versions of policies that took another's place.
    #[serde(default)]
    pub upgrades: u64,
    /// Why others did not, each in a line.
    #[serde(default)]
    pub refused_upgrades: Vec<String>,
    /// Tasks that there were no slots for.
    #[serde(default)]
    pub tasks_not_made: u64,
    /// Hints that tasks gave their policies.
    #[serde(default)]
    pub hints: u64,
    /// Those of them that were refused.
    #[serde(default)]
    pub hints_refused: u64,
    /// Faults, each in a line.
    #[serde(default)]
    pub faults: Vec<String>,
    /// What each CPU did when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// A part of the run in full; of a series a part of the first run.
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
    /// Tasks that there ever were.
    pub tasks: u64,
    /// CPU time of all of them.
    pub cpu_ns: u64,
    /// From becoming runnable to running.
    pub wakeup: Percentiles,
    /// The same as a curve.
    pub wakeup_curve: Vec<Point>,
    /// From when a request was due to its answer, where the workload notes that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Percentiles>,
    /// The same as a curve.
    #[serde(default)]
    pub response_curve: Vec<Point>,
    /// What the workload notes as done.
    pub operations: u64,
    /// How long its tasks were there: to the end of the last of them, or of the run. Rates are of
    /// this time.
    #[serde(default)]
    pub active_ns: u64,
}

/// What all CPUs did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTotals {
    /// Context switches from one task to another, or from or to idle.
    pub switches: u64,
    /// Tasks that ran on another CPU than before.
    pub migrations: Migrations,
    /// CPU time that tasks ran.
    pub busy_ns: u64,
    /// CPU time idle: all of it.
    pub idle_ns: u64,
    /// Of it, while at least one task waited for a CPU.
    pub idle_while_waiting_ns: u64,
    /// CPU time that waiting tasks could have had: the lesser of idle CPUs and waiting tasks, over
    /// time.
    pub wasted_ns: u64,
    /// CPU time that higher classes took.
    pub higher_ns: u64,
    /// CPU time offline.
    pub offline_ns: u64,
}

impl CpuTotals {
    /// Of what [`crate::timeline::Collector`] found, and of what only the machine knows.
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

/// How far tasks moved: what the old and the new CPU have in common.
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

/// How CPU time was shared, against what each task was due: its share by weight among those that
/// wanted to run, at every moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// Jain's index of what tasks had by what they were due, each counted by that: 1 is fair, near
    /// 0 is those that are due little having most.
    pub jain: f64,
    /// By how much the task that was worst off is behind its share.
    pub worst_lag_ns: u64,
}

/// Of many times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many.
    pub count: u64,
    /// Mean, rounded.
    pub mean: u64,
    /// Half of them are not above it.
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

/// Counts times in buckets of 0.1 % width: a few ten KB, however many there are. Mean and maximum
/// are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        // Three digits is what the library documents as valid; it grows with the largest value.
        let buckets = hdrhistogram::Histogram::new(3).expect("three digits are valid");
        Self {
            buckets,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Points of a curve, at most.
    const POINTS: usize = 400;

    /// Notes a time, ns.
    pub fn record(&mut self, ns: u64) {
        // Half of the range of u64, 292 years, is what can be counted.
        self.buckets
            .record(ns.min(u64::MAX >> 1))
            .expect("the histogram grows up to there");
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// Notes all that another one has.
    pub fn add(&mut self, other: &Self) {
        self.buckets
            .add(&other.buckets)
            .expect("both count alike, and grow");
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// What they come to.
    pub fn percentiles(&self) -> Percentiles {
        let count = self.count();
        if count == 0 {
            return Percentiles::default();
        }
        // A bucket is named by its end, which may be above what is in it.
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

    /// The cumulative distribution: upwards in both, the last point is the maximum and 1. Empty
    /// when nothing was noted.
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

/// A curve of at most [`Histogram::POINTS`] points, the last of them kept.
pub(crate) fn thin(mut points: Vec<Point>) -> Vec<Point> {
    // Points too near to be told apart on a page go; where the curve is steep or long they are far
    // apart in one of the two. The tail is drawn as a logarithm, so that its last points stay.
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
