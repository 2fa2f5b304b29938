// SPDX-License-Identifier: GPL-2.0-only
//! The tool and the loads, used as by a script.

use rustix::thread as task;
use serde_json::Value;
use std::{
    fs,
    io::ErrorKind,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

/// The output of a command, and its exit code.
pub struct Ran {
    pub code: Option<i32>,
    pub text: String,
}

pub fn run(program: &str, args: &[&str]) -> Result<Ran, String> {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program)
        .args(args)
        .output()
        .map_err(|e| format!("{program} does not start: {e}"))?;
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    Ok(Ran {
        code: status.code(),
        text,
    })
}

/// Stops the kernel's threads that scan memory. They are of the fair class, which precedes
/// SCHED_EXT, and hold a CPU for some 100 ms at a time if many processes run: no policy's doing.
pub fn stop_scans() -> Result<(), String> {
    const SCANS: [(&str, &str); 2] = [
        ("/sys/module/damon_stat/parameters/enabled", "N"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
    ];
    let there = SCANS
        .iter()
        .filter(|(file, _)| fs::exists(file).is_ok_and(|is| is));
    for (file, value) in there {
        fs::write(file, value).map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(())
}

/// Runs a command that must succeed.
pub fn must(program: &str, args: &[&str]) -> Result<String, String> {
    let ran = run(program, args)?;
    if ran.code == Some(0) {
        Ok(ran.text)
    } else {
        Err(format!(
            "{program} {args:?} ended with {:?}: {}",
            ran.code, ran.text
        ))
    }
}

pub fn baton(args: &[&str]) -> Result<String, String> {
    must("baton", args)
}

/// Runs `baton`, which must fail with `expected` in its output.
pub fn baton_fails(args: &[&str], expected: &str) -> Result<(), String> {
    let ran = run("baton", args)?;
    if ran.code != Some(0) && ran.text.contains(expected) {
        return Ok(());
    }
    Err(format!(
        "baton {args:?} should fail with {expected:?}, and ended with {:?}: {}",
        ran.code, ran.text
    ))
}

pub fn status() -> Result<Value, String> {
    let text = baton(&["status", "--json"])?;
    serde_json::from_str(&text)
        .map_err(|e| format!("baton status --json is not JSON ({e}): {text}"))
}

/// The entry of a policy in the status.
pub fn policy(status: &Value, name: &str) -> Result<Value, String> {
    let policies = status["policies"]
        .as_array()
        .ok_or("the status has no policies")?;
    policies
        .iter()
        .find(|p| p["name"] == name)
        .cloned()
        .ok_or(format!("{name} is not in the status: {status}"))
}

/// Checks that the policy is running, and has had no fault.
pub fn is_well(name: &str) -> Result<(), String> {
    let status = status()?;
    let entry = policy(&status, name)?;
    check(entry["state"] == "running" && entry["faults"] == 0, || {
        format!("{name} is not well: {status}")
    })
}

/// The loaded modules of a policy, which must be two: the version that runs, and the version that
/// is kept.
pub fn two_modules(prefix: &str) -> Result<Vec<String>, String> {
    let modules = fs::read_to_string("/proc/modules").map_err(|e| e.to_string())?;
    let names = modules.lines().filter_map(|line| line.split(' ').next());
    let found: Vec<String> = names
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect();
    check(found.len() == 2, || {
        format!("not two modules, but {found:?}")
    })?;
    Ok(found)
}

/// hackbench with processes, `groups` times 40 tasks. It ends only when every task has been
/// scheduled.
pub fn hackbench(groups: u32, loops: u32) -> Result<(), String> {
    Load::hackbench(groups, loops)?.end()
}

/// Is this one of the kernels of vm/sanitized.sh?
fn is_sanitized() -> Result<bool, String> {
    Ok(release()?.contains("-baton-"))
}

pub fn stress(args: &[&str]) -> Result<(), String> {
    must("stress-ng", &[args, &["--quiet"]].concat()).map(|_| ())
}

pub fn sched_ext_state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

pub fn check(holds: bool, what: impl Fn() -> String) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(what())
    }
}

/// Unloads everything, and checks that nothing is left.
pub fn unload_everything() -> Result<(), String> {
    baton(&["unload", "--everything"])?;
    check(!fs::exists("/sys/module/baton").unwrap_or(true), || {
        "baton.ko is still loaded".into()
    })?;
    check(
        !fs::exists("/sys/fs/bpf/baton/link").unwrap_or(true),
        || "the shim's link is still pinned".into(),
    )?;
    check(sched_ext_state() == "disabled", || {
        format!("sched_ext is {} after the unload", sched_ext_state())
    })
}

/// On a kernel that looks for memory which nothing points to (kmemleak), checks that none was
/// allocated by Baton.
pub fn no_leaks() -> Result<(), String> {
    const FILE: &str = "/sys/kernel/debug/kmemleak";
    if !fs::exists(FILE).unwrap_or(false) {
        return Ok(());
    }
    let failed = |e: std::io::Error| format!("{FILE}: {e}");
    // What is found twice is no value that was on its way.
    for _ in 0..2 {
        // It does not report what is younger than 5 s.
        sleep(Duration::from_secs(6));
        match fs::write(FILE, "scan") {
            // The kernel was booted without `kmemleak=on`.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return Ok(()),
            scanned => scanned.map_err(failed)?,
        }
    }
    let text = fs::read_to_string(FILE).map_err(failed)?;
    let reports = text.split("unreferenced object").skip(1);
    let ours: Vec<&str> = reports.filter(|report| report.contains("baton")).collect();
    check(ours.is_empty(), || {
        format!("{} leaks of memory, the first:{}", ours.len(), ours[0])
    })
}

/// A load in the background.
pub struct Load(Child);

impl Load {
    pub fn hackbench(groups: u32, loops: u32) -> Result<Self, String> {
        // A message through a socket allocates memory, which takes a kernel with KASAN seven times
        // as long as a message through a pipe.
        let pipes = is_sanitized()?.then_some("--pipe");
        Command::new("hackbench")
            .args(["-g", &groups.to_string(), "-l", &loops.to_string()])
            .args(pipes)
            .stdout(Stdio::null())
            .spawn()
            .map(Self)
            .map_err(|e| format!("hackbench does not start: {e}"))
    }

    /// Waits for its end, which must be successful.
    pub fn end(mut self) -> Result<(), String> {
        let ended = self.0.wait().map_err(|e| e.to_string())?;
        check(ended.success(), || format!("the load ended with {ended}"))
    }
}

/// A task that never sleeps and runs until the value is dropped.
pub struct Hog(Child);

impl Hog {
    /// A hog of the kernel's own class, with any affinity.
    pub fn plain() -> Result<Self, String> {
        Self::normal(None)
    }

    /// A task that sleeps for a moment between two pieces of work, and therefore wakes repeatedly.
    pub fn that_sleeps() -> Result<Self, String> {
        Self::run(&["sh", "-c", "while :; do sleep 0.01; done"])
    }

    /// A hog of this policy, with this affinity.
    pub fn of(policy: &str, cpus: Option<&str>) -> Result<Self, String> {
        let hog = Self::normal(cpus)?;
        baton(&["attach", policy, "--pid", &hog.pid()])?;
        Ok(hog)
    }

    /// A hog of the kernel's own scheduler, with this affinity.
    pub fn normal(cpus: Option<&str>) -> Result<Self, String> {
        const LOOP: [&str; 3] = ["sh", "-c", "while :; do :; done"];
        let bound = cpus.map(|cpus| ["taskset", "-c", cpus]);
        Self::run(
            &bound
                .iter()
                .flatten()
                .chain(&LOOP)
                .copied()
                .collect::<Vec<_>>(),
        )
    }

    fn run(words: &[&str]) -> Result<Self, String> {
        Command::new(words[0])
            .args(&words[1..])
            .spawn()
            .map(Self)
            .map_err(|e| format!("{words:?} does not start: {e}"))
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// The fields of its stat file, from the third on.
    fn stat(&self) -> Result<Vec<String>, String> {
        let path = format!("/proc/{}/stat", self.pid());
        let stat = fs::read_to_string(&path).map_err(|e| format!("{path} is not read: {e}"))?;
        let (_, fields) = stat.rsplit_once(')').ok_or("a stat file without a name")?;
        Ok(fields.split_whitespace().map(str::to_owned).collect())
    }

    fn field(&self, number: usize) -> Result<u64, String> {
        let fields = self.stat()?;
        fields
            .get(number - 3)
            .and_then(|field| field.parse().ok())
            .ok_or("a stat file that is too short".into())
    }

    /// Its CPU time, s.
    pub fn ran(&self) -> Result<f64, String> {
        Ok((self.field(14)? + self.field(15)?) as f64 / 100.0)
    }

    /// The CPU that it is on, or was last on.
    pub fn cpu(&self) -> Result<u32, String> {
        Ok(self.field(39)? as u32)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The file of a policy's module.
pub fn module(policy: &str) -> Result<String, String> {
    Ok(format!("/usr/lib/baton/{}/baton_{policy}.ko", release()?))
}

/// A modified copy of a policy's module.
pub fn changed_module(
    policy: &str,
    change: impl Fn(&mut Vec<u8>) -> Result<(), String>,
) -> Result<String, String> {
    let mut bytes = fs::read(module(policy)?).map_err(|e| e.to_string())?;
    change(&mut bytes)?;
    let path = format!("/tmp/baton_{policy}.ko");
    fs::write(&path, bytes).map_err(|e| e.to_string())?;
    Ok(path)
}

/// Replaces the first `old` with `new`, which is not longer.
pub fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) -> Result<(), String> {
    let at = bytes
        .windows(old.len())
        .position(|w| w == old)
        .ok_or("the module does not have what is to be changed")?;
    bytes[at..at + new.len()].copy_from_slice(new);
    Ok(())
}

/// The kernel's release.
pub fn release() -> Result<String, String> {
    Ok(must("uname", &["-r"])?.trim().to_owned())
}

/// Restricts this thread to these CPUs.
pub fn bind(cpus: &[usize]) -> Result<(), String> {
    let mut set = task::CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    task::sched_setaffinity(None, &set).map_err(|e| format!("CPUs {cpus:?}: {e}"))
}
