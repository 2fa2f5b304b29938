// SPDX-License-Identifier: GPL-2.0-only
//! Tasks of the machine: the threads of a process, their scheduling class, and assignment to
//! policies.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use baton_abi::BatonCoreInfo;
use rustix::io::Errno;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::load;

/// `SCHED_EXT` of the kernel's uapi.
const SCHED_EXT: u32 = 7;

/// Is the thread of class SCHED_EXT? False if it has ended.
fn is_ext(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| policy_in_stat(&stat) == Some(SCHED_EXT))
}

/// Field 41 of a stat file. The name, field 2, may contain any character, but it ends at the last
/// parenthesis.
fn policy_in_stat(stat: &str) -> Option<u32> {
    let (_, from_third) = stat.rsplit_once(')')?;
    from_third.split_whitespace().nth(41 - 3)?.parse().ok()
}

/// All threads of the process to which thread `pid` belongs.
pub fn threads_of(pid: u32) -> Result<Vec<u32>> {
    let dir = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&dir).map_err(|_| no_thread(pid))?;
    Ok(entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect())
}

fn no_thread(pid: u32) -> Error {
    Error::user(
        format!("there is no thread {pid}"),
        "check the number: ps -eLf",
    )
}

/// Assigns a thread to a policy. If Baton has all normal tasks, the thread's class is not changed.
pub fn give(device: &Device, core: &BatonCoreInfo, pid: u32, policy: &str) -> Result<()> {
    device
        .assign(pid, Some(policy), core.all == 0)
        .map_err(|refused| match refused.errno {
            Errno::ACCESS | Errno::FAULT => {
                load::unwanted(policy, &format!("thread {pid}"), &refused)
            }
            Errno::NOENT => Error::user(
                format!("no policy {policy} is loaded"),
                format!(
                    "load it: \
            baton load {policy}"
                ),
            ),
            Errno::SRCH if Path::new(&format!("/proc/{pid}")).exists() => Error::user(
                format!(
                    "thread {pid} cannot be given to a policy: it has no task slot ({} are in \
                use)",
                    core.tasks
                ),
                "load the core with more: baton unload --everything, then baton load POLICY \
             --max-tasks N",
            ),
            Errno::SRCH => no_thread(pid),
            Errno::INVAL => Error::user(
                format!(
                    "thread {pid} is a real-time or deadline task, whose class Baton leaves alone"
                ),
                format!("make it a normal task first: chrt --other --pid 0 {pid}"),
            ),
            Errno::PERM => Error::environment(
                format!("thread {pid} may not be given away"),
                "run this \
            as root",
            ),
            other => Error::baton(format!("thread {pid} was not given to {policy}: {other}")),
        })
}

/// Assigns all these threads to a policy, and threads that they start meanwhile: `list` is called
/// again until it returns no new thread. Returns the number of assigned threads. Threads that end
/// meanwhile are an error only if all have ended. After another error none is assigned.
pub fn give_all(
    device: &Device,
    policy: &str,
    list: impl Fn() -> Result<Vec<u32>>,
) -> Result<usize> {
    let core = device.core()?;
    let mut tried = BTreeSet::new();
    let mut given = Vec::new();
    let mut gone = None;
    loop {
        let new: Vec<u32> = list()?
            .into_iter()
            .filter(|pid| !tried.contains(pid))
            .collect();
        if new.is_empty() {
            let is_any = !given.is_empty();
            return gone.filter(|_| !is_any).map_or(Ok(given.len()), Err);
        }
        for pid in new {
            tried.insert(pid);
            match give(device, &core, pid, policy) {
                Ok(()) => given.push(pid),
                Err(e) if Path::new(&format!("/proc/{pid}")).exists() => {
                    given.iter().try_for_each(|pid| take(device, *pid))?;
                    return Err(e);
                }
                Err(e) => gone = Some(e),
            }
        }
    }
}

/// Takes a thread from its policy. A thread of class SCHED_EXT becomes a normal task. A thread that
/// has ended is no error.
pub fn take(device: &Device, pid: u32) -> Result<()> {
    match device
        .assign(pid, None, is_ext(pid))
        .map_err(|refused| refused.errno)
    {
        // A thread that became real-time meanwhile has left already.
        Ok(()) | Err(Errno::SRCH | Errno::INVAL) => Ok(()),
        Err(errno) => Err(Error::baton(format!(
            "thread {pid} was not taken from its policy: {errno}"
        ))),
    }
}

/// Takes all tasks from the policy with this id, except those that were assigned to another since.
/// With `None`, takes all tasks from all policies, and every task of class SCHED_EXT. Tasks may
/// fork meanwhile, so this goes through the slots again until it finds no task, up to a limit.
/// Tasks that are left then run under the fallback.
pub fn take_all(device: &Device, policy: Option<u32>) -> Result<usize> {
    const ROUNDS: usize = 5;
    let mut taken = BTreeSet::new();
    for _ in 0..ROUNDS {
        let before = taken.len();
        for task in device.tasks()? {
            let wanted = match policy {
                Some(id) => {
                    task.wanted == id || (task.wanted == 0 && task.policy == id && is_ext(task.pid))
                }
                None => task.wanted != 0 || task.policy != 0 || is_ext(task.pid),
            };
            if wanted && !taken.contains(&task.pid) {
                take(device, task.pid)?;
                taken.insert(task.pid);
            }
        }
        if taken.len() == before {
            break;
        }
    }
    Ok(taken.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduling_policy_of_a_stat_line() {
        let check = |name: &str, policy: &str, expected: Option<u32>| {
            let fields: Vec<_> = (3..=52)
                .map(|n| {
                    if n == 41 {
                        policy.to_owned()
                    } else {
                        n.to_string()
                    }
                })
                .collect();
            assert_eq!(
                policy_in_stat(&format!("12 ({name}) {}\n", fields.join(" "))),
                expected
            );
        };
        check("sh", "7", Some(7));
        check("a) b (c", "0", Some(0));
        check("sh", "x", None);
        assert_eq!(policy_in_stat("12 (sh) S 1 2"), None);
        assert_eq!(policy_in_stat(""), None);
    }

    #[test]
    fn threads_of_this_process() {
        assert!(threads_of(std::process::id())
            .unwrap()
            .contains(&std::process::id()));
        assert!(threads_of(u32::MAX)
            .unwrap_err()
            .to_string()
            .contains("no thread"));
    }
}
