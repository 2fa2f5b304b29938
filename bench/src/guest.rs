// SPDX-License-Identifier: GPL-2.0-only
//! The guests in which `baton bench` runs itself with `--here`, and their reports.

use std::path::PathBuf;
use std::time::Duration;

use baton_build::guest::{files_for, vm_error};
use baton_vm::{FileIn, Outcome, Vm};
use serde::de::DeserializeOwned;

use crate::arguments::{Arguments, What};
use crate::programs::EXAMPLES;
use crate::subject::Subject;
use baton_control::error::{Error, Result};

/// The guest's file for its report.
pub const REPORT_IN_GUEST: &str = "/tmp/report.json";
/// The timeout of one boot. The boot itself usually takes half a minute, more on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// What a guest is given besides its CPUs.
#[derive(Clone, Default)]
pub struct Needs {
    /// Programs of this machine.
    pub tools: &'static [&'static str],
    pub files: Vec<FileIn>,
    /// Memory, MiB; the default of guests if absent.
    pub memory_mb: Option<u32>,
    /// The plugin that counts the instructions of each CPU. Without it, the guest's clock counts
    /// those of all CPUs.
    pub counter: Option<PathBuf>,
}

/// Boots one guest, in which the bench runs. Returns its report, and whether the bench succeeded
/// there.
pub fn boot<T: DeserializeOwned>(args: &Arguments, cpus: u32, needs: Needs) -> Result<(T, bool)> {
    eprintln!("baton: booting a guest with {cpus} CPUs that counts instructions");
    let usual = Vm::default();
    let vm = Vm {
        cpus,
        icount: needs.counter.is_none().then_some(0),
        command: guest_command(args, needs.counter.is_some()),
        counter: needs.counter,
        tools: needs.tools.iter().map(|tool| tool.to_string()).collect(),
        files_in: needs.files,
        memory_mb: needs.memory_mb.unwrap_or(usual.memory_mb),
        files_out: vec![REPORT_IN_GUEST.into()],
        timeout: TIMEOUT,
        ..usual
    };
    let outcome = vm.run(&mut std::io::stderr()).map_err(vm_error)?;
    let report = report_of(&outcome, args.what)?;
    Ok((report, outcome.exit_code == 0))
}

/// Boots one guest for a bench with its own kind of report, and returns that report.
pub fn report_of_guest<T: DeserializeOwned>(
    args: &Arguments,
    cpus: u32,
    files: Vec<FileIn>,
) -> Result<T> {
    let needs = Needs {
        files,
        ..Needs::default()
    };
    boot(args, cpus, needs).map(|(report, _)| report)
}

/// The report of a guest. If there is none, the fault is the one that the program in the guest
/// reported: its exit code is that of [`Error`], and its last lines name the policy.
pub fn report_of<T: DeserializeOwned>(outcome: &Outcome, what: What) -> Result<T> {
    const POLICY: u8 = 4;
    let file = outcome.files.get(REPORT_IN_GUEST);
    if let Some(report) = file.and_then(|file| serde_json::from_slice(file).ok()) {
        return Ok(report);
    }
    let output = String::from_utf8_lossy(&outcome.output);
    let policy = output
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("at fault: the policy "));
    match policy.filter(|_| outcome.exit_code == i32::from(POLICY)) {
        Some(policy) => Err(Error::policy(
            policy,
            format!(
                "the policy {policy} failed in the guest, so there are no numbers; its fault \
                is above"
            ),
            format!("fix it, and try it alone with: baton vm run -p {policy} --all -- hackbench"),
        )),
        None => Err(Error::environment(
            format!(
                "the guest wrote no report (exit code {}); its messages are \
                above",
                outcome.exit_code
            ),
            format!(
                "follow them, or see more with: baton vm run -- baton bench {} \
                --here",
                what.name()
            ),
        )),
    }
}

/// The files that a guest needs for these subjects. Those that are missing or stale are built
/// first.
pub fn guest_with(subjects: &[Subject]) -> Result<Vec<FileIn>> {
    let policies = subjects.iter().filter_map(Subject::policy);
    let policies = policies.collect::<Result<Vec<_>>>()?;
    let agents = subjects.iter().filter_map(Subject::policy_of_agent);
    let agents = agents.collect::<Result<Vec<_>>>()?;
    let has_agents = subjects.iter().any(|s| matches!(s, Subject::Agent { .. }));
    let agents = has_agents.then_some(&agents[..]);
    let mut files = files_for(None, &policies, agents)?;
    if subjects.iter().any(|s| matches!(s, Subject::Scx { .. })) {
        files.extend(EXAMPLES.for_guest(&[
            "scx_simple",
            "scx_central",
            "scx_userland",
            "scx_fifo",
        ])?);
    }
    Ok(files)
}

/// The command in the guest. Its report goes to a file, because standard error is the guest's
/// console.
fn guest_command(args: &Arguments, is_counted: bool) -> Vec<String> {
    let subjects: String = args
        .subjects()
        .iter()
        .map(|s| format!(" --subject '{}'", s.name()))
        .collect();
    let runs = if args.quick {
        "--quick".into()
    } else {
        format!("--runs {}", args.runs())
    };
    let clock = if is_counted { "--counted" } else { "--icount" };
    let bench = format!(
        "baton bench {} --here {clock} --json {runs}{subjects}",
        args.what.name()
    );
    [
        "sh".into(),
        "-c".into(),
        format!("{bench} >{REPORT_IN_GUEST}"),
    ]
    .into()
}
