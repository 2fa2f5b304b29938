// SPDX-License-Identifier: GPL-2.0-only
//! Whole programs: a parallel one (OpenMP), a process tree like that of a build, and clients of a
//! database (SQLite). This is the booted part of the evaluation of policies in Baton's language.
//! The simulated part is [`crate::lang`].

use std::process::ExitCode;

use serde::Deserialize;

use baton_control::error::{Error, Result};
use baton_control::modules::Search;
use baton_vm::FileIn;

use crate::arguments::Arguments;
use crate::loads::output;
use crate::programs::PROGRAMS;
use crate::report::{entries, BASELINE};
use crate::subject::Subject;
use crate::table::{self, compare, Measured, Run, Table};
use crate::Bench;

/// A program, its fixed arguments, and the argument that sets the amount of work.
struct Program {
    name: &'static str,
    arguments: &'static [&'static str],
    size: (&'static str, u32),
}

/// Each has twice as many threads, jobs or clients as the larger guest has CPUs.
const LOADS: [Program; 3] = [
    Program {
        name: "forkjoin",
        arguments: &["threads", "8"],
        size: ("phases", 200),
    },
    Program {
        name: "forktree",
        arguments: &["jobs", "8"],
        size: ("total", 40),
    },
    Program {
        name: "oltp",
        arguments: &["clients", "8"],
        size: ("transactions", 50),
    },
];

/// What a program prints.
#[derive(Deserialize)]
struct Printed {
    ns: u64,
}

pub struct Apps;

impl Bench for Apps {
    fn runs(&self) -> u32 {
        4
    }

    fn cpus(&self) -> &'static [u32] {
        &[1, 4]
    }

    fn subjects(&self) -> Vec<Subject> {
        let names = [BASELINE, "wfq", "cfs_cwc", "cfs_cwc_flat", "ule_cwc"];
        let subject = |name| Subject::parse(name).expect("the name is one");
        names.into_iter().map(subject).collect()
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::run(self, search, args)
    }
}

impl Table for Apps {
    fn files(&self, _subjects: &[Subject]) -> Result<Vec<FileIn>> {
        PROGRAMS.for_guest(&LOADS.map(|program| program.name))
    }

    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
        // With -icount, one ns of guest time is one instruction.
        let unit = if args.icount {
            "million instructions"
        } else {
            "ms"
        };
        let mut results = Vec::new();
        for program in &LOADS {
            eprintln!("baton: {}", program.name);
            let time = |run: Run| run_once(program, run).map(|ns| ns as f64 / 1e6);
            let series = compare(search, args, |_, run| time(run))?;
            results.extend(entries(cpus, program.name, unit, &series, true));
        }
        Ok(results.into())
    }
}

/// The time of a run, ns.
fn run_once(program: &Program, run: Run) -> Result<u64> {
    let (what, size) = program.size;
    let size = run.size(size).to_string();
    let arguments = [program.arguments, &[what, &size]].concat();
    let path = PROGRAMS.find(program.name)?;
    let text = output(&path.display().to_string(), &arguments)?;
    serde_json::from_str(&text)
        .map(|printed: Printed| printed.ns)
        .map_err(|e| Error::baton(format!("{} printed {text:?}: {e}", program.name)))
}
