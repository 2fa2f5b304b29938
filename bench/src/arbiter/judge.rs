// SPDX-License-Identifier: GPL-2.0-only
//! The bounds that `arbiter` must hold, and the tables for people.

use serde::Serialize;

use super::{Cores, Found, Point, Way, LOADS};
use crate::judged::{rounded, verdict, Bound};
use baton_control::report::table;

/// The load from which on `arbiter` is compared with kernel threads, per cent.
pub const HIGH: u64 = 80;

/// A bound on a value at each load from `from` on. A value that is missing breaks it.
struct Rule {
    what: &'static str,
    from: u64,
    bound: Bound,
    value: fn(&View<'_>) -> Option<f64>,
}

const RULES: &[Rule] = &[
    // How long a process is given to return a core.
    Rule {
        what: "p99 of reclaims, ms",
        from: 0,
        bound: Bound::Most(10.0),
        value: |v| Some(v.own()?.reclaim[1] / 1e3),
    },
    Rule {
        what: "p99 of grants, times the server's",
        from: 0,
        bound: Bound::Most(1.0),
        value: |v| Some(v.own()?.grant[1] / v.server()?.grant[1]),
    },
    Rule {
        what: "time with a core that is requested and unused, %",
        from: 0,
        bound: Bound::Most(1.0),
        value: |v| Some(v.own()?.unused),
    },
    Rule {
        what: "throughput, times the server's",
        from: 0,
        bound: Bound::Least(0.99),
        value: |v| v.ratio(Way::Cpusets, |p| p.answered),
    },
    Rule {
        what: "p99, times the server's",
        from: 0,
        bound: Bound::Most(1.0),
        value: |v| v.ratio(Way::Cpusets, |p| p.p99),
    },
    Rule {
        what: "throughput, times that of threads",
        from: HIGH,
        bound: Bound::Least(0.99),
        value: |v| v.ratio(Way::Threads, |p| p.answered),
    },
    Rule {
        what: "p99, times that of threads",
        from: HIGH,
        bound: Bound::Most(1.0),
        value: |v| v.ratio(Way::Threads, |p| p.p99),
    },
    Rule {
        what: "p99, times that of a thread for each request",
        from: HIGH,
        bound: Bound::Most(1.0),
        value: |v| v.ratio(Way::Each, |p| p.p99),
    },
];

/// A rule, applied at one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub what: &'static str,
    /// Per cent.
    pub load: u64,
    /// NaN if there is no value to judge.
    pub value: f64,
    pub bound: String,
    pub holds: bool,
}

/// What was measured at one load.
#[derive(Clone, Copy)]
struct View<'a> {
    found: &'a Found,
    load: u64,
}

impl View<'_> {
    fn point(&self, way: Way) -> Option<&Point> {
        self.found
            .points
            .iter()
            .find(|point| point.way == way && point.load == self.load)
    }

    fn own(&self) -> Option<&Cores> {
        self.cores(Way::Arbiter)
    }

    fn server(&self) -> Option<&Cores> {
        self.cores(Way::Cpusets)
    }

    /// None without a grant and a reclaim: the percentiles of no samples would be the best.
    fn cores(&self, way: Way) -> Option<&Cores> {
        self.point(way)?
            .cores
            .as_ref()
            .filter(|cores| cores.grants > 0 && cores.reclaims > 0)
    }

    fn ratio(&self, to: Way, number: fn(&Point) -> f64) -> Option<f64> {
        Some(number(self.point(Way::Arbiter)?) / number(self.point(to)?))
    }
}

/// Applies all rules at all loads.
pub fn verdicts(found: &Found) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for &load in LOADS {
        for rule in RULES.iter().filter(|rule| rule.from <= load) {
            let value = (rule.value)(&View { found, load }).unwrap_or(f64::NAN);
            verdicts.push(Verdict {
                what: rule.what,
                load,
                value: rounded(value),
                bound: rule.bound.text(),
                holds: rule.bound.holds(value),
            });
        }
    }
    verdicts
}

/// The tables for people.
pub fn text(found: &Found, verdicts: &[Verdict]) -> String {
    let number = |value: f64| format!("{value:.0}");
    let points = found.points.iter().map(|p| {
        let own = [p.way.name().into(), p.load.to_string()];
        let times = [p.offered, p.answered, p.p50, p.p99].map(number);
        let cores = p.cores.as_ref().map(|c| {
            let grants = [c.grants.to_string(), number(c.grant[0]), number(c.grant[1])];
            let reclaims = [
                c.reclaims.to_string(),
                number(c.reclaim[0]),
                number(c.reclaim[1]),
            ];
            grants
                .into_iter()
                .chain(reclaims)
                .chain([format!("{:.2}", c.unused)])
                .collect()
        });
        let cores: Vec<String> = cores.unwrap_or_else(|| vec!["-".into(); 7]);
        own.into_iter().chain(times).chain(cores).collect()
    });
    let judged = verdicts.iter().map(|v| {
        vec![
            v.what.into(),
            v.load.to_string(),
            format!("{:.3}", v.value),
            v.bound.clone(),
            verdict(v.holds).into(),
        ]
    });
    let titles = [
        "SUBJECT",
        "LOAD %",
        "OFFERED/S",
        "ANSWERED/S",
        "P50",
        "P99",
        "GRANTS",
        "P50",
        "P99",
        "RECLAIMS",
        "P50",
        "P99",
        "UNUSED %",
    ];
    format!(
        "arbiter on {}, 4 CPUs; times in us\n\n{}\n{}",
        found.kernel,
        table(&titles, &points.collect::<Vec<_>>()),
        table(
            &["WHAT", "LOAD %", "VALUE", "BOUND", "VERDICT"],
            &judged.collect::<Vec<_>>()
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the load `at`, the arbiter has these ratios to the numbers of the others. At all other
    /// loads it equals them.
    fn found(grant: f64, answered: f64, p99: f64, unused: f64, at: u64) -> Found {
        let points = LOADS.iter().flat_map(|&load| {
            if load == at {
                points(grant, answered, p99, unused, load)
            } else {
                points(1.0, 1.0, 1.0, 1.0, load)
            }
        });
        Found {
            kernel: "7.2".into(),
            points: points.collect(),
        }
    }

    fn points(grant: f64, answered: f64, p99: f64, unused: f64, load: u64) -> Vec<Point> {
        let cores = |part: f64, unused| {
            let (grant, reclaim) = ([100.0 * part, 1_000.0 * part], [100.0, 9_000.0 * part]);
            Some(Cores {
                grants: 5,
                grant,
                reclaims: 5,
                reclaim,
                unused,
            })
        };
        let point = |way, answered, p99, cores| Point {
            way,
            load,
            offered: 1e4,
            answered,
            p50: 1.0,
            p99,
            cores,
        };
        vec![
            point(Way::Threads, 1e4, 500.0, None),
            point(Way::Each, 1e4, 500.0, None),
            point(Way::Cpusets, 1e4, 500.0, cores(1.0, 5.0)),
            point(
                Way::Arbiter,
                1e4 * answered,
                500.0 * p99,
                cores(grant, unused),
            ),
        ]
    }

    fn broken(found: &Found) -> Vec<(&'static str, u64)> {
        let verdicts = verdicts(found);
        assert_eq!(verdicts.len(), 5 + 5 + 8, "{verdicts:?}");
        verdicts
            .into_iter()
            .filter(|v| !v.holds)
            .map(|v| (v.what, v.load))
            .collect()
    }

    #[test]
    fn bounds() {
        let check = |found: Found, expected: &[usize]| {
            let broken: Vec<_> = broken(&found).into_iter().map(|(what, _)| what).collect();
            assert_eq!(
                broken,
                expected
                    .iter()
                    .map(|&rule| RULES[rule].what)
                    .collect::<Vec<_>>()
            );
        };
        check(found(1.0, 1.0, 1.0, 1.0, HIGH), &[]);
        check(found(1.01, 1.0, 1.0, 1.0, HIGH), &[1]);
        check(found(1.2, 1.0, 1.0, 1.0, HIGH), &[0, 1]);
        check(found(1.0, 0.98, 1.0, 1.01, HIGH), &[2, 3, 5]);
        check(found(1.0, 1.0, 1.01, 1.0, HIGH), &[4, 6, 7]);
        // Kernel threads may be better at low loads.
        check(found(1.0, 1.0, 1.01, 1.0, LOADS[0]), &[4]);
        check(found(f64::NAN, 1.0, 1.0, 1.0, HIGH), &[0, 1]);
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let check = |spoil: fn(&mut Found), expected: &[usize]| {
            let mut found = found(1.0, 1.0, 1.0, 1.0, HIGH);
            spoil(&mut found);
            assert_eq!(
                broken(&found),
                expected
                    .iter()
                    .map(|&rule| (RULES[rule].what, HIGH))
                    .collect::<Vec<_>>()
            );
        };
        fn at_high(found: &mut Found, way: Way) -> &mut Point {
            found
                .points
                .iter_mut()
                .find(|point| point.way == way && point.load == HIGH)
                .unwrap()
        }
        fn cores(found: &mut Found, way: Way) -> &mut Cores {
            at_high(found, way).cores.as_mut().unwrap()
        }
        check(
            |found| {
                found
                    .points
                    .retain(|p| p.way != Way::Arbiter || p.load != HIGH)
            },
            &[0, 1, 2, 3, 4, 5, 6, 7],
        );
        check(
            |found| {
                found
                    .points
                    .retain(|p| p.way != Way::Cpusets || p.load != HIGH)
            },
            &[1, 3, 4],
        );
        check(
            |found| {
                found
                    .points
                    .retain(|p| p.way != Way::Each || p.load != HIGH)
            },
            &[7],
        );
        check(
            |found| at_high(found, Way::Arbiter).cores = None,
            &[0, 1, 2],
        );
        check(|found| cores(found, Way::Arbiter).grants = 0, &[0, 1, 2]);
        check(|found| cores(found, Way::Arbiter).reclaims = 0, &[0, 1, 2]);
        check(|found| cores(found, Way::Cpusets).grants = 0, &[1]);
        assert_eq!(broken(&Found::default()).len(), 18);
    }

    #[test]
    fn the_table_names_what_does_not_hold() {
        let found = found(1.0, 1.0, 1.01, 1.0, LOADS[0]);
        let text = text(&found, &verdicts(&found));
        let line = text
            .lines()
            .find(|line| line.starts_with(RULES[4].what))
            .unwrap_or("");
        let words: Vec<_> = line.split_whitespace().rev().take(7).collect();
        assert_eq!(
            words,
            ["HOLD", "NOT", "DOES", "less", "or", "1", "1.010"],
            "{text}"
        );
    }
}
