// SPDX-License-Identifier: GPL-2.0-only
//! `baton bench fidelity`: the accuracy of the simulator. The same workloads run in the simulator
//! and in a booted kernel that counts instructions, under the same policies. The bench compares how
//! often CPUs switch tasks, how often tasks migrate, and how long woken tasks wait.
//!
//! The guest measures how the workloads run under its kernel, and what the operations of that
//! kernel cost (`guest`). The command then simulates the same workloads with these costs, and
//! compares the results (`compare`).

mod compare;
pub mod costs;
mod guest;

use std::process::ExitCode;

use baton_sim::world::World;
use serde::{Deserialize, Serialize};

use super::guest::{guest_with, report_of_guest};
use super::subject::Subject;
use super::{Arguments, Bench};
use baton_control::error::Result;
use baton_control::kernel;
use baton_control::modules::Search;
use baton_control::output::{print, print_json};

/// The factor by which the times of the workloads are longer than those that they model. Everything
/// that the guest's kernel does takes longer than on hardware: a context switch is several thousand
/// instructions of one nanosecond each.
const FACTOR: u64 = 25;

/// A workload that is compared. The duration of its rounds is no multiple of the tick. If it were,
/// all rounds would begin at the same distance from a tick, and the result would depend on the
/// microsecond at which the first one began. A workload with an open loop loads one CPU (`on=1`),
/// because all CPUs of the guest share one stream of instructions.
#[derive(Clone, Copy)]
pub struct Load {
    pub name: &'static str,
    /// The workload as for `baton sim -w`, with the times multiplied.
    pub spec: &'static str,
    /// The length of a run, ms.
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

/// The seed of a run of a workload.
fn seed(run: usize) -> u64 {
    run as u64 + 1
}

/// The first part of a run, 1 / `WARM_UP` of it, is not counted, because all tasks start at once.
const WARM_UP: u64 = 10;

impl Load {
    fn world(&self, cpus: u32, seed: u64) -> Result<World> {
        crate::simulate::world(self.spec, seed, cpus as usize)
    }

    fn duration(&self) -> u64 {
        self.ms * 1_000_000
    }

    /// The time at which the counting of events begins, ns.
    fn counts_from(&self) -> u64 {
        self.duration() / WARM_UP
    }
}

/// The metrics of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    pub switches: u64,
    pub migrations: u64,
    /// Wakeups whose wait was measured.
    pub wakeups: u64,
    /// From a wakeup until the task runs, ns.
    pub p50: u64,
    pub p99: u64,
}

impl Numbers {
    /// Describes the metrics, for the progress on standard error.
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

/// The measurements of a policy on a number of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub subject: String,
    pub cpus: u32,
    pub costs: costs::Measured,
    /// The runs of each workload, in the order of [`LOADS`].
    pub runs: Vec<Vec<Numbers>>,
}

/// The report of a guest.
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
    // The guest needs the probe. `guest_with` adds the core and the probe only for a policy, so the
    // list always has one.
    let needed: Vec<_> = args
        .subjects()
        .into_iter()
        .chain([Subject::Policy("fifo".into())])
        .collect();
    let files_in = guest_with(&needed)?;
    let (mut release, mut rows) = (String::new(), Vec::new());
    for cpus in args.guests() {
        let found: Found = report_of_guest(args, cpus, files_in.clone())?;
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
    if args.json {
        print_json(&report)?
    } else {
        print(compare::text(&report))?
    }
    Ok(if report.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
