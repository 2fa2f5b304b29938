// SPDX-License-Identifier: GPL-2.0-only
//! Enclaves: whose they are, which CPUs they have, and what is beside them.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use baton_abi::{BatonAgentCommit, BatonCommit, BatonFaultKind, BatonMethod, BATON_PICK_KEEP};
use baton_agent::{Agent, Failure, Wishes};

use crate::{
    agents::{begin, enclave, ended_well, load, Running},
    several::{run_all, set_online, stay},
    tool::{baton, baton_fails, check, is_well, policy, status, Hog},
    Case,
};

/// Cases for two CPUs.
pub fn cases() -> Vec<Case> {
    vec![case!("enclave: one of a user's", delegated())]
}

/// Cases for eight CPUs.
pub fn of_eight() -> Vec<Case> {
    vec![
        case!(
            "enclave: two of them beside a policy in the kernel",
            side_by_side()
        ),
        case!("enclave: resized under load", resized()),
        case!("enclave: a global agent makes way on its CPU", makes_way()),
        case!("enclave: CPUs that go offline and online", hotplugged()),
        case!("enclave: destroyed under load", destroyed()),
    ]
}

/// The user id of the cases: nobody.
const USER: u32 = 65534;

/// A program, run as that user. Returns its exit code and output.
pub fn as_user(program: &str, args: &[&str]) -> Result<(Option<i32>, String), String> {
    let ran = Command::new(program)
        .args(args)
        .uid(USER)
        .gid(USER)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    let text = [ran.stdout, ran.stderr].concat();
    Ok((ran.status.code(), String::from_utf8_lossy(&text).into()))
}

/// An agent of CPUs that is a process of that user.
pub fn users_agent(enclave: &str, policy: &str) -> Result<Running, String> {
    Command::new("baton")
        .args(["agent", "run", "--enclave", enclave, "--per-cpu", policy])
        .uid(USER)
        .gid(USER)
        .stderr(Stdio::null())
        .spawn()
        .map(Running)
        .map_err(|e| e.to_string())
}

/// A user's process schedules the tasks that root gives the user's enclave, and touches nothing
/// else.
fn delegated() -> Result<(), String> {
    let user = USER.to_string();
    baton(&[
        "enclave", "create", "theirs", "--user", &user, "--cpus", "1",
    ])?;
    baton(&["enclave", "create", "ours"])?;
    let agent = users_agent("theirs", "fifo")?;
    agent.wait_for("theirs", |enclave| !enclave["agent"].is_null())?;
    baton(&load("theirs", ["1", "20"]))?;
    let found = enclave("theirs")?;
    check(found["picks"].as_u64() > Some(50), || {
        format!("too few picks: {found}")
    })?;
    is_well("theirs")?;
    for (args, expected) in [
        (
            &["agent", "run", "--enclave", "ours", "fifo"][..],
            "may not be the agent of ours",
        ),
        (
            &["agent", "run", "--enclave", "theirs", "fifo", "--", "true"],
            "only root gives an enclave tasks",
        ),
        (
            &["agent", "run", "--enclave", "theirs", "--per-cpu", "fifo"],
            "has an agent already",
        ),
        (&["attach", "theirs", "--pid", "1"], "root"),
        (&["enclave", "destroy", "theirs"], "root"),
    ] {
        let (code, text) = as_user("baton", args)?;
        check(code != Some(0) && text.contains(expected), || {
            format!("{args:?} ended with {code:?}: {text}")
        })?;
    }
    // It would have all CPUs.
    let destroy = ["partition", "destroy", "theirs"];
    baton_fails(&destroy, "has the CPUs of the enclave theirs")?;
    drop(agent);
    let (code, text) = as_user("baton-booted", &["--trespass"])?;
    check(code == Some(0), || format!("trespassing: {text}"))?;
    let status = status()?;
    let message = &status["faults"][0]["message"];
    check(message == "one line?two?[31m", || {
        format!("the message is not as it should be: {message}")
    })?;
    baton(&["enclave", "destroy", "theirs"])?;
    baton(&["enclave", "destroy", "ours"]).map(drop)
}

/// A program of that user, which is the agent of `theirs` and tries what it must not do.
pub fn trespass() -> Result<(), String> {
    for node in ["baton", "baton-enclaves", "baton-enclave-ours"] {
        let node = format!("/dev/{node}");
        let opened = File::open(&node).map(drop);
        let kind = opened.map_err(|e| e.kind());
        check(kind == Err(ErrorKind::PermissionDenied), || {
            format!("{node}: {kind:?}")
        })?;
    }
    let agent = Agent::attach("theirs", &Wishes::default()).map_err(|e| e.to_string())?;
    crate::tool::bind(&[0])?;
    let commit = BatonAgentCommit {
        token: BATON_PICK_KEEP,
        ..Default::default()
    };
    let mut commits = [commit];
    agent.commit_all(&mut commits).map_err(|e| e.to_string())?;
    let outcome = commits[0].outcome;
    check(outcome == BatonCommit::CpuOffline as u32, || {
        format!("a commit to CPU 0: {outcome}")
    })?;
    for (what, refused) in [
        ("a kick of CPU 0", agent.kick(&[0]).is_err()),
        ("an agent of CPU 0", agent.serve(0).is_err()),
    ] {
        check(refused, || format!("{what} was accepted"))?;
    }
    let failure = Failure {
        kind: BatonFaultKind::Panic,
        method: BatonMethod::None,
        pid: 0,
        file: "none".into(),
        line: 0,
        message: "one line\ntwo\x1b[31m".into(),
    };
    agent.fail(&failure).map_err(|e| e.to_string())
}

/// Two enclaves, each with CPUs of its own, beside a policy in the kernel.
fn side_by_side() -> Result<(), String> {
    baton(&["load", "wfq"])?;
    let first = Running::start("first", &["--per-cpu", "--cpus", "2-4", "fifo"])?;
    let second = Running::start("second", &["--global", "--cpus", "5-7", "shinjuku"])?;
    let names = ["wfq", "first", "second"];
    for load in names.map(|name| begin(&load(name, ["2", "100"]))) {
        let ended = load?.wait().map_err(|e| e.to_string())?;
        check(ended.success(), || format!("a load ended with {ended}"))?;
    }
    let status = status()?;
    for name in names {
        let entry = policy(&status, name)?;
        check(entry["state"] == "running" && entry["faults"] == 0, || {
            format!("{name} is not well: {entry}")
        })?;
    }
    drop((first, second));
    // Their enclaves were made by agents that were killed.
    baton(&["enclave", "destroy", "first"])?;
    baton(&["enclave", "destroy", "second"]).map(drop)
}

/// The load of an enclave ends without an error.
fn succeeds(load: Child) -> Result<(), String> {
    let ended = load.wait_with_output().map_err(|e| e.to_string())?;
    check(ended.status.success(), || {
        let errors = String::from_utf8_lossy(&ended.stderr);
        format!("the load ended with {}: {errors}", ended.status)
    })
}

/// The enclave is well and has had this agent alone, which then ends in good order.
fn ends_as_one(agent: Running, name: &str) -> Result<(), String> {
    is_well(name)?;
    let found = enclave(name)?;
    check(found["attached"] == 1, || format!("not one agent: {found}"))?;
    agent.signal("-INT")?;
    ended_well(agent)
}

/// An enclave gets and loses CPUs: its agents follow, and its tasks are on its CPUs.
fn resized() -> Result<(), String> {
    let agent = Running::start("wide", &["--per-cpu", "--cpus", "1-2", "wfq"])?;
    let hogs = (0..4).map(|_| Hog::of("wide", None));
    let hogs: Vec<Hog> = hogs.collect::<Result<_, _>>()?;
    let load = begin(&load("wide", ["1", "600"]))?;
    for (list, cpus) in [
        ("2-4", &[2, 3, 4][..]),
        ("6-7", &[6, 7]),
        ("1-6", &[1, 2, 3, 4, 5, 6]),
        ("3,5", &[3, 5]),
    ] {
        baton(&["partition", "resize", "wide", "--cpus", list])?;
        // A task that waits is on its old CPU until it runs.
        run_all(&hogs)?;
        stay(&hogs, cpus)?;
    }
    succeeds(load)?;
    drop(hogs);
    ends_as_one(agent, "wide")
}

/// The CPU to which a thread of the agent is bound.
fn polled(agent: &Running) -> Option<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", agent.0.id())).ok()?;
    let cpus = threads.filter_map(|thread| {
        let status = fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        let mut lines = status.lines();
        let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(list.trim().to_owned())
    });
    cpus.into_iter().find(|list| list.parse::<u32>().is_ok())
}

/// Waits until something is so, for 20 s.
fn until(is_so: impl Fn() -> bool) -> Result<(), ()> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if is_so() {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    Err(())
}

/// A program that wants the CPU on which an agent polls gets it, and the agent polls elsewhere.
fn makes_way() -> Result<(), String> {
    for scheduler in ["sol", "search"] {
        let agent = Running::start("moves", &["--global", "--cpus", "2-4", scheduler])?;
        let load = begin(&load("moves", ["1", "100"]))?;
        until(|| polled(&agent).is_some()).map_err(|()| format!("{scheduler} does not poll"))?;
        let before = polled(&agent).ok_or("it polls no more")?;
        let other = Hog::normal(Some(&before))?;
        until(|| polled(&agent).is_some_and(|now| now != before))
            .map_err(|()| format!("{scheduler} stays on CPU {before}"))?;
        succeeds(load)?;
        drop(other);
        // The enclave's tasks have that CPU now.
        let bound = Hog::of("moves", Some(&before))?;
        run_all(&[bound])?;
        ends_as_one(agent, "moves")?;
    }
    Ok(())
}

/// Agents of CPUs that go offline leave them, and come back.
fn hotplugged() -> Result<(), String> {
    const AT_ONCE: usize = 20;

    let agent = Running::start("whole", &["--per-cpu", "wfq"])?;
    let load = begin(&load("whole", ["1", "600"]))?;
    let result = [2, 5, 2].into_iter().try_for_each(|cpu| {
        sleep(Duration::from_millis(200));
        set_online(cpu, false)?;
        sleep(Duration::from_millis(200));
        set_online(cpu, true)
    });
    // The CPU leaves again while a thread becomes its agent.
    let again = (0..AT_ONCE).try_for_each(|_| {
        set_online(5, false)?;
        set_online(5, true)
    });
    let result = result.and(again);
    for cpu in [2, 5] {
        set_online(cpu, true)?;
    }
    result?;
    succeeds(load)?;
    // The agent of that CPU is there again.
    let bound = Hog::of("whole", Some("2"))?;
    run_all(&[bound])?;
    ends_as_one(agent, "whole")
}

/// The tasks of an enclave that is destroyed go on.
fn destroyed() -> Result<(), String> {
    for mode in ["--per-cpu", "--global"] {
        baton(&["enclave", "create", "doomed", "--cpus", "2-7"])?;
        let mut agent = Running::start("doomed", &[mode, "wfq"])?;
        let load = begin(&load("doomed", ["1", "300"]))?;
        agent.wait_for("doomed", |enclave| enclave["picks"].as_u64() > Some(100))?;
        baton(&["enclave", "destroy", "doomed"])?;
        let ended = agent.0.wait().map_err(|e| e.to_string())?;
        check(ended.success(), || {
            format!("{mode}: the agent ended with {ended}")
        })?;
        let ended = load.wait_with_output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&ended.stdout);
        check(text.contains("Time:"), || {
            format!("{mode}: the load ended with {}: {text}", ended.status)
        })?;
    }
    Ok(())
}
