// SPDX-License-Identifier: GPL-2.0-only
//! `baton monitor`: what policies and CPUs do, live.

use std::io::{stdout, IsTerminal};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::print;
use baton_control::error::{Error, Result};
use baton_control::modules::{Search, CORES};
use baton_control::monitor::{self, Interval};
use baton_control::{kernel, names};

#[derive(clap::Args, Debug)]
pub struct Monitor {
    /// Show only this policy.
    #[arg(short, long, value_name = "NAME", value_parser = names::policy)]
    policy: Option<String>,
    /// Time between two readings: 1s, 200ms; 50ms to 30min.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = names::duration)]
    interval: Duration,
    /// End after this time. Without it, go on until interrupted (Ctrl-C).
    #[arg(long = "for", value_name = "TIME", value_parser = names::duration)]
    duration: Option<Duration>,
    /// Print a line of JSON for each interval.
    #[arg(long)]
    json: bool,
}

const SHORTEST: Duration = Duration::from_millis(50);
/// The kernel measures for an hour at most without being asked again.
const LONGEST: Duration = Duration::from_secs(1800);

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[J";

pub fn monitor(search: &Search, args: &Monitor) -> Result<ExitCode> {
    kernel::require_root("measure")?;
    if !(SHORTEST..=LONGEST).contains(&args.interval) {
        return Err(Error::user(
            "calls are not measured for intervals of that length",
            "give 50ms to 30min: --interval 1s",
        ));
    }
    let mut monitor = monitor::Monitor::start(&search.find(CORES)?, args.interval)?;
    let begin = Instant::now();
    let end = args.duration.map(|duration| begin + duration);
    let mut next = begin;
    while end.is_none_or(|end| next < end) {
        // Intervals that this process was stopped for are not made up for.
        next = (next + args.interval).max(Instant::now());
        let until = end.map_or(next, |end| next.min(end));
        sleep(until.saturating_duration_since(Instant::now()));
        let mut interval = monitor.read()?;
        if let Some(name) = &args.policy {
            interval.policies.retain(|policy| policy.name == *name);
        }
        show(&interval, args.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(interval: &Interval, json: bool) -> Result<()> {
    if json {
        let line = serde_json::to_string(interval)
            .map_err(|e| Error::baton(format!("the interval cannot be written as JSON: {e}")))?;
        return print(line + "\n");
    }
    let text = monitor::text_of(interval);
    if stdout().is_terminal() {
        print(format!("{CLEAR}{text}"))
    } else {
        print(text + "\n")
    }
}
