// SPDX-License-Identifier: GPL-2.0-only
//! `baton trace states`: the log of the state machine of a policy's threads (policy/c/events.h).

use std::io::{BufWriter, Stdout, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use baton_replay::{Changed, End, Options};
use serde_json::json;

use super::{open, seconds};
use crate::commands::replay::policy;
use baton_control::error::{Error, Result};

#[derive(clap::Args, Debug)]
pub struct States {
    /// The recording.
    file: PathBuf,
    /// The policy: a path, a library, or a name in Baton's policies/ or in the current directory.
    /// [default: the recorded one]
    #[arg(short, long, value_name = "POLICY|FILE.so")]
    policy: Option<String>,
    /// Only changes of the thread with this id.
    #[arg(long)]
    pid: Option<u32>,
    /// Print JSON, a line for each change.
    #[arg(long)]
    json: bool,
}

/// What has been printed.
struct Log {
    out: BufWriter<Stdout>,
    changes: u64,
    /// Has the reader gone, or is there no room for more?
    failed: Option<std::io::Error>,
}

pub fn print(args: &States) -> Result<()> {
    let recording = open(&args.file)?;
    let policy = policy(args.policy.as_deref(), &recording)?;
    let log = Arc::new(Mutex::new(Log {
        out: BufWriter::with_capacity(1 << 16, std::io::stdout()),
        changes: 0,
        failed: None,
    }));
    let (to, pid, json, begin) = (log.clone(), args.pid, args.json, recording.begin());
    let changed = move |changed: &Changed| {
        let mut log = to.lock().unwrap_or_else(PoisonError::into_inner);
        log.changes += 1;
        if pid.is_none_or(|pid| pid == changed.change.pid) && log.failed.is_none() {
            log.failed = writeln!(log.out, "{}", line(changed, json, begin)).err();
        }
    };
    let options = Options {
        single: true,
        changed: Some(Arc::new(changed)),
        ..Options::default()
    };
    let outcome = baton_replay::replay(&recording, policy, &options).map_err(|why| {
        let what = format!("{} cannot be replayed: {why}", args.file.display());
        Error::user(what, "see docs/replay.md")
    })?;
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    let failed = log.failed.take().or_else(|| log.out.flush().err());
    match failed {
        Some(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            return Err(Error::file("writing to standard output", &e));
        }
        _ => {}
    }
    if log.changes == 0 {
        return Err(Error::user(
            format!("{} changes no thread's state in it", policy.name()),
            "only policies in C as handlers of events do that: docs/c.md",
        ));
    }
    match outcome.end {
        End::Whole | End::Until => {}
        End::Gap { cpu, what } => eprintln!(
            "baton: the log ends before event {}: CPU {cpu}: {what}",
            outcome.first + outcome.events
        ),
        End::Diverged(at) => {
            return Err(Error::user(
                format!(
                    "from event {} on, {} does not do what was recorded: the log ends there",
                    at.number,
                    policy.name()
                ),
                "give the recorded policy, or see the difference: baton replay FILE",
            ));
        }
    }
    Ok(())
}

/// `begin` is the time of the recording's first call, ns.
fn line(changed: &Changed, json: bool, begin: u64) -> String {
    let change = &changed.change;
    if json {
        return json!({
            "event": changed.number,
            "now_ns": changed.now,
            "cpu": changed.cpu,
            "pid": change.pid,
            "from": change.from,
            "to": change.to,
            "handler": change.handler,
            "line": (change.line != 0).then_some(change.line),
        })
        .to_string();
    }
    let place = match change.line {
        0 => String::new(),
        line => format!(", line {line}"),
    };
    format!(
        "{}  CPU {:<3} thread {:<7} {:>10} to {:<10}  {}{place}",
        seconds(changed.now.saturating_sub(begin)),
        changed.cpu,
        change.pid,
        change.from,
        change.to,
        change.handler
    )
}
