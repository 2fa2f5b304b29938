// SPDX-License-Identifier: GPL-2.0-only
//! Loads the core and the policy, starts the policy, attaches the shim and sets the default, in
//! this order. If the command is killed between two steps, the machine continues, and repeating the
//! command completes the load:
//!
//! - core or policy loaded, nothing attached: the kernel's scheduler has all tasks;
//! - shim attached but not pinned: it is detached when this process ends;
//! - shim attached, no default yet: tasks of Baton without a policy run under the fallback.

use std::path::PathBuf;
use std::time::Duration;

use baton_abi::{BatonCoreInfo, BatonPolicyInfo, BatonPolicyState};
use rustix::io::Errno;

use crate::device::{text, Device, Refused};
use crate::error::{Error, Result};
use crate::kernel::{self, Lock};
use crate::modules::{module_of, Search, AGENT_MODULE, CORE, SHIM};
use crate::{shim, tasks, unload};

const STALL_PARAMETER: &str = "/sys/module/baton/parameters/stall_ms";

/// How a policy is loaded.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Options of the policy: KEY=VALUE,KEY=VALUE.
    pub options: Option<String>,
    /// It gets every normal task of the machine, not only those that are attached.
    pub all: bool,
    /// Task slots of the core.
    pub max_tasks: Option<u32>,
    /// The stall limit, ms.
    pub stall: Option<u32>,
    /// Turns of loops that a call is granted.
    pub turns: Option<u32>,
    /// The policy's module, when it is not in the search path.
    pub module: Option<PathBuf>,
}

/// Loads a policy and everything that it needs and that is not loaded yet. If that fails, the
/// machine is restored.
pub fn load(search: &Search, policy: &str, how: &Options) -> Result<Device> {
    kernel::require_root("loading a policy")?;
    let _lock = Lock::take()?;
    require_sched_ext()?;
    let before = Device::open_if_loaded()?
        .map(|device| Before::read(&device, policy))
        .transpose()?;
    load_locked(search, policy, how).map_err(|error| match undo(search, policy, before.as_ref()) {
        Ok(()) => error,
        // The first error matters more than that of the restoration.
        Err(also) => Error {
            what: format!(
                "{}\nand the steps taken were not undone: {}",
                error.what, also.what
            ),
            ..error
        },
    })
}

/// The state before a load.
struct Before {
    core: BatonCoreInfo,
    policy: Option<BatonPolicyInfo>,
    /// The stall limit, as read from the module's parameter.
    stall: String,
}

impl Before {
    fn read(device: &Device, policy: &str) -> Result<Self> {
        let stall = std::fs::read_to_string(STALL_PARAMETER).unwrap_or_default();
        Ok(Self {
            core: device.core()?,
            policy: device.policy(policy)?,
            stall,
        })
    }
}

/// Undoes a failed load. `before` is the state before it, if there was a core. The caller has the
/// lock.
fn undo(search: &Search, policy: &str, before: Option<&Before>) -> Result<()> {
    let Some(before) = before else {
        return unload::everything();
    };
    let Some(device) = Device::open_if_loaded()? else {
        return Ok(());
    };
    // The shim first: a new policy can have got tasks with it.
    let core = device.core()?;
    match before.core.attached {
        0 if core.attached != 0 => shim::detach(&device)?,
        0 => {}
        _ => {
            // A shim that is being detached counts as attached until the kernel has gone through
            // all tasks.
            if !shim::is_pinned() {
                shim::detach(&device)?;
            }
            attach_anew(search, &device, before.core.all != 0)?;
        }
    }
    if let Ok(ms) = before.stall.trim().parse() {
        set_stall(ms)?;
    }
    match &before.policy {
        None => unload::remove_named(&device, policy),
        // A policy that was stopped by a fault, and that this load has not started, keeps its
        // report.
        Some(info)
            if !is_running(info)
                && device.policy(policy)?.is_some_and(|info| is_running(&info)) =>
        {
            let stopped = device.stop(policy).map(|_| ());
            stopped.map_err(|errno| Error::baton(format!("{policy} was not stopped: {errno}")))
        }
        Some(_) => Ok(()),
    }
}

fn is_running(info: &BatonPolicyInfo) -> bool {
    info.state == BatonPolicyState::Running as u32
}

fn load_locked(search: &Search, policy: &str, how: &Options) -> Result<Device> {
    let device = core(search, how)?;
    module(search, &device, policy, how)?;
    start(&device, policy, how)?;
    attach(search, &device, how.all)?;
    if how.all {
        device
            .assign(0, Some(policy), false)
            .map_err(|refused| not_default(policy, &refused))?;
    }
    Ok(device)
}

/// An error unless the kernel has sched_ext, with no scheduler of others attached.
pub fn require_sched_ext() -> Result<()> {
    if !kernel::has_sched_ext() {
        return Err(Error::environment(
            format!("this kernel ({}) has no sched_ext", kernel::release()),
            "boot one with CONFIG_SCHED_CLASS_EXT (Debian: testing's), or use a guest: baton vm \
             run",
        ));
    }
    if let Some(other) = kernel::attached_scheduler().filter(|name| name != "baton") {
        return Err(Error::environment(
            format!("the scheduler {other} is attached to sched_ext, which has only one at a time"),
            "end that one first",
        ));
    }
    Ok(())
}

/// Loads a policy into the loaded core and starts it, without tasks. The caller has the lock.
pub fn prepare(search: &Search, device: &Device, policy: &str, how: &Options) -> Result<()> {
    module(search, device, policy, how)?;
    start(device, policy, how)
}

/// Loads baton.ko, or checks and configures a loaded one. The caller has the lock.
pub fn core(search: &Search, how: &Options) -> Result<Device> {
    let Some(device) = Device::open_if_loaded()? else {
        let mut parameters = Vec::new();
        parameters.extend(how.max_tasks.map(|n| format!("max_tasks={n}")));
        parameters.extend(how.stall.map(|ms| format!("stall_ms={ms}")));
        kernel::load_module(&search.find(CORE)?, &parameters.join(" "))?;
        // The kernel's devtmpfs creates the device node, or udev does a moment later.
        kernel::wait_until(Duration::from_secs(2), || {
            Ok(Device::open_if_loaded()?.is_some())
        })?;
        return Device::open_if_loaded()?.ok_or_else(|| {
            Error::environment(
                "the core is loaded, but /dev/baton is not there",
                "mount devtmpfs on /dev, and load again",
            )
        });
    };
    let slots = device.core()?.max_tasks;
    if let Some(wanted) = how.max_tasks.filter(|wanted| *wanted != slots) {
        return Err(Error::user(
            format!("the core is loaded with {slots} task slots and cannot change to {wanted}"),
            "unload it first (baton unload --everything), or leave out --max-tasks",
        ));
    }
    if let Some(ms) = how.stall {
        set_stall(ms)?;
    }
    Ok(device)
}

/// Sets the stall limit: how long a queued task may wait.
pub fn set_stall(ms: u32) -> Result<()> {
    std::fs::write(STALL_PARAMETER, ms.to_string()).map_err(|e| {
        Error::environment(
            format!("{STALL_PARAMETER} cannot be written: {e}"),
            "run this as root",
        )
    })
}

/// Loads the policy's module unless it is loaded.
fn module(search: &Search, device: &Device, policy: &str, how: &Options) -> Result<()> {
    if device.policy(policy)?.is_some() {
        return Ok(());
    }
    let file = match &how.module {
        Some(file) => file.clone(),
        None => search.find(&module_of(policy))?,
    };
    unload::leftovers(device)?;
    kernel::load_module(&file, "")?;
    if device.policy(policy)?.is_some() {
        return Ok(());
    }
    Err(Error::user(
        format!(
            "{} is loaded, but the policy in it is not called {policy}",
            file.display()
        ),
        "give the policy's own name, which `baton list` shows now",
    ))
}

/// Starts the policy, also one that was stopped by a fault.
fn start(device: &Device, policy: &str, how: &Options) -> Result<()> {
    let gone = || {
        Error::user(
            format!("the policy {policy} was unloaded meanwhile"),
            "load it again",
        )
    };
    let info: BatonPolicyInfo = device.policy(policy)?.ok_or_else(gone)?;
    let options = how.options.as_deref();
    if info.state == BatonPolicyState::Running as u32 {
        let running = text(&info.options);
        return match options.filter(|wanted| *wanted != running) {
            None if how.turns.is_some() => Err(Error::user(
                format!("{policy} is running, and keeps the turns that it was started with"),
                format!("unload it first: baton unload {policy}"),
            )),
            None => Ok(()),
            Some(wanted) => Err(Error::user(
                format!("{policy} is running with the options '{running}', not '{wanted}'"),
                format!("unload it first: baton unload {policy}"),
            )),
        };
    }
    if text(&info.modules[0]) == AGENT_MODULE {
        return Err(Error::user(
            format!("the enclave {policy} has no agent"),
            format!("start one: baton agent run --enclave {policy} POLICY"),
        ));
    }
    if info.state == BatonPolicyState::Faulted as u32 {
        eprintln!("baton: {policy} was stopped by a fault (see baton status) and is started anew");
        device.stop(policy).map_err(|_| gone())?;
    }
    device
        .start(policy, options.unwrap_or(""), how.turns.unwrap_or(0))
        .map_err(|refused| not_started(policy, &refused))
}

pub fn not_started(policy: &str, refused: &Refused) -> Error {
    let Refused { errno, message } = refused;
    match *errno {
        Errno::FAULT => Error::policy(
            policy,
            format!("{policy} faulted while it was created: {message}"),
            format!(
                "fix it, then: baton build {policy} && baton unload {policy} && baton load \
                {policy}"
            ),
        ),
        Errno::INVAL if !message.is_empty() => Error::user(
            format!("{policy} cannot be created: {message}"),
            "check its --options; its source shows which it has",
        ),
        Errno::INVAL => Error::policy(
            policy,
            format!("{policy} cannot be created, and gives no reason"),
            "see the kernel's log (dmesg), and its source (create, or new)",
        ),
        Errno::NOMEM => Error::environment(
            format!("there is no memory for {policy}"),
            "free \
            memory and try again",
        ),
        Errno::NOENT => Error::user(format!("{policy} was unloaded meanwhile"), "load it again"),
        Errno::BUSY => Error::user(
            format!(
                "{policy} was started meanwhile by another \
            command"
            ),
            "see baton status",
        ),
        errno => Error::baton(format!("{policy} was not started: {errno}")),
    }
}

/// Attaches the shim for all normal tasks or for those of class SCHED_EXT. A shim that has all
/// tasks is kept if only some are requested.
pub fn attach(search: &Search, device: &Device, all: bool) -> Result<()> {
    let core = device.core()?;
    if core.attached != 0 && (core.all != 0 || !all) {
        return Ok(());
    }
    if core.attached != 0 {
        let busy: Vec<_> = device
            .policies()?
            .iter()
            .filter(|p| p.tasks > 0)
            .map(|p| text(&p.name))
            .collect();
        if !busy.is_empty() {
            return Err(Error::user(
                format!(
                    "the shim must be attached anew to take every task, but tasks belong to {}",
                    busy.join(", ")
                ),
                "take them back first (baton detach --all), then ask again",
            ));
        }
    }
    let fit = shim::Fit {
        all,
        nr_cpus: core.nr_cpus,
        max_tasks: core.max_tasks,
    };
    // The new shim is loaded first. If the kernel refuses it, the present one stays attached.
    let ready = shim::ready(&search.find(SHIM)?, fit)?;
    if core.attached != 0 {
        shim::detach(device)?;
    }
    ready
        .attach()
        .map_err(|error| match kernel::isolated_cpus() {
            Some(cpus) => Error::environment(
                format!(
                    "the kernel was started with isolcpus={cpus}, with which sched_ext takes no \
                scheduler"
                ),
                "boot without isolcpus=; use affinities, cgroups or baton partition in its place",
            ),
            None => error,
        })?;
    match device.core()?.attached {
        0 => Err(Error::environment(
            "the kernel detached the shim at once",
            "its log says why (dmesg | grep sched_ext)",
        )),
        // From now on the shim knows the tasks, but their policies are not determined yet.
        _ => device.apply_rules(),
    }
}

/// Attaches the shim for all normal tasks (`all`), or for exactly those of class SCHED_EXT. If it
/// is attached for the other set, it is detached first: for a moment the kernel's scheduler has all
/// tasks.
pub fn attach_anew(search: &Search, device: &Device, all: bool) -> Result<()> {
    let core = device.core()?;
    if core.attached != 0 && (core.all != 0) != all {
        tasks::take_all(device, None)?;
        if let Err(error) = shim::detach(device) {
            device.apply_rules()?;
            return Err(error);
        }
    }
    attach(search, device, all)
}

/// Attaches the shim for class SCHED_EXT alone. Tasks of other classes return to the kernel's
/// scheduler.
pub fn attach_partial(search: &Search, device: &Device) -> Result<()> {
    attach_anew(search, device, false)
}

/// The policy refuses a task, or all tasks, for this reason, or has failed when it was asked.
pub fn unwanted(policy: &str, what: &str, refused: &Refused) -> Error {
    let Refused { errno, message } = refused;
    match *errno {
        Errno::FAULT => Error::policy(
            policy,
            format!("{policy} faulted when it was asked to have {what}: {message}"),
            "fix its `may_have` (in C: `attach`, `can_be_default`), which takes no lock",
        ),
        _ => Error::policy(
            policy,
            format!("{policy} refuses to have {what}: {message}"),
            "give it others, or change its `may_have` (in C: `attach`, `can_be_default`)",
        ),
    }
}

pub fn not_default(policy: &str, refused: &Refused) -> Error {
    match refused.errno {
        Errno::ACCESS | Errno::FAULT => unwanted(policy, "all tasks", refused),
        Errno::NODEV => Error::policy(
            policy,
            format!("{policy} is not running, so it gets no tasks"),
            "see its fault: baton status",
        ),
        Errno::NOENT => Error::user(format!("{policy} was unloaded meanwhile"), "load it again"),
        other => Error::baton(format!("{policy} was not made the default: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Blame;

    #[test]
    fn a_policy_that_is_not_started() {
        let check = |errno, message: &str, blame: Blame, word: &str| {
            let error = not_started(
                "wfq",
                &Refused {
                    errno,
                    message: message.into(),
                },
            );
            assert_eq!(error.blame, blame);
            assert!(error.to_string().contains(word), "{error}");
        };
        check(
            Errno::INVAL,
            "the policy has no option k; it has none",
            Blame::User,
            "no option k",
        );
        check(
            Errno::INVAL,
            "",
            Blame::Policy("wfq".into()),
            "gives no reason",
        );
        check(
            Errno::FAULT,
            "boom, src/lib.rs:7",
            Blame::Policy("wfq".into()),
            "boom, src/lib.rs:7",
        );
        check(Errno::NOMEM, "", Blame::Environment, "memory");
        check(Errno::IO, "", Blame::Baton, "not started");
    }
}
