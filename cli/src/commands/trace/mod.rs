// SPDX-License-Identifier: GPL-2.0-only
//! `baton trace`: shows the contents of a recording.

mod json;
mod perfetto;
mod states;
mod stats;

use std::io::{BufWriter, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use baton_trace::{Item, OpenError, Recording, Stream, Words};

use super::{print, print_json};
use baton_control::error::{Error, Result};

#[derive(clap::Subcommand, Debug)]
pub enum Trace {
    /// Print the events in words.
    Print {
        /// The recording.
        file: PathBuf,
        /// Number of the first event.
        #[arg(long, value_name = "N", default_value_t = 0)]
        from: u64,
        /// Number of the event after the last.
        #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
        to: u64,
    },
    /// Print statistics: calls, latencies, running time, queue lengths, locks.
    Stats {
        /// The recording.
        file: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print each change of a thread's state, of a policy in C as handlers of events.
    ///
    /// The recording is replayed for that, so it costs the recorded machine nothing.
    States(states::States),
    /// Print the events as JSON, one per line.
    Json {
        /// The recording.
        file: PathBuf,
    },
    /// Convert the recording for ui.perfetto.dev: a track for each CPU and each task.
    Perfetto {
        /// The recording.
        file: PathBuf,
        /// The file to write.
        #[arg(value_name = "OUT")]
        out: PathBuf,
    },
}

pub fn command(command: &Trace) -> Result<ExitCode> {
    match command {
        Trace::Print { file, from, to } => print_words(&open(file)?, *from..*to)?,
        Trace::Stats { file, json } => {
            let stats = stats::Stats::of(&open(file)?);
            if *json {
                print_json(&stats)?;
            } else {
                print(stats.to_string())?;
            }
        }
        Trace::States(args) => states::print(args)?,
        Trace::Json { file } => json::print(&open(file)?)?,
        Trace::Perfetto { file, out } => perfetto::write(&open(file)?, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a recording. Reports damage in it.
pub fn open(path: &Path) -> Result<Recording> {
    let bytes =
        std::fs::read(path).map_err(|e| Error::file(format!("reading {}", path.display()), &e))?;
    let recording = Recording::parse(&bytes).map_err(|why| {
        let next = match why {
            OpenError::Foreign => {
                "give a file that `baton sim --record` or `baton record` has written"
            }
            OpenError::Version(_) => "use the Baton that wrote it, or record anew",
            OpenError::Header(_) => "nothing in it can be read without that: record anew",
        };
        Error::user(format!("{} cannot be read: {why}", path.display()), next)
    })?;
    let lost: usize = recording
        .damage
        .iter()
        .map(|damage| damage.place.len())
        .sum();
    if lost != 0 {
        let whole: u64 = recording.streams.iter().map(Stream::len).sum();
        eprintln!(
            "baton: {} of {} bytes of {} are damaged, in {} places; {whole} events are whole",
            lost,
            bytes.len(),
            path.display(),
            recording.damage.len()
        );
    }
    Ok(recording)
}

/// A time in seconds.
pub fn seconds(ns: u64) -> String {
    format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Writes to standard output in large pieces. A closed pipe is no error.
fn written(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::file("writing to standard output", &e))
        }
        _ => Ok(()),
    }
}

/// Prints the events of this range of numbers.
pub fn print_words(recording: &Recording, range: Range<u64>) -> Result<()> {
    written(|out| {
        let mut words = Words::of(recording);
        for told in recording
            .merged()
            .take_while(|told| told.number < range.end)
        {
            if told.number >= range.start {
                writeln!(out, "{}", words.line(&told))?;
            }
            if let Item::Event(event) = told.item {
                words.note(told.cpu, &event);
            }
        }
        Ok(())
    })
}
