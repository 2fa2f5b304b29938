// SPDX-License-Identifier: GPL-2.0-only
//! Whatever a policy does wrong, its tasks go on and the report says what it was. The policy is `policies/faulty`.

use crate::{
    tool::{baton, baton_fails, check, hackbench, policy, sched_ext_state, status, stress},
    Case,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("index out of range", stops("index", "panic", "task_wakeup", Some("wrong.rs"), work)),
        case!("arithmetic overflow", stops("overflow", "panic", "task_wakeup", Some("wrong.rs"), work)),
        case!("unwrap on None", stops("unwrap", "panic", "task_wakeup", Some("wrong.rs"), work)),
        case!("memory exhausted", stops("memory", "out of memory", "task_wakeup", None, work)),
        case!("stack-hungry recursion", stops("recursion", "stack overflow", "task_wakeup", None, work)),
        case!("self-deadlock", stops("deadlock", "deadlock", "pick_next_task", None, work)),
        case!("lock cycle between two CPUs", stops("cycle", "deadlock", "pick_next_task", None, yields)),
        case!("Schedulable dropped", stops("dropped", "lost task", "task_yield", None, yields)),
        case!("pick that never picks (stall)", stops("stall", "stall", "-", None, work)),
        case!("refused answers for ever", stops("loop", "refusal loop", "pick_next_task", None, affinity)),
        case!("fault in a timer callback", stops("timer", "panic", "timer", Some("wrong.rs"), work)),
        case!("fault in select_task_rq", stops("select", "panic", "select_task_rq", Some("wrong.rs"), work)),
        case!("fault under 500 tasks", stops("index", "panic", "task_wakeup", Some("wrong.rs"), five_hundred)),
        case!("Schedulable for a CPU that is not allowed", refused("not-allowed", affinity)),
        case!("Schedulable kept and returned later", refused("stale", affinity)),
        case!("a CPU that does not exist", refused("select-cpu", work)),
        case!("panic while the policy is made", not_made("create", "wrong.rs")),
        case!("memory exhausted while the policy is made", not_made("create-memory", "memory")),
    ]
}

fn work() -> Result<(), String> {
    hackbench(1, 20)
}

fn five_hundred() -> Result<(), String> {
    hackbench(13, 10)
}

fn yields() -> Result<(), String> {
    stress(&["--yield", "2", "--timeout", "1"])
}

fn affinity() -> Result<(), String> {
    stress(&["--affinity", "4", "--timeout", "1"])
}

fn load(fault: &str) -> Result<(), String> {
    let options = format!("fault={fault},after=50");
    baton(&["load", "faulty", "--all", "--stall", "1500", "--options", &options]).map(|_| ())
}

/// The fault stops the policy; the load that ran into it ends well, and the report is right.
fn stops(
    fault: &str,
    kind: &str,
    method: &str,
    file: Option<&str>,
    work: fn() -> Result<(), String>,
) -> Result<(), String> {
    load(fault)?;
    work()?;
    let status = status()?;
    let faulty = policy(&status, "faulty")?;
    check(faulty["state"] == "faulted", || format!("the policy is {}, not faulted: {status}", faulty["state"]))?;
    check(faulty["queued"] == 0, || format!("tasks are stranded in the stopped policy: {status}"))?;
    let report = &status["faults"][0];
    check(report["policy"] == "faulty" && report["kind"] == kind && report["method"] == method, || {
        format!("the report does not say {kind} in {method}: {report}")
    })?;
    if let Some(file) = file {
        let place = report["place"].as_str().unwrap_or("");
        check(place.contains(file), || format!("the report names no place in {file}: {report}"))?;
    }
    let about_a_task = method.starts_with("task_") || method == "select_task_rq" || kind == "stall";
    check(!about_a_task || report["task"]["pid"].as_u64().unwrap_or(0) > 0, || format!("no task is named: {report}"))?;
    check(report["calls"].as_array().is_some_and(|calls| !calls.is_empty()), || format!("no last calls: {report}"))?;
    // The shim stays, and the machine goes on under the fallback.
    check(sched_ext_state() == "enabled", || format!("sched_ext is {}", sched_ext_state()))?;
    hackbench(1, 5)
}

/// The answer is refused and counted, and the policy goes on.
fn refused(fault: &str, work: fn() -> Result<(), String>) -> Result<(), String> {
    load(fault)?;
    hackbench(1, 20)?;
    work()?;
    let status = status()?;
    let faulty = policy(&status, "faulty")?;
    check(faulty["state"] == "running", || format!("the policy is {}, not running: {status}", faulty["state"]))?;
    check(faulty["refusals"].as_u64().unwrap_or(0) > 0, || format!("nothing was refused: {status}"))
}

/// The policy is not started, and the tool says why.
fn not_made(fault: &str, expected: &str) -> Result<(), String> {
    baton_fails(&["load", "faulty", "--all", "--options", &format!("fault={fault}")], expected)
}
