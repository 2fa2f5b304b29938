// SPDX-License-Identifier: GPL-2.0-only
//! What a guest needs to run policies, and the errors of guests.

use std::io::Write;
use std::path::Path;

use baton_control::error::{Error, Result};
use baton_control::modules::{library_of, module_of, AGENT, CORE, CORES, LATENCY, SHIM};
use baton_vm::{kernel_log, FileIn, Kernel};

use crate::{build_for, Policy, Target};

/// This program's place in a guest.
pub const BATON: &str = "/usr/bin/baton";

/// The files that a guest with this kernel, or with that of the root, needs for these policies, and
/// for `baton agent run` with the policies `agents`. `None`: the guest has no agents. They are
/// built first if they are missing or stale. This program is always among them.
pub fn files_for(
    kernel: Option<&Kernel>,
    policies: &[Policy],
    agents: Option<&[Policy]>,
) -> Result<Vec<FileIn>> {
    let own = std::env::current_exe().map_err(|e| Error::file("looking for this program", &e))?;
    let mut files = vec![FileIn {
        host: own,
        guest: BATON.into(),
    }];
    if policies.is_empty() && agents.is_none() {
        return Ok(files);
    }
    let kernel = kernel
        .cloned()
        .map_or_else(Kernel::of_root, Ok)
        .map_err(vm_error)?;
    let mut take = |dir: &Path, file: &str| {
        files.push(FileIn {
            host: dir.join(file),
            guest: format!("/usr/lib/baton/{}/{file}", kernel.release),
        });
    };
    build_for(&kernel.release);
    let out = Target::Core.ensure()?;
    take(&out, CORE);
    take(&out, SHIM);
    take(&out, LATENCY);
    take(&out, CORES);
    for policy in policies {
        take(&Target::Policy(policy).ensure()?, &module_of(&policy.name));
    }
    if let Some(agents) = agents {
        take(&Target::Agent.ensure()?, AGENT);
        for policy in agents {
            take(&Target::Native(policy).ensure()?, &library_of(&policy.name));
        }
    }
    Ok(files)
}

/// The error of a command whose guest failed. A guest that died in a policy is that policy's fault.
pub fn vm_error(error: baton_vm::Error) -> Error {
    // Output of a guest that died must come before the report about it.
    let _ = std::io::stdout().flush();
    let text = error.to_string();
    match error {
        baton_vm::Error::User(_) => Error::user(text, "see baton vm run --help"),
        baton_vm::Error::Environment(_) | baton_vm::Error::Io { .. } => {
            Error::environment(text, "`baton doctor` says what a guest needs")
        }
        baton_vm::Error::TimedOut { log, is_stuck, .. } => match policy_at_fault(&log) {
            Some((policy, place)) => Error::policy(
                policy,
                format!(
                    "{text}\nA CPU does not return from the policy {policy}: it is at \
                    {place}"
                ),
                "let that loop end by itself, or build the policy with polls (docs/faults.md); the \
                 whole log: --log FILE",
            ),
            None if log.is_empty() => Error::user(
                text,
                "the kernel did not begin: give it more --memory, or more \
                    --timeout",
            ),
            None if is_stuck => Error::baton(format!(
                "{text}\nA policy or Baton does not return; with --cpus 1 the kernel says where"
            )),
            None => Error::user(
                text,
                "give it more --timeout, or find out what it waits for",
            ),
        },
        baton_vm::Error::Died { log, .. } => died(text, &log),
        baton_vm::Error::Complaints {
            complaints,
            outcome,
        } => match policy_at_fault(&outcome.kernel_log) {
            Some((policy, place)) => Error::policy(
                policy,
                format!("{text}\nIt was in the policy {policy}, at {place}"),
                "fix that place; the kernel's whole log: --log FILE",
            ),
            None => complained(&complaints, outcome.exit_code),
        },
    }
}

fn complained(complaints: &[String], exit_code: i32) -> Error {
    let complaints = complaints.join("\n  ");
    Error::baton(format!(
        "the command ended with {exit_code}, but the guest's kernel complained:\n  {complaints}"
    ))
}

/// The policy in whose code the kernel died or was stuck, and where.
fn policy_at_fault(log: &str) -> Option<(&str, String)> {
    let culprit = kernel_log::culprit(log)?;
    let (function, offset) = culprit
        .place
        .split_once('+')
        .unwrap_or((culprit.place, "0"));
    Some((
        culprit.module.strip_prefix("baton_")?,
        format!("{:#}+{offset}", rustc_demangle::demangle(function)),
    ))
}

fn died(text: String, log: &str) -> Error {
    let has = |words: &str| log.contains(words);
    match policy_at_fault(log) {
        Some((policy, place)) => Error::policy(
            policy,
            format!("{text}\nIt died in the policy {policy}, at {place}"),
            format!("fix that place; the simulator contains such errors: baton sim {policy}"),
        ),
        None if has("Initramfs unpacking failed")
            || has("System is deadlocked on \
            memory")
            || has("Out of memory")
            // The kernel's first threads could not be made.
            || has("RIP: 0010:rest_init") =>
        {
            Error::user(
                text,
                "it has too little memory for its files and the command: give it \
                more --memory",
            )
        }
        None if has("reboot: ") && !has("Kernel panic") => Error::user(
            text,
            "the guest rebooted or was switched off by what ran in it: have the \
                command end instead",
        ),
        None => Error::baton(text),
    }
}
