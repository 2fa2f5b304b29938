// SPDX-License-Identifier: GPL-2.0-only
//! Upgrade and rollback: another version of a policy takes the place of the one that runs.
//!
//! The new version's module is loaded first, under a name of its own, and stays passive. Then one
//! request exchanges the versions. Then the module of the version that is no longer kept is
//! unloaded. If the command is killed between two steps, one of the two versions runs, and
//! repeating the command first removes modules that were left.

use std::path::Path;
use std::time::Duration;

use baton_abi::{BatonPolicyInfo, BatonPolicyState, BatonStateType, BatonUpgrade};
use rustix::io::Errno;

use crate::device::{text, Device, BLOCKS_PER_MIB};
use crate::error::{Error, Result};
use crate::status::{self, Change};
use crate::{kernel, load, recording, unload};

/// Which of a policy's modules is which (`BatonPolicyInfo::modules`).
const CURRENT: usize = 0;
const NEXT: usize = 1;
const BEFORE: usize = 2;

/// Loads the module as the next version, and exchanges the two.
pub fn exchange(
    device: &Device,
    policy: &str,
    file: &Path,
    options: Option<&str>,
    probation: Option<Duration>,
) -> Result<Change> {
    try_exchange(device, policy, file, options, probation)?
        .map_err(|(errno, answer)| refused(policy, errno, &answer))
}

/// The same as [`exchange`]; the inner error is a refusal of the core.
fn try_exchange(
    device: &Device,
    policy: &str,
    file: &Path,
    options: Option<&str>,
    probation: Option<Duration>,
) -> Result<std::result::Result<Change, (Errno, Box<BatonUpgrade>)>> {
    let info = running(device, policy)?;
    not_current(device, &info)?;
    let name = free_name(policy, &info);
    kernel::load_module_as(file, &name)?;
    let options = options.map_or_else(|| text(&info.options), str::to_owned);
    let probation = probation.map_or(0, |p| p.as_millis().try_into().unwrap_or(u32::MAX));
    let (result, answer) = device.upgrade(policy, &options, false, probation);
    match result {
        Ok(()) => {
            unload_version(&info, BEFORE)?;
            Ok(Ok(status::change(&answer.change)))
        }
        Err(errno) => {
            kernel::unload_module(&name)?;
            Ok(Err((errno, Box::new(answer))))
        }
    }
}

/// Changes the options of a running policy: by an upgrade to itself, or, if it hands over no state,
/// by a restart, for which its tasks are without a policy for a moment.
pub fn change_options(device: &Device, policy: &str, file: &Path, options: &str) -> Result<()> {
    match try_exchange(device, policy, file, Some(options), None)? {
        Ok(_) => Ok(()),
        Err((Errno::PROTOTYPE, answer)) if answer.running.name[0] == 0 => {
            restart(device, policy, options)
        }
        Err((errno, answer)) => Err(refused(policy, errno, &answer)),
    }
}

/// Undoes [`change_options`].
pub fn undo_options(device: &Device, policy: &str, options: &str) -> Result<()> {
    let info = running(device, policy)?;
    if info.modules[BEFORE][0] == 0 {
        return restart(device, policy, options);
    }
    rollback(device, policy).map(drop)
}

fn restart(device: &Device, policy: &str, options: &str) -> Result<()> {
    let info = running(device, policy)?;
    let is_default = device.core()?.default_policy == info.id;
    let message = device
        .stop(policy)
        .map_err(|errno| Error::baton(format!("{policy} was not stopped: {errno}")))?;
    message.inspect(|message| eprintln!("baton: {}", unload::failed_at_end(policy, message)));
    let started = device
        .start(policy, options, 0)
        .map_err(|refused| load::not_started(policy, &refused));
    if started.is_err() {
        let as_before = device.start(policy, &text(&info.options), 0);
        as_before.map_err(|refused| load::not_started(policy, &refused))?;
    }
    if is_default {
        device
            .assign(0, Some(policy), false)
            .map_err(|refused| load::not_default(policy, &refused))?;
    }
    if info.flight != 0 {
        recording::set_flight(device, policy, info.flight / BLOCKS_PER_MIB)?;
    }
    started
}

/// Brings back the version before, and unloads the one that ran. The caller has the lock.
pub fn rollback(device: &Device, policy: &str) -> Result<Change> {
    running(device, policy)?;
    let change = bring_back(device, policy)?;
    not_current(device, &running(device, policy)?)?;
    Ok(change)
}

/// Brings back the version before; the module of the one that ran stays loaded.
pub fn bring_back(device: &Device, policy: &str) -> Result<Change> {
    let (result, answer) = device.upgrade(policy, "", true, 0);
    result.map_err(|errno| refused(policy, errno, &answer))?;
    Ok(status::change(&answer.change))
}

fn running(device: &Device, policy: &str) -> Result<BatonPolicyInfo> {
    let info = device.policy(policy)?.ok_or_else(|| {
        Error::user(
            format!("no policy {policy} is loaded"),
            format!("load it: baton load {policy}"),
        )
    })?;
    if info.state == BatonPolicyState::Running as u32 {
        return Ok(info);
    }
    Err(Error::user(
        format!("{policy} is not running"),
        format!("start it: baton load {policy} (baton status says why it is not)"),
    ))
}

/// Unloads the versions that are neither current nor kept: one that was rolled back, and those that
/// a killed command has left.
fn not_current(device: &Device, info: &BatonPolicyInfo) -> Result<()> {
    unload_version(info, NEXT)?;
    unload::leftovers(device)
}

fn unload_version(info: &BatonPolicyInfo, which: usize) -> Result<()> {
    match text(&info.modules[which]) {
        name if name.is_empty() => Ok(()),
        name => kernel::unload_module(&name),
    }
}

/// A name that no module of the policy has: `baton_wfq_2` and so on.
fn free_name(policy: &str, info: &BatonPolicyInfo) -> String {
    let taken = [text(&info.modules[CURRENT]), text(&info.modules[BEFORE])];
    let mut names = (2..).map(|n| format!("baton_{policy}_{n}"));
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}

fn type_name(t: &BatonStateType) -> String {
    let name: Vec<u8> = t.name.iter().map(|c| *c as u8).collect();
    match text(&name) {
        name if name.is_empty() => "none".into(),
        name => format!("{name} version {} (layout {:016x})", t.version, t.layout),
    }
}

fn refused(policy: &str, errno: Errno, answer: &BatonUpgrade) -> Error {
    let message = text(&answer.message);
    let goes_on = "the running version goes on as before";
    match errno {
        Errno::PROTOTYPE => {
            let (state, older) = (type_name(&answer.state), type_name(&answer.older));
            let takes = if state == older {
                state
            } else {
                format!("{state}, or converts {older}")
            };
            Error::policy(
                policy,
                format!(
                    "{policy} was not upgraded: {message}\n  running:  hands on {}\n  new:      \
                     takes {takes}",
                    type_name(&answer.running)
                ),
                format!(
                    "have the new version convert that state (Upgrade::Older), or load it in \
                    its place: baton unload {policy}; {goes_on}"
                ),
            )
        }
        Errno::FAULT => Error::policy(policy, message, format!("fix it; {goes_on}")),
        Errno::INVAL if !message.is_empty() => Error::policy(
            policy,
            message,
            format!("check its --options, and its source; {goes_on}"),
        ),
        Errno::NODEV | Errno::NOENT if !message.is_empty() => {
            Error::user(format!("{policy}: {message}"), "see baton status")
        }
        Errno::NOENT => Error::user(
            format!("{policy} was unloaded meanwhile"),
            format!("load it: baton load {policy}"),
        ),
        Errno::NOTTY => Error::user(
            "the core in the kernel is of another version and cannot exchange versions",
            "unload it with the command it came with, or restart the machine",
        ),
        Errno::NOMEM => Error::environment(
            "there is no memory for it",
            format!("free memory and try again; {goes_on}"),
        ),
        other => Error::baton(format!("{policy} was not upgraded: {other}")),
    }
}
