// SPDX-License-Identifier: GPL-2.0-only
//! The matrix of faults: each method, each kind of fault that it can have, and what else happens at
//! that moment. `baton-booted --matrix SEED PARTS INDEX` shuffles the cells by the seed, and tries
//! every PARTS-th from the INDEX-th on. Each cell prints a line that `cargo xtask matrix` reads.

use std::{
    fs,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    loops::{methods, options, reach, under, TOO_LONG},
    one,
    record::Recorder,
    tool::{
        baton, baton_fails, check, hackbench, is_well, module, policy, run, status,
        unload_everything, Hog, Load,
    },
};

/// A kind of fault: the policy that has it, its name there, and the kind and a part of the message
/// that are reported.
struct Kind {
    policy: &'static str,
    fault: &'static str,
    kind: &'static str,
    says: &'static str,
}

const fn kind(
    policy: &'static str,
    fault: &'static str,
    kind: &'static str,
    says: &'static str,
) -> Kind {
    Kind {
        policy,
        fault,
        kind,
        says,
    }
}

const KINDS: [Kind; 15] = [
    kind("faulty", "index", "panic", "index out of bounds"),
    kind("faulty", "forever", "endless loop", "the call did not end"),
    kind(
        "faulty",
        "recursion",
        "stack overflow",
        "4096 bytes of stack",
    ),
    kind("faulty", "deadlock", "deadlock", "already holds the lock"),
    kind("faulty", "kept-lock", "deadlock", "with a lock held"),
    kind("faulty", "memory", "out of memory", "memory allocation of"),
    kind("faulty", "lost", "lost task", "a Schedulable was dropped"),
    kind("faulty_c", "token", "", ""),
    kind("faulty_c", "null", "panic", "memory at 0x18 was read"),
    kind("faulty_c", "write", "panic", "memory at 0x8 was written"),
    kind("faulty_c", "divide", "panic", "a division by zero"),
    kind("faulty_c", "trap", "panic", "a trap: BUG()"),
    kind("faulty_c", "call", "panic", "memory at 0x0 was executed"),
    kind("faulty_c", "loop", "endless loop", "the call did not end"),
    kind(
        "faulty_c",
        "recursion",
        "stack overflow",
        "4096 bytes of stack",
    ),
];

/// Faults of `relay_v2` as it takes over from `relay_v1`, or hands over to it, and what is said.
const UPGRADES: [(&str, &str, &str); 12] = [
    (
        "reregister_prepare",
        "prepare-panic",
        "as the state is handed on",
    ),
    ("reregister_prepare", "prepare-loop", TOO_LONG),
    (
        "reregister_convert",
        "convert-panic",
        "as the state is converted",
    ),
    ("reregister_convert", "convert-loop", TOO_LONG),
    ("reregister_init", "init-panic", "as it is made"),
    ("reregister_init", "init-memory", "memory allocation of"),
    ("reregister_init", "init-lock", "a lock was taken while"),
    ("reregister_init", "init-recursion", "the stack is used up"),
    ("reregister_init", "init-loop", TOO_LONG),
    ("reregister_take", "take-panic", "as the queues are taken"),
    ("reregister_take", "take-recursion", "4096 bytes of stack"),
    ("reregister_take", "take-loop", "the call did not end"),
];

/// What else happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Alone,
    UnderLoad,
    Recorded,
    WhileUpgrading,
    DuringHotplug,
    TwoPolicies,
}

const MOMENTS: [Moment; 6] = [
    Moment::Alone,
    Moment::UnderLoad,
    Moment::Recorded,
    Moment::WhileUpgrading,
    Moment::DuringHotplug,
    Moment::TwoPolicies,
];

#[derive(Clone, Copy)]
enum What {
    Call(&'static Kind, &'static str),
    /// The policy is created, asked for a task, or destroyed.
    Made(&'static Kind, &'static str),
    Upgrade(&'static str, &'static str, &'static str),
}

#[derive(Clone, Copy)]
struct Cell {
    what: What,
    moment: Moment,
}

/// Methods in which the queue of `faulty` never has a task, or rarely.
const WITHOUT_TASKS: [&str; 6] = [
    "newly_idle",
    "cpu_online",
    "cpu_offline",
    "enter_idle",
    "exit_idle",
    "hint",
];

/// What is expected of an answer that is refused and counted, and is no fault.
const REFUSED: &str = "refused";

/// Methods that answer with a token, and what becomes of a wrong one. That of a task which leaves
/// is not needed any more.
const WITH_TOKENS: [(&str, &str, &str); 4] = [
    ("pick_next_task", "refusal loop", "64 answers in a row"),
    ("newly_idle", "refusal loop", "64 answers in a row"),
    ("task_dequeued", REFUSED, ""),
    ("task_departed", REFUSED, ""),
];

impl Kind {
    /// Can the method have it?
    fn is_of(&self, method: &str) -> bool {
        match (self.policy, self.fault) {
            ("faulty", "lost") => !WITHOUT_TASKS.contains(&method),
            ("faulty", _) => true,
            (_, "token") => WITH_TOKENS.iter().any(|(with, ..)| *with == method),
            // Those that the policy in C does not have.
            _ => !["timer", "hint"].contains(&method),
        }
    }

    /// Can it happen while the policy is created, asked or destroyed?
    fn is_of_making(&self) -> bool {
        !["lost", "token"].contains(&self.fault)
    }

    /// The kind and a part of the message of the report.
    fn expected(&self, method: &str) -> (&'static str, &'static str) {
        let with = WITH_TOKENS.iter().find(|(with, ..)| *with == method);
        match with.filter(|_| self.fault == "token") {
            Some((_, kind, says)) => (kind, says),
            None => (self.kind, self.says),
        }
    }

    /// Does the report say where? The stack has no place, nor has what the host finds.
    fn has_place(&self, method: &str) -> bool {
        ["panic", "endless loop"].contains(&self.expected(method).0)
    }
}

impl Cell {
    fn name(&self) -> String {
        let (method, fault) = match self.what {
            What::Call(kind, method) | What::Made(kind, method) => (method, kind.fault),
            What::Upgrade(method, fault, _) => (method, fault),
        };
        format!("{method} | {fault} | {:?}", self.moment)
    }
}

fn cells() -> Vec<Cell> {
    let mut all = Vec::new();
    for moment in MOMENTS {
        let mut add = |what| all.push(Cell { what, moment });
        for kind in &KINDS {
            for method in methods() {
                if kind.is_of(method) {
                    add(What::Call(kind, method));
                }
            }
            let made: &[&str] = match kind.policy {
                "faulty" => &["new", "may_have", "drop"],
                _ => &["create", "destroy"],
            };
            for method in made.iter().filter(|_| kind.is_of_making()) {
                add(What::Made(kind, method));
            }
        }
        for (method, fault, says) in UPGRADES {
            // The running version of a policy is replaced while nothing records it.
            if moment != Moment::Recorded {
                add(What::Upgrade(method, fault, says));
            }
        }
    }
    all
}

/// Shuffles by a seed (Fisher and Yates, numbers by xorshift).
fn shuffle(cells: &mut [Cell], seed: u64) {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for last in (1..cells.len()).rev() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        cells.swap(last, (x % (last as u64 + 1)) as usize);
    }
}

/// `--matrix SEED PARTS INDEX [TEXT]`: tries one part of the cells. With a text, only those
/// whose names contain it are divided.
pub fn command(args: &[String]) -> ExitCode {
    let numbers = args.iter().take(3).filter_map(|arg| arg.parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    let (seed, parts, index) = match numbers[..] {
        [seed, parts, index] if parts > 0 => (seed, parts, index),
        _ => {
            println!("--matrix SEED PARTS INDEX [TEXT]");
            return ExitCode::FAILURE;
        }
    };
    let mut all = cells();
    if let Some(text) = args.get(3) {
        all.retain(|cell| cell.name().contains(text));
    }
    shuffle(&mut all, seed);
    let chosen: Vec<Cell> = all
        .iter()
        .skip(index as usize)
        .step_by(parts as usize)
        .copied()
        .collect();
    println!("seed {seed}: {} of {} cells", chosen.len(), all.len());
    let mut failed = 0;
    for cells in chosen.chunks(TOGETHER) {
        let end = one(|| {
            // As long as a policy is loaded, the shim stays: to load it takes longer than a cell.
            baton(&["load", "wfq"])?;
            let mut seen = 0;
            for cell in cells {
                if !cell.is_contained(&mut seen) {
                    failed += 1;
                    // The next cell is not to fail for it.
                    unload_everything()?;
                    baton(&["load", "wfq"])?;
                    seen = 0;
                }
            }
            Ok(())
        });
        if let Err(why) = end {
            println!("FAILED  after these cells: {why}");
            failed += 1;
        }
    }
    println!(
        "{} passed, {failed} failed",
        chosen.len().saturating_sub(failed)
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Cells that are tried before everything is unloaded.
const TOGETHER: usize = 16;

/// Checks that `wfq` is well, and unloads all others. Returns the number of the newest fault.
fn tidy() -> Result<u64, String> {
    let status = status()?;
    let well = policy(&status, "wfq")?;
    check(well["state"] == "running" && well["faults"] == 0, || {
        format!("wfq is not well: {status}")
    })?;
    let policies = status["policies"].as_array().into_iter().flatten();
    policies
        .filter_map(|policy| policy["name"].as_str())
        .filter(|name| *name != "wfq")
        .try_for_each(|name| baton(&["unload", name]).map(drop))?;
    Ok(newest_fault(&status, |_| true).map_or(0, |(number, _)| number))
}

/// The number of the newest of these faults in a status, and its report.
fn newest_fault(status: &Value, of: impl Fn(&Value) -> bool) -> Option<(u64, Value)> {
    let mut faults = status["faults"].as_array().into_iter().flatten();
    let fault = faults.find(|fault| of(fault))?;
    Some((fault["serial"].as_u64()?, fault.clone()))
}

impl Cell {
    /// Tries it, and prints the result. `seen` is the number of the newest fault before, and after.
    fn is_contained(&self, seen: &mut u64) -> bool {
        let begin = Instant::now();
        let end = self.run(*seen).and_then(|()| tidy());
        let seconds = begin.elapsed().as_secs_f64();
        match &end {
            Ok(_) => println!("cell ok | {} | {seconds:.2} s", self.name()),
            Err(why) => println!("FAILED  cell | {}: {why}", self.name()),
        }
        *seen = end.as_ref().map_or(0, |newest| (*newest).max(*seen));
        end.is_ok()
    }

    fn run(&self, seen: u64) -> Result<(), String> {
        let hog = match self.moment {
            Moment::WhileUpgrading | Moment::TwoPolicies => {
                // The other CPU idles now and then.
                let hog = Hog::of("wfq", Some("0"))?;
                let before = hog.ran()?;
                Some((hog, before))
            }
            _ => None,
        };
        let load = (self.moment == Moment::UnderLoad)
            .then(|| Load::hackbench(2, 10))
            .transpose()?;
        let is_over = AtomicBool::new(false);
        let failed = scope(|scope| {
            let beside = scope.spawn(|| self.beside(&is_over));
            let failed = self.fail(seen);
            is_over.store(true, Relaxed);
            let beside = beside
                .join()
                .unwrap_or_else(|_| Err("a panic beside it".into()));
            failed.and(beside)
        });
        if let Some((hog, before)) = hog {
            check(hog.ran()? > before, || "the hog stands still".into())?;
        }
        failed?;
        load.map_or(Ok(()), Load::end)
    }

    /// What goes on beside the fault until it is over.
    fn beside(&self, is_over: &AtomicBool) -> Result<(), String> {
        let mut turns = 0;
        while !is_over.load(Relaxed) {
            match self.moment {
                Moment::WhileUpgrading => baton(&["upgrade", "wfq"]).map(drop)?,
                Moment::DuringHotplug => set_online(if turns % 2 == 0 { "0" } else { "1" })?,
                _ => {}
            }
            // Commands of the tool wait for each other, so the next upgrade is not to come at once.
            sleep(Duration::from_millis(match self.moment {
                Moment::WhileUpgrading => 200,
                _ => 20,
            }));
            turns += 1;
        }
        if self.moment == Moment::DuringHotplug {
            set_online("1")?;
        }
        Ok(())
    }

    fn fail(&self, seen: u64) -> Result<(), String> {
        match self.what {
            What::Call(kind, method) => self.in_call(kind, method, seen),
            What::Made(kind, method) => made(kind, method),
            What::Upgrade(_, fault, says) => upgraded(fault, says),
        }
    }

    fn in_call(&self, kind: &Kind, method: &str, seen: u64) -> Result<(), String> {
        let options = options(kind.fault, method);
        let (expected, says) = kind.expected(method);
        let is_recorded = self.moment == Moment::Recorded;
        // Its queue is to have tasks.
        let has_hogs = kind.fault == "lost";
        if is_recorded || has_hogs {
            baton(&["load", kind.policy, "--options", &options])?;
        }
        let recorder = is_recorded
            .then(|| Recorder::start(kind.policy, "/tmp/matrix", &[]))
            .transpose()?;
        // The policy may fail as soon as it has the first.
        let hogs: Vec<Hog> = (0..if has_hogs { 3 } else { 0 })
            .filter_map(|_| Hog::of(kind.policy, None).ok())
            .collect();
        reach(kind.policy, method, &options)?;
        drop(hogs);
        let now = status()?;
        let fault = newest_fault(&now, |fault| fault["policy"] == kind.policy);
        let fault = fault.filter(|(number, _)| *number > seen);
        if let Some(recorder) = recorder {
            // It goes on until the policy fails.
            let (end, code) = match fault {
                None => (recorder.end(), 0),
                Some(_) => (recorder.wait(), 4),
            };
            let (status, summary, errors) = end?;
            check(status.code() == Some(code), || {
                format!("the recorder: {status}, {summary}: {errors}")
            })?;
        }
        if expected == REFUSED {
            let entry = policy(&now, kind.policy)?;
            let is_refused = entry["refusals"].as_u64().is_some_and(|count| count > 0);
            return check(fault.is_none() && is_refused, || {
                format!("not refused: {entry}, {fault:?}")
            });
        }
        let (_, fault) = fault.ok_or("there was no fault")?;
        check(
            fault["kind"] == expected
                && fault["method"] == method
                && fault["message"].as_str().unwrap_or("").contains(says)
                && (fault["place"].is_string() || !kind.has_place(method)),
            || format!("another fault: {fault}"),
        )
    }
}

fn set_online(state: &str) -> Result<(), String> {
    fs::write("/sys/devices/system/cpu/cpu1/online", state).map_err(|e| format!("hotplug: {e}"))
}

/// While the policy is created, asked or destroyed.
fn made(kind: &Kind, method: &str) -> Result<(), String> {
    // With interrupts on, the stack and the time are the task's, and no lock may be taken.
    let says = match (kind.kind, kind.fault) {
        ("endless loop", _) => TOO_LONG,
        ("stack overflow", _) => "the stack is used up",
        ("deadlock", _) => "a lock was taken while",
        _ => kind.says,
    };
    let options = format!("fault={},in={method},after=0", kind.fault);
    let load = ["load", kind.policy, "--options", &options];
    match method {
        "new" | "create" => {
            let ran = run("baton", &load)?;
            check(ran.code == Some(4) && ran.text.contains(says), || {
                format!("{:?}: {}", ran.code, ran.text)
            })
        }
        "may_have" => {
            baton(&load)?;
            let task = Hog::plain()?;
            baton_fails(&["attach", kind.policy, "--pid", &task.pid()], says)
        }
        _ => {
            baton(&load)?;
            under(kind.policy, &options, &["hackbench", "-g", "1", "-l", "1"])?;
            let ran = run("baton", &["unload", kind.policy])?;
            check(ran.code == Some(4) && ran.text.contains(says), || {
                format!("{:?}: {}", ran.code, ran.text)
            })?;
            check(policy(&status()?, kind.policy).is_err(), || {
                "it is still there".into()
            })
        }
    }
}

/// While a version of a policy takes over, or hands over.
fn upgraded(fault: &str, says: &str) -> Result<(), String> {
    let (with, without) = (format!("fault={fault}"), String::new());
    let versions = [("relay_v1", &without), ("relay_v2", &with)];
    let [from, to] = if fault.starts_with("prepare") {
        [versions[1], versions[0]]
    } else {
        versions
    };
    let (from_file, to_file) = (module(from.0)?, module(to.0)?);
    baton(&["load", "relay", "--module", &from_file, "--options", from.1])?;
    baton_fails(
        &["upgrade", "relay", "--module", &to_file, "--options", to.1],
        says,
    )?;
    is_well("relay")?;
    hackbench(1, 3)
}
