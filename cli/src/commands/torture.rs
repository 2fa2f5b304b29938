// SPDX-License-Identifier: GPL-2.0-only
//! `baton torture`: everything that can happen to a task, at once, for minutes, under a policy that has them all.

use std::process::ExitCode;
use std::time::Duration;

use baton_vm::Vm;

use super::bench::guest_with;
use super::bench::subject::Subject;
use super::vm::vm_error;
use crate::error::Result;
use crate::names;

/// What runs in the guest: SECONDS, POLICY and STALL are put in. The core's own watch is the judge of who waits too long; the
/// harness is that of the kernel's log.
const SCRIPT: &str = include_str!("torture.sh");

#[derive(clap::Args, Debug)]
pub struct Torture {
    /// How long, in minutes of the guest's time.
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Number of CPUs.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub cpus: u32,
    /// Policy that has all tasks.
    #[arg(long, default_value = "wfq", value_parser = names::policy)]
    pub policy: String,
    /// A task that is queued for longer than this fails the run, in ms of the guest's time. A fair policy lets a task of nice 19
    /// wait for more than a second beside a few of nice 0, and the guest's CPUs share one of this machine's.
    #[arg(long, default_value_t = 10_000)]
    pub stall: u32,
    /// Count instructions: the guest's time is exact, and passes several times slower than the clock here.
    #[arg(long)]
    pub icount: bool,
}

pub fn torture(args: &Torture) -> Result<ExitCode> {
    let seconds = (args.minutes * 60.0).ceil().max(1.0) as u64;
    let script = SCRIPT
        .replace("@SECONDS@", &seconds.to_string())
        .replace("@POLICY@", &args.policy)
        .replace("@STALL@", &args.stall.to_string());
    let vm = Vm {
        cpus: args.cpus,
        memory_mb: 3000,
        icount: args.icount,
        command: vec!["sh".into(), "-c".into(), script],
        tools: vec!["stress-ng".into()],
        files_in: guest_with(&[Subject::Policy(args.policy.clone())])?,
        timeout: Duration::from_secs(300 + seconds * if args.icount { 60 } else { 3 }),
        ..Default::default()
    };
    eprintln!("baton: {} for {seconds} s of guest time on {} CPUs", args.policy, args.cpus);
    let outcome = vm.run(&mut std::io::stdout()).map_err(vm_error)?;
    Ok(ExitCode::from(outcome.exit_code as u8))
}
