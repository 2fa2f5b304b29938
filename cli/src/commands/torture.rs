// SPDX-License-Identifier: GPL-2.0-only
//! `baton torture`: everything that can happen to a task, at once, for minutes, under a policy that
//! has all tasks.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use baton_vm::{Kernel, Vm};

use super::vm::boot;
use baton_build::guest::{files_for, vm_error};
use baton_build::Policy;
use baton_control::error::{Error, Result};
use baton_control::names;

/// The script for the guest, with the placeholders SECONDS, POLICY, VERSIONS, STALL and GROWTH. The
/// core's own watch finds tasks that wait too long; the harness checks the kernel's log.
const SCRIPT: &str = include_str!("torture.sh");

/// Each instruction takes 2^SHIFT ns: 250 million instructions per second of guest time, for all
/// its CPUs together. The guest's clock does not depend on the load of this machine, and its CPUs
/// take turns after far less than a tick; without counting they do so after 100 ms.
const SHIFT: u8 = 2;

#[derive(clap::Args, Debug)]
pub struct Torture {
    /// Duration, in minutes of guest time.
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Number of CPUs.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub cpus: u32,
    /// The policy that has all tasks.
    #[arg(long, default_value = "wfq", value_parser = names::policy)]
    pub policy: String,
    /// Two versions of the policy, which replace each other all the time.
    #[arg(long, value_name = "POLICY,POLICY", value_delimiter = ',')]
    pub versions: Vec<String>,
    /// A task that is queued for longer than this fails the run, in ms of guest time; at least 50.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(50..))]
    pub stall: u32,
    /// Growth of the kernel's memory that fails the run, in KiB. A kernel with KASAN keeps what was
    /// freed for a while.
    #[arg(long, value_name = "KIB", default_value_t = 4096)]
    pub growth: u32,
    /// The kernel to boot: its release, or the path of its image. [default: that of Baton's Debian
    /// root]
    #[arg(long, value_name = "RELEASE|FILE", env = "BATON_KERNEL")]
    pub kernel: Option<String>,
    /// Arguments to add to the kernel's command line.
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub append: Option<String>,
    /// File for the guest's kernel log.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

pub fn torture(args: &Torture) -> Result<ExitCode> {
    let seconds = (args.minutes * 60.0).ceil().max(1.0) as u64;
    let versions = args
        .versions
        .iter()
        .map(|v| names::policy(v))
        .collect::<std::result::Result<Vec<_>, _>>();
    let versions = versions
        .map_err(|why| Error::user(why, "give the names of two policies: --versions A,B"))?;
    let built = if versions.is_empty() {
        std::slice::from_ref(&args.policy)
    } else {
        &versions
    };
    let script = SCRIPT
        .replace("@SECONDS@", &seconds.to_string())
        .replace("@POLICY@", &args.policy)
        .replace("@VERSIONS@", &versions.join(" "))
        // The core checks at every quarter of its limit, so it finds a wait at most a quarter of
        // the limit late.
        .replace("@STALL@", &(args.stall * 4 / 5).to_string())
        .replace("@GROWTH@", &args.growth.to_string());
    let policies = built.iter().map(|name| Policy::find(name));
    let policies = policies.collect::<Result<Vec<_>>>()?;
    let kernel = args.kernel.as_deref().map(Kernel::find);
    let kernel = kernel.transpose().map_err(vm_error)?;
    let vm = Vm {
        cpus: args.cpus,
        memory_mb: 3000,
        icount: Some(SHIFT),
        command: vec!["sh".into(), "-c".into(), script],
        tools: vec!["stress-ng".into()],
        files_in: files_for(kernel.as_ref(), &policies, None)?,
        kernel,
        kernel_args: args.append.iter().cloned().collect(),
        timeout: Duration::from_secs(300 + seconds * 6),
        ..Default::default()
    };
    eprintln!(
        "baton: {} for {seconds} s of guest time on {} CPUs",
        args.policy, args.cpus
    );
    boot(&vm, args.log.as_deref(), |_| Ok(()))
}
