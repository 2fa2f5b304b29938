// SPDX-License-Identifier: GPL-2.0-only
//! `baton bench`: compares schedulers in the same boot, each in charge of every task of the
//! machine.
//!
//! Times on shared machines are noise, so the default is a guest that counts instructions: there 1
//! ns of its clock is one instruction executed, and a difference of one per cent means something.
//! This command boots that guest once for each number of CPUs and runs itself there with `--here`.

mod agent;
mod apps;
mod arbiter;
mod arguments;
mod counter;
pub mod fairness;
mod fidelity;
pub mod guest;
mod hackbench;
mod judged;
mod lang;
pub mod loads;
mod locality;
mod memcached;
mod pipe;
mod polls;
pub mod programs;
mod record;
pub mod report;
mod rocksdb;
mod sim;
pub mod simulate;
mod slow;
pub mod subject;
mod table;
pub mod threads;
mod twins;
mod upgrade;
mod without;

use std::process::ExitCode;

use baton_control::error::{Error, Result};
use baton_control::modules::Search;

pub use arguments::{Arguments, What};
use subject::Subject;

/// A bench: its requirements unless the arguments say otherwise, and how it runs.
trait Bench: Sync {
    /// Runs of each subject.
    fn runs(&self) -> u32 {
        1
    }

    /// The numbers of CPUs; each has a guest of its own.
    fn cpus(&self) -> &'static [u32];

    /// The schedulers that are measured. The others are compared with the first.
    fn subjects(&self) -> Vec<Subject> {
        Subject::usual()
    }

    /// Whether a tenth of the runs is enough for a first impression.
    fn has_quick_form(&self) -> bool {
        true
    }

    /// Whether it can write a page with a figure.
    fn writes_page(&self) -> bool {
        false
    }

    /// Measures, and prints the report. Its exit code is 1 when a bound does not hold.
    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode>;
}

/// `baton bench`.
pub fn command(search: &Search, args: &Arguments) -> Result<ExitCode> {
    check_page(args)?;
    check_quick(args)?;
    args.what.bench().run(search, args)
}

/// Refuses --page for a bench that writes none.
fn check_page(args: &Arguments) -> Result<()> {
    if args.page.is_none() || args.what.bench().writes_page() {
        return Ok(());
    }
    Err(Error::user(
        format!("bench {} writes no page", args.what.name()),
        "omit --page (--json has all numbers); bench rocksdb and bench locality write one",
    ))
}

/// Refuses --quick for a bench that cannot be shortened.
fn check_quick(args: &Arguments) -> Result<()> {
    if !args.quick || args.what.bench().has_quick_form() {
        return Ok(());
    }
    Err(Error::user(
        format!(
            "bench {} has no quick form: it is one run, at the end of which its bounds are judged",
            args.what.name()
        ),
        "omit --quick",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{report_of, REPORT_IN_GUEST};
    use baton_vm::Outcome;
    use clap::{Parser, ValueEnum};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Arguments,
    }

    fn bench(arguments: &str) -> Arguments {
        Line::parse_from(["bench"].into_iter().chain(arguments.split(' '))).bench
    }

    #[test]
    fn a_guest_without_a_report_has_its_fault_named() {
        let end = |exit_code, output: &str, report: &str| {
            let files = [(REPORT_IN_GUEST.to_string(), report.as_bytes().to_vec())];
            let output = output.replace('\n', "\r\n").into_bytes();
            let outcome = Outcome {
                exit_code,
                output,
                kernel_log: String::new(),
                complaints: Vec::new(),
                files: files.into(),
            };
            report_of::<Vec<u32>>(&outcome, What::Pipe)
        };
        // The output of the program in the guest. A policy that was not at fault comes before it.
        let said = |policy: &str| Error::policy(policy, "it faulted", "look").to_string();
        let fault = end(
            4,
            &format!("baton: {}\nbaton: {}\n", said("a"), said("faulty")),
            "",
        )
        .unwrap_err();
        assert_eq!(
            fault.blame,
            baton_control::error::Blame::Policy("faulty".into())
        );
        assert!(fault.what.contains("faulty failed in the guest"), "{fault}");
        for (exit_code, output) in [(4, String::new()), (3, said("wfq")), (0, String::new())] {
            let fault = end(exit_code, &output, "no report").unwrap_err();
            assert_eq!(
                fault.blame,
                baton_control::error::Blame::Environment,
                "{fault}"
            );
        }
        assert_eq!(end(1, "", "[1, 2]"), Ok(vec![1, 2]));
    }

    #[test]
    fn a_page_is_asked_for_where_there_is_one() {
        for what in What::value_variants() {
            let arguments = format!("{} --page /tmp/page", what.name());
            let has_one = matches!(what, What::Rocksdb | What::Locality);
            match check_page(&bench(&arguments)) {
                Ok(()) => assert!(has_one, "{arguments}"),
                Err(e) => assert!(
                    !has_one && e.what == format!("bench {} writes no page", what.name()),
                    "{e}"
                ),
            }
            assert_eq!(check_page(&bench(&what.name())), Ok(()));
        }
    }

    #[test]
    fn a_quick_bench_is_a_tenth() {
        let check = |arguments: &str, runs: u32, guests: &[u32]| {
            let bench = bench(arguments);
            assert_eq!(
                (bench.runs(), &bench.guests()[..]),
                (runs, guests),
                "{arguments}"
            );
        };
        check("upgrade --quick", 20, &[1, 2]);
        check("pipe --quick", 1, &[1, 2]);
        check("record --quick --cpus 4", 1, &[4]);
        check("record", 10, &[1, 2]);
        check_quick(&bench("upgrade --quick")).unwrap();
        assert!(check_quick(&bench("rocksdb --quick"))
            .unwrap_err()
            .to_string()
            .contains("no quick form"));
    }

    #[test]
    fn times_are_longer_where_instructions_are_counted() {
        let check = |arguments: &str, expected: u64| {
            assert_eq!(slow::factor(&bench(arguments)), expected, "{arguments}")
        };
        check("rocksdb --here --icount", slow::FACTOR);
        check("rocksdb --here", 1);
        let at_once = |arguments: &str| slow::at_once(&bench(arguments), 4);
        assert_eq!(
            (
                at_once("memcached --here --icount"),
                at_once("memcached --here")
            ),
            (1.0, 4.0)
        );
        assert_eq!(
            (slow::us(16_000, slow::FACTOR), slow::us(16_000, 1)),
            (1.0, 16.0)
        );
    }
}
