// SPDX-License-Identifier: GPL-2.0-only
//! The guests in which `baton bench` runs itself with `--here`, and their reports.

use std::time::Duration;

use baton_build::guest::{guest_files, vm_error};
use baton_vm::{FileIn, Outcome, Vm};
use serde::de::DeserializeOwned;

use crate::arguments::{Arguments, What};
use crate::programs::EXAMPLES;
use crate::subject::Subject;
use baton_control::error::{Error, Result};

/// Where a guest leaves its report.
pub const REPORT_IN_GUEST: &str = "/tmp/report.json";
/// For one boot. Half a minute is usual for the boot alone, on a busy machine more.
pub const TIMEOUT: Duration = Duration::from_secs(1800);

/// Boots one guest for a bench that has a report of its own, and gives that.
pub fn report_of_guest<T: DeserializeOwned>(
    args: &Arguments,
    cpus: u32,
    files_in: Vec<FileIn>,
) -> Result<T> {
    eprintln!("baton: booting a guest with {cpus} CPUs that counts instructions");
    let vm = Vm {
        cpus,
        icount: Some(0),
        command: guest_command(args),
        tools: Vec::new(),
        files_in,
        files_out: vec![REPORT_IN_GUEST.into()],
        timeout: TIMEOUT,
        ..Default::default()
    };
    let outcome = vm.run(&mut std::io::stderr()).map_err(vm_error)?;
    report_of(&outcome, args.what)
}

/// What a guest measured. Without it the fault is whose the program in the guest says it is: its
/// exit code is that of [`Error`], and its last words name the policy.
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
            format!("mend it, and try it alone with: baton vm run -p {policy} --all -- hackbench"),
        )),
        None => Err(Error::environment(
            format!(
                "the guest measured nothing (exit code {}); its messages are \
                above",
                outcome.exit_code
            ),
            format!(
                "do as they say, or see more with: baton vm run -- baton bench {} \
                --here",
                what.name()
            ),
        )),
    }
}

/// What a guest needs for these subjects, built first when missing or stale.
pub fn guest_with(subjects: &[Subject]) -> Result<Vec<FileIn>> {
    let policies = subjects
        .iter()
        .filter_map(Subject::policy)
        .collect::<Result<Vec<_>>>()?;
    let mut files = guest_files(&policies)?;
    if subjects.iter().any(|s| matches!(s, Subject::Scx { .. })) {
        files.extend(EXAMPLES.for_guest(&["scx_simple", "scx_central", "scx_userland"])?);
    }
    Ok(files)
}

/// Standard error is the guest's console, so the report goes into a file.
pub fn guest_command(args: &Arguments) -> Vec<String> {
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
    let bench = format!(
        "baton bench {} --here --icount --json {runs}{subjects}",
        args.what.name()
    );
    [
        "sh".into(),
        "-c".into(),
        format!("{bench} >{REPORT_IN_GUEST}"),
    ]
    .into()
}
