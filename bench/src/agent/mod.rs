// SPDX-License-Identifier: GPL-2.0-only
//! Policies in agents, beside the same in the kernel: pipe and hackbench. In a large guest, the
//! cost of commits.
//!
//! The clock of these guests counts the instructions of all CPUs. What a global agent that polls
//! costs others is measured in guests that count those of each CPU ([`global`]).

mod commits;
mod global;
mod scale;

use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::report::{entries, Entry, Report, Series, BASELINE};
use crate::subject::Subject;
use crate::table::{self, compare, Measured, Table};
use crate::{hackbench, judged, loads, Bench};
use baton_control::error::Result;
use baton_control::modules::Search;

/// Operations of a run of pipe.
const LOOPS: u32 = 30_000;
/// The largest cost of an operation of pipe under the agents of CPUs, relative to EEVDF.
const MAX_RATIO: f64 = 1.60;
/// The subjects that are judged, and the kernel's example that they must be cheaper than.
const JUDGED: [&str; 2] = ["fifo --per-cpu", "wfq --per-cpu"];
const EXAMPLE: &str = "scx_userland";
/// Yields of each thread, which are switches between two tasks of one CPU.
const YIELDS: u32 = 10_000;
const SWITCH: &str = "instructions_per_yield";
const CALL: &str = "instructions_per_call";
/// The metric that is judged.
const METRIC: &str = "instructions_per_op";

pub struct Agent;

impl Bench for Agent {
    fn runs(&self) -> u32 {
        4
    }

    fn cpus(&self) -> &'static [u32] {
        &[1, 2, commits::GROUP + 2]
    }

    fn subjects(&self) -> Vec<Subject> {
        let names = [
            BASELINE,
            "scx_simple",
            EXAMPLE,
            "fifo",
            JUDGED[0],
            "wfq",
            JUDGED[1],
        ];
        let subject = |name| Subject::parse(name).expect("the name is one");
        names.into_iter().map(subject).collect()
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        if args.scale {
            let report = Report {
                bench: args.what.name(),
                machine: "costs of an agent as measured".into(),
                kernel: "the simulator".into(),
                results: scale::measure(args)?,
            };
            return table::show(&report, args).map(|()| ExitCode::SUCCESS);
        }
        table::run(self, search, args)
    }
}

impl Table for Agent {
    fn tools(&self) -> &'static [&'static str] {
        &["perf", "hackbench"]
    }

    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
        if args.counted {
            return global::measure(search, args, cpus);
        }
        if cpus > commits::GROUP {
            return commits::measure(cpus);
        }
        let mut subjects = args.subjects();
        subjects.retain(|subject| !global::is_global(subject));
        if subjects.is_empty() {
            return Ok(Measured::default());
        }
        let args = &Arguments {
            subjects,
            ..args.clone()
        };
        let pipe = compare(search, args, |_, run| loads::pipe(run.size(LOOPS)))?;
        let (groups, loops) = hackbench::SIZE;
        let hackbench = compare(search, args, |_, run| {
            loads::hackbench(groups, run.size(loops))
        })?;
        let unit = "instructions";
        let mut results = entries(cpus, METRIC, unit, &pipe, true);
        let verdicts = judge(&results);
        for verdict in &verdicts {
            eprintln!("baton: {}", verdict.0);
        }
        results.extend(entries(cpus, unit, unit, &hackbench, true));
        if cpus == 1 {
            let switch = compare(search, args, |_, run| loads::yields(run.size(YIELDS)))?;
            results.extend(entries(cpus, SWITCH, unit, &switch, true));
            let call = Series {
                subject: "a system call".into(),
                values: vec![loads::calls(YIELDS)?],
            };
            results.extend(entries(cpus, CALL, unit, &[call], false));
        }
        Ok(Measured {
            entries: results,
            broken: verdicts.iter().any(|verdict| !verdict.1),
        })
    }

    fn beside(&self, args: &Arguments) -> Result<Measured> {
        global::in_guests(args)
    }
}

/// Whether the agents of CPUs hold their bounds, as far as what they are compared with was measured
/// in the same run.
fn judge(pipe: &[Entry]) -> Vec<(String, bool)> {
    let of = |subject: &str| pipe.iter().find(|entry| entry.subject == subject);
    let agents = JUDGED.iter().filter_map(|agent| of(agent));
    agents
        .flat_map(|agent| {
            let verdict = |against: &str, ratio: f64, bound: f64| {
                let holds = ratio <= bound;
                let text = format!(
                    "{}, {} CPUs: {ratio:.3} of {against}, bound {bound:.2}: {}",
                    agent.subject,
                    agent.cpus,
                    judged::verdict(holds)
                );
                (text, holds)
            };
            let eevdf = agent
                .ratio_to_eevdf
                .map(|ratio| verdict("EEVDF", ratio, MAX_RATIO));
            let example =
                of(EXAMPLE).map(|example| verdict(EXAMPLE, agent.median / example.median, 1.0));
            eevdf.into_iter().chain(example)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Series;

    #[test]
    fn agents_are_compared_with_eevdf_and_with_the_example() {
        let check = |[fifo, wfq]: [f64; 2], expected: &[bool]| {
            let values = [
                (BASELINE, 1000.0),
                (EXAMPLE, 1500.0),
                (JUDGED[0], fifo),
                (JUDGED[1], wfq),
            ];
            let series = values.map(|(subject, value)| Series {
                subject: subject.into(),
                values: vec![value],
            });
            let verdicts = judge(&entries(1, METRIC, "", &series, true));
            let holds: Vec<_> = verdicts.iter().map(|verdict| verdict.1).collect();
            assert_eq!(holds, expected, "{verdicts:?}");
        };
        check([1400.0, 1450.0], &[true; 4]);
        check([1400.0, 1550.0], &[true, true, true, false]);
        check([1700.0, 1400.0], &[false, false, true, true]);
        assert!(judge(&[]).is_empty());
    }
}
