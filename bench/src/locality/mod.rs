// SPDX-License-Identifier: GPL-2.0-only
//! Threads that share a hint share a CPU: table 6 of Enoki (section 5.5). Two message threads wake
//! two workers each by futexes. The bench measures how long a woken worker waits.
//!
//! It does so twice. The simulator has the paper's kind of machine, whose idle CPUs sleep and take
//! time to wake up (`simulated`). A booted kernel that counts instructions runs a program
//! (`guest`), and a module makes its idle CPUs do the same (`idle`). The bounds are in `judge`, the
//! figure in `page`.

mod guest;
mod idle;
mod judge;
mod page;
mod simulated;

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::guest::{guest_with, report_of_guest};
use super::judged::{self, refuse_runs, Place};
use super::programs::{IDLE, PROGRAMS};
use super::subject::Subject;
use super::{Arguments, Bench};
use baton_control::error::Result;
use baton_control::modules::Search;
use baton_control::output::print_json;

/// The numbers of the paper.
const MESSENGERS: u64 = 2;
const WORKERS: u64 = 2;
/// How long a worker computes, us: the first gives the shortest waits, the second is schbench's.
const SHORT: u64 = 100;
const LONG: u64 = 5_000;

/// How the program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Free,
    /// The whole process on one CPU.
    Pinned,
    /// Each message thread sends the hint that it and its workers belong together.
    Hints,
}

impl Way {
    /// The subject's name in tables.
    fn of(self, subject: &str) -> String {
        match self {
            Way::Free => subject.into(),
            Way::Pinned => format!("{subject}, one CPU"),
            Way::Hints => format!("{subject}, hints"),
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub place: Place,
    /// The idle states of its CPUs.
    pub idle_states: String,
    pub subject: String,
    /// How long a worker computes, us.
    pub work: u64,
    pub wakeups: u64,
    /// How long a woken worker waited, us.
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// All measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The release of the kernel (`uname -r`).
    pub kernel: String,
    pub rows: Vec<Row>,
}

fn subjects() -> Vec<Subject> {
    let scx = Subject::Scx {
        program: "scx_simple",
        options: &[],
    };
    vec![Subject::Eevdf, scx, Subject::Policy(judge::JUDGED.into())]
}

pub struct Locality;

impl Bench for Locality {
    fn cpus(&self) -> &'static [u32] {
        &[]
    }

    fn subjects(&self) -> Vec<Subject> {
        subjects()
    }

    fn has_quick_form(&self) -> bool {
        false
    }

    fn writes_page(&self) -> bool {
        true
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        command(search, args)
    }
}

fn command(search: &Search, args: &Arguments) -> Result<ExitCode> {
    if args.here {
        return print_json(&guest::measure(search, args)?).map(|()| ExitCode::SUCCESS);
    }
    let guest = format!(
        "one run on simulated CPUs and one in a guest with {} CPUs",
        guest::CPUS
    );
    refuse_runs(args, &guest)?;
    let mut found = in_guest(args)?;
    found.rows.splice(0..0, simulated::rows()?);
    let verdicts = judge::verdicts(&found, args.subjects.is_empty());
    let report = judged::Report {
        bench: "locality",
        kernel: &found.kernel,
        results: &found.rows,
        verdicts: &verdicts,
    };
    let text = judge::text(&found, &verdicts);
    let all_hold = verdicts.iter().all(|verdict| verdict.holds);
    judged::end(
        args,
        &report,
        text,
        || page::page(&found, &verdicts),
        all_hold,
    )
}

fn in_guest(args: &Arguments) -> Result<Found> {
    let mut files = guest_with(&args.subjects())?;
    files.extend(PROGRAMS.for_guest(&["schbench"])?);
    files.extend(IDLE.for_guest(&["baton_idle.ko"])?);
    report_of_guest(args, guest::CPUS, files)
}
