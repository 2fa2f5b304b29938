// SPDX-License-Identifier: GPL-2.0-only
//! The steps that need a kernel: schedulers beside each other, an upgrade under load, a crash.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::say;
use super::steps::Stage;
use crate::commands::print;
use baton_bench::fairness::{self, Speed, NICE_5_SHARE};
use baton_bench::loads;
use baton_bench::subject::Subject;
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::kernel;
use baton_control::report;
use baton_control::status::Status;
use baton_control::unload;

const PIPE_LOOPS: u32 = 3_000;
const HACKBENCH: (u32, u32) = (1, 100);

/// The arguments of the load during an upgrade, which lasts three times as long as that in a guest.
const LOAD: [&str; 4] = ["-g", "1", "-l", "600"];

/// The time after which the load is under way.
const UNDER_WAY: Duration = Duration::from_millis(50);

pub fn subjects() -> [Subject; 3] {
    let scx_simple = Subject::Scx {
        program: "scx_simple",
        options: &[],
    };
    [Subject::Eevdf, scx_simple, Subject::Policy("wfq".into())]
}

/// The measurements of one subject.
struct Row {
    name: String,
    pipe: f64,
    hackbench: f64,
    share: f64,
}

pub fn compare(stage: &Stage, _: &[String]) -> Result<()> {
    say(&format!(
        "this is Linux {}, as its distributor built it",
        kernel::release()
    ));
    let speed = Speed::calibrate();
    let mut rows = Vec::new();
    for subject in subjects() {
        say(&format!(
            "{} schedules every task of this machine",
            subject.name()
        ));
        rows.push(subject.measure(stage.search, || {
            loads::pipe(PIPE_LOOPS / 5)?;
            Ok(Row {
                name: subject.name(),
                pipe: loads::pipe(PIPE_LOOPS)?,
                hackbench: loads::hackbench(HACKBENCH.0, HACKBENCH.1)?,
                share: fairness::nice_5(speed)?,
            })
        })?);
    }
    print(table(&rows))
}

fn table(rows: &[Row]) -> String {
    let titles = [
        "scheduler",
        "pipe, ns/op",
        "",
        "hackbench, ms",
        "",
        "nice 5 beside nice 0",
    ];
    let Some(base) = rows.first() else {
        return String::new();
    };
    let cells = rows.iter().map(|row| {
        vec![
            row.name.clone(),
            format!("{:.0}", row.pipe),
            format!("{:.3}", row.pipe / base.pipe),
            format!("{:.1}", row.hackbench / 1e6),
            format!("{:.3}", row.hackbench / base.hackbench),
            format!("{:.1} %", row.share),
        ]
    });
    format!(
        "\n{}\n1 ns of this guest is 1 instruction; the third and fifth columns are ratios to \
         EEVDF. By its weight a task of\n\
         nice 5 gets {NICE_5_SHARE:.1} %. (scx_simple knows no weights without -f.)\n\n",
        report::table(&titles, &cells.collect::<Vec<_>>())
    )
}

/// A new version takes over while hackbench runs.
pub fn upgrade(stage: &Stage, commands: &[String]) -> Result<()> {
    let Some((upgrade, before)) = commands.split_last() else {
        return Ok(());
    };
    before.iter().try_for_each(|line| stage.run(line))?;
    let mut load = start_load()?;
    thread::sleep(UNDER_WAY);
    let done = stage.run(upgrade);
    let is_running = matches!(load.try_wait(), Ok(None));
    let ended = load
        .wait()
        .map_err(|e| Error::file("waiting for hackbench", &e))?;
    done?;
    if !is_running || !ended.success() {
        return Err(Error::baton(format!(
            "hackbench should have run through the upgrade, and ended before it or badly ({ended})"
        )));
    }
    say("hackbench ran through the upgrade, and to its end");
    Ok(())
}

fn start_load() -> Result<Child> {
    Command::new("hackbench")
        .args(LOAD)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| {
            Error::environment(
                format!("hackbench cannot be run: {e}"),
                "install it (Debian: rt-tests), or leave out --here: the guest has it",
            )
        })
}

/// A policy panics under load; the load continues, and the calls before the panic are saved.
pub fn crash(stage: &Stage, commands: &[String]) -> Result<()> {
    let Some((save, before)) = commands.split_last() else {
        return Ok(());
    };
    before.iter().try_for_each(|line| stage.run(line))?;
    let (groups, loops) = HACKBENCH;
    let ended = loads::hackbench(groups, loops)?;
    say(&format!(
        "hackbench ran to its end through the panic, in {:.1} ms; `baton status` says:",
        ended / 1e6
    ));
    let status = Status::read(&Device::open()?)?;
    let Some(fault) = status.faults.first() else {
        return Err(Error::baton("the policy should have panicked, and did not"));
    };
    print(format!("\n{}\n", report::fault(fault)))?;
    stage.run(save)?;
    unload::unload(None)?;
    say("unloaded; the kernel's own scheduler has all tasks again");
    Ok(())
}
