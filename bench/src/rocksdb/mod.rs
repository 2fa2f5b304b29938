// SPDX-License-Identifier: GPL-2.0-only
//! Short requests beside long ones: figure 2 of Enoki (section 5.4). 99.5 % of the requests take 4
//! us (GET), 0.5 % take 10 ms (range query), and 50 workers answer them in an open loop. A latency
//! counts from the time when the request was due.
//!
//! The bench runs this twice: simulated, with the paper's own setting (`simulated`), and in a guest
//! that counts instructions, with a real RocksDB (`guest`). The guest multiplies all times by
//! [`FACTOR`]. With `--here`, on a machine that does not count instructions, times are not
//! multiplied. The bounds are in `judge`, the figure in `page`.

mod guest;
mod judge;
mod page;
mod simulated;

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::guest::{guest_with, report_of_guest};
use super::judged::{self, refuse_runs, Place};
use super::programs::PROGRAMS;
use super::slow::FACTOR;
use super::subject::Subject;
use super::{Arguments, Bench};
use baton_control::error::Result;
use baton_control::modules::Search;
use baton_control::output::print_json;

/// The times of GET and range query, ns.
const SHORT: u64 = 4_000;
const LONG: u64 = 10_000_000;
/// The mean time of a request, ns.
const MEAN: f64 = (SHORT as f64 * 99.5 + LONG as f64 * 0.5) / 100.0;
/// The load of each CPU while the capacity is measured.
const OVERLOAD: f64 = 1.5;

/// The policy of the batch program, unless the requests run under the kernel's own scheduler.
const BATCH: &str = "wfq";

/// One run. Times are those that are modelled; the guest's own are longer by the factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub place: Place,
    pub subject: String,
    /// Beside a batch program.
    pub batch: bool,
    /// The load that the requests offer, in per cent. In a guest, 100 is the rate that the first
    /// subject (usually EEVDF) can answer. In the simulator, 100 is all the time of the CPUs.
    pub load: u64,
    /// Requests per second.
    pub offered: f64,
    pub answered: f64,
    /// Latency of GET, from the time when it was due to its answer, us.
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    /// Per cent of all CPU time.
    pub batch_share: Option<f64>,
}

/// The capacity of a subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    pub place: Place,
    pub subject: String,
    /// Requests per second.
    pub answered: f64,
}

/// All measurements at one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The release of the kernel (`uname -r`); empty for the simulator.
    pub kernel: String,
    /// The time from one thread to the next, with the wakeup and two system calls, ns of the guest.
    pub switch: u64,
    pub saturations: Vec<Saturation>,
    pub points: Vec<Point>,
}

/// The report that is printed.
#[derive(Serialize, Debug)]
struct Report<'a> {
    #[serde(flatten)]
    judged: judged::Report<'a, Point, judge::Verdict>,
    factor: u64,
    switch: u64,
    saturations: &'a [Saturation],
}

fn subjects() -> Vec<Subject> {
    let policies = ["central", "shinjuku"].map(|name| Subject::Policy(name.into()));
    let kernels = [
        Subject::Eevdf,
        Subject::Scx {
            program: "scx_simple",
            options: &[],
        },
    ];
    let agent = Subject::Agent {
        policy: "shinjuku".into(),
        mode: "--per-cpu",
    };
    kernels.into_iter().chain(policies).chain([agent]).collect()
}

pub struct Rocksdb;

impl Bench for Rocksdb {
    fn cpus(&self) -> &'static [u32] {
        // For the reason given in `memcached`.
        &[1]
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
    refuse_runs(
        args,
        "one run on 5 simulated CPUs and one in a guest with one CPU",
    )?;
    let mut found = simulated::sweep()?;
    let booted = in_guest(args)?;
    found.kernel = booted.kernel;
    found.switch = booted.switch;
    found.saturations.extend(booted.saturations);
    found.points.extend(booted.points);
    let verdicts = judge::verdicts(&found, args.subjects.is_empty());
    let report = Report {
        judged: judged::Report {
            bench: "rocksdb",
            kernel: &found.kernel,
            results: &found.points,
            verdicts: &verdicts,
        },
        factor: FACTOR,
        switch: found.switch,
        saturations: &found.saturations,
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
    let batch = Subject::Policy(BATCH.into());
    let subjects: Vec<_> = args.subjects().into_iter().chain([batch]).collect();
    let mut files = guest_with(&subjects)?;
    files.extend(PROGRAMS.for_guest(&["rocksdb"])?);
    // With more CPUs, busy ones would share one stream of instructions, and a woken task would wait
    // for the turn of its CPU.
    report_of_guest(args, 1, files)
}
