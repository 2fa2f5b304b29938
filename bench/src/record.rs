// SPDX-License-Identifier: GPL-2.0-only
//! The cost of recording: the same load under the same policy, recorded, not recorded, and with
//! core and policy built without recording.

use std::path::Path;
use std::process::ExitCode;

use baton_vm::FileIn;

use super::report::{entries, median, Entry, Series};
use super::table::{self, Measured, Run, Table};
use super::{hackbench, loads, subject::Subject, without, Arguments, Bench};
use baton_control::error::{Error, Result};
use baton_control::modules::Search;
use baton_control::recording::{How, Session, Summary};

/// The part of Baton that one kind of build leaves out.
const PART: &str = "recording";
const FILE: &str = "/tmp/recording";
/// The settings of `baton record`.
const HOW: How = How {
    ring: 16,
    lossless: false,
    checkpoint: None,
};

/// Operations of a run of pipe.
const PIPE_LOOPS: u32 = 10_000;

/// The kinds of runs. Each is compared with the first.
const SUBJECTS: [&str; 3] = ["without", "off", "recording"];

pub struct Record;

impl Bench for Record {
    fn runs(&self) -> u32 {
        10
    }

    fn cpus(&self) -> &'static [u32] {
        &[1, 2]
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Policy("wfq".into())]
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::run(self, search, args)
    }
}

impl Table for Record {
    fn tools(&self) -> &'static [&'static str] {
        &["perf", "hackbench"]
    }

    fn files(&self, subjects: &[Subject]) -> Result<Vec<FileIn>> {
        without::files(PART, subjects)
    }

    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
        measure(search, args, cpus).map(Measured::from)
    }
}

/// Measures on the running machine: the cost per operation of pipe as a ratio, the bytes per event,
/// and the lost events of hackbench.
fn measure(search: &Search, args: &Arguments, cpus: u32) -> Result<Vec<Entry>> {
    let without = without::search(PART);
    let subjects = args.subjects();
    let (Some(subject), 1) = (subjects.first(), subjects.len()) else {
        return Err(Error::user(
            "this bench measures one policy at a time",
            "give one --subject",
        ));
    };
    let name = subject.name();
    let mut series = SUBJECTS.map(|name| Series {
        subject: name.into(),
        values: Vec::new(),
    });
    let mut summary = None;
    // Each kind of run has two rounds. The first kind has a third one, at the end, so that a drift
    // of the machine widens its range.
    let (half, rest) = (args.runs().div_ceil(2), args.runs() / 2);
    for (kind, runs) in [
        (0, half),
        (1, half),
        (2, half),
        (0, rest),
        (1, rest),
        (2, rest),
        (0, half),
    ] {
        if runs == 0 {
            continue;
        }
        let search = if kind == 0 { &without } else { search };
        eprintln!(
            "baton: {name}, {}: {runs} runs of pipe",
            ["built without recording", "not recorded", "recorded"][kind]
        );
        let values = subject.measure(search, || {
            let session = (kind == 2)
                .then(|| Session::begin(&name, Path::new(FILE), &HOW))
                .transpose()?;
            let pipe = |run: Run| loads::pipe(run.size(PIPE_LOOPS));
            pipe(Run::WarmUp)?;
            let values = (0..runs)
                .map(|_| pipe(Run::Measured))
                .collect::<Result<Vec<_>>>()?;
            if let Some(session) = session {
                summary = Some(session.end()?);
            }
            Ok(values)
        })?;
        eprintln!(
            "baton: {:<10} {:>8.0} (median of {runs})",
            SUBJECTS[kind],
            median(&values)
        );
        series[kind].values.extend(values);
    }
    let base = median(&series[0].values);
    let ratios = series.iter().skip(1).map(|one| Series {
        subject: one.subject.clone(),
        values: one.values.iter().map(|value| value / base).collect(),
    });
    let ratios: Vec<_> = ratios.collect();
    let mut found = entries(cpus, "instructions_per_op", "instructions", &series, false);
    found.extend(entries(
        cpus,
        "cost_ratio",
        "ratio to the policy built without recording",
        &ratios,
        false,
    ));
    let pipe =
        summary.ok_or_else(|| Error::user("nothing was recorded", "give --runs 1 or more"))?;
    found.extend(single(
        cpus,
        "bytes_per_event",
        "bytes",
        bytes_per_event("pipe", &pipe)?,
    ));
    eprintln!("baton: {name}, recorded: hackbench");
    let hackbench = hackbench(search, subject, &name)?;
    found.extend(single(
        cpus,
        "hackbench_events",
        "events",
        hackbench.events as f64,
    ));
    found.extend(single(
        cpus,
        "hackbench_lost",
        "events",
        hackbench.lost as f64,
    ));
    let bytes = bytes_per_event("hackbench", &hackbench)?;
    found.extend(single(cpus, "hackbench_bytes_per_event", "bytes", bytes));
    Ok(found)
}

/// Returns an error if the recording has no events: in that case the policy scheduled nothing, and
/// no number of this bench means anything.
fn bytes_per_event(load: &str, recording: &Summary) -> Result<f64> {
    match recording.events {
        0 => Err(Error::environment(
            format!(
                "the recording of {load} has no events ({} were lost)",
                recording.lost
            ),
            "check that no other scheduler is attached: baton status",
        )),
        events => Ok(recording.bytes as f64 / events as f64),
    }
}

fn hackbench(search: &Search, subject: &Subject, name: &str) -> Result<Summary> {
    subject.measure(search, || {
        let session = Session::begin(name, Path::new(FILE), &HOW)?;
        loads::hackbench(hackbench::SIZE.0, hackbench::SIZE.1)?;
        session.end()
    })
}

fn single(cpus: u32, metric: &str, unit: &str, value: f64) -> Vec<Entry> {
    entries(
        cpus,
        metric,
        unit,
        &[Series {
            subject: "recording".into(),
            values: vec![value],
        }],
        false,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_per_event_of_an_empty_recording_are_an_error() {
        let of = |events, bytes| {
            let mut summary = Summary::default();
            (summary.events, summary.bytes, summary.lost) = (events, bytes, 7);
            bytes_per_event("pipe", &summary)
        };
        assert_eq!(of(4, 10), Ok(2.5));
        let nothing = of(0, 4096).unwrap_err();
        assert!(
            nothing.what.contains("no events (7 were lost)"),
            "{nothing}"
        );
    }
}
