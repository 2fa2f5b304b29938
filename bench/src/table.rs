// SPDX-License-Identifier: GPL-2.0-only
//! Benches whose report is a table with a value for each subject, metric and number of CPUs.

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use baton_vm::FileIn;

use crate::arguments::Arguments;
use crate::guest::{self, guest_with, Needs};
use crate::report::{self, median, Entry, Report, Series};
use crate::subject::Subject;
use crate::Bench;
use baton_control::error::{Error, Result};
use baton_control::kernel;
use baton_control::modules::Search;
use baton_control::output::{print, print_json};

/// The result of a bench.
#[derive(Default)]
pub struct Measured {
    pub entries: Vec<Entry>,
    /// Whether a judged bound is broken.
    pub broken: bool,
}

impl From<Vec<Entry>> for Measured {
    /// The result of a bench that judges nothing.
    fn from(entries: Vec<Entry>) -> Self {
        Self {
            entries,
            broken: false,
        }
    }
}

/// A bench whose report is a table.
pub trait Table: Bench {
    /// Programs of this machine that the guest needs.
    fn tools(&self) -> &'static [&'static str] {
        &[]
    }

    /// Memory of a guest, MiB.
    fn memory_mb(&self) -> Option<u32> {
        None
    }

    /// The additional files that a guest needs.
    fn files(&self, _subjects: &[Subject]) -> Result<Vec<FileIn>> {
        Ok(Vec::new())
    }

    /// Measures on this machine, with its CPUs.
    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured>;

    /// What is reported beside the guests' results: simulated, or measured in guests of another
    /// kind.
    fn beside(&self, _args: &Arguments) -> Result<Measured> {
        Ok(Measured::default())
    }
}

/// Measures, and prints the report.
pub fn run(bench: &dyn Table, search: &Search, args: &Arguments) -> Result<ExitCode> {
    let (report, broken) = if args.here {
        here(bench, search, args)?
    } else {
        in_guests(bench, args)?
    };
    show(&report, args)?;
    Ok(if broken {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Prints a report.
pub fn show(report: &Report, args: &Arguments) -> Result<()> {
    if args.json {
        print_json(report)
    } else {
        print(report::text(report))
    }
}

/// Boots a guest for each number of CPUs, and combines their reports.
fn in_guests(bench: &dyn Table, args: &Arguments) -> Result<(Report, bool)> {
    let subjects = args.subjects();
    let mut files = guest_with(&subjects)?;
    files.extend(bench.files(&subjects)?);
    let needs = Needs {
        tools: bench.tools(),
        files,
        memory_mb: bench.memory_mb(),
        counter: None,
    };
    let (mut whole, mut broken) = (None::<Report>, false);
    for cpus in args.guests() {
        let (report, holds) = guest::boot::<Report>(args, cpus, needs.clone())?;
        broken |= !holds;
        match &mut whole {
            None => whole = Some(report),
            Some(whole) => whole.results.extend(report.results),
        }
    }
    let mut report = whole.ok_or_else(|| {
        Error::user(
            "no number of CPUs was given, so nothing was measured",
            "give --cpus 1,2",
        )
    })?;
    let beside = bench.beside(args)?;
    report.results.extend(beside.entries);
    Ok((report, broken | beside.broken))
}

/// Measures on this machine.
fn here(bench: &dyn Table, search: &Search, args: &Arguments) -> Result<(Report, bool)> {
    kernel::require_root("putting a scheduler in charge")?;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let measured = bench.measure(search, args, cpus)?;
    let machine = if args.icount {
        "QEMU that counts instructions".into()
    } else {
        processor()
    };
    let report = Report {
        bench: args.what.name(),
        kernel: kernel::release(),
        machine,
        results: measured.entries,
    };
    Ok((report, measured.broken))
}

/// The processor's name.
fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("an unnamed processor", |(_, name)| name.trim())
        .into()
}

/// The purpose of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// Fills caches and lets queues settle. Its value is discarded.
    WarmUp,
    Measured,
}

impl Run {
    pub fn size(self, whole: u32) -> u32 {
        match self {
            Run::WarmUp => whole / 5,
            Run::Measured => whole,
        }
    }
}

/// Gives each subject two turns, and the first (by default the baseline) one more at the end, so
/// that drift of the machine shows as spread and not as a difference.
pub fn compare(
    search: &Search,
    args: &Arguments,
    measure: impl Fn(&Subject, Run) -> Result<f64>,
) -> Result<Vec<Series>> {
    let subjects = args.subjects();
    let runs = args.runs();
    let mut series: Vec<_> = subjects
        .iter()
        .map(|s| Series {
            subject: s.name(),
            values: Vec::with_capacity(runs as usize),
        })
        .collect();
    let (first_half, second_half) = (runs.div_ceil(2), runs / 2);
    for (turns, share) in [
        (&subjects[..], first_half),
        (&subjects[..], second_half),
        (&subjects[..1], first_half),
    ] {
        if share == 0 {
            continue;
        }
        for (subject, series) in turns.iter().zip(&mut series) {
            let start = Instant::now();
            let values = subject.measure(search, || {
                measure(subject, Run::WarmUp)?;
                (0..share)
                    .map(|_| measure(subject, Run::Measured))
                    .collect::<Result<Vec<_>>>()
            })?;
            eprintln!(
                "baton: {:<15} {:>12.0} (median of {}; {:.1} s of wall-clock time)",
                series.subject,
                median(&values),
                values.len(),
                start.elapsed().as_secs_f64()
            );
            series.values.extend(values);
        }
    }
    Ok(series)
}
