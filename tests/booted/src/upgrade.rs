// SPDX-License-Identifier: GPL-2.0-only
//! Upgrades from one version of a policy to another. `wfq` upgrades to itself, with its state
//! shared. `relay` has two versions whose states differ, and the second fails on demand at each
//! step.

use crate::{
    tool::{
        baton, baton_fails, changed_module, check, hackbench, module, policy, replace, run, status,
        stress, two_modules, Hog, Load,
    },
    Case,
};
use serde_json::Value;
use std::{
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("upgrades under load", same_state("wfq")),
        case!(
            "upgrades under load, of a policy in Baton's language",
            same_state("cfs_cwc_flat")
        ),
        case!("upgrades to another state and back", other_state()),
        case!("upgrade refused: another type of state", other_type()),
        case!("upgrade refused: no state", no_state()),
        case!(
            "upgrade: the state is handed on with a panic",
            prepare_fails()
        ),
        case!(
            "upgrade: the conversion panics",
            fails("convert-panic", "asked to panic as the state is converted")
        ),
        case!(
            "upgrade: the conversion is refused",
            fails("convert-refuses", "asked to refuse the state")
        ),
        case!(
            "upgrade: the import panics",
            fails("init-panic", "asked to panic as it is made")
        ),
        case!(
            "upgrade: the import runs out of memory",
            fails("init-memory", "memory allocation of")
        ),
        case!(
            "upgrade: the import deadlocks",
            fails("init-lock", "a lock was taken while")
        ),
        case!(
            "upgrade: the import recurses without end",
            fails("init-recursion", "the stack is used up")
        ),
        case!(
            "upgrade: the queues are taken with a recursion",
            fails("take-recursion", "4096 bytes of stack")
        ),
        case!(
            "upgrade: the queues are taken with a panic",
            fails("take-panic", "as the queues are taken")
        ),
        case!(
            "upgrade: the queues are taken with a deadlock",
            fails("take-deadlock", "this CPU already holds the lock")
        ),
        case!(
            "upgrade: the queues are refused",
            fails("take-refuses", "could not take the state over")
        ),
        case!("probation that fails by a fault", probation()),
        case!("probation that fails by its condition", condition()),
        case!("rollback, also after a second upgrade", rolls_back()),
        case!("two upgrades at once", two_at_once()),
        case!("upgrade of a policy that is being unloaded", unloading()),
        case!("100 switches under load", switches()),
        case!("switch refused", switch_refused()),
    ]
}

const V1: &str = "relay_v1";
const V2: &str = "relay_v2";

fn load_relay(version: &str) -> Result<(), String> {
    baton(&["load", "relay", "--all", "--module", &module(version)?]).map(|_| ())
}

fn upgrade_relay(version: &str, options: &str) -> Result<Value, String> {
    let text = baton(&[
        "upgrade",
        "relay",
        "--module",
        &module(version)?,
        "--options",
        options,
        "--json",
    ])?;
    serde_json::from_str(&text)
        .map_err(|e| format!("baton upgrade --json is not JSON ({e}): {text}"))
}

fn is_running(name: &str, version: u64) -> Result<Value, String> {
    let status = status()?;
    let entry = policy(&status, name)?;
    check(
        entry["state"] == "running" && entry["version"] == version && entry["faults"] == 0,
        || format!("{name} is not version {version}, running and well: {status}"),
    )?;
    Ok(status)
}

/// The number of tasks that the fallback has taken so far.
fn fallbacks(status: &Value) -> u64 {
    status["cpus"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|cpu| cpu["fallbacks"].as_u64())
        .sum()
}

fn same_state(name: &str) -> Result<(), String> {
    baton(&["load", name, "--all"])?;
    let before = fallbacks(&status()?);
    let load = Load::hackbench(2, 400)?;
    for _ in 0..8 {
        let text = baton(&["upgrade", name, "--json"])?;
        let done: Value =
            serde_json::from_str(&text).map_err(|e| format!("not JSON ({e}): {text}"))?;
        check(done["held_ns"] == 0 && done["anew"] == false, || {
            format!("CPUs were held, or the state was lost: {done}")
        })?;
    }
    load.end()?;
    let status = is_running(name, 1)?;
    check(fallbacks(&status) == before, || {
        format!("tasks left the policy (before {before}): {status}")
    })
}

fn other_state() -> Result<(), String> {
    load_relay(V1)?;
    let before = fallbacks(&status()?);
    let load = Load::hackbench(2, 400)?;
    for round in 0..8 {
        let to = if round % 2 == 0 { V2 } else { V1 };
        let done = upgrade_relay(to, "")?;
        check(done["held_ns"].as_u64().unwrap_or(0) > 0, || {
            format!("no CPU was held: {done}")
        })?;
    }
    stress(&["--affinity", "2", "--fork", "2", "--timeout", "1"])?;
    load.end()?;
    let status = is_running("relay", 1)?;
    check(fallbacks(&status) == before, || {
        format!("tasks left the policy (before {before}): {status}")
    })
}

fn other_type() -> Result<(), String> {
    load_relay(V1)?;
    let module = changed_module(V2, |bytes| {
        // Changes both types that it accepts: its own state, and that of the other version.
        while replace(bytes, b"Shared\0", b"Others\0").is_ok() {}
        Ok(())
    })?;
    baton_fails(
        &["upgrade", "relay", "--module", &module],
        "hands on Shared version 1",
    )?;
    baton_fails(
        &["upgrade", "relay", "--module", &module],
        "takes Others version 2",
    )?;
    is_running("relay", 1)?;
    hackbench(1, 5)
}

fn no_state() -> Result<(), String> {
    baton(&["load", "fifo", "--all"])?;
    baton_fails(&["upgrade", "fifo"], "hands no state on")?;
    is_running("fifo", 1).map(|_| ())
}

fn prepare_fails() -> Result<(), String> {
    baton(&[
        "load",
        "relay",
        "--all",
        "--module",
        &module(V2)?,
        "--options",
        "fault=prepare-panic",
    ])?;
    baton_fails(
        &[
            "upgrade",
            "relay",
            "--module",
            &module(V1)?,
            "--options",
            "",
        ],
        "asked to panic as the state is handed on",
    )?;
    is_running("relay", 2)?;
    hackbench(1, 5)
}

/// The upgrade fails in this way, and the running version is unaffected.
fn fails(fault: &str, expected: &str) -> Result<(), String> {
    load_relay(V1)?;
    let before = fallbacks(&status()?);
    let load = Load::hackbench(1, 200)?;
    // An import from a state of its own type, for which no conversion is needed.
    let options = format!("fault={fault}");
    baton_fails(
        &[
            "upgrade",
            "relay",
            "--module",
            &module(V2)?,
            "--options",
            &options,
        ],
        expected,
    )?;
    load.end()?;
    let status = is_running("relay", 1)?;
    check(fallbacks(&status) == before, || {
        format!("tasks left the policy (before {before}): {status}")
    })?;
    // It can still be upgraded.
    upgrade_relay(V2, "")?;
    is_running("relay", 2).map(|_| ())
}

fn probation() -> Result<(), String> {
    load_relay(V1)?;
    let load = Load::hackbench(1, 200)?;
    let module = module(V2)?;
    let upgrade = [
        "upgrade",
        "relay",
        "--module",
        &module,
        "--options",
        "fault=late,after=50",
        "--probation",
        "30s",
    ];
    baton_fails(&upgrade, "did not pass its probation")?;
    load.end()?;
    let status = status()?;
    let entry = policy(&status, "relay")?;
    check(entry["state"] == "running" && entry["version"] == 1, || {
        format!("version 1 is not back: {status}")
    })?;
    let last = entry["history"]
        .as_array()
        .and_then(|history| history.last().cloned())
        .unwrap_or_default();
    check(last["kind"] == "rollback after a fault", || {
        format!("the history does not say so: {status}")
    })?;
    check(status["faults"][0]["kind"] == "panic", || {
        format!("the fault is not reported: {status}")
    })?;
    // Its tasks belong to it again: as before the fault, none is left to the fallback.
    hackbench(1, 5)?;
    let tasks = policy(&crate::tool::status()?, "relay")?["tasks"]
        .as_u64()
        .unwrap_or(0);
    check(tasks > 0, || format!("no task came back: {status}"))
}

fn condition() -> Result<(), String> {
    load_relay(V1)?;
    // They run until they are dropped, even on a slow machine. With fewer than 100 wakeups the
    // condition has no meaning.
    let _hogs = [
        Hog::plain()?,
        Hog::plain()?,
        Hog::plain()?,
        Hog::that_sleeps()?,
        Hog::that_sleeps()?,
    ];
    let module = module(V2)?;
    let upgrade = [
        "upgrade",
        "relay",
        "--module",
        &module,
        "--options",
        "",
        "--probation",
    ];
    // A task that wakes where hogs compute waits longer than a millisecond, but less than a minute.
    baton_fails(
        &[&upgrade[..], &["30s", "--max-p99-wakeup", "1ms"]].concat(),
        "1 % of wakeups waited",
    )?;
    let status = is_running("relay", 1)?;
    let last = policy(&status, "relay")?["history"]
        .as_array()
        .and_then(|history| history.last().cloned());
    check(last.unwrap_or_default()["kind"] == "rollback", || {
        format!("the history does not say so: {status}")
    })?;
    baton(&[&upgrade[..], &["500ms", "--max-p99-wakeup", "1min"]].concat())?;
    is_running("relay", 2).map(|_| ())
}

fn rolls_back() -> Result<(), String> {
    load_relay(V1)?;
    let load = Load::hackbench(1, 200)?;
    upgrade_relay(V2, "")?;
    baton(&["rollback", "relay"])?;
    is_running("relay", 1)?;
    baton_fails(&["rollback", "relay"], "no version before is kept")?;
    upgrade_relay(V2, "")?;
    upgrade_relay(V1, "")?;
    // The modules of both versions are in use.
    let modules = two_modules("baton_relay")?;
    for module in &modules {
        let ran = run("rmmod", &[module])?;
        check(ran.code != Some(0), || {
            format!("rmmod {module} was not refused")
        })?;
    }
    baton(&["rollback", "relay"])?;
    load.end()?;
    is_running("relay", 2).map(|_| ())
}

fn two_at_once() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    let spawn = || {
        Command::new("baton")
            .args(["upgrade", "wfq"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    let tools = [spawn(), spawn(), spawn()];
    for tool in tools {
        let ended = tool
            .and_then(|mut tool| tool.wait())
            .map_err(|e| e.to_string())?;
        check(ended.success(), || {
            format!("one of the upgrades ended with {ended}")
        })?;
    }
    let status = is_running("wfq", 1)?;
    let history = policy(&status, "wfq")?["history"]
        .as_array()
        .map_or(0, Vec::len);
    check(history == 3, || {
        format!("{history} upgrades in the history, not 3: {status}")
    })
}

fn unloading() -> Result<(), String> {
    for delay in [0, 5, 20, 60] {
        baton(&["load", "wfq", "--all"])?;
        let mut unload = Command::new("baton")
            .args(["unload", "wfq"])
            .spawn()
            .map_err(|e| e.to_string())?;
        sleep(Duration::from_millis(delay));
        // It runs before or after the other upgrade: both results are valid.
        let ran = run("baton", &["upgrade", "wfq"])?;
        check(matches!(ran.code, Some(0 | 1)), || {
            format!("the upgrade ended with {:?}: {}", ran.code, ran.text)
        })?;
        let ended = unload.wait().map_err(|e| e.to_string())?;
        check(ended.success(), || format!("the unload ended with {ended}"))?;
        hackbench(1, 2)?;
    }
    Ok(())
}

/// The kernel's own count of the actions it had to take in the scheduler's place.
fn kernel_events() -> String {
    std::fs::read_to_string("/sys/kernel/sched_ext/root/events").unwrap_or_default()
}

fn switches() -> Result<(), String> {
    baton(&["load", "fifo", "--all"])?;
    let enabled =
        || std::fs::read_to_string("/sys/kernel/sched_ext/enable_seq").unwrap_or_default();
    let (before, sequence) = (fallbacks(&status()?), enabled());
    let load = Load::hackbench(1, 2_000)?;
    for _ in 0..50 {
        baton(&["switch", "fifo", "wfq"])?;
        baton(&["switch", "wfq", "fifo"])?;
    }
    load.end()?;
    let status = is_running("fifo", 1)?;
    check(policy(&status, "wfq").is_err(), || {
        format!("wfq is still there: {status}")
    })?;
    check(fallbacks(&status) == before, || {
        format!("tasks went to the fallback (before {before}): {status}")
    })?;
    check(enabled() == sequence, || {
        format!("sched_ext was taken away and back: {}", kernel_events())
    })
}

fn switch_refused() -> Result<(), String> {
    baton(&["load", "fifo", "--all"])?;
    baton_fails(&["switch", "fifo", "fifo"], "has its tasks already")?;
    baton_fails(&["switch", "wfq", "fifo"], "no policy wfq is loaded")?;
    baton_fails(
        &["switch", "fifo", "wfq", "--options", "colour=red"],
        "option",
    )?;
    is_running("fifo", 1)?;
    hackbench(1, 5)
}
