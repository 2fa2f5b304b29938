// SPDX-License-Identifier: GPL-2.0-only
//! Is the simulator true? The same workloads in the simulator and in a booted kernel that counts
//! instructions, under the same policies: how often CPUs change tasks, how often tasks change CPUs,
//! how long who is woken waits.
//!
//! The guest measures (`guest`) what its kernel does, and what it costs; here the same is simulated
//! with those costs, and compared (`compare`).

mod compare;
pub mod costs;
mod guest;

use std::process::ExitCode;

use baton_sim::world::World;
use baton_vm::Vm;
use serde::{Deserialize, Serialize};

use super::guest::{guest_command, guest_with, REPORT_IN_GUEST, TIMEOUT};
use super::subject::Subject;
use super::{Arguments, Bench};
use baton_build::guest::vm_error;
use baton_control::error::{Error, Result};
use baton_control::kernel;
use baton_control::modules::Search;
use baton_control::output::{print, print_json};

/// By so much the times of the workloads are longer than what they model, as all that the guest's
/// kernel does takes longer than on hardware: a context switch is some thousand instructions, and
/// each of them one nanosecond.
const FACTOR: u64 = 25;

/// A workload that is compared. Its rounds are no multiple of the tick: where both keep step, what
/// happens depends on the microsecond at which the first began. An open loop is for the one stream
/// of instructions that all CPUs share.
#[derive(Clone, Copy)]
pub struct Load {
    pub name: &'static str,
    /// As for `baton sim -w`, with the times multiplied.
    pub spec: &'static str,
    /// For how long, ms.
    pub ms: u64,
}

pub const LOADS: &[Load] = &[
    Load {
        name: "pipe",
        spec: "pipe:work=25us",
        ms: 500,
    },
    Load {
        name: "hackbench",
        spec: "hackbench:groups=1,fds=8,work=25us",
        ms: 4_000,
    },
    Load {
        name: "forkjoin",
        spec: "forkjoin:threads=4,work=2600us",
        ms: 8_000,
    },
    Load {
        name: "dispersive",
        spec: "rocksdb:workers=50,short=100us,long=250ms,on=1",
        ms: 12_000,
    },
];

/// Of a workload's runs, each has its own.
fn seed(run: usize) -> u64 {
    run as u64 + 1
}

/// The first part of a run is not counted: all tasks come at once.
const WARM_UP: u64 = 10;

impl Load {
    fn world(&self, cpus: u32, seed: u64) -> Result<World> {
        let mut world = World::new();
        baton_sim::workloads::build(self.spec, seed, cpus as usize, &mut world)
            .map_err(|why| Error::baton(format!("the workload {} is wrong: {why}", self.name)))?;
        Ok(world)
    }

    fn duration(&self) -> u64 {
        self.ms * 1_000_000
    }

    /// From when on it counts, ns.
    fn counts_from(&self) -> u64 {
        self.duration() / WARM_UP
    }
}

/// What is compared, of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    pub switches: u64,
    pub migrations: u64,
    /// Wakeups whose wait was measured.
    pub wakeups: u64,
    /// From a wakeup to the CPU, ns.
    pub p50: u64,
    pub p99: u64,
}

impl Numbers {
    /// As they are told while others are measured.
    fn words(&self) -> String {
        let Self {
            switches,
            migrations,
            wakeups,
            p50,
            p99,
        } = self;
        format!(
            "{switches} switches, {migrations} migrations; {wakeups} wakeups waited \
             p50 {p50} ns, p99 {p99} ns"
        )
    }
}

/// A policy on a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub subject: String,
    pub cpus: u32,
    pub costs: costs::Measured,
    /// By workload, in the order of [`LOADS`]: its runs.
    pub runs: Vec<Vec<Numbers>>,
}

/// What a guest finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Found {
    kernel: String,
    measured: Vec<Measured>,
}

pub struct Fidelity;

impl Bench for Fidelity {
    fn runs(&self) -> u32 {
        3
    }

    fn cpus(&self) -> &'static [u32] {
        &[1, 2]
    }

    fn subjects(&self) -> Vec<Subject> {
        ["fifo", "wfq"]
            .map(|name| Subject::Policy(name.into()))
            .into()
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        command(search, args)
    }
}

fn command(search: &Search, args: &Arguments) -> Result<ExitCode> {
    if args.here {
        let found = Found {
            kernel: kernel::release(),
            measured: guest::measure(search, args)?,
        };
        return print_json(&found).map(|()| ExitCode::SUCCESS);
    }
    // The probe comes with the core, and that with a policy.
    let needed: Vec<_> = args
        .subjects()
        .into_iter()
        .chain([Subject::Policy("fifo".into())])
        .collect();
    let files_in = guest_with(&needed)?;
    let (mut release, mut rows) = (String::new(), Vec::new());
    for cpus in args.guests() {
        eprintln!("baton: booting a guest with {cpus} CPUs that counts instructions");
        let vm = Vm {
            cpus,
            icount: Some(0),
            command: guest_command(args),
            tools: Vec::new(),
            files_in: files_in.clone(),
            files_out: vec![REPORT_IN_GUEST.into()],
            timeout: TIMEOUT,
            ..Default::default()
        };
        let outcome = vm.run(&mut std::io::stderr()).map_err(vm_error)?;
        let file = outcome.files.get(REPORT_IN_GUEST);
        let found = file
            .and_then(|file| serde_json::from_slice::<Found>(file).ok())
            .ok_or_else(|| {
                Error::environment(
                    format!(
                        "the guest measured nothing (exit code {}); its messages are above",
                        outcome.exit_code
                    ),
                    "do as they say, or see more with: baton vm run -- baton bench fidelity --here",
                )
            })?;
        release = found.kernel;
        for measured in &found.measured {
            rows.extend(compare::rows(measured)?);
        }
    }
    let report = compare::Report {
        bench: "fidelity".into(),
        kernel: release,
        factor: FACTOR,
        results: rows,
    };
    match args.json {
        true => print_json(&report)?,
        false => print(compare::text(&report))?,
    }
    Ok(if report.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
