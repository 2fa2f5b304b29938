// SPDX-License-Identifier: GPL-2.0-only
//! Threads that share a hint share a CPU: Enoki's table 6 (section 5.5). Two message threads wake
//! two workers each by futexes, and what is measured is how long a woken worker waits.
//!
//! Twice: in the simulator, on the paper's kind of machine, whose idle CPUs sleep and take their
//! time to come back (`simulated`); and as a program in a booted kernel that counts instructions
//! (`guest`), whose idle CPUs do the same by a module (`idle`). What must hold is judged in
//! `judge`, and drawn in `page`.

mod guest;
mod idle;
mod judge;
mod page;
mod simulated;

use std::fs;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::guest::{guest_with, report_of_guest};
use super::programs::{IDLE, PROGRAMS};
use super::rocksdb::Place;
use super::subject::Subject;
use super::{Arguments, Bench};
use baton_control::error::{Error, Result};
use baton_control::modules::Search;
use baton_control::output::{print, print_json};

/// As in the paper.
const MESSENGERS: u64 = 2;
const WORKERS: u64 = 2;
/// How long a worker computes, us: for the shortest waits, and as schbench has it.
const SHORT: u64 = 100;
const LONG: u64 = 5_000;

/// How the process is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Free,
    /// All of it on one CPU.
    Pinned,
    /// Each message thread says that it and its workers belong together.
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
    /// How its CPUs sleep.
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

/// All that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// What `uname -r` says.
    pub kernel: String,
    pub rows: Vec<Row>,
}

/// What is printed.
#[derive(Serialize, Debug)]
struct Report<'a> {
    bench: &'static str,
    kernel: &'a str,
    results: &'a [Row],
    verdicts: &'a [judge::Verdict],
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
    if !args.cpus.is_empty() || args.runs.is_some() {
        return Err(Error::user(
            format!(
                "bench locality is one run of simulated CPUs, and one of a guest with {} CPUs",
                guest::CPUS
            ),
            "leave --cpus and --runs out",
        ));
    }
    let mut found = in_guest(args)?;
    found.rows.splice(0..0, simulated::rows()?);
    let verdicts = judge::verdicts(&found, args.subjects.is_empty());
    if let Some(path) = &args.page {
        let page = page::page(&found, &verdicts);
        fs::write(path, page)
            .map_err(|e| Error::file(format!("writing {}", path.display()), &e))?;
    }
    match args.json {
        true => print_json(&Report {
            bench: "locality",
            kernel: &found.kernel,
            results: &found.rows,
            verdicts: &verdicts,
        })?,
        false => print(judge::text(&found, &verdicts))?,
    }
    Ok(if verdicts.iter().all(|verdict| verdict.holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn in_guest(args: &Arguments) -> Result<Found> {
    let mut files = guest_with(&args.subjects())?;
    files.extend(PROGRAMS.for_guest(&["schbench"])?);
    files.extend(IDLE.for_guest(&["baton_idle.ko"])?);
    report_of_guest(args, guest::CPUS, files)
}
