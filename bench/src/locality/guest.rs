// SPDX-License-Identifier: GPL-2.0-only
//! The part that runs in a booted kernel: runs bench/programs/schbench.c on this machine.
//!
//! The guest counts instructions, so its CPUs run in turn. A computing worker ends its turn again
//! and again (`compute` in schbench.c), so that a task woken on another CPU does not wait for the
//! computation. Where idle CPUs sleep (`idle`), only short computations are measured: a worker that
//! computes for long finds the CPU of its message thread awake.

use std::process::{Command, Stdio};

use serde::Deserialize;

use super::idle::{self, IdleStates};
use super::{Found, Place, Row, Way, LONG, MESSENGERS, SHORT, WORKERS};
use crate::subject::Subject;
use crate::{programs::PROGRAMS, Arguments};
use baton_control::error::{Error, Result};
use baton_control::kernel;
use baton_control::modules::Search;

pub const CPUS: u32 = 4;
/// The idle states of the paper's machine, and none.
const IDLE_STATES: &[&str] = &[super::judge::PAPERS, "none"];
/// The time that a worker sleeps, us.
const SLEEP: u64 = 2_000;
/// The length of a run and of its warm-up, ms. One second in which the guest's CPUs are
/// mostly busy takes a minute.
const RUN: u64 = 10_000;
const LONG_RUN: u64 = 3_000;
const WARM_UP: u64 = 1_000;

/// The output of the program.
#[derive(Deserialize)]
struct Said {
    wakeups: u64,
    p50_ns: u32,
    p99_ns: u32,
    max_ns: u32,
    /// The home CPU of each message thread's group; -1 if it has none.
    homes: Vec<i32>,
}

/// Measures all subjects on this machine.
pub fn measure(search: &Search, args: &Arguments) -> Result<Found> {
    kernel::require_root("putting a scheduler in charge")?;
    let mut found = Found {
        kernel: kernel::release(),
        ..Found::default()
    };
    for subject in args.subjects() {
        subject.measure(search, || {
            for choice in idle::choices(IDLE_STATES) {
                let states = IdleStates::set(&choice)?;
                for work in works(&choice) {
                    for way in ways(&subject) {
                        found.rows.push(run(&subject, *way, &choice, *work)?);
                    }
                }
                states.reset()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn ways(subject: &Subject) -> &'static [Way] {
    match subject {
        Subject::Eevdf => &[Way::Free, Way::Pinned],
        Subject::Policy(name) if name == super::judge::JUDGED => &[Way::Free, Way::Hints],
        _ => &[Way::Free],
    }
}

fn works(idle_states: &str) -> &'static [u64] {
    if idle_states == super::judge::PAPERS {
        &[SHORT]
    } else {
        &[SHORT, LONG]
    }
}

fn run(subject: &Subject, way: Way, idle_states: &str, work: u64) -> Result<Row> {
    let mut command = Command::new(PROGRAMS.find("schbench")?);
    let time = if work == LONG { LONG_RUN } else { RUN };
    let numbers = [
        ("-m", MESSENGERS),
        ("-t", WORKERS),
        ("-s", SLEEP),
        ("-w", work),
        ("-r", time),
        ("-u", WARM_UP),
    ];
    for (option, number) in numbers {
        command.args([option, &number.to_string()]);
    }
    match way {
        Way::Free => &mut command,
        Way::Pinned => command.args(["-p", "0"]),
        Way::Hints => command.arg("-H"),
    };
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let output = output.map_err(|e| Error::file("running schbench", &e))?;
    let said = serde_json::from_slice::<Said>(&output.stdout)
        .ok()
        .filter(|_| output.status.success());
    let said = said.ok_or_else(|| {
        Error::baton(format!(
            "schbench failed ({}); its messages are above",
            output.status
        ))
    })?;
    let us = |ns: u32| f64::from(ns) / 1e3;
    let (subject, idle_states) = (way.of(&subject.name()), idle_states.into());
    let Said {
        wakeups,
        p50_ns,
        p99_ns,
        max_ns,
        homes,
    } = said;
    let (p50, p99, max) = (us(p50_ns), us(p99_ns), us(max_ns));
    let row = Row {
        place: Place::Kernel,
        idle_states,
        subject,
        work,
        wakeups,
        p50,
        p99,
        max,
    };
    eprintln!("baton: {}", words(&row, &homes));
    Ok(row)
}

/// Describes a run, for the progress on standard error.
fn words(row: &Row, homes: &[i32]) -> String {
    let Row {
        idle_states,
        subject,
        work,
        wakeups,
        p50,
        p99,
        max,
        ..
    } = row;
    let wait = format!("{wakeups} wakeups waited p50 {p50:.1}, p99 {p99:.1}, max {max:.1} us");
    let mut text = format!("{subject}, idle states {idle_states}, work {work} us: {wait}");
    if !homes.is_empty() {
        let homes: Vec<_> = homes.iter().map(i32::to_string).collect();
        text += &format!("; home CPUs of the groups {}", homes.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_in_words() {
        let row = Row {
            place: Place::Kernel,
            idle_states: "none".into(),
            subject: "wfq".into(),
            work: 30,
            wakeups: 1200,
            p50: 3.25,
            p99: 40.0,
            max: 1000.04,
        };
        let plain =
            "wfq, idle states none, work 30 us: 1200 wakeups waited p50 3.2, p99 40.0, max \
            1000.0 us";
        assert_eq!(words(&row, &[]), plain);
        assert_eq!(
            words(&row, &[0, -1]),
            format!("{plain}; home CPUs of the groups 0, -1")
        );
    }
}
