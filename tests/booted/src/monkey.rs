// SPDX-License-Identifier: GPL-2.0-only
//! Commands that are killed before any of their system calls, in random order. After each, another
//! command is run, and the machine must be whole. `baton-booted --monkey SEED TIMES`; a failure
//! prints what came before.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    chance::Chance,
    one,
    tool::{baton, check, hackbench, must, run, sched_ext_state, status, unload_everything, Hog},
    Case,
};

pub fn cases() -> Vec<Case> {
    vec![case!("commands killed at random", killed(1, 8))]
}

/// What `baton` is run with. What a command needs may be missing: then it fails, with an error.
const COMMANDS: [&[&str]; 28] = [
    &["load", "wfq"],
    &["load", "wfq", "--all"],
    &["load", "fifo"],
    &["upgrade", "wfq"],
    &["rollback", "wfq"],
    &["switch", "wfq", "fifo"],
    &["switch", "fifo", "wfq"],
    &["unload", "wfq"],
    &["unload", "--everything"],
    &["order", "fifo", "wfq"],
    &["share", "fifo", "20"],
    &[
        "partition",
        "create",
        "part",
        "--cpus",
        "1",
        "--policy",
        "fifo",
    ],
    &["partition", "destroy", "part"],
    &["attach", "wfq", "--pid", "1"],
    &["detach", "--pid", "1"],
    &["hints", "grant", "wfq", "--user", "65534"],
    &["hints", "revoke", "wfq", "--user", "65534"],
    &["apply", CONFIGURATION],
    &["export"],
    &["status", "--json"],
    &["monitor", "--for", "100ms", "--interval", "50ms"],
    &["run", "-p", "fifo", "--", "hackbench", "-g", "1", "-l", "5"],
    &["record", "-p", "wfq", "-o", RECORDING, "--for", "100ms"],
    &["record", "-p", "fifo", "--flight", "1"],
    &["enclave", "create", "wild"],
    &["enclave", "destroy", "wild"],
    &[
        "agent",
        "run",
        "--enclave",
        "wild",
        "--per-cpu",
        "wfq",
        "--",
        "hackbench",
        "-g",
        "1",
        "-l",
        "5",
    ],
    &[
        "agent",
        "run",
        "--global",
        "fifo",
        "--",
        "hackbench",
        "-g",
        "1",
        "-l",
        "5",
    ],
];

const CONFIGURATION: &str = "/tmp/monkey.toml";
const CONTENT: &str = "
[[policy]]
name = \"wfq\"
options = \"period=8ms\"
share = 30

[[policy]]
name = \"fifo\"
";
const RECORDING: &str = "/tmp/monkey.rec";

const TRACE: &str = "/tmp/monkey.trace";
const OUTPUT: &str = "/tmp/monkey.out";

/// A command that has not ended by then hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Memory of the kernel that may come and go for other reasons, KiB.
const SLACK_KIB: u64 = 4096;

/// How often each system call is made by a command.
type Calls = BTreeMap<String, usize>;

/// Kills so many commands.
pub fn killed(seed: u32, times: usize) -> Result<(), String> {
    fs::write(CONFIGURATION, CONTENT).map_err(|e| format!("{CONFIGURATION}: {e}"))?;
    // What the kernel keeps once anything was loaded is there before the first count.
    baton(&["load", "wfq", "--all"])?;
    baton(&["enclave", "create", "wild"])?;
    unload_everything()?;
    let memory = memory_kib()?;
    let modules = modules()?;
    let mut chance = Chance::of(seed);
    let mut calls: BTreeMap<usize, Calls> = BTreeMap::new();
    let mut history = Vec::new();
    let result = (0..times).try_for_each(|_| {
        let which = chance.below(COMMANDS.len());
        // The first time it is not killed.
        let known = match calls.get(&which) {
            Some(known) => known,
            None => {
                history.push(format!("{} (traced)", COMMANDS[which].join(" ")));
                calls.entry(which).or_insert(calls_of(COMMANDS[which])?)
            }
        };
        let name = known.keys().nth(chance.below(known.len()));
        let name = name.ok_or("a command without system calls")?;
        let when = 1 + chance.below(known[name]);
        history.push(format!(
            "{}, killed at {name} {when}",
            COMMANDS[which].join(" ")
        ));
        kill_before(COMMANDS[which], name, when)?;
        let next = COMMANDS[chance.below(COMMANDS.len())];
        history.push(next.join(" "));
        ends_well(next)?;
        is_whole()
    });
    let result = result.and_then(|()| {
        unload_everything()?;
        check(modules == self::modules()?, || {
            format!(
                "other modules are loaded than before: {:?}",
                self::modules()
            )
        })?;
        let after = memory_kib()?;
        check(after <= memory + SLACK_KIB, || {
            format!("the kernel's memory went from {memory} to {after} KiB")
        })
    });
    result.map_err(|why| format!("seed {seed}: {why}\nafter:\n  {}", history.join("\n  ")))
}

/// `--monkey SEED TIMES`.
pub fn command(args: &[String]) -> Result<(), String> {
    let numbers: Vec<u32> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let [seed, times] = numbers[..] else {
        return Err("--monkey SEED TIMES".into());
    };
    // So many at a time, each from the beginning, so that a failure has a short history.
    const TOGETHER: u32 = 20;
    for (index, begun) in (0..times).step_by(TOGETHER as usize).enumerate() {
        let count = TOGETHER.min(times - begun);
        one(|| killed(seed.wrapping_add(index as u32), count as usize))?;
        println!("{} of {times} commands were killed", begun + count);
    }
    Ok(())
}

/// Runs a program that must end. Returns its status, and its output.
fn ended(program: &str, args: &[&str]) -> Result<(ExitStatus, String), String> {
    let failed = |e: io::Error| format!("{program}: {e}");
    let output = File::create(OUTPUT).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let mut child = Command::new(program)
        .args(args)
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(failed)?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            let text = fs::read(OUTPUT).map_err(failed)?;
            return Ok((status, String::from_utf8_lossy(&text).into_owned()));
        }
        if begun.elapsed() > LIMIT {
            let pid = child.id().to_string();
            let stack = fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
            child.kill().map_err(failed)?;
            return Err(format!("{args:?} does not end: {stack}"));
        }
        sleep(Duration::from_millis(20));
    }
}

/// Runs a command to its end: with success, or with an error of its own.
fn ends_well(command: &[&str]) -> Result<(), String> {
    let (status, text) = ended("baton", command)?;
    let is_well = status.code().is_some_and(|code| (0..=4).contains(&code));
    check(is_well && !text.contains("panicked"), || {
        format!("{command:?} ended with {status}: {text}")
    })
}

/// The system calls of a command and of the processes that it starts.
fn calls_of(command: &[&str]) -> Result<Calls, String> {
    ended(
        "strace",
        &[&["-f", "-qq", "-o", TRACE, "baton"], command].concat(),
    )?;
    let text = fs::read_to_string(TRACE).map_err(|e| format!("{TRACE}: {e}"))?;
    let mut calls = Calls::new();
    // `123   openat(AT_FDCWD, ...) = 3`. A call that was interrupted has a second line, which
    // begins with `<...`.
    for line in text.lines() {
        let call = line
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .trim_start();
        let name = call.split_once('(').map_or("", |(name, _)| name);
        if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    check(!calls.is_empty(), || {
        format!("{command:?} makes no system call: {text}")
    })?;
    Ok(calls)
}

/// Runs the command, and kills it before that call, if it comes to it.
fn kill_before(command: &[&str], name: &str, when: usize) -> Result<(), String> {
    let trace = format!("trace={name}");
    let inject = format!("inject={name}:signal=KILL:when={when}");
    let options = [
        "-f", "-qq", "-o", TRACE, "-e", &trace, "-e", &inject, "baton",
    ];
    let (status, text) = ended("strace", &[&options, command].concat())?;
    let is_well =
        status.signal() == Some(9) || status.code().is_some_and(|code| (0..=4).contains(&code));
    check(is_well && !text.contains("panicked"), || {
        format!("{command:?} ended with {status}: {text}")
    })
}

/// Checks that all tasks are scheduled, that policies are well, and that each has only tasks that
/// there are.
fn is_whole() -> Result<(), String> {
    hackbench(1, 2)?;
    let hog = Hog::plain()?;
    let status = status()?;
    let core = &status["core"];
    let attached = core["attached"] == true;
    check(attached == (sched_ext_state() == "enabled"), || {
        format!("sched_ext is {}: {status}", sched_ext_state())
    })?;
    let mut of_policies = 0;
    for policy in status["policies"].as_array().into_iter().flatten() {
        // It may have been loaded and not started, and an enclave may have no agent.
        let is_well = policy["state"] == "running" || policy["state"] == "loaded";
        check(policy["faults"] == 0 && is_well, || {
            format!("a policy is not well: {status}")
        })?;
        let is_left = policy["recording"] == true && !recorder_runs()?;
        check(!is_left, || {
            format!("a recording has nobody who reads it: {status}")
        })?;
        of_policies += policy["tasks"].as_u64().unwrap_or(0);
    }
    // Both may change while they are counted.
    const SLACK: u64 = 8;
    let tasks = core["tasks"].as_u64().unwrap_or(0);
    let threads = threads()?;
    check(
        of_policies <= tasks + SLACK && tasks <= threads + SLACK,
        || format!("{threads} threads, {tasks} of Baton, {of_policies} of policies: {status}"),
    )?;
    let before = hog.ran()?;
    let begun = Instant::now();
    while hog.ran()? <= before {
        check(begun.elapsed() < Duration::from_secs(10), || {
            "a task does not run".into()
        })?;
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Is there a process of `baton record`?
fn recorder_runs() -> Result<bool, String> {
    Ok(run("pgrep", &["-f", "baton record"])?.code == Some(0))
}

/// The number of threads of the machine.
fn threads() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/loadavg").map_err(|e| format!("/proc/loadavg: {e}"))?;
    let all = text
        .split(['/', ' '])
        .nth(4)
        .and_then(|all| all.parse().ok());
    all.ok_or(format!("/proc/loadavg has no number of threads: {text}"))
}

fn modules() -> Result<Vec<String>, String> {
    let text = fs::read_to_string("/proc/modules").map_err(|e| format!("/proc/modules: {e}"))?;
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// Memory of the kernel that it does not take back by itself, KiB.
fn memory_kib() -> Result<u64, String> {
    must("sh", &["-c", "sync; echo 3 >/proc/sys/vm/drop_caches"])?;
    // What is freed after a grace period.
    sleep(Duration::from_millis(200));
    let text = fs::read_to_string("/proc/meminfo").map_err(|e| format!("/proc/meminfo: {e}"))?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    ["SUnreclaim:", "VmallocUsed:", "Percpu:"]
        .into_iter()
        .map(|name| kib(name).ok_or(format!("/proc/meminfo has no {name}")))
        .sum()
}
