// SPDX-License-Identifier: GPL-2.0-only
//! `baton sim`: runs policies on a simulated machine, one after the other or together.

pub mod run;
mod spec;
pub mod tables;

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use baton_abi::BatonFaultKind;
use baton_sim::report::Run;

use super::{print, print_json};
use baton_control::error::{Error, Result};
use baton_control::status::Fault;
use baton_control::{names, report};
use run::{Done, Job, Recorded, Traced};
pub use spec::{Assign, Cost, Noisy, Offline, Part, Party, Shape, Sleeps, Swap, Sweep};

#[derive(clap::Args, Debug)]
pub struct Sim {
    /// Policies, in the order in which they are asked. The last one has the tasks that are assigned
    /// to no policy. A name or path, with or without options: wfq, wfq:period=6ms,credit=1ms.
    #[arg(value_name = "POLICY", required_unless_present_any = ["agent", "compare", "workloads"])]
    pub policies: Vec<Party>,
    /// Run this policy, or scheduler that is written for agents, as the agent of an enclave. It has
    /// the tasks that are assigned to no policy, and a CPU of its own. The costs agent_message,
    /// agent_work and agent_commit say how late it is: see --cost.
    #[arg(
        long,
        value_name = "POLICY",
        conflicts_with_all = ["compare", "sweep", "record", "upgrade"]
    )]
    pub agent: Option<Party>,
    /// The CPU on which the agent polls.
    #[arg(long, value_name = "CPU", default_value_t = 0, requires = "agent")]
    pub agent_cpu: u32,
    /// The workload: a name with its keys, a recording as perf:FILE, an rt-app file in JSON, or
    /// several joined by +. See --workloads.
    #[arg(short, long, default_value = "pipe", value_name = "WORKLOAD")]
    pub workload: String,
    /// List the workloads and their keys.
    #[arg(long)]
    pub workloads: bool,
    /// Topology of the machine: NUMA nodes x cores of a node x hardware threads of a core, such as
    /// 2x16x2. In 1x64x1/8, 8 cores share a last-level cache; by default all cores of a node share
    /// one. In 1x64x1/8/4, 4 of these also share a second-level cache. `live` is the topology of
    /// this machine.
    #[arg(long, default_value = "1x4x1")]
    pub topology: Shape,
    /// Duration, in simulated time.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = names::duration)]
    pub duration: Duration,
    /// The seed of all random numbers. The same seed gives the same run.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Run with this many seeds, beginning with --seed. Numbers are means, with their 95 %
    /// confidence intervals.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: u64,
    /// Maximum difference between a computing time and that in the workload, in per cent. Each
    /// difference is drawn at random from the seed.
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = jitter)]
    pub jitter: u32,
    /// Run each of these policies by itself, and show the results side by side.
    #[arg(
        long,
        value_name = "POLICY,POLICY",
        value_delimiter = ',',
        conflicts_with = "policies"
    )]
    pub compare: Vec<Party>,
    /// Run with several values of an option of the policy, on all CPUs of this machine:
    /// slice=1ms..20ms, or with the number of steps: slice=1ms..20ms/10.
    #[arg(long, value_name = "KEY=FROM..TO", conflicts_with = "compare")]
    pub sweep: Option<Sweep>,
    /// Assign the tasks of a group of the workload to one of the policies.
    #[arg(long, value_name = "GROUP=POLICY")]
    pub assign: Vec<Assign>,
    /// Replace the running version of a policy by another at this time: 500ms:relay-v2.
    #[arg(long, value_name = "TIME:POLICY")]
    pub upgrade: Vec<Swap>,
    /// Take a CPU offline for a while: 3@100ms..200ms.
    #[arg(long, value_name = "CPU@FROM..TO")]
    pub offline: Vec<Offline>,
    /// CPU time that higher classes and interrupts use, on average: with higher=10ms/50us, higher
    /// classes take 50 µs every 10 ms; interrupt=1ms/5us.
    #[arg(long, value_name = "KIND=EVERY/FOR", value_delimiter = ',')]
    pub noise: Vec<Noisy>,
    /// Costs of the machine's own work, ns: switch=1200,ipi=500. With an unknown name, the error
    /// lists all names.
    #[arg(long, value_name = "NAME=NS", value_delimiter = ',')]
    pub cost: Vec<Cost>,
    /// Idle states of the CPUs: skl (desktops), skx (servers), none. They determine how long a CPU
    /// takes to leave idle, instead of the cost `idle_exit`.
    #[arg(long, default_value = "none", value_name = "TABLE")]
    pub idle_states: Sleeps,
    /// Stall limit: a task may be queued for at most this time, in ms.
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub stall: u64,
    /// Number of task slots. Tasks without a slot are not created.
    #[arg(long, value_name = "N", default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub max_tasks: u32,
    /// Write a trace for ui.perfetto.dev.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "sweep", "seeds"])]
    pub trace: Option<PathBuf>,
    /// Record the calls of the policy and its answers, for `baton replay`. Only for one policy
    /// without an upgrade.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "sweep", "seeds", "upgrade"])]
    pub record: Option<PathBuf>,
    /// Interval of the recording's checkpoints in simulated time, at which a replay can begin
    /// (--from): 10ms.
    #[arg(long, value_name = "TIME", requires = "record", value_parser = names::duration)]
    pub checkpoint: Option<Duration>,
    /// Write the runs as JSON, with timelines and detail, for `baton report`.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The part of a run that the file of --output contains in detail, with each wakeup and each
    /// time that a task runs: 100ms..200ms, or `100ms..` without an end. The detail ends after some
    /// 15,000 wakeups. By default it begins with the run. With --seeds only the first run has a
    /// detail.
    #[arg(
        long,
        value_name = "FROM..TO",
        requires = "output",
        default_value = "0s..",
        hide_default_value = true
    )]
    pub detail: Part,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Parses a percentage, as millionths.
fn jitter(text: &str) -> std::result::Result<u32, String> {
    let percent: f64 = text
        .parse()
        .map_err(|_| format!("'{text}' is no number of per cent"))?;
    if (0.0..=50.0).contains(&percent) {
        Ok((percent * 10_000.0).round() as u32)
    } else {
        Err("0 to 50 per cent are allowed".into())
    }
}

/// Exit codes for a fault. The simulator scxsim has the same ones.
const STALL: u8 = 42;
const POLICY_ERROR: u8 = 43;
const DISPATCH_LOOP: u8 = 44;

pub fn sim(args: &Sim) -> Result<ExitCode> {
    if args.workloads {
        print(tables::workloads())?;
        return Ok(ExitCode::SUCCESS);
    }
    let jobs = Job::all(args)?;
    let trace = match &args.trace {
        Some(path) => {
            let file = File::create(path)
                .map_err(|e| Error::file(format!("making {}", path.display()), &e))?;
            Some(Traced {
                out: BufWriter::new(file),
                path: path.clone(),
            })
        }
        None => None,
    };
    let record = args.record.as_ref().map(|path| Recorded {
        path,
        checkpoint: args.checkpoint,
    });
    let done = match (trace, record) {
        (None, None) => run::all(&jobs, args.output.is_some())?,
        (trace, record) => vec![jobs[0].run(args.output.is_some(), trace, record)?],
    };
    let runs = series(&done, args.seeds)?;
    if let Some(path) = &args.output {
        let text = serde_json::to_string(&runs)
            .map_err(|e| Error::baton(format!("the result cannot be written as JSON: {e}")))?;
        std::fs::write(path, text)
            .map_err(|e| Error::file(format!("writing {}", path.display()), &e))?;
    }
    if args.json {
        print_json(&runs)?
    } else {
        print(tables::runs(&runs.iter().collect::<Vec<_>>()))?
    }
    let mut code = ExitCode::SUCCESS;
    for run in &runs {
        if run.tasks_not_made > 0 {
            eprintln!(
                "baton: {}: {} tasks were not made, as there was no slot: see --max-tasks",
                run.policy, run.tasks_not_made
            );
        }
        if let Some(since) = run.stuck_ns {
            let since = report::time(since);
            eprintln!(
                "baton: {}: from {since} on all tasks wait for each other, and nothing can \
                 wake them: check what the workload's tasks wait for (user)",
                run.policy
            );
        }
        if run.hints_refused > 0 {
            eprintln!(
                "baton: {}: of {} hints {} were refused",
                run.policy, run.hints, run.hints_refused
            );
        }
        for why in &run.refused_upgrades {
            eprintln!("baton: {}: an upgrade was refused: {why}", run.policy);
            code = ExitCode::FAILURE;
        }
    }
    for done in &done {
        for wrong in &done.wrong_moves {
            eprintln!("baton: {}: {wrong}", done.run.policy);
        }
    }
    for fault in done.iter().flat_map(|done| &done.faults) {
        eprint!("\n{}", baton_control::report::simulated_fault(fault));
        code = ExitCode::from(exit_code(fault));
    }
    Ok(code)
}

/// Combines the runs of each configuration, which differ in their seed, into one.
fn series(done: &[Done], seeds: u64) -> Result<Vec<Run>> {
    let series = |done: &[Done]| {
        let runs: Vec<Run> = done.iter().map(|done| done.run.clone()).collect();
        baton_sim::series::series(&runs).map_err(|why| {
            Error::baton(format!(
                "the means of the runs could not be computed: {why}"
            ))
        })
    };
    done.chunks(seeds as usize).map(series).collect()
}

fn exit_code(fault: &Fault) -> u8 {
    let is = |kind: BatonFaultKind| fault.kind == baton_abi::BATON_FAULT_NAMES[kind as usize];
    if is(BatonFaultKind::Stall) {
        STALL
    } else if is(BatonFaultKind::RefusalLoop) {
        DISPATCH_LOOP
    } else {
        POLICY_ERROR
    }
}
