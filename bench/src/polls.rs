// SPDX-License-Identifier: GPL-2.0-only
//! The cost of the polls that bound a policy's loops. In one boot, runs pipe under the policy as it
//! is normally built, and under the same policy built without polls.

use std::process::ExitCode;

use baton_control::error::Result;
use baton_control::modules::Search;
use baton_vm::FileIn;

use crate::arguments::Arguments;
use crate::report::{entries, median, Series};
use crate::subject::Subject;
use crate::table::{self, Measured, Run, Table};
use crate::{judged, loads, without, Bench};

/// The part of Baton that one of the two builds leaves out.
const PART: &str = "polls";
/// The largest allowed ratio of instructions per operation, with polls to without.
const BOUND: f64 = 1.005;
/// Operations of a run of pipe.
const PIPE_LOOPS: u32 = 30_000;

pub struct Polls;

impl Bench for Polls {
    fn runs(&self) -> u32 {
        4
    }

    fn cpus(&self) -> &'static [u32] {
        &[1, 2]
    }

    fn subjects(&self) -> Vec<Subject> {
        ["wfq", "fifo", "fifo_c"]
            .map(|name| Subject::Policy(name.into()))
            .into()
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::run(self, search, args)
    }
}

impl Table for Polls {
    fn tools(&self) -> &'static [&'static str] {
        &["perf"]
    }

    fn files(&self, subjects: &[Subject]) -> Result<Vec<FileIn>> {
        without::files(PART, subjects)
    }

    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
        let without = without::search(PART);
        let mut measured = Measured::default();
        for subject in args.subjects() {
            let name = subject.name();
            let mut pair = [format!("{name}, no polls"), name.clone()].map(|subject| Series {
                subject,
                values: Vec::new(),
            });
            // Both builds have two rounds, in alternation, so that a drift of the machine widens
            // the ranges of both.
            for half in 0..2 {
                for (series, search) in pair.iter_mut().zip([&without, search]) {
                    let runs = (args.runs() + half) / 2;
                    series.values.extend(subject.measure(search, || {
                        let pipe = |run: Run| loads::pipe(run.size(PIPE_LOOPS));
                        pipe(Run::WarmUp)?;
                        (0..runs)
                            .map(|_| pipe(Run::Measured))
                            .collect::<Result<Vec<_>>>()
                    })?);
                }
            }
            let ratio = median(&pair[1].values) / median(&pair[0].values);
            measured.broken |= ratio > BOUND;
            eprintln!(
                "baton: {name}, {cpus} CPUs: {ratio:.4} of it without polls, bound {BOUND}: {}",
                judged::verdict(ratio <= BOUND)
            );
            let found = entries(cpus, &name, "instructions per operation", &pair, false);
            measured.entries.extend(found);
        }
        Ok(measured)
    }
}
