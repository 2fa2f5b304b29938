// SPDX-License-Identifier: GPL-2.0-only
//! A changed scheduler in the running kernel: loading, what it reports, unloading.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};

use crate::build::MODULE;
use crate::image;

/// What the last switch found. Times are in ns; under the guest's emulation they say little.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Does the changed scheduler run?
    pub enabled: bool,
    /// Functions of the kernel that are replaced, rarely executed parts counted apart.
    pub functions: u64,
    /// Functions whose first bytes lead to the new ones.
    pub sites: u64,
    /// How often the machine was stopped until no task was in the way.
    pub attempts: u64,
    pub cpus: u64,
    /// Threads whose stacks were checked.
    pub tasks: u64,
    /// Time of the last stop.
    pub total_ns: u64,
    /// The part of it for the check of stacks.
    pub check_ns: u64,
    /// The part of it for the stores into the code.
    pub stores_ns: u64,
    /// The task that was in the way of an attempt, if one was: number, place and name.
    pub busy: Option<String>,
}

fn parameter(name: &str) -> PathBuf {
    Path::new("/sys/module")
        .join(MODULE)
        .join("parameters")
        .join(name)
}

/// Is the module loaded?
pub fn is_loaded() -> bool {
    Path::new("/sys/module").join(MODULE).exists()
}

/// The present state; none if the module is not loaded.
///
/// # Errors
/// The kernel does not tell it.
pub fn status() -> Result<Option<Status>> {
    if !is_loaded() {
        return Ok(None);
    }
    let read = |name: &str| {
        let path = parameter(name);
        fs::read_to_string(&path)
            .map_err(|e| Error::file(format!("reading {}", path.display()), &e))
    };
    let mut status = Status::parse(&read("report")?);
    status.enabled = read("enabled")?.trim() == "Y";
    Ok(Some(status))
}

impl Status {
    /// Reads the engine's report: lines of a name and a value.
    fn parse(text: &str) -> Self {
        let mut status = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(' ') else {
                continue;
            };
            let number = value.parse().unwrap_or(0);
            match name {
                "functions" => status.functions = number,
                "sites" => status.sites = number,
                "attempts" => status.attempts = number,
                "cpus" => status.cpus = number,
                "tasks" => status.tasks = number,
                "total_ns" => status.total_ns = number,
                "check_ns" => status.check_ns = number,
                "stores_ns" => status.stores_ns = number,
                "busy" => status.busy = Some(value.into()),
                _ => {}
            }
        }
        status
    }
}

/// Loads a module and lets its scheduler run.
///
/// # Errors
/// Another changed scheduler is loaded, or a scheduler of sched_ext; the module is of another build
/// of the kernel; a task stays inside code that must not be left. Then the kernel is as before.
pub fn load(module: &Path) -> Result<Status> {
    kernel::require_root("changing the kernel's scheduler")?;
    let _lock = Lock::take()?;
    if is_loaded() {
        return Err(Error::user(
            "a changed scheduler is loaded",
            "unload it first: baton live unload",
        ));
    }
    if let Some(other) = kernel::attached_scheduler() {
        return Err(Error::user(
            format!(
                "the scheduler {other} is attached to sched_ext, whose tasks the change would meet"
            ),
            "detach it first (of Baton's policies: baton unload --everything)",
        ));
    }
    demand_same_build(module)?;
    kernel::load_module(module, "")?;
    switch(true).inspect_err(|_| {
        // The first error is the one to report.
        let _ = kernel::unload_module(MODULE);
    })?;
    status()?.ok_or_else(|| Error::baton("the module is gone"))
}

/// Takes the changed scheduler out. Returns what was found; none if there was none.
///
/// # Errors
/// A task stays inside it, or something else has changed the kernel's code at one of its places.
/// Then it goes on.
pub fn unload() -> Result<Option<Status>> {
    kernel::require_root("changing the kernel's scheduler")?;
    let _lock = Lock::take()?;
    if !is_loaded() {
        return Ok(None);
    }
    switch(false)?;
    let found = status()?;
    kernel::unload_module(MODULE)?;
    Ok(found)
}

/// What the field of a module's information begins with that has the kernel's build identifier.
const BUILD_ID: &[u8] = b"baton_build_id=";

fn demand_same_build(module: &Path) -> Result<()> {
    let bytes =
        fs::read(module).map_err(|e| Error::file(format!("reading {}", module.display()), &e))?;
    let at = bytes.windows(BUILD_ID.len()).position(|w| w == BUILD_ID);
    let built_for = at.and_then(|at| {
        let rest = &bytes[at + BUILD_ID.len()..];
        let text = rest.split(|&byte| byte == 0).next()?;
        std::str::from_utf8(text).ok()
    });
    let running = image::running_build_id()?;
    match built_for {
        Some(built_for) if built_for == running => Ok(()),
        Some(built_for) => Err(Error::user(
            format!(
                "{} is for the kernel of build {built_for}, and this is {running}",
                module.display()
            ),
            "build it for this kernel: baton live prepare, baton live build",
        )),
        None => Err(Error::user(
            format!("{} is no changed scheduler", module.display()),
            "give the module that baton live build has made",
        )),
    }
}

fn switch(enabled: bool) -> Result<()> {
    let path = parameter("enabled");
    let error = match fs::write(&path, if enabled { "Y" } else { "N" }) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let doing = if enabled {
        "the changed scheduler does not take over"
    } else {
        "the changed scheduler cannot be taken out"
    };
    let errno = rustix::io::Errno::from_io_error(&error);
    Err(match errno {
        Some(rustix::io::Errno::BUSY) => {
            let busy = status()?.and_then(|status| status.busy);
            Error::environment(
                format!(
                    "{doing}: after many attempts a task is still inside the scheduler: {}",
                    busy.as_deref().unwrap_or("unknown")
                ),
                "try again; nothing has changed",
            )
        }
        Some(rustix::io::Errno::ILSEQ) => Error::environment(
            format!("{doing}: something else has changed the kernel's code"),
            "end kprobes, live patches and tracers of the scheduler, and try again; nothing has \
             changed",
        ),
        _ => Error::file(format!("writing {}", path.display()), &error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_totally() {
        let text = "functions 1411\nsites 1150\nattempts 2\ncpus 2\ntasks 95\ntotal_ns 3000\n\
            check_ns 2000\nstores_ns 900\nbusy 12 schedule_tail+0x3/0x40 cc 1\nnew thing\nbroken\n";
        let status = Status::parse(text);
        assert_eq!((status.functions, status.sites), (1411, 1150));
        assert_eq!((status.attempts, status.cpus, status.tasks), (2, 2, 95));
        assert_eq!(
            (status.total_ns, status.check_ns, status.stores_ns),
            (3000, 2000, 900)
        );
        assert_eq!(
            status.busy.as_deref(),
            Some("12 schedule_tail+0x3/0x40 cc 1")
        );
        assert_eq!(Status::parse(""), Status::default());
    }
}
