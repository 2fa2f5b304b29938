// SPDX-License-Identifier: GPL-2.0-only
//! The bounds that `shinjuku` must hold, and the table for people.

use serde::Serialize;

use super::{Found, Place, Point};
use crate::judged::{rounded, verdict, Bound};
use crate::slow::{FACTOR, SLICE};
use baton_control::report::table;

/// The subject that is judged.
const JUDGED: &str = "shinjuku";
/// The loads at which it is compared, per cent.
const AT: &[u64] = &[50, 70, 80];
/// The loads that the curve of [`JUDGED`] in the simulator must have, per cent of the CPUs' time.
/// They end at 80: near 100, waits grow without bound.
const CURVE: &[u64] = &[10, 20, 30, 40, 50, 60, 70, 75, 80];

/// A bound on each value that `values` returns with its load.
struct Rule {
    what: &'static str,
    bound: Bound,
    values: fn(&View<'_>) -> Vec<(u64, f64)>,
}

const RULES: &[Rule] = &[
    Rule {
        what: "a context switch, % of a slice",
        bound: Bound::Most(5.0),
        values: |v| v.switch(),
    },
    Rule {
        what: "p99 of GET under the baseline, times shinjuku's",
        bound: Bound::Least(10.0),
        values: |v| v.quicker(),
    },
    Rule {
        what: "p99 of GET, times that at the lowest load",
        bound: Bound::Most(2.0),
        values: |v| v.flat(),
    },
    Rule {
        what: "saturation, times the baseline's",
        bound: Bound::Least(0.9),
        values: |v| v.saturation(),
    },
    Rule {
        what: "batch program, points from the baseline's share",
        bound: Bound::Most(5.0),
        values: |v| v.batch(),
    },
    Rule {
        what: "p99 of GET beside it, times that without",
        bound: Bound::Most(1.25),
        values: |v| v.unchanged(),
    },
];

/// A rule, applied to the measurements at one place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub place: Place,
    pub what: &'static str,
    /// Per cent; 0 if the rule has no load.
    pub load: u64,
    /// NaN if there is no value to judge.
    pub value: f64,
    pub bound: String,
    pub holds: bool,
}

/// The measurements at one place.
struct View<'a> {
    found: &'a Found,
    /// All subjects were to be measured, so a missing value is NaN. Otherwise it is left out.
    is_all: bool,
    place: Place,
    /// The subject that it is compared with.
    baseline: &'static str,
}

impl View<'_> {
    fn point(&self, subject: &str, batch: bool, load: u64) -> Option<&Point> {
        // A point without answers has no percentiles; taken as 0, they would be the best.
        let mut points = self.found.points.iter().filter(|p| p.answered > 0.0);
        points.find(|p| {
            p.place == self.place && p.subject == subject && p.batch == batch && p.load == load
        })
    }

    fn answered(&self, subject: &str) -> Option<f64> {
        let mut all = self.found.saturations.iter();
        all.find(|s| s.place == self.place && s.subject == subject)
            .map(|s| s.answered)
    }

    /// A number of two points, at each load that is compared.
    fn each(
        &self,
        a: (&str, bool),
        b: (&str, bool),
        number: fn(&Point, &Point) -> f64,
    ) -> Vec<(u64, f64)> {
        let at = |&load| {
            let both = self.point(a.0, a.1, load).zip(self.point(b.0, b.1, load));
            self.or_missing(both.map(|(a, b)| number(a, b)))
                .map(|value| (load, value))
        };
        AT.iter().filter_map(at).collect()
    }

    fn or_missing(&self, value: Option<f64>) -> Option<f64> {
        value.or(self.is_all.then_some(f64::NAN))
    }

    fn switch(&self) -> Vec<(u64, f64)> {
        let share = Some(self.found.switch as f64 * 100.0 / (SLICE * FACTOR) as f64)
            .filter(|&share| share > 0.0);
        let value = self
            .or_missing(share)
            .filter(|_| self.place == Place::Kernel);
        value.map(|share| (0, share)).into_iter().collect()
    }

    fn quicker(&self) -> Vec<(u64, f64)> {
        self.each(
            (self.baseline, false),
            (JUDGED, false),
            |baseline, judged| baseline.p99 / judged.p99,
        )
    }

    /// Up to 80 % of its capacity. Only in the simulator, where all subjects are always measured.
    fn flat(&self) -> Vec<(u64, f64)> {
        if self.place != Place::Simulator {
            return Vec::new();
        }
        let point = |load| self.point(JUDGED, false, load).filter(|p| p.p99 > 0.0);
        let lowest = point(CURVE[0]).map_or(f64::NAN, |p| p.p99);
        let until = 0.8 * self.answered(JUDGED).unwrap_or(f64::NAN);
        let times = CURVE.iter().filter_map(|&load| match point(load) {
            Some(p) => (p.offered <= until).then_some((load, p.p99 / lowest)),
            None => Some((load, f64::NAN)),
        });
        // NaN counts as the highest.
        vec![times
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((0, f64::NAN))]
    }

    fn saturation(&self) -> Vec<(u64, f64)> {
        let both = self.answered(JUDGED).zip(self.answered(self.baseline));
        let value = self.or_missing(both.map(|(judged, baseline)| judged / baseline));
        value.map(|value| (0, value)).into_iter().collect()
    }

    fn batch(&self) -> Vec<(u64, f64)> {
        self.each((JUDGED, true), (self.baseline, true), |judged, baseline| {
            let share = |point: &Point| point.batch_share.unwrap_or(f64::NAN);
            (share(judged) - share(baseline)).abs()
        })
    }

    fn unchanged(&self) -> Vec<(u64, f64)> {
        self.each((JUDGED, true), (JUDGED, false), |beside, alone| {
            beside.p99 / alone.p99
        })
    }
}

/// Applies the rules to the guest and to the simulator. If `is_all` is false, the rules whose
/// subjects were not measured are left out. Any other missing value breaks its rule.
pub fn verdicts(found: &Found, is_all: bool) -> Vec<Verdict> {
    let views =
        [(Place::Simulator, "cfs_like"), (Place::Kernel, "eevdf")].map(|(place, baseline)| View {
            found,
            is_all,
            place,
            baseline,
        });
    let mut verdicts = Vec::new();
    for view in &views {
        for rule in RULES {
            for (load, value) in (rule.values)(view) {
                verdicts.push(Verdict {
                    place: view.place,
                    what: rule.what,
                    load,
                    value: rounded(value),
                    bound: rule.bound.text(),
                    holds: rule.bound.holds(value),
                });
            }
        }
    }
    verdicts
}

/// The table for people.
pub fn text(found: &Found, verdicts: &[Verdict]) -> String {
    let share = |share: Option<f64>| share.map_or("-".into(), |share| format!("{share:.1}"));
    let us = |us: f64| format!("{us:.1}");
    let points = found.points.iter().map(|p| {
        let beside = if p.batch { "with batch" } else { "" }.to_string();
        let rates = [p.offered, p.answered].map(|rate| format!("{rate:.0}"));
        let [offered, answered] = rates;
        let row = [
            p.place.name(),
            p.subject.clone(),
            beside,
            p.load.to_string(),
            offered,
            answered,
        ];
        row.into_iter()
            .chain([us(p.p50), us(p.p99), us(p.p999), share(p.batch_share)])
            .collect()
    });
    let saturations = found.saturations.iter().map(|s| {
        vec![
            s.place.name(),
            s.subject.clone(),
            format!("{:.0}", s.answered),
        ]
    });
    let judged = verdicts.iter().map(|v| {
        let load = if v.load == 0 {
            "-".into()
        } else {
            v.load.to_string()
        };
        vec![
            v.place.name(),
            v.what.into(),
            load,
            format!("{:.2}", v.value),
            v.bound.clone(),
            verdict(v.holds).into(),
        ]
    });
    let titles = [
        "PLACE",
        "SUBJECT",
        "BESIDE",
        "LOAD %",
        "OFFERED/S",
        "ANSWERED/S",
        "P50",
        "P99",
        "P99.9",
        "BATCH %",
    ];
    format!(
        "rocksdb on {}, times there {FACTOR} times as long as shown; latencies of GET in \
         us\n\n{}\n{}\n{}",
        found.kernel,
        table(&titles, &points.collect::<Vec<_>>()),
        table(
            &["PLACE", "SUBJECT", "CAN ANSWER/S"],
            &saturations.collect::<Vec<_>>()
        ),
        table(
            &[
                "PLACE",
                "WHAT",
                "LOAD \
            %",
                "VALUE",
                "BOUND",
                "VERDICT"
            ],
            &judged.collect::<Vec<_>>()
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocksdb::Saturation;

    /// Points at 50 % at both places. shinjuku also has its curve. It has this p99 at 50 %, and
    /// this share and p99 beside a batch program.
    fn found(p99: f64, share: f64, beside: f64) -> Found {
        let mut found = Found {
            kernel: "7.2".into(),
            switch: SLICE * FACTOR / 20,
            ..Found::default()
        };
        for (place, baseline) in [(Place::Simulator, "cfs_like"), (Place::Kernel, "eevdf")] {
            let mut add = |subject: &str, load: u64, p99, batch_share: Option<f64>| {
                let (subject, batch, rate) = (
                    subject.to_string(),
                    batch_share.is_some(),
                    load as f64 * 100.0,
                );
                let (p50, p999) = (1.0, 2e4);
                let point = Point {
                    place,
                    subject,
                    batch,
                    load,
                    offered: rate,
                    answered: rate,
                    p50,
                    p99,
                    p999,
                    batch_share,
                };
                found.points.push(point);
            };
            add(baseline, 50, 1_000.0, None);
            add(baseline, 50, 2_000.0, Some(48.0));
            for &load in CURVE {
                add(JUDGED, load, if load == 50 { p99 } else { 10.0 }, None);
            }
            add(JUDGED, 50, beside, Some(share));
            for subject in [baseline, JUDGED] {
                found.saturations.push(Saturation {
                    place,
                    subject: subject.into(),
                    answered: 10_000.0,
                });
            }
        }
        found
    }

    fn broken(found: &Found) -> Vec<&'static str> {
        let verdicts = verdicts(found, false);
        assert_eq!(verdicts.len(), 10, "{verdicts:?}");
        verdicts
            .iter()
            .filter(|v| v.place == Place::Kernel && !v.holds)
            .map(|v| v.what)
            .collect()
    }

    #[test]
    fn bounds() {
        let check = |found: Found, expected: &[&str]| assert_eq!(broken(&found), expected);
        check(found(12.0, 50.0, 12.0), &[]);
        check(found(100.0, 53.0, 125.0), &[]);
        check(found(101.0, 50.0, 101.0), &[RULES[1].what]);
        check(found(12.0, 42.9, 12.0), &[RULES[4].what]);
        check(found(12.0, 50.0, 15.1), &[RULES[5].what]);
        check(found(12.0, f64::NAN, 12.0), &[RULES[4].what]);
        let mut slow = found(12.0, 50.0, 12.0);
        slow.switch = SLICE * FACTOR / 20 + 1;
        slow.saturations[3].answered = 8_999.0;
        check(slow, &[RULES[0].what, RULES[3].what]);
    }

    #[test]
    fn a_curve_that_rises_is_not_flat() {
        let holds = |p99| {
            verdicts(&found(p99, 50.0, p99), false)
                .iter()
                .find(|v| v.what == RULES[2].what)
                .unwrap()
                .holds
        };
        assert!(holds(20.0) && !holds(20.1));
    }

    #[test]
    fn a_curve_with_a_gap_is_not_flat() {
        let check = |change: fn(&mut Found), expected| {
            let mut found = found(10.0, 50.0, 10.0);
            change(&mut found);
            let verdicts = verdicts(&found, false);
            let flat: Vec<_> = verdicts
                .iter()
                .filter(|v| v.what == RULES[2].what)
                .map(|v| v.holds)
                .collect();
            assert_eq!(flat, [expected]);
        };
        check(|_| (), true);
        check(|found| found.points.retain(|p| p.load != 10), false);
        check(|found| found.points.retain(|p| p.load != 60), false);
        check(
            |found| {
                found
                    .points
                    .iter_mut()
                    .filter(|p| p.load == 60)
                    .for_each(|p| p.answered = 0.0)
            },
            false,
        );
        check(
            |found| found.points.iter_mut().for_each(|p| p.p99 = 0.0),
            false,
        );
        check(|found| found.saturations.clear(), false);
        // Load above 80 % of the capacity is not judged.
        check(
            |found| {
                found
                    .points
                    .iter_mut()
                    .filter(|p| p.load == 80)
                    .for_each(|p| p.offered += 1.0)
            },
            true,
        );
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        // One of a switch and one of a curve. The others are at both places: one has no load, three
        // are at each of three loads.
        const ALL: usize = 2 + 2 * (1 + 3 * 3);
        let broken = |found: &Found| {
            let verdicts = verdicts(found, true);
            assert_eq!(verdicts.len(), ALL, "{verdicts:?}");
            verdicts
                .into_iter()
                .filter(|v| !v.holds)
                .map(|v| (v.what, v.load))
                .collect::<Vec<_>>()
        };
        let found = found(12.0, 50.0, 12.0);
        let at_one = [
            (RULES[1].what, 70),
            (RULES[1].what, 80),
            (RULES[4].what, 70),
            (RULES[4].what, 80),
        ];
        let at_one = [&at_one[..], &[(RULES[5].what, 70), (RULES[5].what, 80)]].concat();
        assert_eq!(broken(&found), [&at_one[..], &at_one[..]].concat());
        assert_eq!(broken(&Found::default()).len(), ALL);
    }

    #[test]
    fn the_table_names_what_does_not_hold() {
        let found = found(101.0, 50.0, 101.0);
        let text = text(&found, &verdicts(&found, false));
        let line = text
            .lines()
            .find(|line| line.contains("kernel") && line.contains(RULES[1].what))
            .unwrap_or("");
        let words: Vec<_> = line.split_whitespace().rev().take(8).collect();
        assert_eq!(
            words,
            ["HOLD", "NOT", "DOES", "more", "or", "10", "9.90", "50"],
            "{text}"
        );
    }
}
