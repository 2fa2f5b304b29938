// SPDX-License-Identifier: GPL-2.0-only
//! Takes a policy's tasks from it, stops the policy and unloads its module; with the last policy
//! also the shim and the core. If the command is killed between two steps, repeating it does the
//! rest.

use baton_abi::BatonPolicyInfo;
use rustix::io::Errno;

use crate::device::{text, Device};
use crate::enclaves::Enclaves;
use crate::error::{Error, Result};
use crate::kernel::{self, Lock};
use crate::modules::AGENT_MODULE;
use crate::{shim, tasks};

/// Removes a policy, or without a name all that Baton has in the kernel.
pub fn unload(policy: Option<&str>) -> Result<()> {
    kernel::require_root("unloading")?;
    let _lock = Lock::take()?;
    policy.map_or_else(everything, one)
}

/// Takes back a policy's tasks and removes the policy. The caller has the lock.
pub fn one(policy: &str) -> Result<()> {
    let not_loaded = || {
        Error::user(
            format!("no policy {policy} is loaded"),
            "see which policies are: baton list",
        )
    };
    let device = Device::open_if_loaded()?.ok_or_else(not_loaded)?;
    let info = device.policy(policy)?.ok_or_else(not_loaded)?;
    let core = device.core()?;
    if device.policies()?.len() == 1 {
        // An open device would keep the core loaded.
        drop(device);
        return everything();
    }
    for (cgroup, _) in device.rules()?.iter().filter(|(_, owner)| owner == policy) {
        // The cgroup may have been removed, and the rule with it.
        let _ = device.set_rule(*cgroup, None);
    }
    tasks::take_all(&device, Some(info.id))?;
    let failure = remove(&device, &info)?;
    leftovers(&device)?;
    // A task that was assigned individually may be in a cgroup that is assigned to another policy.
    device.apply_rules()?;
    if core.all != 0 && core.default_policy == info.id {
        eprintln!(
            "baton: {policy} had every normal task; they run first come, first served now.\n\
             baton: give them to another (baton attach POLICY --all), or back to the kernel (baton \
             detach --all)"
        );
    }
    failure.map_or(Ok(()), Err)
}

/// Removes all parts of Baton from the kernel. The caller has the lock.
pub fn everything() -> Result<()> {
    let Some(device) = Device::open_if_loaded()? else {
        shim::remove_stale_pin();
        return kernel::unload_module("baton");
    };
    for (cgroup, _) in device.rules()? {
        let _ = device.set_rule(cgroup, None);
    }
    if device.core()?.attached != 0 {
        tasks::take_all(&device, None)?;
        // The shim is detached before the policies are stopped, so that no task runs under the
        // fallback.
        shim::detach(&device)?;
    }
    let mut failure = None;
    for info in device.policies()? {
        failure = failure.or(remove(&device, &info)?);
    }
    leftovers(&device)?;
    shim::remove_stale_pin();
    drop(device);
    if !kernel::remove_module("baton")? {
        eprintln!(
            "baton: baton.ko stays loaded while applications have /dev/baton-hints open; it has no \
             task and no policy.\n\
             baton: to unload it, too: end them, and then: baton unload --everything"
        );
    }
    failure.map_or(Ok(()), Err)
}

/// Unloads the modules of versions that no policy knows of. A command that was killed has left
/// them. They would keep the core loaded and their names in use. The caller has the lock, so no
/// other command is about to use them.
pub fn leftovers(device: &Device) -> Result<()> {
    let unused = kernel::unused_holders();
    let policies = device.policies()?;
    let known: Vec<String> = policies
        .iter()
        .flat_map(|info| info.modules.iter().map(|name| text(name)))
        .collect();
    let unknown = unused.iter().filter(|&name| !known.contains(name));
    unknown
        .map(String::as_str)
        .try_for_each(kernel::unload_module)
}

/// Stops a policy that has no tasks, and removes its module. The caller has the lock.
pub fn remove_named(device: &Device, policy: &str) -> Result<()> {
    let failure = device
        .policy(policy)?
        .map_or(Ok(None), |info| remove(device, &info))?;
    failure.map_or(Ok(()), Err)
}

/// Stops a policy and removes its module. A failure of the policy in its `Drop` does not prevent
/// that, and is returned.
fn remove(device: &Device, info: &BatonPolicyInfo) -> Result<Option<Error>> {
    let policy = &text(&info.name);
    if text(&info.modules[0]) == AGENT_MODULE {
        return remove_enclave(policy).map(|()| None);
    }
    let failure = match device.stop(policy) {
        Ok(message) => message.map(|message| failed_at_end(policy, &message)),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(Error::baton(format!("{policy} was not stopped: {errno}"))),
    };
    // The current version is unloaded last, as the policy goes with it.
    for name in info
        .modules
        .iter()
        .rev()
        .map(|name| text(name))
        .filter(|name| !name.is_empty())
    {
        kernel::unload_module(&name)?;
    }
    match device.policy(policy)? {
        None => Ok(failure),
        Some(_) => Err(Error::user(
            format!(
                "{policy} is stopped, but its module is still loaded: another command is at \
                work on it"
            ),
            format!("try again: baton unload {policy}"),
        )),
    }
}

/// Removes an enclave, and with the last one their module.
fn remove_enclave(name: &str) -> Result<()> {
    let Some(enclaves) = Enclaves::open_if_loaded()? else {
        return Ok(());
    };
    if enclaves.find(name)?.is_some() {
        enclaves.destroy(name)?;
    }
    if !enclaves.list()?.is_empty() {
        return Ok(());
    }
    // The open device would keep the module loaded.
    drop(enclaves);
    if !kernel::remove_module(AGENT_MODULE)? {
        eprintln!(
            "baton: {AGENT_MODULE}.ko stays loaded while a process has an enclave's device open; \
             it has no enclave.\n\
             baton: to unload it, too: end that process, and then: baton unload --everything"
        );
    }
    Ok(())
}

/// The error of a policy that failed in its `Drop`.
pub fn failed_at_end(policy: &str, message: &str) -> Error {
    Error::policy(
        policy,
        format!("{policy} is stopped, but failed when it was destroyed: {message}"),
        "fix its Drop (destroy in C); its memory was freed, and nothing of it is left",
    )
}
