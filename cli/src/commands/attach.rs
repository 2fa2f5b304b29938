// SPDX-License-Identifier: GPL-2.0-only
//! `baton attach` and `baton detach`: the assignment of tasks to policies.

use std::process::ExitCode;

use baton_abi::BatonPolicyState;

use crate::cli::{Attach, Detach, Which};
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};
use baton_control::load;
use baton_control::modules::Search;
use baton_control::{cgroups, shim, tasks};

pub fn attach(search: &Search, args: &Attach) -> Result<ExitCode> {
    kernel::require_root("giving tasks to a policy")?;
    let policy = args.policy.as_str();
    let device = Device::open()?;
    let info = device.policy(policy)?;
    match info.map(|info| info.state) {
        None => {
            return Err(Error::user(
                format!("no policy {policy} is loaded"),
                format!("load it: baton load {policy}"),
            ))
        }
        Some(state) if state == BatonPolicyState::Running as u32 => {}
        Some(_) => {
            return Err(Error::user(
                format!("the policy {policy} is not running"),
                format!("see its fault (baton status), and start it: baton load {policy}"),
            ))
        }
    }
    let _lock = Lock::take()?;
    if args.which.all {
        // Before anything changes, as the policy may refuse.
        device
            .assign(0, Some(policy), false)
            .map_err(|refused| load::not_default(policy, &refused))?;
        if let Err(error) = load::attach(search, &device, true) {
            // The error is why it is not attached.
            let _ = device.assign(0, None, false);
            return Err(error);
        }
        eprintln!("baton: every normal task without a policy of its own is given to {policy}");
        return Ok(ExitCode::SUCCESS);
    }
    if device.core()?.attached == 0 {
        load::attach(search, &device, false)?;
    }
    if let Some(cgroup) = &args.which.cgroup {
        cgroups::give(&device, &cgroups::find(cgroup)?, policy)?;
        eprintln!(
            "baton: all tasks in {} or below it, now and later, belong to {policy}",
            cgroup.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let given = tasks::give_all(&device, policy, || threads(&args.which, args.threads))?;
    eprintln!("baton: threads given to {policy}, with all that they will start: {given}");
    Ok(ExitCode::SUCCESS)
}

pub fn detach(search: &Search, args: &Detach) -> Result<ExitCode> {
    kernel::require_root("taking tasks from a policy")?;
    let device = Device::open()?;
    let _lock = Lock::take()?;
    if !args.which.all {
        if let Some(cgroup) = &args.which.cgroup {
            if cgroups::take(&device, &cgroups::find(cgroup)?)? {
                eprintln!(
                    "baton: the cgroup {} has no policy of its own any more",
                    cgroup.display()
                );
                return Ok(ExitCode::SUCCESS);
            }
        }
        let list = threads(&args.which, args.threads)?;
        for pid in &list {
            tasks::take(&device, *pid)?;
        }
        // The cgroup of a task that was assigned by itself determines its policy again.
        device.apply_rules()?;
        eprintln!(
            "baton: threads without a policy of their own now: {}",
            list.len()
        );
        return Ok(ExitCode::SUCCESS);
    }
    for (cgroup, _) in device.rules()? {
        // The rule of a removed cgroup is gone with it.
        let _ = device.set_rule(cgroup, None);
    }
    device
        .assign(0, None, false)
        .map_err(|e| Error::baton(format!("the default was not taken back: {}", e.errno)))?;
    let core = device.core()?;
    if core.attached != 0 && core.all != 0 {
        load::attach_partial(search, &device)?;
    } else {
        tasks::take_all(&device, None)?;
    }
    if device.core()?.attached == 0 && shim::is_pinned() {
        shim::remove_stale_pin();
    }
    eprintln!("baton: all tasks are back with the kernel's scheduler");
    Ok(ExitCode::SUCCESS)
}

/// The selected threads, as they are now.
fn threads(which: &Which, whole_process: bool) -> Result<Vec<u32>> {
    match (which.pid, &which.cgroup) {
        (Some(pid), _) if whole_process => tasks::threads_of(pid),
        (Some(pid), _) => Ok(vec![pid]),
        (None, Some(cgroup)) => cgroups::threads(&cgroups::find(cgroup)?),
        (None, None) => Ok(Vec::new()),
    }
}
