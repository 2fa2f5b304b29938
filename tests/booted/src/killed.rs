// SPDX-License-Identifier: GPL-2.0-only
//! Commands that are killed before each of their steps. The machine must go on, and the same or
//! another command must complete the work.

use crate::{
    tool::{baton, check, hackbench, is_well, must, run, status, two_modules, unload_everything},
    Case,
};
use serde_json::{json, Value};
use std::{collections::HashMap, fs};

pub fn cases() -> Vec<Case> {
    vec![
        case!("kill -9 of a load at each step", load()),
        case!("a load that fails at each step", failed_load()),
        case!("kill -9 of an upgrade at each step", upgrade()),
        case!("kill -9 of a rollback at each step", rollback()),
        case!("kill -9 of a switch at each step", switch()),
        case!("kill -9 of an unload at each step", unload()),
    ]
}

/// The system calls that send requests to the kernel's side, or load and unload modules.
const CALLS: &str = "ioctl,init_module,finit_module,delete_module";
const TRACE: &str = "/tmp/steps";

/// A step: the name of a system call of [`CALLS`], and which call of that name it is, from 1. Equal
/// `ioctl` calls in a row are one step.
type Step = (String, usize);

/// Runs the command, and returns its steps.
fn steps(command: &[&str]) -> Result<Vec<Step>, String> {
    let trace = format!("trace={CALLS}");
    must(
        "strace",
        &[&["-qq", "-o", TRACE, "-e", &trace, "baton"], command].concat(),
    )?;
    let text = fs::read_to_string(TRACE).map_err(|e| format!("{TRACE}: {e}"))?;
    let (mut counts, mut before, mut steps) = (HashMap::<&str, usize>::new(), "", Vec::new());
    for line in text.lines() {
        let Some((name, _)) = line.split_once('(') else {
            continue;
        };
        let count = counts.entry(name).or_default();
        *count += 1;
        // `ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0xb7, 0x2, 0x1c8), 0x7ffd...) = 0`: everything but
        // the address.
        let what = line.rsplit_once(", ").map_or(line, |(what, _)| what);
        if name != "ioctl" || what != before {
            steps.push((name.to_owned(), *count));
        }
        before = what;
    }
    match steps.len() {
        0 | 1 => Err(format!("{command:?} has no steps: {text}")),
        _ => Ok(steps),
    }
}

/// Runs the command and kills it before that step, if it reaches the step.
fn kill_before((name, which): &Step, command: &[&str]) -> Result<(), String> {
    let (trace, inject) = (
        format!("trace={name}"),
        format!("inject={name}:signal=KILL:when={which}"),
    );
    let ran = run(
        "strace",
        &[
            &["-qq", "-o", TRACE, "-e", &trace, "-e", &inject, "baton"],
            command,
        ]
        .concat(),
    )?;
    match ran.code {
        None | Some(0) => Ok(()),
        Some(code) => Err(format!(
            "{command:?} ended with {code} before it was killed: {}",
            ran.text
        )),
    }
}

fn load() -> Result<(), String> {
    let command = ["load", "wfq", "--all"];
    for step in steps(&command)? {
        unload_everything()?;
        kill_before(&step, &command)?;
        hackbench(1, 2)?;
        baton(&command)?;
        is_well("wfq")?;
    }
    Ok(())
}

/// What is loaded: whether the shim is attached, for which tasks, the default policy, and each
/// policy with its state.
fn loaded() -> Result<Value, String> {
    let status = status()?;
    let policies = status["policies"]
        .as_array()
        .ok_or("the status has no policies")?;
    let policies: Vec<_> = policies
        .iter()
        .map(|policy| json!([policy["name"], policy["state"]]))
        .collect();
    let core = &status["core"];
    Ok(json!([
        core["attached"],
        core["all"],
        core["default_policy"],
        policies
    ]))
}

/// Lets each step of a load fail once with EIO: each request to the kernel's side, the loading of
/// the module, and the last `bpf` calls, which attach and pin the shim. A failed load must leave
/// everything as it was.
fn failed_load() -> Result<(), String> {
    /// Number of `bpf` calls at the end of a load that are made to fail.
    const BPF: usize = 6;
    let command = ["load", "wfq", "--all"];
    let begin = || unload_everything().and_then(|()| baton(&["load", "fifo"]));
    begin()?;
    let mut places = steps(&command)?;
    begin()?;
    must(
        "strace",
        &[
            &["-qq", "-o", TRACE, "-e", "trace=bpf", "baton"],
            &command[..],
        ]
        .concat(),
    )?;
    let calls = fs::read_to_string(TRACE)
        .map_err(|e| format!("{TRACE}: {e}"))?
        .lines()
        .count();
    places.extend((calls.saturating_sub(BPF) + 1..=calls).map(|which| ("bpf".into(), which)));
    begin()?;
    let before = loaded()?;
    let mut failures = 0;
    for (name, which) in places {
        let (trace, inject) = (
            format!("trace={name}"),
            format!("inject={name}:error=EIO:when={which}"),
        );
        let ran = run(
            "strace",
            &[
                &["-qq", "-o", TRACE, "-e", &trace, "-e", &inject, "baton"],
                &command[..],
            ]
            .concat(),
        )?;
        if ran.code == Some(0) {
            begin()?;
            continue;
        }
        failures += 1;
        let after = loaded()?;
        check(after == before, || {
            format!("{name} {which}: {before} became {after}: {}", ran.text)
        })?;
        is_well("fifo")?;
    }
    check(failures > BPF / 2, || {
        format!("only {failures} loads failed")
    })
}

fn upgrade() -> Result<(), String> {
    let command = ["upgrade", "wfq"];
    baton(&["load", "wfq", "--all"])?;
    baton(&command)?;
    for step in steps(&command)? {
        kill_before(&step, &command)?;
        is_well("wfq")?;
        hackbench(1, 2)?;
        baton(&command)?;
        two_modules("baton_wfq")?;
    }
    // Killed at one step after another, each time in the state that the last kill left.
    for _ in 0..3 {
        for step in steps(&command)? {
            kill_before(&step, &command)?;
            is_well("wfq")?;
        }
    }
    baton(&command)?;
    two_modules("baton_wfq").map(|_| ())
}

fn rollback() -> Result<(), String> {
    let command = ["rollback", "wfq"];
    baton(&["load", "wfq", "--all"])?;
    baton(&["upgrade", "wfq"])?;
    for step in steps(&command)? {
        baton(&["upgrade", "wfq"])?;
        kill_before(&step, &command)?;
        is_well("wfq")?;
        hackbench(1, 2)?;
    }
    baton(&["upgrade", "wfq"])?;
    two_modules("baton_wfq").map(|_| ())
}

fn switch() -> Result<(), String> {
    let (there, back) = (["switch", "fifo", "wfq"], ["switch", "wfq", "fifo"]);
    baton(&["load", "fifo", "--all"])?;
    let steps = steps(&there)?;
    baton(&back)?;
    for step in steps {
        kill_before(&step, &there)?;
        hackbench(1, 2)?;
        // If wfq has the tasks already, the command reports that, and fifo remains to be unloaded.
        run("baton", &there)?;
        is_well("wfq")?;
        run("baton", &["unload", "fifo"])?;
        baton(&back)?;
        is_well("fifo")?;
    }
    Ok(())
}

fn unload() -> Result<(), String> {
    let command = ["unload", "--everything"];
    let begin = || baton(&["load", "wfq", "--all"]).and_then(|_| baton(&["upgrade", "wfq"]));
    begin()?;
    for step in steps(&command)? {
        begin()?;
        kill_before(&step, &command)?;
        hackbench(1, 2)?;
        unload_everything()?;
    }
    Ok(())
}
