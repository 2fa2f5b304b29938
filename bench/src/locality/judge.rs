// SPDX-License-Identifier: GPL-2.0-only
//! The bounds that `locality` must hold with hints, and the table for people.

use serde::Serialize;

use super::{Found, Place, Row, LONG, SHORT};
use crate::judged::{rounded, verdict};
use baton_control::report::table;

/// The subject that is judged.
pub const JUDGED: &str = "locality";
const HINTS: &str = "locality, hints";
/// The idle states of the paper's machine, to which the bounds apply.
pub const PAPERS: &str = "skl";

/// A lower bound on the ratio of two subjects' waits.
struct Rule {
    place: Place,
    /// The idle states, and how long workers compute, us.
    setting: (&'static str, u64),
    which: Which,
    of: &'static str,
    to: &'static str,
    least: f64,
}

#[derive(Clone, Copy)]
enum Which {
    P50,
    P99,
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Which::P50 => "p50",
            Which::P99 => "p99",
        }
    }

    fn of(self, row: &Row) -> f64 {
        match self {
            Which::P50 => row.p50,
            Which::P99 => row.p99,
        }
    }
}

const fn rule(place: Place, which: Which, of: &'static str, to: &'static str, least: f64) -> Rule {
    let work = match place {
        Place::Simulator => LONG,
        Place::Kernel => SHORT,
    };
    Rule {
        place,
        setting: (PAPERS, work),
        which,
        of,
        to,
        least,
    }
}

/// Idle CPUs respond at once, so the tail consists only of waiting for other tasks.
const TAIL: Rule = Rule {
    place: Place::Kernel,
    setting: ("none", LONG),
    which: Which::P99,
    of: "eevdf, one CPU",
    to: "eevdf",
    least: 50.0,
};

/// For `scx_simple` the only requirement is that hints are no loss: chance decides whether its
/// threads share a CPU, and with that how long they wait.
const RULES: &[Rule] = &[
    rule(Place::Simulator, Which::P50, "cfs_like", HINTS, 5.0),
    rule(Place::Simulator, Which::P99, "cfs_like", HINTS, 5.0),
    rule(Place::Simulator, Which::P50, JUDGED, HINTS, 5.0),
    rule(Place::Simulator, Which::P99, JUDGED, HINTS, 5.0),
    rule(
        Place::Simulator,
        Which::P99,
        "cfs_like, one CPU",
        "cfs_like",
        50.0,
    ),
    rule(Place::Kernel, Which::P50, "eevdf", HINTS, 5.0),
    rule(Place::Kernel, Which::P99, "eevdf", HINTS, 5.0),
    rule(Place::Kernel, Which::P50, "scx_simple", HINTS, 0.5),
    rule(Place::Kernel, Which::P99, "scx_simple", HINTS, 0.5),
    rule(Place::Kernel, Which::P50, JUDGED, HINTS, 5.0),
    rule(Place::Kernel, Which::P99, JUDGED, HINTS, 5.0),
    rule(Place::Kernel, Which::P99, "eevdf, one CPU", HINTS, 5.0),
    TAIL,
];

/// A rule, applied to the measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub place: Place,
    pub idle_states: &'static str,
    /// How long workers compute, us.
    pub work: u64,
    pub what: String,
    /// NaN if there is no value to judge.
    pub value: f64,
    pub least: f64,
    pub holds: bool,
}

/// Applies all rules; or, unless all subjects were to be measured, those whose subjects were. Any
/// other missing value breaks its rule.
pub fn verdicts(found: &Found, is_all: bool) -> Vec<Verdict> {
    let judged = |rule: &Rule| {
        let row = |subject| {
            // The percentiles of no samples would be the best.
            let is_it =
                |row: &&Row| row.place == rule.place && row.subject == subject && row.wakeups > 0;
            let is_set = |row: &&Row| (row.idle_states.as_str(), row.work) == rule.setting;
            found
                .rows
                .iter()
                .filter(is_it)
                .find(is_set)
                .map(|row| rule.which.of(row))
        };
        let value = match row(rule.of).zip(row(rule.to)) {
            Some((of, to)) => of / to,
            None if is_all => f64::NAN,
            None => return None,
        };
        let what = format!(
            "{} of {}, times that of {}",
            rule.which.name(),
            rule.of,
            rule.to
        );
        let (least, holds) = (rule.least, value >= rule.least);
        let (place, (idle_states, work)) = (rule.place, rule.setting);
        Some(Verdict {
            place,
            idle_states,
            work,
            what,
            value: rounded(value),
            least,
            holds,
        })
    };
    RULES.iter().filter_map(judged).collect()
}

/// The table for people.
pub fn text(found: &Found, verdicts: &[Verdict]) -> String {
    let us = |us: f64| format!("{us:.1}");
    let rows = found.rows.iter().map(|row| {
        let numbers = [row.work, row.wakeups].map(|number| number.to_string());
        let words = [
            row.place.name(),
            row.idle_states.clone(),
            row.subject.clone(),
        ]
        .into_iter()
        .chain(numbers);
        words
            .chain([us(row.p50), us(row.p99), us(row.max)])
            .collect()
    });
    let judged = verdicts.iter().map(|v| {
        let (value, bound) = (format!("{:.2}", v.value), format!("{} or more", v.least));
        vec![
            v.place.name(),
            v.idle_states.into(),
            v.work.to_string(),
            v.what.clone(),
            value,
            bound,
            verdict(v.holds).into(),
        ]
    });
    format!(
        "locality on {}: waits of woken workers, and their computing time, us\n\n{}\n{}",
        found.kernel,
        table(
            &[
                "PLACE",
                "IDLE STATES",
                "SUBJECT",
                "WORK",
                "WAKEUPS",
                "P50",
                "P99",
                "MAX"
            ],
            &rows.collect::<Vec<_>>()
        ),
        table(
            &[
                "PLACE",
                "IDLE STATES",
                "WORK",
                "WHAT",
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

    /// The paper's table 6 at both places, with these waits under hints.
    fn found(p50: f64, p99: f64) -> Found {
        let mut found = Found {
            kernel: "7.2".into(),
            ..Found::default()
        };
        let mut add = |place, (idle_states, work): (&str, u64), subject: &str, p50, p99| {
            let (idle_states, subject) = (idle_states.into(), subject.into());
            found.rows.push(Row {
                place,
                idle_states,
                subject,
                work,
                wakeups: 100,
                p50,
                p99,
                max: p99,
            });
        };
        for (place, work, fair) in [
            (Place::Simulator, LONG, "cfs_like"),
            (Place::Kernel, SHORT, "eevdf"),
        ] {
            // Rows with other idle states are not judged.
            add(place, ("none", work), HINTS, 1e9, 1e9);
            for setting in [(PAPERS, work), TAIL.setting] {
                add(place, setting, fair, 33.0, 50.0);
                add(place, setting, &format!("{fair}, one CPU"), 17.0, 32_032.0);
            }
            add(place, (PAPERS, work), JUDGED, 46.0, 49.0);
            add(place, (PAPERS, work), HINTS, p50, p99);
        }
        found
    }

    fn broken(found: &Found) -> Vec<String> {
        let verdicts = verdicts(found, false);
        // All rules but those for scx_simple, which was not measured.
        assert_eq!(verdicts.len(), 11, "{verdicts:?}");
        verdicts
            .into_iter()
            .filter(|v| !v.holds)
            .map(|v| v.what)
            .collect()
    }

    #[test]
    fn bounds() {
        let check = |found: Found, expected: &[&str]| assert_eq!(broken(&found), expected);
        check(found(2.0, 4.0), &[]);
        check(found(6.6, 9.8), &[]);
        check(
            found(6.7, 9.8),
            &[
                "p50 of cfs_like, times that of locality, hints",
                "p50 of eevdf, times that of locality, hints",
            ],
        );
        // One in the simulator, one in the kernel.
        check(
            found(6.6, 9.9),
            &["p99 of locality, times that of locality, hints"; 2],
        );
        check(
            found(f64::NAN, 4.0),
            &[
                "p50 of cfs_like, times that of locality, hints",
                "p50 of locality, times that of locality, hints",
                "p50 of eevdf, times that of locality, hints",
                "p50 of locality, times that of locality, hints",
            ],
        );
        let mut quick = found(2.0, 4.0);
        quick
            .rows
            .iter_mut()
            .filter(|row| row.subject.ends_with("one CPU"))
            .for_each(|row| row.p99 = 19.0);
        check(
            quick,
            &[
                "p99 of cfs_like, one CPU, times that of cfs_like",
                "p99 of eevdf, one CPU, times that of locality, hints",
                "p99 of eevdf, one CPU, times that of eevdf",
            ],
        );
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let mut found = found(2.0, 4.0);
        let broken = |found: &Found| {
            let verdicts = verdicts(found, true);
            assert_eq!(verdicts.len(), RULES.len());
            verdicts
                .into_iter()
                .filter(|v| !v.holds)
                .map(|v| v.what)
                .collect::<Vec<_>>()
        };
        let simple =
            ["p50", "p99"].map(|which| format!("{which} of scx_simple, times that of {HINTS}"));
        assert_eq!(broken(&found), simple);
        found
            .rows
            .iter_mut()
            .filter(|row| row.subject == HINTS)
            .for_each(|row| row.wakeups = 0);
        assert_eq!(
            broken(&found).len(),
            RULES.len() - 2,
            "all but those that are not of hints"
        );
        found.rows.clear();
        assert_eq!(broken(&found).len(), RULES.len());
    }

    #[test]
    fn the_table_names_what_does_not_hold() {
        let found = found(2.0, 10.0);
        let text = text(&found, &verdicts(&found, false));
        let line = text
            .lines()
            .find(|line| line.starts_with("simulator") && line.contains("p99 of locality,"));
        let words: Vec<_> = line
            .unwrap_or("")
            .split_whitespace()
            .rev()
            .take(7)
            .collect();
        assert_eq!(
            words,
            ["HOLD", "NOT", "DOES", "more", "or", "5", "4.90"],
            "{text}"
        );
    }
}
