// SPDX-License-Identifier: GPL-2.0-only
//! The running kernel: its modules and the state of sched_ext.

use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use object::{Object, ObjectSection};
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use rustix::system::{delete_module, finit_module, init_module, uname};

use baton_abi::BATON_MODULE_LEN;

use crate::cpulist::CpuList;
use crate::error::{Error, Result};

/// How long a module may stay in use after its last user is gone. The kernel frees BPF programs
/// after one or two grace periods.
const UNLOAD_PATIENCE: Duration = Duration::from_secs(10);
const O_NONBLOCK: i32 = 0o4000;

/// The output of `uname -r`.
pub fn release() -> String {
    uname().release().to_string_lossy().into_owned()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An error unless the caller is root, which alone may load modules.
pub fn require_root(what: &str) -> Result<()> {
    if is_root() {
        Ok(())
    } else {
        Err(Error::environment(
            format!("{what} is for root only"),
            "run this as root (sudo)",
        ))
    }
}

/// Held while the state of the kernel is changed, so that only one command does so at a time. The
/// lock ends with the process, however the process ends.
pub struct Lock {
    _file: File,
}

impl Lock {
    pub fn take() -> Result<Self> {
        let path = "/run/baton.lock";
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path);
        let file = file.map_err(|e| Error::file(format!("opening {path}"), &e))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            eprintln!("baton: waiting for another baton command to end");
            flock(&file, FlockOperation::LockExclusive)
                .map_err(|e| Error::file(format!("locking {path}"), &e.into()))?;
        }
        Ok(Self { _file: file })
    }
}

/// Loads a module. The name of its file is the module's name and `.ko`.
pub fn load_module(file: &Path, parameters: &str) -> Result<()> {
    read_module(file)?;
    let open =
        File::open(file).map_err(|e| Error::file(format!("opening {}", file.display()), &e))?;
    let parameters =
        CString::new(parameters).map_err(|_| Error::baton("a module parameter has a NUL"))?;
    finit_module(&open, &parameters, 0)
        .map_err(|errno| not_loaded(&file.display().to_string(), errno))
}

/// The bytes of a module. An error if it was built for another kernel.
fn read_module(file: &Path) -> Result<Vec<u8>> {
    let module =
        fs::read(file).map_err(|e| Error::file(format!("reading {}", file.display()), &e))?;
    let built_for = vermagic(&module);
    if let Some(built_for) = built_for.filter(|built_for| *built_for != release()) {
        return Err(Error::user(
            format!(
                "{} was built for kernel {built_for}, and this is \
                {}",
                file.display(),
                release()
            ),
            "build it for this kernel (baton build), or give the right file with --module or \
             --modules",
        ));
    }
    Ok(module)
}

/// Loads a module as [`load_module`] does, but under another name. The kernel has at most one
/// module of a name, and two versions of a policy have the same name. The name is in the module's
/// own `struct module`, which has a section of its own.
pub fn load_module_as(file: &Path, name: &str) -> Result<()> {
    let mut bytes = read_module(file)?;
    let malformed = || {
        Error::user(
            format!("{} is no kernel module", file.display()),
            "build it again (baton build)",
        )
    };
    let (start, len) = {
        let object = object::File::parse(&*bytes).map_err(|_| malformed())?;
        let section = object
            .section_by_name(".gnu.linkonce.this_module")
            .ok_or_else(malformed)?;
        section.file_range().ok_or_else(malformed)?
    };
    let this_module = usize::try_from(start)
        .ok()
        .zip(usize::try_from(start + len).ok())
        .and_then(|(start, end)| bytes.get_mut(start..end))
        .ok_or_else(malformed)?;
    // The structure is zero except for a few fields, and the name is the first of these.
    let at = this_module
        .iter()
        .position(|b| *b != 0)
        .ok_or_else(malformed)?;
    let place = this_module
        .get_mut(at..at + BATON_MODULE_LEN - 8)
        .ok_or_else(malformed)?;
    if name.len() >= place.len() {
        return Err(Error::baton(format!("the module name {name} is too long")));
    }
    place.fill(0);
    place[..name.len()].copy_from_slice(name.as_bytes());
    init_module(&bytes, c"").map_err(|errno| not_loaded(&file.display().to_string(), errno))
}

/// The release in `vermagic=7.2.12+deb14-cloud-amd64 SMP preempt ...`, which `modinfo` also shows.
fn vermagic(module: &[u8]) -> Option<&str> {
    const KEY: &[u8] = b"vermagic=";
    let at = module.windows(KEY.len()).position(|w| w == KEY)? + KEY.len();
    let end = module[at..].iter().position(|b| matches!(b, 0 | b' '))?;
    std::str::from_utf8(&module[at..at + end]).ok()
}

fn not_loaded(file: &str, errno: Errno) -> Error {
    let what = |why: &str| format!("the kernel does not load {file}: {why}");
    match errno {
        Errno::NOEXEC => Error::user(
            what(
                "it is no module for this kernel, or was built for another version of Baton's \
                interface",
            ),
            "build it again (baton build); the kernel's log (dmesg) has the details",
        ),
        Errno::EXIST => Error::user(
            what("a module or a policy of that name is loaded already"),
            "unload that first (baton unload POLICY), or give this policy another name",
        ),
        Errno::NOENT => Error::environment(
            what("this kernel lacks a symbol that it needs, or it was built with another core"),
            "the kernel's log names it (dmesg | grep Unknown); `baton doctor` says what is needed",
        ),
        Errno::NOSPC => Error::user(
            what("16 policies are loaded, which is the maximum"),
            "unload one (baton \
                unload POLICY)",
        ),
        Errno::INVAL => Error::user(
            what("the module is malformed, or its policy lacks a needed function"),
            "build it again (baton build); the kernel's log (dmesg) has the details",
        ),
        Errno::NOMEM => Error::environment(
            what("there is no memory for it"),
            "free memory, or ask for fewer \
                --max-tasks",
        ),
        Errno::PERM => Error::environment(
            what("it is not permitted (no root, or modules are disabled until the next boot)"),
            "run this as root, and see `baton doctor`; `baton vm run` works nevertheless",
        ),
        Errno::KEYREJECTED | Errno::NOKEY | Errno::BADMSG => Error::environment(
            what("it accepts signed modules only (Secure Boot or lockdown)"),
            "sign the module, or switch lockdown off; `baton vm run` works nevertheless",
        ),
        other => Error::environment(
            what(&other.to_string()),
            "the kernel's log (dmesg) may say \
            more",
        ),
    }
}

/// Unloads a module. Waits for some time while it is in use. It is no error if the module is not
/// loaded.
pub fn unload_module(name: &str) -> Result<()> {
    if remove_module(name)? {
        Ok(())
    } else {
        Err(Error::user(
            format!("the module {name} cannot be unloaded: it is in use"),
            format!("something still uses it: see /sys/module/{name}/holders and `baton status`"),
        ))
    }
}

/// Unloads a module as [`unload_module`] does. False if it is still in use after that time.
pub fn remove_module(name: &str) -> Result<bool> {
    let c_name = CString::new(name).map_err(|_| Error::baton("a module's name has a NUL"))?;
    let start = Instant::now();
    loop {
        match delete_module(&c_name, O_NONBLOCK) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            Err(Errno::AGAIN | Errno::BUSY) if start.elapsed() < UNLOAD_PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::AGAIN | Errno::BUSY) => return Ok(false),
            Err(Errno::PERM) => {
                return Err(Error::environment(
                    format!("the module {name} cannot be unloaded: not permitted"),
                    "run this as root; a kernel with modules disabled keeps it until the next boot",
                ))
            }
            Err(errno) => {
                return Err(Error::environment(
                    format!("the module {name} cannot be unloaded: {errno}"),
                    "the kernel's log (dmesg) may say more",
                ))
            }
        }
    }
}

/// The modules that use the core, according to `/sys/module/baton/holders`, and that nothing uses.
pub fn unused_holders() -> Vec<String> {
    let Ok(holders) = fs::read_dir("/sys/module/baton/holders") else {
        return Vec::new();
    };
    let names = holders.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_unused = |name: &String| {
        let count = fs::read_to_string(format!("/sys/module/{name}/refcnt"));
        count.is_ok_and(|count| count.trim() == "0")
    };
    names.filter(is_unused).collect()
}

/// The scheduler that is attached to sched_ext, or is being attached or detached.
pub fn attached_scheduler() -> Option<String> {
    let state = fs::read_to_string("/sys/kernel/sched_ext/state").ok()?;
    if state.trim() == "disabled" {
        return None;
    }
    let ops = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    Some(if ops.trim().is_empty() {
        "(without a name)".into()
    } else {
        ops.trim().into()
    })
}

/// Does this kernel support sched_ext?
pub fn has_sched_ext() -> bool {
    Path::new("/sys/kernel/sched_ext").exists()
}

/// A list of this machine's CPUs: those that are `online`, or `possible`.
pub fn cpus(which: &str) -> Result<CpuList> {
    let file = format!("/sys/devices/system/cpu/{which}");
    let text = fs::read_to_string(&file).map_err(|e| Error::file(format!("reading {file}"), &e))?;
    text.trim()
        .parse()
        .map_err(|why| Error::baton(format!("{file} cannot be read: {why}")))
}

/// Checks repeatedly until the condition holds or the time is over.
pub fn wait_until(limit: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<bool> {
    let start = Instant::now();
    loop {
        if holds()? {
            return Ok(true);
        }
        if start.elapsed() >= limit {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The CPUs that the kernel's scheduler does not use (isolcpus=), as the kernel lists them. `None`
/// if there are none.
pub fn isolated_cpus() -> Option<String> {
    let list = fs::read_to_string("/sys/devices/system/cpu/isolated").ok()?;
    Some(list.trim().to_owned()).filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Blame;

    #[test]
    fn the_release_a_module_was_built_for() {
        let check = |module: &[u8], expected: Option<&str>| assert_eq!(vermagic(module), expected);
        check(
            b"\x7fELF..\0vermagic=7.2.12+deb14-cloud-amd64 SMP preempt\0name=x\0",
            Some("7.2.12+deb14-cloud-amd64"),
        );
        check(b"\0vermagic=6.18\0", Some("6.18"));
        check(b"vermagic=6.18", None);
        check(b"no module", None);
    }

    #[test]
    fn each_errno_says_who_is_at_fault() {
        let check = |errno, blame, word: &str| {
            let error = not_loaded("x.ko", errno);
            assert_eq!(error.blame, blame, "{errno}");
            assert!(error.to_string().contains(word), "{error}");
        };
        check(Errno::NOEXEC, Blame::User, "baton build");
        check(Errno::EXIST, Blame::User, "unload");
        check(Errno::NOENT, Blame::Environment, "lacks a symbol");
        check(Errno::KEYREJECTED, Blame::Environment, "signed");
        check(Errno::PERM, Blame::Environment, "root");
        check(Errno::IO, Blame::Environment, "dmesg");
    }
}
