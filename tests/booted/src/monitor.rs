// SPDX-License-Identifier: GPL-2.0-only
//! `baton monitor`, and what it measures as files in debugfs.

use crate::{
    tool::{baton, check, must, run, stress, Hog, Load},
    Case,
};
use serde_json::Value;
use std::{
    fs,
    process::{Child, Command, Stdio},
    thread::{self, sleep},
    time::Duration,
};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "monitor: calls are counted and timed, by handler and by method".into(),
            run: Box::new(calls),
        },
        Case {
            name: "monitor: refused changes of states".into(),
            run: Box::new(refused),
        },
        Case {
            name: "monitor: a core that idles beside waiting tasks".into(),
            run: Box::new(wasted),
        },
        Case {
            name: "monitor: the files count exactly, and end by themselves".into(),
            run: Box::new(files),
        },
        Case {
            name: "monitor: policies and the core come and go".into(),
            run: Box::new(unloaded),
        },
    ]
}

/// The intervals that `baton monitor` prints with these arguments.
fn monitor(args: &[&str]) -> Result<Vec<Value>, String> {
    let text = baton(&[&["monitor", "--json"], args].concat())?;
    let line = |line| serde_json::from_str(line).map_err(|e| format!("{e}: {line}"));
    text.lines().map(line).collect()
}

/// The entries of an array.
fn entries(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

fn number(of: &Value) -> f64 {
    of.as_f64().unwrap_or(f64::NAN)
}

fn calls() -> Result<(), String> {
    for (policy, handlers) in [("fifo_c", Some("schedule")), ("wfq", None)] {
        baton(&["load", policy, "--all"])?;
        // Two on each CPU, as `fifo_c` never balances.
        let hogs: Vec<Hog> = ["0", "0", "1", "1"]
            .map(|cpu| Hog::of(policy, Some(cpu)))
            .into_iter()
            .collect::<Result<_, _>>()?;
        let load = thread::spawn(|| stress(&["--switch", "4", "--timeout", "3s"]));
        let intervals = monitor(&["--interval", "1s", "--for", "2s", "-p", policy])?;
        load.join().map_err(|_| "the load panicked")??;
        drop(hogs);
        check(intervals.len() == 2, || format!("{intervals:?}"))?;
        // In one of them the load is at work, and not being made or ending.
        let pick_of = |interval: &Value| {
            let calls = entries(&interval["policies"]).flat_map(|it| entries(&it["calls"]));
            let mut picks = calls.filter(|calls| calls["method"] == "pick_next_task");
            picks.next().cloned().unwrap_or_default()
        };
        let picks = |interval: &&Value| pick_of(interval)["calls"].as_u64();
        let busiest = intervals.iter().max_by_key(picks).ok_or("no interval")?;
        let pick = pick_of(busiest);
        let of = |name: &str| number(&pick[name]);
        let are_ordered = 0.0 < of("p50_ns")
            && of("p50_ns") <= of("p99_ns")
            && of("p99_ns") <= of("longest_ns")
            && of("mean_ns") <= of("longest_ns");
        check(of("calls") > 20.0 && are_ordered, || pick.to_string())?;
        let named = pick["handlers"].as_str();
        check(named == handlers, || format!("{named:?}, not {handlers:?}"))?;
        // Both CPUs had several tasks. The parts of a CPU's time are the interval.
        for cpu in entries(&busiest["cpus"]) {
            let of = |name: &str| number(&cpu[name]) / 1e9;
            let all = of("idle_ns") + of("busy_ns") + of("overloaded_ns");
            let seconds = number(&busiest["seconds"]);
            check((all - seconds).abs() < 0.1 * seconds, || {
                format!("{busiest}")
            })?;
            check(of("overloaded_ns") > 0.0, || format!("{busiest}"))?;
            check(of("wasted_ns") <= of("idle_ns"), || format!("{busiest}"))?;
        }
        let cpus = entries(&busiest["cpus"]).count();
        check(cpus == 2, || format!("{cpus} CPUs: {busiest}"))?;
        baton(&["unload", policy])?;
    }
    Ok(())
}

fn refused() -> Result<(), String> {
    baton(&["load", "wrong_c", "--all"])?;
    let load = Load::hackbench(1, 200)?;
    let intervals = monitor(&["--interval", "300ms", "--for", "300ms"])?;
    load.end()?;
    let policies = intervals.iter().flat_map(|it| entries(&it["policies"]));
    let mut changes = policies.flat_map(|policy| entries(&policy["refused_changes"]));
    let is_it = |change: &Value| change["handler"] == "schedule" && change["to"] == "BLOCKED";
    check(changes.any(is_it), || format!("{intervals:?}"))
}

/// Two hogs that are bound to CPU 0, and nothing else to do: CPU 1 is wasted. Under the kernel's
/// own scheduler, as Baton is not loaded.
fn wasted() -> Result<(), String> {
    let _hogs = (Hog::normal(Some("0"))?, Hog::normal(Some("0"))?);
    let intervals = monitor(&["--interval", "500ms", "--for", "500ms"])?;
    let cpu = |at: usize, name: &str| number(&intervals[0]["cpus"][at][name]);
    check(cpu(0, "overloaded_ns") > 400e6, || format!("{intervals:?}"))?;
    check(cpu(1, "wasted_ns") > 300e6, || format!("{intervals:?}"))?;
    check(cpu(0, "wasted_ns") < 20e6, || format!("{intervals:?}"))
}

const FILES: &str = "/sys/kernel/debug/baton";

fn read(name: &str) -> Result<String, String> {
    let path = format!("{FILES}/{name}");
    fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))
}

fn write(name: &str, text: &str) -> Result<(), String> {
    let path = format!("{FILES}/{name}");
    fs::write(&path, text).map_err(|e| format!("{path}: {e}"))
}

/// The number of calls of a method in the file.
fn count(policy: &str, method: &str) -> Result<u64, String> {
    let text = read("calls")?;
    let begin = format!("{policy} {method} ");
    let found = text.lines().find_map(|line| line.strip_prefix(&begin));
    Ok(found
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .unwrap_or(0))
}

fn files() -> Result<(), String> {
    let _ = run("mount", &["-t", "debugfs", "none", "/sys/kernel/debug"]);
    baton(&["load", "wfq", "--all"])?;
    check(count("wfq", "task_new")? == 0, || "measured before".into())?;
    write("measure", "60")?;
    let before = count("wfq", "task_new")?;
    must("sh", &["-c", "for i in $(seq 100); do /bin/true; done"])?;
    let new = count("wfq", "task_new")? - before;
    // The shell itself, its $(...), and what else the guest has begun meanwhile.
    check((100..130).contains(&new), || format!("{new} new tasks"))?;
    // A recording is no obstacle, nor is its end the end of measuring.
    baton(&["record", "-o", "/tmp/both.rec", "--for", "200ms"])?;
    let before = count("wfq", "task_new")?;
    must("sh", &["-c", "for i in $(seq 10); do /bin/true; done"])?;
    check(count("wfq", "task_new")? >= before + 10, || {
        "not measured after a recording".into()
    })?;
    baton(&["upgrade", "wfq"])?;
    check(count("wfq", "task_new")? > before, || {
        "an upgrade has ended it".into()
    })?;
    check(write("measure", "100000").is_err(), || {
        "a day is too long".into()
    })?;
    write("measure", "0")?;
    check(read("calls")?.lines().count() == 1, || "not ended".into())?;
    write("measure", "1")?;
    sleep(Duration::from_millis(1500));
    let left = read("measure")?;
    check(left == "0\n" && read("calls")?.lines().count() == 1, || {
        format!("it goes on for {left}")
    })
}

/// A `baton monitor` in the background.
struct Background(Child);

impl Background {
    fn begin() -> Result<Self, String> {
        let child = Command::new("baton")
            .args(["monitor", "--json", "--interval", "50ms"])
            .stdout(Stdio::null())
            .spawn();
        child.map(Self).map_err(|e| e.to_string())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // With SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn unloaded() -> Result<(), String> {
    let mut monitor = Background::begin()?;
    for _ in 0..2 {
        baton(&["load", "fifo", "--all"])?;
        baton(&["load", "fifo_c"])?;
        let load = Load::hackbench(1, 100)?;
        sleep(Duration::from_millis(120));
        check(count("fifo", "pick_next_task")? > 0, || {
            "not measured".into()
        })?;
        baton(&["unload", "fifo"])?;
        load.end()?;
        baton(&["unload", "--everything"])?;
    }
    let ended = monitor.0.try_wait().map_err(|e| e.to_string())?;
    check(ended.is_none(), || format!("the monitor ended: {ended:?}"))?;
    drop(monitor);
    // A core that is loaded after that measures nothing.
    baton(&["load", "fifo", "--all"])?;
    check(read("measure")? == "0\n", || "measuring goes on".into())
}
