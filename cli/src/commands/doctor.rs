// SPDX-License-Identifier: GPL-2.0-only
//! `baton doctor`: shows what this machine can do. It looks up each thing that Baton needs in the
//! kernel's own description of its types and symbols, and lets the verifier check the shim. It does
//! not rely on the kernel's version.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use libbpf_rs::btf::{types, Btf};
use serde::Serialize;

use super::{print, print_json};
use baton_control::device::Device;
use baton_control::error::Result;
use baton_control::kernel::{self, Lock};
use baton_control::modules::{Search, CORE, SHIM};
use baton_control::shim::{self, Fit};
use baton_control::{load, unload};

/// The purpose for which something is needed.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Need {
    /// To run policies on this kernel.
    Native,
    /// To build policies here.
    Build,
    /// To run policies in a guest.
    Vm,
    /// Useful, but not needed.
    Optional,
}

/// A check of one thing.
#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
struct Check {
    what: &'static str,
    needed_for: Need,
    ok: bool,
    /// What was found.
    found: String,
    /// How to get it; empty if it is there.
    get: String,
}

#[derive(Serialize, Debug)]
struct Report {
    kernel: String,
    /// Can policies run on this machine's kernel, be built here, and run in a guest here?
    native: bool,
    build: bool,
    vm: bool,
    checks: Vec<Check>,
    /// About versions that are not the tested ones.
    note: Option<String>,
}

pub fn doctor(search: &Search, json: bool) -> Result<ExitCode> {
    let mut checks = [
        rights(),
        sched_ext(),
        types_of_kernel(),
        symbols(),
        surroundings(search),
    ]
    .concat();
    // The shim is not tried if an earlier check shows that it cannot be loaded.
    if checks
        .iter()
        .filter(|check| check.needed_for == Need::Native && check.what != OTHER)
        .all(|check| check.ok)
    {
        checks.extend(verifier(search));
    }
    checks.extend([building(), guest()].concat());
    let report = Report::new(kernel::release(), checks, baton_vm::tested::note());
    if json {
        print_json(&report)?
    } else {
        print(report.text())?
    }
    Ok(if report.native {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

impl Report {
    fn new(kernel: String, checks: Vec<Check>, note: Option<String>) -> Self {
        let all = |need| checks.iter().filter(|c| c.needed_for == need).all(|c| c.ok);
        Self {
            kernel,
            native: all(Need::Native),
            build: all(Need::Build),
            vm: all(Need::Vm),
            checks,
            note,
        }
    }

    fn text(&self) -> String {
        let mut text = format!("kernel {}\n", self.kernel);
        let width = self.checks.iter().map(|c| c.what.len()).max().unwrap_or(0);
        for (need, title) in [
            (Need::Native, "To run policies on this kernel"),
            (Need::Optional, "Better with it"),
            (Need::Build, "To build policies here"),
            (Need::Vm, "To run policies in a guest"),
        ] {
            text.push_str(&format!("\n{title}\n"));
            for c in self.checks.iter().filter(|c| c.needed_for == need) {
                let state = if c.ok { "ok" } else { "missing" };
                text.push_str(format!("  {state:<8} {:<width$}  {}", c.what, c.found).trim_end());
                text.push('\n');
                if !c.ok {
                    text.push_str(&format!("  {:8} {:width$}  get it: {}\n", "", "", c.get));
                }
            }
        }
        let can = |yes: bool| if yes { "yes" } else { "no" };
        text.push_str(&format!(
            "\npolicies on this kernel: {}; in a guest (baton vm run): {}; building them here: \
             {}\n",
            can(self.native),
            can(self.vm && self.build),
            can(self.build)
        ));
        if let Some(note) = &self.note {
            text.push_str(&format!("{note}\n"));
        }
        text
    }
}

fn check(
    what: &'static str,
    needed_for: Need,
    found: std::result::Result<String, String>,
    get: &str,
) -> Check {
    let ok = found.is_ok();
    let found = found.unwrap_or_else(|why| why);
    Check {
        what,
        needed_for,
        ok,
        found,
        get: if ok { String::new() } else { get.into() },
    }
}

/// `Ok` with an empty string if `yes`, else `Err(otherwise)`.
fn yes_if(yes: bool, otherwise: &str) -> std::result::Result<String, String> {
    if yes {
        Ok(String::new())
    } else {
        Err(otherwise.into())
    }
}

fn rights() -> Vec<Check> {
    let disabled = fs::read_to_string("/proc/sys/kernel/modules_disabled").unwrap_or_default();
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let modules = match (
        disabled.trim(),
        lockdown.contains('[') && !lockdown.contains("[none]"),
    ) {
        ("1", _) => Err("modules are disabled until the next boot".into()),
        ("", _) => Err("the kernel has no modules".into()),
        (_, true) => Err(format!("lockdown: {}", lockdown.trim())),
        _ => Ok(String::new()),
    };
    vec![
        check(
            "root",
            Need::Native,
            yes_if(kernel::is_root(), "modules and BPF are for root only"),
            "run baton as root (sudo)",
        ),
        check(
            "loading modules",
            Need::Native,
            modules,
            "boot without Secure Boot and lockdown, with modules enabled",
        ),
    ]
}

const NEWER_KERNEL: &str =
    "boot a kernel with CONFIG_SCHED_CLASS_EXT and CONFIG_DEBUG_INFO_BTF (Debian: testing's)";

/// This prevents only attaching.
const OTHER: &str = "no other scheduler";

fn sched_ext() -> Vec<Check> {
    let attached = match kernel::attached_scheduler() {
        Some(other) if other != "baton" => Err(format!("{other} is attached")),
        Some(_) => Ok("Baton's shim is attached".into()),
        None => Ok(String::new()),
    };
    let isolated =
        kernel::isolated_cpus().map_or(Ok(String::new()), |cpus| Err(format!("isolcpus={cpus}")));
    vec![
        check(
            "sched_ext",
            Need::Native,
            yes_if(kernel::has_sched_ext(), "no /sys/kernel/sched_ext"),
            NEWER_KERNEL,
        ),
        check(
            OTHER,
            Need::Native,
            attached,
            "end that one first; sched_ext has only one at a time",
        ),
        check(
            "no isolated CPUs",
            Need::Native,
            isolated,
            "boot without isolcpus=, which sched_ext refuses; use affinities or cgroups",
        ),
    ]
}

fn types_of_kernel() -> Vec<Check> {
    const NAME: &str = "types (BTF)";
    let btf = match Btf::from_vmlinux() {
        Ok(btf) => btf,
        Err(e) => {
            let why = format!("the kernel does not describe its types: {e}");
            return vec![check(NAME, Need::Native, Err(why), NEWER_KERNEL)];
        }
    };
    let flag = |what, name: &str, without: &str| {
        let has = shim::enum_value(&btf, "scx_enq_flags", name).is_some();
        check(
            what,
            Need::Optional,
            yes_if(has, without),
            "boot a newer kernel",
        )
    };
    vec![
        check(
            NAME,
            Need::Native,
            yes_if(
                btf.type_by_name::<types::Struct>("sched_ext_ops").is_some(),
                "no sched_ext_ops",
            ),
            NEWER_KERNEL,
        ),
        flag(
            "SCX_ENQ_IMMED",
            "SCX_ENQ_IMMED",
            "a task whose CPU is taken by a higher class waits there",
        ),
    ]
}

/// Does the kernel accept the shim, with all that it calls and its adaptation to the machine?
fn verifier(search: &Search) -> Vec<Check> {
    let found = if kernel::is_root() {
        tried(search)
    } else {
        Err("only root can try it".into())
    };
    let get = "boot a kernel whose types were described by a newer pahole (Debian: testing's)";
    vec![check("the shim, by the verifier", Need::Native, found, get)]
}

/// Lets the verifier check the shim. If the core is not loaded, it is loaded for this and unloaded
/// afterwards.
fn tried(search: &Search) -> std::result::Result<String, String> {
    let _lock = Lock::take().map_err(|error| error.what)?;
    let device = Device::open_if_loaded().map_err(|error| error.what)?;
    let was_loaded = device.is_some();
    let device = device.map_or_else(|| load::core(search, &load::Options::default()), Ok);
    let done = device.and_then(|device| Ok((device.core()?, search.find(SHIM)?)));
    let done = done.map_err(|error| error.what).and_then(|(core, object)| {
        let fit = Fit {
            all: true,
            nr_cpus: core.nr_cpus,
            max_tasks: core.max_tasks,
        };
        shim::try_out(&object, fit)
    });
    let left = if was_loaded {
        Ok(())
    } else {
        unload::everything().map_err(|error| error.what)
    };
    done.and(left).map(|()| "the kernel takes it".into())
}

/// Symbols that the core needs and that only newer kernels have, each under all of its names.
const SYMBOLS: &[(&str, &[&str])] = &[
    (
        "lock with deadlock detection",
        &["resilient_queued_spin_lock_slowpath"],
    ),
    (
        "allocation in any context",
        &[
            "_kmalloc_nolock_noprof",
            "kmalloc_nolock_noprof",
            "kmalloc_nolock",
        ],
    ),
    ("freeing in any context", &["kfree_nolock"]),
    (
        "functions of modules for BPF",
        &["register_btf_kfunc_id_set"],
    ),
    ("change of scheduling class", &["sched_setattr_nocheck"]),
];

fn symbols() -> Vec<Check> {
    let known = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    SYMBOLS
        .iter()
        .map(|(what, names)| {
            let found = if known.is_empty() {
                Err("unknown without /proc/kallsyms".into())
            } else {
                yes_if(has_symbol(&known, names), &format!("no {}", names[0]))
            };
            check(
                what,
                Need::Native,
                found,
                "boot a newer kernel (6.18 or later)",
            )
        })
        .collect()
}

/// Lines have the form `ADDRESS TYPE NAME`, followed by `[MODULE]` for symbols of modules.
fn has_symbol(known: &str, names: &[&str]) -> bool {
    known
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .any(|symbol| names.contains(&symbol))
}

fn surroundings(search: &Search) -> Vec<Check> {
    let bpffs = mounted("/sys/fs/bpf", "bpf");
    let files = search
        .find(CORE)
        .and_then(|core| search.find(SHIM).map(|_| core));
    let found = files
        .map(|core| core.display().to_string())
        .map_err(|e| e.what);
    vec![
        check(
            "BPF file system",
            Need::Native,
            yes_if(bpffs, "not mounted"),
            "mount -t bpf bpf /sys/fs/bpf",
        ),
        check(
            "Baton's core",
            Need::Native,
            found,
            "baton build POLICY (with this kernel's headers)",
        ),
    ]
}

fn mounted(dir: &str, kind: &str) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let found = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .any(|m| m.len() > 2 && m[1] == dir && m[2] == kind);
    found
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    found
}

const ROOT: &str = "run baton inside Baton's Debian root: vm/enter baton ...";

/// The library directory of the compiler in PATH.
fn sysroot() -> Option<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

/// The tools of the version of LLVM that is in rustc, which compile policies (hosts/kernel/build.sh).
fn llvm() -> std::result::Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output();
    let text = output
        .map_err(|e| format!("rustc cannot be run: {e}"))?
        .stdout;
    let text = String::from_utf8_lossy(&text);
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: ")?.split('.').next())
        .ok_or("rustc does not tell its version of LLVM")?;
    let dir = PathBuf::from(format!("/usr/lib/llvm-{version}/bin"));
    let tools = ["clang", "llc", "llvm-dis", "llvm-link", "opt"];
    match tools.iter().find(|tool| !dir.join(tool).exists()) {
        None => Ok(format!("version {version}")),
        Some(tool) => Err(format!("{} is not there", dir.join(tool).display())),
    }
}

fn building() -> Vec<Check> {
    let headers = baton_build::headers_release();
    let headers = headers
        .map(|release| format!("for kernel {release}"))
        .map_err(|e| e.what);
    let missing: Vec<_> = [
        "cargo", "clang", "make", "gcc", "pahole", "bpftool", "objcopy",
    ]
    .into_iter()
    .filter(|p| program(p).is_none())
    .collect();
    let tools = if missing.is_empty() {
        Ok(String::new())
    } else {
        Err(format!("no {}", missing.join(", ")))
    };
    let source = baton_build::source();
    let core_source =
        sysroot().is_some_and(|dir| dir.join("lib/rustlib/src/rust/library/core").exists());
    vec![
        check(
            "Baton's source",
            Need::Build,
            source.map(|s| s.display().to_string()).map_err(|e| e.what),
            "set BATON_SOURCE to it",
        ),
        check("kernel headers", Need::Build, headers, ROOT),
        check("compilers and tools", Need::Build, tools, ROOT),
        check("LLVM as in rustc", Need::Build, llvm(), ROOT),
        check(
            "source of Rust's core library",
            Need::Build,
            yes_if(core_source, "rust-src is not installed"),
            "install it (rustup component add rust-src; Debian: the package rust-src), or run \
             baton inside the root: vm/enter baton ...",
        ),
    ]
}

fn guest() -> Vec<Check> {
    let qemu = program("qemu-system-x86_64").map(|p| p.display().to_string());
    let kernel = baton_vm::Kernel::of_root()
        .map(|k| k.release)
        .map_err(|e| e.to_string());
    let tools: Vec<_> = baton_vm::DEFAULT_TOOLS
        .iter()
        .copied()
        .chain(["busybox", "ldd"])
        .filter(|p| program(p).is_none())
        .collect();
    let tools = if tools.is_empty() {
        Ok(String::new())
    } else {
        Err(format!("no {}", tools.join(", ")))
    };
    vec![
        check(
            "QEMU",
            Need::Vm,
            qemu.ok_or("no qemu-system-x86_64".into()),
            ROOT,
        ),
        check(
            "kernel for the guest",
            Need::Vm,
            kernel,
            "make Baton's Debian root: vm/root.sh",
        ),
        check("programs for the guest", Need::Vm, tools, ROOT),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_can_be_done() {
        let made = |checks| Report::new("7.2.12".into(), checks, None);
        let there = |what, need| check(what, need, Ok("found".into()), "x");
        let missing = |what, need| check(what, need, Err("not here".into()), "apt install it");
        let report = made(vec![
            there("root", Need::Native),
            missing("sched_ext", Need::Native),
            there("QEMU", Need::Vm),
        ]);
        assert!(!report.native && report.vm && report.build);
        let text = report.text();
        for line in [
            "  ok       root       found\n",
            "  missing  sched_ext  not here\n",
            "get it: apt install it\n",
        ] {
            assert!(text.contains(line), "no {line:?} in:\n{text}");
        }
        assert!(text.ends_with(
            "policies on this kernel: no; in a guest (baton vm run): yes; building \
                them here: yes\n"
        ));
        assert!(
            made(vec![
                there("root", Need::Native),
                missing("IMMED", Need::Optional)
            ])
            .native
        );
        let noted = Report::new("7.2.12".into(), vec![], Some("note: newer".into()));
        assert!(noted.native && noted.text().ends_with("\nnote: newer\n"));
    }

    #[test]
    fn symbols_of_the_kernel() {
        let known = "0000 T kfree_nolock\n0000 t scx_do\t[scx]\n";
        assert!(has_symbol(known, &["x", "kfree_nolock"]));
        assert!(has_symbol(known, &["scx_do"]));
        assert!(!has_symbol(known, &["kfree", "[scx]", "T"]));
    }
}
