// SPDX-License-Identifier: GPL-2.0-only
//! Tests of the life of policies and tasks, and of the tool.

use crate::{
    each_policy,
    tool::{
        baton, baton_fails, changed_module, check, hackbench, is_well, must, policy, replace, run,
        status, stress, Hog,
    },
    Case,
};
use std::{
    fs,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

pub fn cases() -> Vec<Case> {
    let others = vec![
        case!("baton run and its children", runs_some()),
        case!("attach and detach", attaches()),
        case!("fork, affinity, nice, class changes", life()),
        case!("CPU hotplug", hotplug()),
        case!("CPU hotplug while tasks sleep and wake", busy_hotplug()),
        case!("cgroup moves", cgroups()),
        case!("more tasks than slots", few_slots()),
        case!("doctor misses nothing on a stock kernel", doctor()),
    ];
    each_policy("runs all tasks", runs_all)
        .chain(others)
        .collect()
}

/// Containment of mistakes that are not a policy's.
pub fn of_containment() -> Vec<Case> {
    vec![
        case!("kill -9 of the tool at any point", killed()),
        case!("unload with tasks in the policy", unload_busy()),
        case!("load the same policy twice", twice()),
        case!("rmmod by hand of a running policy", rmmod()),
        case!("a module built for another kernel", other_kernel()),
        case!("a module built for another ABI", other_abi()),
        case!(
            "options that the policy does not have",
            baton_fails(&["load", "wfq", "--options", "colour=red"], "option")
        ),
    ]
}

fn runs_all(name: &str) -> Result<(), String> {
    baton(&["load", name, "--all"])?;
    hackbench(2, 50)?;
    stress(&[
        "--switch",
        "2",
        "--cpu",
        "2",
        "--yield",
        "1",
        "--timeout",
        "1",
    ])?;
    let picks: u64 = status()?["cpus"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|cpu| cpu["picks"].as_u64())
        .sum();
    check(picks > 500, || format!("only {picks} picks"))?;
    is_well(name)
}

/// Checks that `doctor` performs its tests, with and without a core, and leaves the system
/// unchanged.
fn doctor() -> Result<(), String> {
    let misses_nothing = || {
        let text = baton(&["doctor", "--json"])?;
        let report: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
        let checks = report["checks"].as_array().ok_or("no checks")?;
        let here = |check: &&serde_json::Value| {
            check["needed_for"] == "native" || check["needed_for"] == "optional"
        };
        let of_here: Vec<_> = checks.iter().filter(here).collect();
        let tried = of_here
            .iter()
            .any(|check| check["what"] == "the shim, by the verifier");
        check(
            tried && of_here.iter().all(|check| check["ok"] == true),
            || text.clone(),
        )
    };
    let is_loaded = || fs::metadata("/sys/module/baton").is_ok();
    misses_nothing()?;
    check(!is_loaded(), || "doctor did not unload the core".into())?;
    baton(&["load", "fifo", "--all"])?;
    misses_nothing()?;
    check(is_loaded(), || "doctor unloaded the core".into())?;
    is_well("fifo")
}

fn runs_some() -> Result<(), String> {
    must(
        "baton",
        &["run", "-p", "wfq", "--", "hackbench", "-g", "2", "-l", "50"],
    )?;
    let code = run("baton", &["run", "-p", "wfq", "--", "sh", "-c", "exit 7"])?.code;
    check(code == Some(7), || {
        format!("the exit code is {code:?}, not 7")
    })?;
    is_well("wfq")
}

fn attaches() -> Result<(), String> {
    baton(&["load", "wfq"])?;
    let mut child = Command::new("sleep")
        .arg("600")
        .spawn()
        .map_err(|e| e.to_string())?;
    let pid = child.id().to_string();
    let members =
        || -> Result<u64, String> { Ok(policy(&status()?, "wfq")?["tasks"].as_u64().unwrap_or(0)) };
    let result = (|| {
        baton(&["attach", "wfq", "--pid", &pid])?;
        check_class(child.id(), 7)?;
        baton(&["detach", "--pid", &pid])?;
        check_class(child.id(), 0)?;
        check(members()? == 0, || "the task is still a member".into())
    })();
    child
        .kill()
        .and_then(|()| child.wait())
        .map_err(|e| e.to_string())?;
    result
}

/// Checks the kernel's scheduling policy of a thread (SCHED_EXT is 7).
fn check_class(pid: u32, expected: u32) -> Result<(), String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
    // Field 41; the name in field 2 may have spaces.
    let class = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(38))
        .unwrap_or("?");
    check(class == expected.to_string(), || {
        format!("the task is of class {class}, not {expected}")
    })
}

fn life() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    stress(&[
        "--fork",
        "2",
        "--exec",
        "2",
        "--clone",
        "2",
        "--affinity",
        "2",
        "--nice",
        "2",
        "--schedpolicy",
        "2",
        "--futex",
        "2",
        "--timeout",
        "3",
    ])?;
    is_well("wfq")
}

fn hotplug() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let mut load = Command::new("stress-ng")
        .args(["--cpu", "4", "--switch", "2", "--timeout", "4", "--quiet"])
        .spawn()
        .map_err(|e| e.to_string())?;
    for _ in 0..4 {
        for state in ["0", "1"] {
            sleep(Duration::from_millis(200));
            fs::write("/sys/devices/system/cpu/cpu1/online", state)
                .map_err(|e| format!("hotplug: {e}"))?;
        }
    }
    let ended = load.wait().map_err(|e| e.to_string())?;
    check(ended.success(), || format!("stress-ng ended with {ended}"))?;
    is_well("wfq")
}

/// The number of interrupts in which a CPU did its own deferred work (irq_work).
fn own_interrupts(cpu: usize) -> Result<u64, String> {
    let text = fs::read_to_string("/proc/interrupts").map_err(|e| e.to_string())?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("IWI:"))
        .ok_or("no IWI in /proc/interrupts")?;
    line.split_whitespace()
        .nth(cpu)
        .and_then(|count| count.parse().ok())
        .ok_or(format!("no number for {cpu}: {line}"))
}

/// A CPU that goes offline wakes the task that waits for it to do so, and the woken task may
/// preempt another. By then the CPU takes no interrupts. Work that it would do in an interrupt must
/// not stay queued: after the CPU's return, no such interrupt would come.
fn busy_hotplug() -> Result<(), String> {
    const ROUNDS: usize = 40;
    baton(&["load", "shinjuku", "--all"])?;
    let mut hogs = (0..3)
        .map(|_| Hog::plain())
        .collect::<Result<Vec<_>, _>>()?;
    for _ in 0..4 {
        hogs.push(Hog::that_sleeps()?);
    }
    for round in 0..ROUNDS {
        for state in ["0", "1"] {
            fs::write("/sys/devices/system/cpu/cpu1/online", state)
                .map_err(|e| format!("hotplug: {e}"))?;
            sleep(Duration::from_millis(20));
        }
        let before = own_interrupts(1)?;
        let is_served = |_| {
            sleep(Duration::from_millis(20));
            own_interrupts(1).is_ok_and(|count| count > before)
        };
        check((0..100).any(is_served), || {
            format!("no interrupt for work of CPU 1 since round {round}")
        })?;
    }
    drop(hogs);
    is_well("shinjuku")
}

fn cgroups() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let groups = ["/sys/fs/cgroup/baton-a", "/sys/fs/cgroup/baton-b"];
    // Without the controller a move between cgroups has no effect on the scheduler.
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu")
        .map_err(|e| format!("cgroup cpu controller: {e}"))?;
    for group in groups {
        fs::create_dir_all(group).map_err(|e| e.to_string())?;
    }
    let mut load = Command::new("stress-ng")
        .args(["--cpu", "2", "--timeout", "3", "--quiet"])
        .spawn()
        .map_err(|e| e.to_string())?;
    for round in 0..40 {
        let _ = fs::write(
            format!("{}/cgroup.procs", groups[round % 2]),
            load.id().to_string(),
        );
        sleep(Duration::from_millis(50));
    }
    let ended = load.wait().map_err(|e| e.to_string())?;
    for group in groups {
        fs::remove_dir(group).map_err(|e| format!("{group}: {e}"))?;
    }
    check(ended.success(), || format!("stress-ng ended with {ended}"))?;
    is_well("wfq")
}

fn few_slots() -> Result<(), String> {
    baton(&["load", "wfq", "--all", "--max-tasks", "256"])?;
    hackbench(8, 10)?;
    let status = status()?;
    check(status["core"]["no_slot"].as_u64().unwrap_or(0) > 0, || {
        format!("no task was without a slot: {status}")
    })?;
    is_well("wfq")
}

fn killed() -> Result<(), String> {
    for command in [
        &["load", "wfq", "--all"][..],
        &["run", "-p", "wfq", "--", "hackbench", "-g", "1", "-l", "20"],
        &["unload", "wfq"],
    ] {
        for step in 0..8 {
            let mut tool = Command::new("baton")
                .args(command)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|e| e.to_string())?;
            sleep(Duration::from_millis(step * 12));
            tool.kill()
                .and_then(|()| tool.wait())
                .map_err(|e| e.to_string())?;
            hackbench(1, 5)?;
        }
        // wfq can still be loaded, and gets all tasks.
        baton(&["load", "wfq", "--all"])?;
        hackbench(1, 20)?;
        is_well("wfq")?;
    }
    Ok(())
}

fn unload_busy() -> Result<(), String> {
    for all in [true, false] {
        baton(if all {
            &["load", "wfq", "--all"][..]
        } else {
            &["load", "wfq"]
        })?;
        let arguments: &[&str] = if all {
            &["-c", "hackbench -g 3 -l 100"]
        } else {
            &["-c", "baton run -p wfq -- hackbench -g 3 -l 100"]
        };
        let mut load = Command::new("sh")
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())?;
        sleep(Duration::from_millis(100));
        baton(&["unload", "wfq"])?;
        let ended = load.wait().map_err(|e| e.to_string())?;
        check(ended.success(), || {
            format!("the workload ended with {ended} after wfq was unloaded")
        })?;
    }
    Ok(())
}

fn twice() -> Result<(), String> {
    baton(&["load", "wfq"])?;
    baton(&["load", "wfq"])?;
    is_well("wfq")
}

fn rmmod() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    for module in ["baton_wfq", "baton"] {
        let ran = run("rmmod", &[module])?;
        check(ran.code != Some(0), || {
            format!("rmmod {module} was not refused")
        })?;
    }
    hackbench(1, 20)?;
    is_well("wfq")
}

fn other_kernel() -> Result<(), String> {
    let module = changed_module("fifo", |bytes| {
        replace(bytes, b"vermagic=", b"vermagic=6.1.0-not-this-one\0")
    })?;
    baton_fails(&["load", "fifo", "--module", &module], "kernel")
}

fn other_abi() -> Result<(), String> {
    // The description of the policy: version 1, no events, in Rust, "fifo"; before it the version
    // of the interface.
    let mut here = Vec::new();
    for word in [1_u32, 0, 0] {
        here.extend(word.to_le_bytes());
    }
    here.extend(b"fifo\0");
    let module = changed_module("fifo", |bytes| {
        let at = bytes
            .windows(here.len())
            .position(|window| window == here)
            .and_then(|at| at.checked_sub(4));
        let at = at.ok_or("the module does not have what is to be changed")?;
        bytes[at..at + 4].copy_from_slice(&99_u32.to_le_bytes());
        Ok(())
    })?;
    baton_fails(&["load", "fifo", "--module", &module], "interface")
}
