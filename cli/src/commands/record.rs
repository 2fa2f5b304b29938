// SPDX-License-Identifier: GPL-2.0-only
//! `baton record`: writes what a running policy is asked, and answers, to a file.
//! `baton fault save`: the same of what a flight recorder had.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use baton_abi::BatonPolicyState;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{print, print_json};
use crate::cli::{FaultSave, Record};
use baton_control::device::{text, Device};
use baton_control::error::{Error, Result};
use baton_control::modules::AGENT_MODULE;
use baton_control::recording::{self, How, Session, Summary, FAILED, REPLACED};
use baton_control::report;
use baton_control::status::Fault;

/// Interval at which the end is checked for.
const WAIT: Duration = Duration::from_millis(50);

/// All files of one command. A policy that was upgraded has several.
#[derive(Serialize)]
struct Report {
    /// The sums of all files, and the end of the last one.
    #[serde(flatten)]
    all: Summary,
    files: Vec<Summary>,
}

impl Report {
    fn of(files: Vec<Summary>) -> Self {
        let mut all = Summary {
            file: None,
            ..files.last().cloned().unwrap_or_default()
        };
        for file in files.iter().rev().skip(1) {
            all.events += file.events;
            all.bytes += file.bytes;
            all.lost += file.lost;
            all.checkpoints += file.checkpoints;
            all.duration_ns += file.duration_ns;
            all.whole &= file.whole;
        }
        Self { all, files }
    }

    fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            print_json(self)
        } else {
            print(self.files.iter().map(words).collect::<String>())
        }
    }
}

pub fn record(args: &Record) -> Result<ExitCode> {
    let device = Device::open()?;
    let policy = match &args.policy {
        Some(policy) => policy.clone(),
        None => only_policy(&device)?,
    };
    if is_enclave(&device, &policy)? {
        return Err(Error::user(
            format!("the policy of the enclave {policy} runs in its agent, not in the kernel"),
            "record it there: baton agent run --record FILE",
        ));
    }
    if let Some(mib) = args.flight {
        recording::set_flight(&device, &policy, mib)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The parser requires one of the two.
    let output = args.output.as_deref().unwrap_or_else(|| Path::new(""));
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(|e| {
            Error::environment(format!("signals cannot be received: {e}"), "try again")
        })?;
    }
    let (files, code) = record_all(args, &device, &policy, output, &interrupted)?;
    let report = Report::of(files);
    report.print(args.out.json)?;
    let code = code?;
    let fault = device
        .policy(&policy)?
        .filter(|info| info.state == BatonPolicyState::Faulted as u32);
    match fault
        .map(|info| Ok((device.fault(info.index)?, info)))
        .transpose()?
    {
        Some((Some(fault), info)) => {
            eprint!("{}", report::fault(&Fault::new(&fault, Some(&info))));
            Ok(ExitCode::from(4))
        }
        // It was started anew or unloaded since, so its fault cannot be read any more.
        _ if report.all.end == FAILED => Ok(ExitCode::from(4)),
        _ => Ok(code),
    }
}

/// The condition for the end of a recording.
struct Until<'a> {
    interrupted: &'a AtomicBool,
    end: Option<Instant>,
    command: Option<Child>,
}

impl<'a> Until<'a> {
    /// Starts the command, if there is one.
    fn begin(args: &Record, interrupted: &'a AtomicBool) -> Result<Self> {
        let command = match args.command.split_first() {
            Some((program, arguments)) => {
                let started = Command::new(program).args(arguments).spawn();
                Some(started.map_err(|e| Error::file(format_args!("running {program}"), &e))?)
            }
            None => None,
        };
        Ok(Self {
            interrupted,
            end: args.duration.map(|duration| Instant::now() + duration),
            command,
        })
    }

    fn is_over(&mut self) -> Result<bool> {
        let status = self
            .command
            .as_mut()
            .map(Child::try_wait)
            .transpose()
            .map_err(lost)?
            .flatten();
        let is_late = self.end.is_some_and(|end| Instant::now() >= end);
        Ok(status.is_some() || is_late || self.interrupted.load(Relaxed))
    }

    /// Waits for the command. Returns its exit code.
    fn finish(self) -> Result<ExitCode> {
        let status = self
            .command
            .map(|mut command| command.wait())
            .transpose()
            .map_err(lost)?;
        Ok(status.map_or(ExitCode::SUCCESS, |status| {
            ExitCode::from(status.code().unwrap_or(1) as u8)
        }))
    }
}

fn lost(e: std::io::Error) -> Error {
    Error::environment(
        format!("the command cannot be waited for: {e}"),
        "try again",
    )
}

/// Records one version after the other. Returns the result of each, and the command's exit code.
fn record_all(
    args: &Record,
    device: &Device,
    policy: &str,
    output: &Path,
    interrupted: &AtomicBool,
) -> Result<(Vec<Summary>, Result<ExitCode>)> {
    let how = How {
        ring: args.ring,
        lossless: args.lossless,
        checkpoint: args.checkpoint,
    };
    // Number of changes of version so far, while the policy runs.
    let changes = || {
        let info = device
            .policy(policy)?
            .filter(|info| info.state == BatonPolicyState::Running as u32);
        Ok(info.map(|info| info.changes))
    };
    let mut before = changes()?;
    let mut session = Session::begin(policy, output, &how)?;
    let mut until = Until::begin(args, interrupted)?;
    let mut files = Vec::new();
    loop {
        while !session.is_over() && changes()?.is_some() && !until.is_over()? {
            thread::sleep(WAIT);
        }
        let summary = session.end()?;
        let now = changes()?;
        let was_upgraded = summary.end == REPLACED && now.is_some() && now != before;
        files.push(summary);
        if !was_upgraded || !output.is_file() || until.is_over()? {
            return Ok((files, until.finish()));
        }
        before = now;
        session = match Session::begin(policy, &numbered(output, files.len() + 1), &how) {
            Ok(session) => session,
            Err(error) => return Ok((files, Err(error))),
        };
    }
}

/// The name of the file with this number: wfq-2.rec for wfq.rec.
fn numbered(first: &Path, number: usize) -> PathBuf {
    let mut name = first.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = first.extension() {
        name.push(".");
        name.push(extension);
    }
    first.with_file_name(name)
}

fn is_enclave(device: &Device, policy: &str) -> Result<bool> {
    let info = device.policy(policy)?;
    Ok(info.is_some_and(|info| text(&info.modules[0]) == AGENT_MODULE))
}

fn only_policy(device: &Device) -> Result<String> {
    let mut running = device
        .policies()?
        .into_iter()
        .filter(|info| info.state == BatonPolicyState::Running as u32);
    match (running.next(), running.next()) {
        (Some(info), None) => Ok(text(&info.name)),
        (None, _) => Err(Error::user(
            "no policy is running",
            "load one first: baton load POLICY",
        )),
        _ => Err(Error::user(
            "several policies are running",
            "say which one: -p NAME",
        )),
    }
}

pub fn save_fault(args: &FaultSave) -> Result<ExitCode> {
    let device = Device::open()?;
    let policy = match &args.policy {
        Some(policy) => policy.clone(),
        None => failed_policy(&device)?,
    };
    let summary = recording::save_fault(device, &policy, &args.output)?;
    Report::of(vec![summary]).print(args.out.json)?;
    Ok(ExitCode::SUCCESS)
}

fn failed_policy(device: &Device) -> Result<String> {
    let mut failed = device
        .policies()?
        .into_iter()
        .filter(|info| info.faults != 0);
    match (failed.next(), failed.next()) {
        (Some(info), None) => Ok(text(&info.name)),
        (None, _) => Err(Error::user(
            "no policy has failed",
            "record one that runs: baton record -o FILE",
        )),
        _ => Err(Error::user(
            "several policies have failed",
            "say which one: -p NAME",
        )),
    }
}

fn words(summary: &Summary) -> String {
    let Summary {
        file,
        policy,
        version,
        events,
        bytes,
        lost,
        checkpoints,
        end,
        duration_ns,
        ..
    } = summary;
    let file = file.as_deref().unwrap_or_else(|| Path::new("")).display();
    let each = *bytes as f64 / (*events).max(1) as f64;
    let mut text = format!(
        "{policy} version {version}: {events} events in {}, {:.1} MiB ({each:.1} bytes each), \
         {lost} lost; {end}\n",
        report::time(*duration_ns),
        *bytes as f64 / f64::from(1 << 20),
    );
    if *lost != 0 {
        text += "  a replay ends where the first event was lost: use a larger --ring\n";
    }
    if *checkpoints != 0 {
        text += &format!("  {checkpoints} checkpoints, where a replay can begin: --from\n");
    }
    if summary.whole {
        text + &format!("  replay it:  baton replay {file}\n")
    } else {
        text += "  its beginning is missing, and the policy saves no state: it can be read, and \
                 not replayed\n";
        text + &format!("  read it:    baton trace print {file}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_later_versions_have_numbers() {
        let check = |first: &str, expected: &str| {
            assert_eq!(numbered(Path::new(first), 2), Path::new(expected))
        };
        check("wfq.rec", "wfq-2.rec");
        check("/tmp/a.b/wfq", "/tmp/a.b/wfq-2");
        check("./x.y.rec", "./x.y-2.rec");
    }

    #[test]
    fn what_a_recording_came_to() {
        let of = |duration_ns, events, bytes| {
            let policy = "wfq".to_string();
            let summary = Summary {
                policy,
                version: 2,
                events,
                bytes,
                duration_ns,
                ..Summary::default()
            };
            words(&summary)
                .lines()
                .next()
                .unwrap_or_default()
                .to_string()
        };
        let mib = 1 << 20;
        let long = of(12_500_000_000, mib, 4 * mib);
        assert!(
            long.starts_with("wfq version 2: 1048576 events in 12.5 s, 4.0 MiB (4.0 bytes each)"),
            "{long}"
        );
        // A short recording must not show a time of zero, and one without events no size of an
        // event that is not a number.
        for (duration_ns, expected) in [(3_200_000, "in 3.20 ms,"), (45_000, "in 45.0 µs,")] {
            let short = of(duration_ns, 10, 100);
            assert!(short.contains(expected), "{short}");
        }
        let empty = of(0, 0, 128);
        assert!(
            empty.contains(": 0 events in ") && !empty.contains("NaN"),
            "{empty}"
        );
    }
}
