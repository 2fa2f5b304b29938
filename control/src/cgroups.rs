// SPDX-License-Identifier: GPL-2.0-only
//! Cgroups (version 2), and the policies to which their tasks belong.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::status::Cgroup;

const ROOT: &str = "/sys/fs/cgroup";

/// The directory of a cgroup, from that directory or from the cgroup's name below the root. The
/// result is canonical.
pub fn find(cgroup: &Path) -> Result<PathBuf> {
    let below = cgroup
        .strip_prefix(ROOT)
        .or_else(|_| cgroup.strip_prefix("/"))
        .unwrap_or(cgroup);
    let dir = fs::canonicalize(Path::new(ROOT).join(below)).ok();
    dir.filter(|dir| dir.starts_with(ROOT) && dir.join("cgroup.threads").exists())
        .ok_or_else(|| {
            Error::user(
                format!("{} is no cgroup (version 2)", cgroup.display()),
                "give its directory below /sys/fs/cgroup, where cgroup2 must be mounted",
            )
        })
}

/// The name of a cgroup: the path of its directory below the root.
pub fn name(dir: &Path) -> String {
    dir.strip_prefix(ROOT)
        .unwrap_or(dir)
        .to_string_lossy()
        .into_owned()
}

/// A cgroup and all cgroups below it.
fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_path_buf()];
    let mut at = 0;
    while let Some(dir) = found.get(at) {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let below = entries
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .map(|e| e.path());
        found.extend(below.collect::<Vec<_>>());
        at += 1;
    }
    found
}

/// All threads that are now in a cgroup or below it.
pub fn threads(dir: &Path) -> Result<Vec<u32>> {
    // cgroup.procs cannot be read in a threaded cgroup.
    let lists = tree(dir)
        .into_iter()
        .map(|dir| fs::read_to_string(dir.join("cgroup.threads")).unwrap_or_default());
    Ok(lists
        .flat_map(|list| {
            list.lines()
                .filter_map(|line| line.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect())
}

/// Assigns a cgroup to a policy, with all cgroups below it that have no policy of their own.
pub fn give(device: &Device, dir: &Path, policy: &str) -> Result<()> {
    device
        .set_rule(id(dir)?, Some(policy))
        .map_err(|errno| not_given(&name(dir), policy, errno))
}

/// Takes a cgroup from its policy. Its tasks then belong to the policy of the nearest cgroup above
/// it that has one. False if the cgroup had no policy.
pub fn take(device: &Device, dir: &Path) -> Result<bool> {
    match device.set_rule(id(dir)?, None) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(not_given(&name(dir), "none", errno)),
    }
}

/// The id of a cgroup.
pub fn id(dir: &Path) -> Result<u64> {
    Ok(fs::metadata(dir)
        .map_err(|e| Error::file(format!("looking at {}", dir.display()), &e))?
        .ino())
}

fn not_given(cgroup: &str, policy: &str, errno: Errno) -> Error {
    let what = |why: &str| format!("the cgroup {cgroup} was not given to {policy}: {why}");
    match errno {
        Errno::SRCH => Error::user(
            what("it is gone, or not of version 2"),
            "check its path below /sys/fs/cgroup",
        ),
        Errno::NODEV => Error::user(
            what("that policy is not loaded"),
            format!("load it: baton load {policy}"),
        ),
        Errno::NOSPC => Error::user(
            what("64 cgroups have policies already"),
            "give their common parent instead",
        ),
        Errno::OPNOTSUPP => Error::environment(
            what("this kernel has no tracepoints, which report tasks that move"),
            "attach tasks by --pid, or use a kernel with CONFIG_TRACEPOINTS",
        ),
        other => Error::baton(what(&other.to_string())),
    }
}

/// All cgroups that are assigned to policies.
pub fn rules(device: &Device) -> Result<Vec<Cgroup>> {
    let rules = device.rules()?;
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for dir in tree(Path::new(ROOT)) {
        let Ok(id) = fs::metadata(&dir).map(|data| data.ino()) else {
            continue;
        };
        let policy = rules.iter().find(|(cgroup, _)| *cgroup == id);
        found.extend(policy.map(|(_, policy)| Cgroup {
            cgroup: name(&dir),
            policy: policy.clone(),
        }));
    }
    Ok(found)
}
