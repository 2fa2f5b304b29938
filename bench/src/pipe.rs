// SPDX-License-Identifier: GPL-2.0-only
//! Two processes that wake each other: section 5.2 of Enoki. As there, under `arbiter` two
//! user-level threads do so, on a core that the policy grants.

use std::process::ExitCode;

use super::judged;
use super::report::{entries, Entry};
use super::subject::Subject;
use super::table::{self, compare, Measured, Run, Table};
use super::{arbiter, loads, Arguments, Bench};
use baton_control::error::Result;
use baton_control::modules::Search;

/// Operations of a run: enough to make the start and the end of the processes less than a hundredth
/// of it.
const LOOPS: u32 = 30_000;
/// The largest cost of an operation under a policy, relative to EEVDF. Enoki's policies have 1.17
/// to 1.33.
const MAX_RATIO: f64 = 1.10;
/// The largest cost between two user-level threads, relative to EEVDF.
const MAX_RATIO_OF_THREADS: f64 = 0.10;

pub struct Pipe;

impl Bench for Pipe {
    fn runs(&self) -> u32 {
        6
    }

    fn cpus(&self) -> &'static [u32] {
        &[1, 2]
    }

    fn subjects(&self) -> Vec<Subject> {
        Subject::usual()
            .into_iter()
            .chain([Subject::Policy(arbiter::POLICY.into())])
            .collect()
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::run(self, search, args)
    }
}

impl Table for Pipe {
    fn tools(&self) -> &'static [&'static str] {
        &["perf"]
    }

    /// Measures here, and judges the policies.
    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
        let (metric, unit, scale) = if args.icount {
            ("instructions_per_op", "instructions", 1.0)
        } else {
            ("time_per_op", "us", 1e3)
        };
        let pipe = |subject: &Subject, run: Run| {
            if subject.name() == arbiter::POLICY {
                loads::threads_pipe(run.size(LOOPS))
            } else {
                loads::pipe(run.size(LOOPS))
            }
        };
        let series = compare(search, args, |subject, run| {
            pipe(subject, run).map(|ns| ns / scale)
        })?;
        let results = entries(cpus, metric, unit, &series, true);
        let policies: Vec<_> = args
            .subjects()
            .iter()
            .filter(|s| matches!(s, Subject::Policy(_)))
            .map(Subject::name)
            .collect();
        let judged: Vec<_> = results
            .iter()
            .filter(|entry| policies.contains(&entry.subject))
            .filter_map(judge)
            .collect();
        for verdict in &judged {
            eprintln!("baton: {}", verdict.text);
        }
        let broken = !judged.iter().all(|verdict| verdict.holds);
        Ok(Measured {
            entries: results,
            broken,
        })
    }
}

/// Whether a policy holds its bound.
struct Verdict {
    text: String,
    holds: bool,
}

/// Judges an entry. None if EEVDF was not measured in the same run.
fn judge(entry: &Entry) -> Option<Verdict> {
    let ratio = entry.ratio_to_eevdf?;
    let most = if entry.subject == arbiter::POLICY {
        MAX_RATIO_OF_THREADS
    } else {
        MAX_RATIO
    };
    let holds = ratio <= most;
    let verdict = judged::verdict(holds);
    let text = format!(
        "{}, {} CPUs: {ratio:.3} of EEVDF, bound {most:.2}: {verdict}",
        entry.subject, entry.cpus
    );
    Some(Verdict { text, holds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Series;

    #[test]
    fn a_policy_is_held_to_a_tenth_more_and_threads_to_a_tenth() {
        let holds = |subject: &str, value: f64| {
            let series = |(subject, value): (&str, f64)| Series {
                subject: subject.into(),
                values: vec![value],
            };
            let results = entries(
                1,
                "",
                "",
                &[("eevdf", 1000.0), (subject, value)].map(series),
                true,
            );
            judge(&results[1]).map(|verdict| verdict.holds)
        };
        assert_eq!(
            (holds("fifo", 1100.0), holds("fifo", 1101.0)),
            (Some(true), Some(false))
        );
        assert_eq!(
            (holds("arbiter", 100.0), holds("arbiter", 101.0)),
            (Some(true), Some(false))
        );
        let alone = Series {
            subject: "fifo".into(),
            values: vec![1.0],
        };
        assert!(judge(&entries(1, "", "", &[alone], true)[0]).is_none());
    }
}
