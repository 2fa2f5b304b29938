// SPDX-License-Identifier: GPL-2.0-only
//! Flight recorders: after a fault, the last calls of a policy are available, from a saved state
//! on.

use crate::{
    record::{is_whole, replays},
    tool::{baton, baton_fails, check, is_well, module, must, policy, status, stress, Load},
    Case,
};
use baton_trace::{Event, Item, Recording};
use serde_json::Value;
use std::{fs, thread::sleep, time::Duration};

pub fn cases() -> Vec<Case> {
    vec![
        case!(
            "flight recorder: a fault can be saved from a checkpoint on",
            checkpoint()
        ),
        case!(
            "flight recorder: a fault of a policy without a saved state",
            without_state()
        ),
        case!(
            "flight recorder: full, of a policy without a saved state",
            oldest_dropped()
        ),
        case!(
            "flight recorder: goes on after recordings and upgrades",
            goes_on()
        ),
        case!("flight recorder: too large for the memory", too_large()),
        case!("flight recorder: a fault on probation is kept", probation()),
    ]
}

const FILE: &str = "/tmp/flight";

fn set(name: &str, mib: &str) -> Result<(), String> {
    baton(&["record", "-p", name, "--flight", mib]).map(|_| ())
}

/// The size of a policy's flight recorder, MiB per CPU.
fn of(name: &str) -> Result<u64, String> {
    Ok(policy(&status()?, name)?["flight_mib"]
        .as_u64()
        .unwrap_or(0))
}

fn save(name: &str) -> Result<Value, String> {
    let text = baton(&["fault", "save", FILE, "-p", name, "--json"])?;
    serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))
}

/// Stalls the policy's tasks until it is stopped by a fault.
pub fn stall(name: &str) -> Result<(), String> {
    const LIMIT: &str = "/sys/module/baton/parameters/stall_ms";
    let load = Load::hackbench(4, 200)?;
    let usual = fs::read_to_string(LIMIT).map_err(|e| e.to_string())?;
    fs::write(LIMIT, "1").map_err(|e| e.to_string())?;
    let mut looks = 0;
    while policy(&status()?, name)?["state"] != "faulted" {
        looks += 1;
        check(looks < 200, || format!("{name} does not stall"))?;
        sleep(Duration::from_millis(100));
    }
    fs::write(LIMIT, usual).map_err(|e| e.to_string())?;
    load.end()
}

fn calls(recording: &Recording) -> usize {
    let items = recording.streams.iter().flat_map(|stream| stream.items());
    items
        .filter(|item| matches!(item, Item::Event(Event::Call(_))))
        .count()
}

fn checkpoint() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    baton_fails(&["fault", "save", FILE, "-p", "wfq"], "has not failed")?;
    set("wfq", "1")?;
    Load::hackbench(2, 1_000)?.end()?;
    is_well("wfq")?;
    let made: u64 = status()?["cpus"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cpu| cpu["picks"].as_u64().unwrap_or(0))
        .sum();
    stall("wfq")?;
    let summary = save("wfq")?;
    let recording = is_whole(FILE, &summary)?;
    check(
        summary["end"] == "the policy failed" && recording.state.is_some(),
        || summary.to_string(),
    )?;
    replays(&recording, None)?;
    // The checkpoint, which is the second saved state.
    let marks = recording.marks();
    check(marks.len() == 1 && summary["checkpoints"] == 1, || {
        format!("{marks:?} in {summary}")
    })?;
    replays(&recording, marks.last().copied())?;
    // Each pick is a call, and so is each wakeup. Calls before the first remaining checkpoint are
    // gone.
    let saved = calls(&recording) as u64;
    check(saved > 1_000 && saved < made, || {
        format!("{saved} calls are saved, of {made} picks alone")
    })?;
    // The recording stays until the policy is unloaded.
    check(save("wfq")? == summary, || {
        "saved twice, it is not the same".into()
    })?;
    baton(&["unload", "wfq"])?;
    baton_fails(&["fault", "save", FILE], "core is not loaded")
}

fn without_state() -> Result<(), String> {
    baton(&[
        "load",
        "faulty",
        "--all",
        "--options",
        "fault=index,after=500",
    ])?;
    set("faulty", "4")?;
    stress(&["--switch", "1", "--timeout", "2s"])?;
    let summary = save("faulty")?;
    let recording = is_whole(FILE, &summary)?;
    let items = recording.streams.iter().flat_map(|stream| stream.items());
    let abandoned = items
        .filter(|item| matches!(item, Item::Event(Event::Abandoned { .. })))
        .count();
    check(
        recording.header.state.is_none() && abandoned == 1 && calls(&recording) > 500,
        || format!("{abandoned} calls were abandoned: {summary}"),
    )
}

/// The remaining part can be read, and reports that its beginning is missing.
fn oldest_dropped() -> Result<(), String> {
    baton(&["load", "fifo", "--all"])?;
    set("fifo", "1")?;
    stress(&["--switch", "2", "--timeout", "4s"])?;
    stall("fifo")?;
    let summary = save("fifo")?;
    let bytes = fs::read(FILE).map_err(|e| e.to_string())?;
    let recording = Recording::parse(&bytes).map_err(|e| e.to_string())?;
    let begins_late = recording
        .streams
        .iter()
        .any(|stream| matches!(stream.items().next(), Some(Item::Gap { .. })));
    let ends = recording
        .streams
        .iter()
        .all(|stream| matches!(stream.items().last(), Some(Item::Event(Event::End { .. }))));
    check(
        begins_late
            && summary["whole"] == false
            && ends
            && recording.damage.is_empty()
            && summary["end"] == "the policy failed",
        || format!("begins late: {begins_late}, has its ends: {ends}: {summary}"),
    )
}

fn goes_on() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    set("wfq", "1")?;
    let load = Load::hackbench(1, 300)?;
    baton(&["record", "-p", "wfq", "-o", FILE, "--for", "300ms"])?;
    check(of("wfq")? == 1, || "it has ended with a recording".into())?;
    baton(&["upgrade", "wfq"])?;
    check(of("wfq")? == 1, || "it has ended with an upgrade".into())?;
    set("wfq", "2")?;
    check(of("wfq")? == 2, || "it did not become larger".into())?;
    set("wfq", "0")?;
    check(of("wfq")? == 0, || "it did not end".into())?;
    load.end()?;
    set("wfq", "1")?;
    stall("wfq")?;
    is_whole(FILE, &save("wfq")?).map(|_| ())
}

/// The size is refused, and the existing recorder continues with its own.
fn too_large() -> Result<(), String> {
    baton(&["load", "wfq", "--all"])?;
    set("wfq", "1")?;
    Load::hackbench(1, 20)?.end()?;
    for _ in 0..2 {
        baton_fails(
            &["record", "-p", "wfq", "--flight", "4000"],
            "not enough memory",
        )?;
    }
    let log = must("dmesg", &[])?.to_lowercase();
    let killed = log
        .lines()
        .find(|line| line.contains("oom-kill") || line.contains("killed process"));
    check(killed.is_none(), || {
        format!("a task was killed: {killed:?}")
    })?;
    check(of("wfq")? == 1, || {
        "the one that there was has ended".into()
    })?;
    is_well("wfq")?;
    stall("wfq")?;
    let recording = is_whole(FILE, &save("wfq")?)?;
    replays(&recording, None)
}

/// The recording also exists when the previous version has come back.
fn probation() -> Result<(), String> {
    baton(&["load", "relay", "--all", "--module", &module("relay_v1")?])?;
    set("relay", "1")?;
    let load = Load::hackbench(1, 2_000)?;
    let next = module("relay_v2")?;
    // The fault is late enough for the recorder to work again: it starts when the upgrade is over,
    // which waits for a grace period.
    let upgrade = [
        "upgrade",
        "relay",
        "--module",
        &next,
        "--options",
        "fault=late,after=2000",
        "--probation",
        "30s",
    ];
    baton_fails(&upgrade, "did not pass its probation")?;
    load.end()?;
    let now = status()?;
    check(
        now["faults"][0]["recorded"] == true && policy(&now, "relay")?["state"] == "running",
        || now.to_string(),
    )?;
    let recording = is_whole(FILE, &save("relay")?)?;
    check(recording.header.version == 2, || {
        format!("it is of version {}", recording.header.version)
    })
}
