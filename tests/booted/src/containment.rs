// SPDX-License-Identifier: GPL-2.0-only
//! Checks that tasks go on after any fault of a policy, and that the report names the fault. The
//! policy is `policies/testing/faulty`.

use std::{fs, thread::sleep, time::Duration};

use baton_conformance::{of_option, Fault};

use crate::{
    conformance::Kernel,
    held,
    tool::{
        baton, baton_fails, check, hackbench, is_well, must, policy, run, sched_ext_state, status,
        stress, Hog,
    },
    Case,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("index out of range", stops(of_option("index"), work)),
        case!(
            "panic without enough stack for its message",
            stops(of_option("large-message"), work)
        ),
        case!("arithmetic overflow", stops(of_option("overflow"), work)),
        case!("unwrap on None", stops(of_option("unwrap"), work)),
        case!("memory exhausted", stops(of_option("memory"), work)),
        case!(
            "stack-hungry recursion",
            stops(of_option("recursion"), work)
        ),
        case!("self-deadlock", stops(of_option("deadlock"), work)),
        case!(
            "lock cycle between two CPUs",
            stops(of_option("cycle"), yields)
        ),
        case!(
            "more locks at once than a call may hold",
            keeps_locks("many-locks")
        ),
        case!("a lock that is never released", keeps_locks("kept-lock")),
        case!("a context that is overwritten", overwrites()),
        case!("exceptions of the processor in a policy in C", traps()),
        case!("Schedulable dropped", stops(of_option("dropped"), yields)),
        case!("Schedulable forgotten", forgotten()),
        case!(
            "pick that never picks (stall)",
            stops(of_option("stall"), work)
        ),
        case!(
            "refused answers for ever",
            stops(of_option("loop"), affinity)
        ),
        case!(
            "fault in a timer callback",
            stops(of_option("index,in=timer"), work)
        ),
        case!(
            "fault in select_task_rq",
            stops(of_option("index,in=select_task_rq"), work)
        ),
        case!(
            "fault in a wakeup while a BPF program holds a lock",
            held::stays_locked()
        ),
        case!("fault on a CPU that is going offline", going_offline()),
        case!(
            "fault under 500 tasks",
            stops(of_option("index"), five_hundred)
        ),
        case!(
            "Schedulable for a CPU that is not allowed",
            refused("not-allowed", affinity)
        ),
        case!(
            "Schedulable kept and returned later",
            refused("stale", affinity)
        ),
        case!("a CPU that does not exist", refused("select-cpu", work)),
        case!(
            "panic while the policy is made",
            not_made("index,in=new", "wrong.rs")
        ),
        case!(
            "memory exhausted while the policy is made",
            not_made("memory,in=new", "memory")
        ),
        case!(
            "recursion while the policy is made",
            not_made("recursion,in=new", "the stack is used up")
        ),
        case!("panic at the first task", first()),
        case!(
            "recursion while the policy is unmade",
            unmade("recursion,in=drop")
        ),
        case!("panic while the policy is unmade", unmade("index,in=drop")),
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

/// Loads `faulty` for all tasks.
pub fn load(fault: &str) -> Result<(), String> {
    let options = format!("fault={fault},after=50");
    baton(&[
        "load",
        "faulty",
        "--all",
        "--stall",
        "1500",
        "--options",
        &options,
    ])
    .map(|_| ())
}

/// The fault stops the policy, the load that caused it ends successfully, and the report is
/// correct.
fn stops(expected: Fault, work: fn() -> Result<(), String>) -> Result<(), String> {
    expected.is_reported(&mut Kernel { load: work })?;
    let status = status()?;
    let faulty = policy(&status, "faulty")?;
    check(faulty["state"] == "faulted", || {
        format!("the policy is {}, not faulted: {status}", faulty["state"])
    })?;
    check(faulty["queued"] == 0, || {
        format!("tasks are stranded in the stopped policy: {status}")
    })?;
    let report = &status["faults"][0];
    check(report["policy"] == "faulty", || {
        format!("the report names another policy: {report}")
    })?;
    check(
        report["calls"]
            .as_array()
            .is_some_and(|calls| !calls.is_empty()),
        || format!("no last calls: {report}"),
    )?;
    // The shim stays attached, and the fallback schedules all tasks.
    check(sched_ext_state() == "enabled", || {
        format!("sched_ext is {}", sched_ext_state())
    })?;
    hackbench(1, 5)
}

/// The call ends with more locks than it began with, as far as the kernel knows. Other tasks can
/// use its CPU again as before.
fn keeps_locks(fault: &str) -> Result<(), String> {
    stops(of_option(fault), work)?;
    baton(&["load", "wfq", "--all"])?;
    stress(&["--switch", "4", "--timeout", "1"])?;
    is_well("wfq")
}

/// A policy in C has overwritten all memory that it can write with garbage.
fn overwrites() -> Result<(), String> {
    baton(&["load", "faulty_c", "--all"])?;
    stress(&[
        "--switch",
        "2",
        "--affinity",
        "2",
        "--yield",
        "2",
        "--fork",
        "1",
        "--timeout",
        "2",
    ])?;
    hackbench(1, 50)?;
    is_well("faulty_c")?;
    // Beside another policy, which makes its own kicks.
    baton(&["load", "wfq", "--all"])?;
    stress(&["--switch", "2", "--affinity", "2", "--timeout", "1"])?;
    is_well("wfq")?;
    check(sched_ext_state() == "enabled", || {
        format!("sched_ext is {}", sched_ext_state())
    })
}

/// What the processor refuses ends the call of a policy in C, with its line. Another policy's tasks
/// go on.
fn traps() -> Result<(), String> {
    const PLACE: &str = "faulty-c.c:";
    for (fault, kind, message, place) in [
        ("null", "panic", "memory at 0x18 was read", PLACE),
        ("write", "panic", "memory at 0x8 was written", PLACE),
        (
            "wild",
            "panic",
            "memory at 0xffffc8ffdeadb000 was read",
            PLACE,
        ),
        ("noncanonical", "panic", "no memory can have", PLACE),
        (
            "readonly",
            "panic",
            "was written, and is not there to be used so",
            PLACE,
        ),
        ("divide", "panic", "a division by zero", PLACE),
        ("trap", "panic", "a trap: BUG()", PLACE),
        ("call", "panic", "memory at 0x0 was executed", PLACE),
        ("jump", "panic", "no memory can have", PLACE),
        ("memset", "panic", "memory at 0x8 was written", PLACE),
        ("index", "panic", "a trap", PLACE),
        ("recursion", "stack overflow", "4096 bytes of stack", ""),
        ("indirect", "stack overflow", "4096 bytes of stack", ""),
        ("token", "refusal loop", "64 answers in a row", ""),
    ] {
        baton(&["load", "wfq"])?;
        let hog = Hog::of("wfq", None)?;
        let before = hog.ran()?;
        baton(&["load", "faulty_c", "--options", &format!("fault={fault}")])?;
        hackbench(1, 20)?;
        let said = baton(&["status"])?;
        let head = format!("FAULT of policy faulty_c: {kind} in pick_next_task");
        for word in [&head, message, place] {
            check(said.contains(word), || {
                format!("{fault}: no {word}: {said}")
            })?;
        }
        is_well("wfq")?;
        check(hog.ran()? > before, || {
            format!("{fault}: the hog stands still")
        })?;
        drop(hog);
        baton(&["unload", "--everything"])?;
    }
    baton_fails(
        &["load", "faulty_c", "--options", "fault=null,in=create"],
        "memory at 0x18 was read",
    )?;
    let tainted = must("cat", &["/proc/sys/kernel/tainted"])?;
    // Modules from outside the tree, without a signature: 4096 and 8192. A warning or an oops adds
    // 512 or 128.
    let bits: u64 = tainted
        .trim()
        .parse()
        .map_err(|e| format!("{tainted}: {e}"))?;
    check(bits & (512 | 128) == 0, || format!("tainted: {tainted}"))
}

/// The fault is not detected at once: the task is reported missing only when it has waited for
/// long, and the command under `baton run` waits as long.
fn forgotten() -> Result<(), String> {
    stops(of_option("forgotten"), yields)?;
    baton(&["unload", "faulty"])?;
    let options = ["--stall", "1500", "--options", "fault=forgotten,after=50"];
    let command = [
        "--",
        "stress-ng",
        "--yield",
        "2",
        "--timeout",
        "1",
        "--quiet",
    ];
    let ran = run(
        "baton",
        &[&["run", "-p", "faulty"], &options[..], &command].concat(),
    )?;
    let is_told =
        ran.text.contains("FAULT of policy faulty: lost task") && ran.text.contains("forgotten");
    check(ran.code == Some(4) && is_told, || {
        format!("{:?}: {}", ran.code, ran.text)
    })
}

/// The command then runs under the fallback, and is measured there. The tool reports that, and
/// exits as after a fault of a policy.
fn first() -> Result<(), String> {
    for all in [&[][..], &["--all"]] {
        let args = [
            &[
                "run",
                "-p",
                "faulty",
                "--options",
                "fault=index,in=task_new,after=0",
            ],
            all,
            &["--", "true"],
        ]
        .concat();
        let ran = run("baton", &args)?;
        let is_told =
            ran.text.contains("FAULT of policy faulty: panic") && ran.text.contains("wrong.rs");
        check(ran.code == Some(4) && is_told, || {
            format!("{all:?}: {:?}: {}", ran.code, ran.text)
        })?;
        baton(&["unload", "faulty"])?;
    }
    Ok(())
}

/// The policy fails as it is unloaded. The fault is reported, and the policy is removed
/// nevertheless.
fn unmade(fault: &str) -> Result<(), String> {
    baton(&[
        "load",
        "faulty",
        "--all",
        "--options",
        &format!("fault={fault}"),
    ])?;
    work()?;
    let ran = run("baton", &["unload", "faulty"])?;
    check(
        ran.code == Some(4) && ran.text.contains("failed when it was destroyed"),
        || format!("{:?}: {}", ran.code, ran.text),
    )?;
    let status = status()?;
    check(policy(&status, "faulty").is_err(), || {
        format!("it is still there: {status}")
    })?;
    work()
}

/// A fault in an interrupt leads to a line in the log and to the previous version. The same must
/// happen after a fault on a CPU that is going offline, and takes no interrupts any more. It takes
/// none when it goes idle for the last time; how often it goes idle before that varies.
fn going_offline() -> Result<(), String> {
    let online = |state: &str| {
        fs::write("/sys/devices/system/cpu/cpu1/online", state).map_err(|e| e.to_string())
    };
    let lines = || must("dmesg", &[]).map(|log| log.matches("policy faulty stopped").count());
    let mut idles = 0;
    let mut beyond = 0;
    while beyond < 2 {
        check(idles < 50, || {
            "a CPU that goes offline goes idle without end".into()
        })?;
        baton(&[
            "load",
            "faulty",
            "--all",
            "--options",
            &format!("fault=offline,after={idles}"),
        ])?;
        let before = lines()?;
        online("0")?;
        let is_stopped = policy(&status()?, "faulty")?["state"] == "faulted";
        let is_told = |_| {
            sleep(Duration::from_millis(20));
            lines().is_ok_and(|count| count > before)
        };
        let is_told = !is_stopped || (0..100).any(is_told);
        online("1")?;
        check(is_told, || {
            format!("the kernel's log has no fault, when the CPU goes idle after {idles} times")
        })?;
        baton(&["unload", "faulty"])?;
        idles += usize::from(is_stopped);
        beyond += usize::from(!is_stopped);
    }
    check(idles > 0, || "no fault at all".into())
}

/// The answer is refused and counted, and the policy continues.
fn refused(fault: &str, work: fn() -> Result<(), String>) -> Result<(), String> {
    load(fault)?;
    hackbench(1, 20)?;
    work()?;
    let status = status()?;
    let faulty = policy(&status, "faulty")?;
    check(faulty["state"] == "running", || {
        format!("the policy is {}, not running: {status}", faulty["state"])
    })?;
    check(faulty["refusals"].as_u64().unwrap_or(0) > 0, || {
        format!("nothing was refused: {status}")
    })
}

/// The policy does not start, and the tool prints the reason.
fn not_made(fault: &str, expected: &str) -> Result<(), String> {
    baton_fails(
        &[
            "load",
            "faulty",
            "--all",
            "--options",
            &format!("fault={fault}"),
        ],
        expected,
    )
}
