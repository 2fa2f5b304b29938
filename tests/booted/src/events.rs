// SPDX-License-Identifier: GPL-2.0-only
//! Policies in C by events (policy/c/events.h): upgrades, and mistakes that are refused.

use crate::{
    tool::{
        baton, baton_fails, check, hackbench, is_well, must, run, sched_ext_state, status, stress,
        Hog, Load,
    },
    Case, IN_C,
};
use serde_json::Value;
use std::fs;

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "events: policies in C are replaced under load".into(),
            run: Box::new(replaced),
        },
        Case {
            name: "events: wrong changes of states are refused, and logged".into(),
            run: Box::new(refused),
        },
        Case {
            name: "events: init sleeps, and a core is not allowed".into(),
            run: Box::new(unusual),
        },
        Case {
            name: "events: a policy refuses tasks".into(),
            run: Box::new(picky),
        },
        Case {
            name: "events: what would lose a thread, or misuses a lock".into(),
            run: Box::new(stopped),
        },
    ]
}

/// Each takes the state of another copy of itself over, and no CPU is held.
fn replaced() -> Result<(), String> {
    for name in IN_C {
        baton(&["load", name, "--all"])?;
        let load = Load::hackbench(1, 150)?;
        for command in ["upgrade", "upgrade", "rollback"] {
            let said = baton(&[command, name])?;
            check(said.contains("no CPU was held"), || {
                format!("{command} {name}: {said}")
            })?;
        }
        load.end()?;
        is_well(name)?;
        baton(&["unload", name])?;
    }
    Ok(())
}

/// `wrong_c` wants each change of a state where it is not legal, and panics if one is accepted.
fn refused() -> Result<(), String> {
    // So that the core stays loaded.
    baton(&["load", "fifo_c"])?;
    baton(&["load", "wrong_c", "--all"])?;
    hackbench(2, 20)?;
    stress(&[
        "--cpu",
        "3",
        "--fork",
        "1",
        "--affinity",
        "1",
        "--nice",
        "1",
        "--yield",
        "1",
        "--timeout",
        "1s",
    ])?;
    is_well("wrong_c")?;
    let log = must("dmesg", &[])?;
    for (handler, change) in [
        ("new_place", "NEW to RUNNING"),
        ("unblock_prepare", "BLOCKED to READY"),
        ("schedule", "READY to BLOCKED"),
    ] {
        let is_named = |line: &str| {
            line.contains(&format!("policy wrong_c, {handler}:")) && line.contains(change)
        };
        check(log.lines().any(is_named), || {
            format!("{handler}, {change} is not in the log")
        })?;
    }
    // The same by the tool, and for people without it.
    let said = baton(&["status", "--json"])?;
    let json: Value = serde_json::from_str(&said).map_err(|e| format!("{e}: {said}"))?;
    let policies = json["policies"].as_array().into_iter().flatten();
    let wrong = policies.filter(|policy| policy["name"] == "wrong_c");
    let mut places =
        wrong.flat_map(|policy| policy["refused_changes"].as_array().into_iter().flatten());
    let is_it = |place: &Value| place["handler"] == "schedule" && place["to"] == "BLOCKED";
    check(places.any(is_it), || {
        format!("the refused change is not in: {said}")
    })?;
    let _ = run("mount", &["-t", "debugfs", "none", "/sys/kernel/debug"]);
    let read = |name: &str| {
        let path = format!("/sys/kernel/debug/baton/{name}");
        fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))
    };
    let (policies, refused) = (read("policies")?, read("refused")?);
    check(policies.contains("wrong_c running 1 "), || policies.clone())?;
    check(refused.contains("wrong_c schedule "), || refused.clone())?;
    baton(&["unload", "wrong_c"])?;
    let left = read("refused")?;
    check(!left.contains("wrong_c"), || format!("left: {left}"))
}

/// An `init` that sleeps may. A thread for which the policy names a core that it may not use runs
/// where the kernel puts it.
fn unusual() -> Result<(), String> {
    for option in ["sleep", "core"] {
        let options = format!("wrong={option}");
        baton(&["load", "wrong_c", "--all", "--options", &options])?;
        stress(&["--affinity", "2", "--switch", "1", "--timeout", "1s"])?;
        hackbench(1, 5)?;
        is_well("wrong_c")?;
        baton(&["unload", "wrong_c"])?;
    }
    Ok(())
}

/// Nothing is given to the policy that it refuses, and what it takes runs under it.
fn picky() -> Result<(), String> {
    baton_fails(
        &["load", "wrong_c", "--all", "--options", "wrong=picky"],
        "wrong_c refuses to have all tasks: it is for few threads",
    )?;
    check(sched_ext_state() != "enabled", || {
        "the shim is attached".into()
    })?;
    baton(&["load", "wrong_c", "--options", "wrong=picky"])?;
    baton(&[
        "run",
        "-p",
        "wrong_c",
        "--",
        "hackbench",
        "-g",
        "1",
        "-l",
        "5",
    ])?;
    baton_fails(&["run", "-p", "wrong_c", "--", "/bin/true"], "it is true")?;
    baton_fails(&["attach", "wrong_c", "--all"], "it is for few threads")?;
    check(status()?["core"]["all"] == false, || {
        "all tasks are Baton's".into()
    })?;
    let hog = Hog::plain()?;
    must("renice", &["-n", "5", "-p", &hog.pid()])?;
    baton_fails(
        &["attach", "wrong_c", "--pid", &hog.pid()],
        "its nice value is positive",
    )?;
    // To 0 or -5: what -n means depends on the version.
    must("renice", &["-n", "-5", "-p", &hog.pid()])?;
    baton(&["attach", "wrong_c", "--pid", &hog.pid()])?;
    is_well("wrong_c")
}

/// The policy is stopped, with the reason, and the tasks go on.
fn stopped() -> Result<(), String> {
    for (option, reason) in [
        ("lost", "lost task"),
        ("moving", "lost task"),
        ("lock", "deadlock"),
        ("order", "deadlock"),
        ("held", "deadlock"),
    ] {
        baton(&[
            "load",
            "wrong_c",
            "--all",
            "--options",
            &format!("wrong={option}"),
        ])?;
        // Its handlers for yields and for balancing.
        stress(&["--cpu", "4", "--yield", "1", "--timeout", "1s"])?;
        let said = baton(&["status"])?;
        check(
            said.contains("FAULT of policy wrong_c") && said.contains(reason),
            || format!("wrong={option}: {reason} is not in: {said}"),
        )?;
        hackbench(1, 5)?;
        baton(&["unload", "wrong_c"])?;
    }
    Ok(())
}
