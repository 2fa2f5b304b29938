// SPDX-License-Identifier: GPL-2.0-only
//! Endless loops in policies: in each method, of each kind, and while a policy is created, replaced
//! or destroyed. Each ends soon, and with its place in the source.

use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use baton_abi::BatonMethod;
use baton_hints::Queue;

use crate::{
    tool::{
        baton, baton_fails, bind, check, hackbench, is_well, module, policy, run, status,
        unload_everything, Hog,
    },
    Case,
};

/// The methods of a running policy. Those of an upgrade are tried with `relay`.
pub fn methods() -> impl Iterator<Item = &'static str> + Clone {
    let of_calls = BatonMethod::ALL.iter().filter(|method| {
        let is_of_upgrade = method.name().starts_with("reregister");
        **method != BatonMethod::None && !method.may_sleep() && !is_of_upgrade
    });
    of_calls.map(|method| method.name())
}

/// One for each context: without a run-queue lock, with one, in an interrupt, in a system call, on a
/// CPU that goes offline.
const SOME_METHODS: [&str; 5] = [
    "select_task_rq",
    "pick_next_task",
    "timer",
    "hint",
    "cpu_offline",
];

/// Methods that are not called often, in which the first call loops.
const RARE: [&str; 13] = [
    "task_restored",
    "pick_refused",
    "balance",
    "task_dequeued",
    "task_departed",
    "task_dead",
    "task_affinity_changed",
    "task_prio_changed",
    "task_tick",
    "timer",
    "cpu_online",
    "cpu_offline",
    "hint",
];

/// How long a CPU may do nothing else, by the guest's clock.
const LIMIT: Duration = Duration::from_millis(200);

pub fn cases() -> Vec<Case> {
    vec![
        case!(
            "an endless loop in methods of each kind",
            in_methods(SOME_METHODS.into_iter())
        ),
        case!("endless loops of each kind", of_each_kind()),
        case!("endless loops in a policy in C", in_c()),
        case!(
            "an endless loop while a policy is made or asked",
            made_or_asked()
        ),
        case!("an endless loop while a policy is unmade", unmade()),
        case!("endless loops in an upgrade", in_upgrades(&UPGRADES[..2])),
    ]
}

/// Measures on each CPU the longest time in which a thread that comes before all policies' tasks does
/// not run.
struct Gaps(Vec<Child>);

impl Gaps {
    fn measure() -> Result<Self, String> {
        let on = |cpu: usize| {
            Command::new("chrt")
                .args([
                    "-f",
                    "50",
                    "/usr/bin/baton-booted",
                    "--gap",
                    &cpu.to_string(),
                ])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|e| format!("chrt: {e}"))
        };
        (0..2).map(on).collect::<Result<_, _>>().map(Self)
    }

    /// Ends the measurement.
    fn longest(self) -> Result<Duration, String> {
        let mut longest = Duration::ZERO;
        for mut child in self.0 {
            drop(child.stdin.take());
            let out = child.wait_with_output().map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&out.stdout);
            let ns = text.trim().parse().map_err(|e| format!("{text}: {e}"))?;
            longest = longest.max(Duration::from_nanos(ns));
        }
        Ok(longest)
    }
}

/// `--gap CPU`: the program that measures one CPU, until its standard input ends.
pub fn gap(cpu: u64) -> Result<(), String> {
    bind(&[cpu as usize])?;
    let ended = AtomicBool::new(false);
    let longest = scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read(&mut [0]);
            ended.store(true, Relaxed);
        });
        let (mut longest, mut before) = (Duration::ZERO, Instant::now());
        while !ended.load(Relaxed) {
            sleep(Duration::from_millis(1));
            longest = longest.max(before.elapsed());
            before = Instant::now();
        }
        longest
    });
    println!("{}", longest.as_nanos());
    Ok(())
}

/// What is said of a loop that a poll ended, and of one that an NMI ended.
const BY_POLL: &str = "its loops turned too often";
const BY_NMI: &str = "was interrupted";

/// The policy loops when a command reaches it. The fault names the method, with the line, and
/// another policy's task goes on.
fn ends(
    policy: &str,
    options: &str,
    method: &str,
    says: &str,
    reach: impl Fn(&str) -> Result<(), String>,
) -> Result<(), String> {
    reach(options)?;
    let status = status()?;
    let report = &status["faults"][0];
    let place = report["place"].as_str().unwrap_or("");
    check(
        report["kind"] == "endless loop"
            && report["method"] == method
            && report["message"].as_str().unwrap_or("").contains(says)
            && ["policies/testing/faulty/src/wrong.rs:", "faulty-c.c:"]
                .iter()
                .any(|file| place.starts_with(file)),
        || format!("{options}: {report}"),
    )?;
    is_well("wfq")?;
    baton(&["unload", policy]).map(drop)
}

/// No CPU is kept from other work for long, and a hog of another policy goes on, while policies loop.
fn soon(loops: impl Fn() -> Result<(), String>) -> Result<(), String> {
    baton(&["load", "wfq"])?;
    let hog = Hog::of("wfq", None)?;
    let before = hog.ran()?;
    let gaps = Gaps::measure()?;
    let looped = loops();
    let gap = gaps.longest()?;
    looped?;
    println!("        a CPU did nothing else for at most {gap:?}");
    check(gap < LIMIT, || {
        format!("a CPU did nothing else for {gap:?}")
    })?;
    check(hog.ran()? > before, || "the hog stands still".into())
}

/// Runs a command under the policy, which fails meanwhile.
pub fn under(policy: &str, options: &str, command: &[&str]) -> Result<(), String> {
    let run_it = [&["run", "-p", policy, "--options", options, "--"], command].concat();
    run("baton", &run_it).map(drop)
}

/// Queues tasks again that are queued already, though a CPU may be offline.
const RESTORE: &str = "stress-ng -q --cpu 3 --timeout 20 & \
    for nap in $(seq 100); do \
        hogs=$(cat /proc/$!/task/$!/children); [ -n \"$hogs\" ] && break; sleep 0.05; \
    done; \
    for hog in $hogs; do \
        for cpus in 1 3 1 3; do taskset -p $cpus $hog; done; \
    done; \
    kill $!; wait";

const SOME: [&str; 5] = ["hackbench", "-g", "1", "-l", "3"];

/// Has the method of a policy called that is loaded by this, or is loaded already.
pub fn reach(policy: &str, method: &str, options: &str) -> Result<(), String> {
    let stress = |what: &str, number: &str, end: &str, times: &str| {
        let (what, end) = (format!("--{what}"), format!("--{end}"));
        let command = ["stress-ng", "-q", &what, number, &end, times];
        under(policy, options, &command)
    };
    match method {
        // More than CPUs, so that the policy's queue has tasks.
        "task_yield" => stress("yield", "3", "yield-ops", "200"),
        "pick_refused" | "task_affinity_changed" | "task_dequeued" => {
            stress("affinity", "2", "affinity-ops", "50")
        }
        "task_restored" => under(policy, options, &["sh", "-c", RESTORE]),
        "task_departed" => stress("schedpolicy", "2", "schedpolicy-ops", "50"),
        "task_prio_changed" => stress("nice", "1", "nice-ops", "3"),
        "task_preempt" | "task_tick" | "timer" | "balance" => stress("cpu", "3", "timeout", "1"),
        "cpu_online" | "cpu_offline" => {
            baton(&["load", policy, "--options", options])?;
            // A few times, as the CPU may go off- and online for another reason as well.
            ["0", "1"].repeat(3).iter().try_for_each(|state| {
                let file = "/sys/devices/system/cpu/cpu1/online";
                fs::write(file, state).map_err(|e| e.to_string())
            })
        }
        "newly_idle" | "enter_idle" | "exit_idle" => {
            let naps = "for nap in $(seq 40); do sleep 0.003; done";
            under(policy, options, &["sh", "-c", naps])
        }
        "hint" => under(policy, options, &["baton-booted", "--ping", "1"]),
        _ => under(policy, options, &SOME),
    }
}

/// The options to fail in a method. A policy that fails at once is not loaded.
pub fn options(fault: &str, method: &str) -> String {
    let after = if RARE.contains(&method) { 0 } else { 20 };
    format!("fault={fault},in={method},after={after}")
}

fn in_methods(methods: impl Iterator<Item = &'static str> + Clone) -> Result<(), String> {
    soon(|| {
        methods.clone().try_for_each(|method| {
            let options = options("forever", method);
            ends("faulty", &options, method, BY_POLL, |options| {
                reach("faulty", method, options)
            })
        })
    })
}

/// Each method, those of upgrades too.
pub fn in_each_method() -> Result<(), String> {
    in_methods(methods())?;
    unload_everything()?;
    in_upgrades(&UPGRADES)
}

/// `--ping NUMBER`: a task of `faulty` that sends a hint.
pub fn ping(number: u64) -> Result<(), String> {
    let queue = Queue::<faulty::Hint, faulty::Reply>::open("faulty", 16);
    let queue = queue.map_err(|e| e.to_string())?;
    queue
        .send_now(&faulty::Hint::Ping { number })
        .map_err(|e| e.to_string())
}

/// In policies that were built without polls: an NMI ends the loop. It comes from outside, at times
/// of this machine's clock, so how soon is not judged.
pub fn without_polls() -> Result<(), String> {
    baton(&["load", "wfq"])?;
    let hog = Hog::of("wfq", None)?;
    let before = hog.ran()?;
    for method in SOME_METHODS {
        let options = options("forever", method);
        ends("faulty", &options, method, BY_NMI, |options| {
            reach("faulty", method, options)
        })?;
    }
    let reach = |options: &str| under("faulty_c", options, &SOME);
    ends("faulty_c", "fault=loop", "pick_next_task", BY_NMI, reach)?;
    check(hog.ran()? > before, || "the hog stands still".into())
}

fn of_each_kind() -> Result<(), String> {
    soon(|| {
        ["nested", "tail", "copies"].iter().try_for_each(|kind| {
            let options = format!("fault={kind},after=20");
            let reach = |options: &str| under("faulty", options, &SOME);
            ends("faulty", &options, "task_wakeup", BY_POLL, reach)
        })
    })
}

fn in_c() -> Result<(), String> {
    soon(|| {
        ["loop", "crossed"].iter().try_for_each(|fault| {
            let options = format!("fault={fault}");
            let reach = |options: &str| under("faulty_c", options, &SOME);
            ends("faulty_c", &options, "pick_next_task", BY_POLL, reach)
        })
    })
}

pub const TOO_LONG: &str = "did not end within 2 s";

fn made_or_asked() -> Result<(), String> {
    baton_fails(
        &["load", "faulty", "--options", "fault=forever,in=new"],
        TOO_LONG,
    )?;
    baton_fails(
        &["load", "faulty_c", "--options", "fault=loop,in=create"],
        TOO_LONG,
    )?;
    let options = "fault=forever,in=may_have,after=0";
    baton_fails(&["load", "faulty", "--all", "--options", options], TOO_LONG)?;
    hackbench(1, 5)
}

fn unmade() -> Result<(), String> {
    baton(&[
        "load",
        "faulty",
        "--all",
        "--options",
        "fault=forever,in=drop",
    ])?;
    hackbench(1, 5)?;
    let ran = run("baton", &["unload", "faulty"])?;
    check(ran.code == Some(4) && ran.text.contains(TOO_LONG), || {
        format!("{:?}: {}", ran.code, ran.text)
    })?;
    check(policy(&status()?, "faulty").is_err(), || {
        "it is still there".into()
    })
}

/// The faults of `relay_v2`, the versions before and after, and what is said.
const UPGRADES: [(&str, &str, &str, &str); 4] = [
    ("init-loop", "relay_v1", "relay_v2", TOO_LONG),
    ("take-loop", "relay_v1", "relay_v2", "the call did not end"),
    ("prepare-loop", "relay_v2", "relay_v1", TOO_LONG),
    ("convert-loop", "relay_v1", "relay_v2", TOO_LONG),
];

fn in_upgrades(upgrades: &[(&str, &str, &str, &str)]) -> Result<(), String> {
    for (fault, from, to, expected) in upgrades {
        let options = |version: &str| match version {
            "relay_v2" => format!("fault={fault}"),
            _ => String::new(),
        };
        let (from_file, to_file) = (module(from)?, module(to)?);
        let (before, after) = (options(from), options(to));
        baton(&[
            "load",
            "relay",
            "--all",
            "--module",
            &from_file,
            "--options",
            &before,
        ])?;
        baton_fails(
            &[
                "upgrade",
                "relay",
                "--module",
                &to_file,
                "--options",
                &after,
            ],
            expected,
        )?;
        is_well("relay")?;
        hackbench(1, 5)?;
        baton(&["unload", "relay"])?;
    }
    Ok(())
}
