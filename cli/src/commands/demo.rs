// SPDX-License-Identifier: GPL-2.0-only
//! `baton demo`: in one guest, a policy schedules tasks of the stock kernel, for comparison with
//! the kernel's own scheduler, and another policy panics.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use baton_vm::Vm;

use super::print;
use baton_bench::fairness::{self, Speed, NICE_5_SHARE};
use baton_bench::guest::guest_with;
use baton_bench::loads;
use baton_bench::subject::Subject;
use baton_build::guest::vm_error;
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::kernel;
use baton_control::modules::Search;
use baton_control::report;
use baton_control::status::Status;
use baton_control::{load, unload};

const PIPE_LOOPS: u32 = 3_000;
const HACKBENCH: (u32, u32) = (1, 100);

#[derive(clap::Args, Debug)]
pub struct Demo {
    /// Use this machine and not a guest. All of its normal tasks change schedulers, and one of the
    /// schedulers fails on purpose.
    #[arg(long)]
    pub here: bool,
}

fn subjects() -> [Subject; 3] {
    let scx_simple = Subject::Scx {
        program: "scx_simple",
        options: &[],
    };
    [Subject::Eevdf, scx_simple, Subject::Policy("wfq".into())]
}

pub fn demo(search: &Search, args: &Demo) -> Result<ExitCode> {
    if args.here {
        return here(search);
    }
    let start = Instant::now();
    say("building wfq, a scheduler in safe Rust, and faulty, which panics when told to");
    let mut wanted = subjects().to_vec();
    wanted.push(Subject::Policy("faulty".into()));
    let files_in = guest_with(&wanted)?;
    say("booting an unmodified Debian kernel in a guest with 2 CPUs that counts instructions");
    let vm = Vm {
        cpus: 2,
        icount: Some(0),
        command: ["baton", "demo", "--here"].map(String::from).to_vec(),
        tools: ["perf", "hackbench"].map(String::from).to_vec(),
        files_in,
        timeout: Duration::from_secs(900),
        ..Default::default()
    };
    let outcome = vm.run(&mut std::io::stdout()).map_err(vm_error)?;
    say(&format!(
        "the guest's kernel log is clean; {:.0} s in all",
        start.elapsed().as_secs_f64()
    ));
    Ok(ExitCode::from(outcome.exit_code as u8))
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "baton demo: {text}");
}

/// The measurements of one subject.
struct Row {
    name: String,
    pipe: f64,
    hackbench: f64,
    share: f64,
}

fn here(search: &Search) -> Result<ExitCode> {
    kernel::require_root("putting a scheduler in charge")?;
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
        rows.push(subject.measure(search, || {
            loads::pipe(PIPE_LOOPS / 5)?;
            Ok(Row {
                name: subject.name(),
                pipe: loads::pipe(PIPE_LOOPS)?,
                hackbench: loads::hackbench(HACKBENCH.0, HACKBENCH.1)?,
                share: fairness::nice_5(speed)?,
            })
        })?);
    }
    print(table(&rows))?;
    fault(search)
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

/// A policy panics under load; the load continues.
fn fault(search: &Search) -> Result<ExitCode> {
    let options = "fault=index,after=200";
    say(&format!(
        "now faulty schedules every task, with {options}: its 200th wakeup reads beyond an array"
    ));
    let how = load::Options {
        all: true,
        options: Some(options.into()),
        ..Default::default()
    };
    drop(load::load(search, "faulty", &how)?);
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
    unload::unload(None)?;
    say("unloaded; the kernel's own scheduler has all tasks again");
    Ok(ExitCode::SUCCESS)
}
