// SPDX-License-Identifier: GPL-2.0-only
//! The tests that run inside a booted kernel, as root. They use the tool `baton` as a user does.
//!
//! `baton-booted [--repeat N] [--part I/N] [WORD]` runs all cases, those of the group WORD
//! (containment, life, conformance, upgrade, monitor, record, hints, agents, several, cores,
//! configuration, systemd), or those whose name contains WORD, each N times in a row. Only the
//! cases for a machine like this one are run. Every case begins and ends with nothing loaded. It
//! fails if the machine does not go on scheduling, or anything is left behind. The program that
//! boots the guest checks the kernel's log (crate baton-vm). `--part 2/3` divides the cases between
//! three guests, and runs those of the second.
//!
//! `baton-booted --hostile SECONDS` runs only the hostile clients of hint queues, for that long;
//! `--attributes SECONDS` those of attributes;
//! `--hostile-agent SECONDS` a hostile agent; `--kills TIMES` agents that end under load;
//! `--loops 1` endless loops in each method; `--without-polls 1` loops in policies without polls;
//! `--upgrades TIMES` versions of a policy that replace each other in an agent under load; and
//! `--matrix SEED PARTS INDEX [TEXT]` a part of the matrix of faults (matrix.rs);
//! `--monkey SEED TIMES` so many commands that are killed at random (monkey.rs);
//! `--apart SECONDS` groups of tasks that never share a core, on a machine with two CPUs for each.

macro_rules! case {
    ($name:literal, $run:expr) => {
        Case {
            name: $name.into(),
            run: Box::new(|| $run),
        }
    };
}

mod agents;
mod apart;
mod attributes;
mod cases;
mod chance;
mod closed;
mod configuration;
mod conformance;
mod containment;
mod cores;
mod crowd;
mod deadlines;
mod enclaves;
mod events;
mod flight;
mod grants;
mod held;
mod hints;
mod hostile;
mod killed;
mod loops;
mod matrix;
mod monitor;
mod monkey;
mod record;
mod rings;
mod several;
mod starved;
mod switches;
mod tool;
mod upgrade;

use std::{process::ExitCode, time::Instant};

/// The cases that run on each kernel (`make kernels`): a few of each kind.
const BRIEF: [&str; 10] = [
    "wfq runs all tasks",
    "fifo_c runs all tasks",
    "baton run and its children",
    "CPU hotplug",
    "stack-hungry recursion",
    "self-deadlock",
    "pick that never picks (stall)",
    "fault in a timer callback",
    "upgrades to another state and back",
    "hints: seen before a sleep and before a wakeup",
];

/// A test: its name and its function.
struct Case {
    name: String,
    run: Box<dyn Fn() -> Result<(), String>>,
}

/// The policies in C.
const IN_C: [&str; 5] = ["fifo_c", "global_fifo", "cfs_c", "central_c", "rusty_c"];

/// The policies that run tasks as they are: all in Rust whose module has the policy's name, unlike
/// the versions of `relay`, and those in C.
fn policies() -> impl Iterator<Item = &'static str> {
    let rust = baton_linked::POLICIES
        .iter()
        .filter(|linked| linked.sound && (linked.policy)().name() == linked.name);
    rust.map(|linked| linked.name).chain(IN_C)
}

/// A case for each policy.
fn each_policy(
    what: &'static str,
    run: fn(&str) -> Result<(), String>,
) -> impl Iterator<Item = Case> {
    policies().map(move |policy| Case {
        name: format!("{policy} {what}"),
        run: Box::new(move || run(policy)),
    })
}

/// A form of a case that runs for so many seconds, or so many times.
type LongForm = fn(u64) -> Result<(), String>;

/// What is run alone: its option, what it is, and the function.
const LONG_FORMS: [(&str, &str, LongForm); 9] = [
    ("--hostile", "hostile clients, s", |seconds| {
        one(|| hostile::hostile(seconds))
    }),
    (
        "--attributes",
        "hostile clients of attributes, s",
        |seconds| one(|| hostile::attributes(seconds)),
    ),
    ("--hogs", "a user's hogs, s", |seconds| {
        // Longer than the limit of the kernel's watchdog.
        one(|| crowd::hogs(seconds)).and_then(|()| one(|| crowd::fault(seconds.min(40))))
    }),
    ("--hostile-agent", "a hostile agent, s", |seconds| {
        one(|| agents::hostile(seconds))
    }),
    ("--kills", "agents that end", |times| {
        one(|| agents::ends(times as usize))
    }),
    ("--upgrades", "policies replaced in agents", |times| {
        one(|| agents::upgrades(times as usize))
    }),
    ("--loops", "endless loops in each method", |_| {
        one(loops::in_each_method)
    }),
    ("--without-polls", "endless loops without polls", |_| {
        one(loops::without_polls)
    }),
    ("--apart", "groups that never share a core, s", |seconds| {
        one(|| apart::stay_apart(seconds))
    }),
];

/// A program that a case runs beside itself, with one number.
type Program = fn(u64) -> Result<(), String>;

/// Their options. `--echo`, `--machine`, `--trespass`, `--hints` and `--cores` take other
/// arguments.
const PROGRAMS: [(&str, Program); 10] = [
    ("--act", |behaviour| conformance::act(behaviour as usize)),
    ("--service", crowd::service),
    ("--agent", agents::hostile_agent),
    ("--late", agents::late),
    ("--naps", deadlines::naps),
    ("--due", deadlines::due),
    ("--due-in-agent", deadlines::due_in_agent),
    ("--nap", rings::nap),
    ("--gap", loops::gap),
    ("--ping", loops::ping),
];

fn main() -> ExitCode {
    let mut repeat = 1;
    let mut filter = String::new();
    let mut is_brief = false;
    let mut part = (1, 1);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if let Some((_, what, run)) = LONG_FORMS.iter().find(|(option, ..)| *option == arg) {
            let Some(number) = args.next().and_then(|n| n.parse().ok()) else {
                return end_with(Err(format!("{arg} NUMBER")));
            };
            let result = run(number);
            let verdict = if result.is_ok() { "ok" } else { "FAILED" };
            println!("{what}, {number}: {verdict}");
            return end_with(result);
        }
        if let Some((_, run)) = PROGRAMS.iter().find(|(option, _)| *option == arg) {
            let Some(number) = args.next().and_then(|n| n.parse().ok()) else {
                return end_with(Err(format!("{arg} NUMBER")));
            };
            return end_with(run(number));
        }
        if arg == "--echo" {
            let nice = args.next().and_then(|n| n.parse().ok());
            return end_with(agents::echo(nice.unwrap_or(0)));
        }
        if arg == "--machine" {
            let name = args.next().unwrap_or_default();
            let seconds = args.next().and_then(|n| n.parse().ok()).unwrap_or(1);
            return end_with(apart::machine(&name, seconds));
        }
        if arg == "--trespass" {
            return end_with(enclaves::trespass());
        }
        if arg == "--hints" {
            return hints::client(&args.collect::<Vec<_>>());
        }
        if arg == "--matrix" {
            return matrix::command(&args.collect::<Vec<_>>());
        }
        if arg == "--monkey" {
            return end_with(monkey::command(&args.collect::<Vec<_>>()));
        }
        if arg == "--cores" {
            return cores::client(&args.collect::<Vec<_>>());
        }
        if arg == "--brief" {
            is_brief = true;
        } else if arg == "--repeat" {
            repeat = args.next().and_then(|n| n.parse().ok()).unwrap_or(1);
        } else if arg == "--part" {
            let Some(given) = args.next().as_deref().and_then(part_of) else {
                return end_with(Err("--part I/N".into()));
            };
            part = given;
        } else {
            filter = arg;
        }
    }
    let is_systemd = std::fs::exists("/run/systemd/system").unwrap_or(false);
    let cpus = std::thread::available_parallelism()
        .map_or(0, usize::from)
        .to_string();
    let machine = if is_systemd { "systemd" } else { &cpus };
    let of_hints = [
        hints::cases(),
        hostile::cases(),
        closed::cases(),
        grants::cases(),
        deadlines::of_hints(),
    ];
    let groups = [
        (
            "containment",
            "2",
            containment::cases()
                .into_iter()
                .chain(loops::cases())
                .chain(cases::of_containment())
                .collect::<Vec<_>>(),
        ),
        ("life", "2", cases::cases()),
        ("conformance", "2", conformance::cases()),
        ("upgrade", "2", upgrade::cases()),
        ("events", "2", events::cases()),
        ("attributes", "2", attributes::cases()),
        (
            "killed",
            "2",
            killed::cases().into_iter().chain(monkey::cases()).collect(),
        ),
        ("monitor", "2", monitor::cases()),
        ("crowd", "2", crowd::cases()),
        (
            "record",
            "2",
            record::cases().into_iter().chain(flight::cases()).collect(),
        ),
        ("hints", "2", of_hints.into_iter().flatten().collect()),
        ("agents", "2", agents::cases()),
        ("agents", "2", deadlines::of_agents()),
        ("agents", "2", rings::cases()),
        ("agents", "2", starved::cases()),
        ("agents", "2", enclaves::cases()),
        ("agents", "8", enclaves::of_eight()),
        ("agents", "8", apart::cases()),
        ("several", "4", several::cases()),
        ("cores", "4", cores::cases()),
        ("configuration", "4", configuration::cases()),
        ("systemd", "systemd", configuration::of_systemd()),
    ];
    let chosen = |group: &str, case: &Case| {
        if is_brief {
            BRIEF.contains(&&*case.name)
        } else {
            group == filter || case.name.contains(&filter)
        }
    };
    let cases: Vec<Case> = groups
        .into_iter()
        .filter(|(_, on, _)| *on == machine)
        .flat_map(|(group, _, cases)| cases.into_iter().filter(move |case| chosen(group, case)))
        .skip(part.0 - 1)
        .step_by(part.1)
        .collect();
    assert!(
        !is_brief || cases.len() == BRIEF.len(),
        "{} cases of those for each kernel",
        cases.len()
    );
    let (mut passed, mut failed) = (0, 0);
    let mut times = Vec::new();
    for case in &cases {
        let begin = Instant::now();
        match (0..repeat).try_for_each(|_| one(&case.run)) {
            Ok(()) => {
                passed += 1;
                println!(
                    "ok      {} ({repeat} x, {:.1} s of the guest)",
                    case.name,
                    begin.elapsed().as_secs_f64()
                );
            }
            Err(why) => {
                failed += 1;
                println!("FAILED  {}: {why}", case.name);
            }
        }
        times.push((&case.name, begin.elapsed()));
    }
    if let Err(why) = tool::no_leaks() {
        failed += 1;
        println!("FAILED  {why}");
    }
    times.sort_by_key(|&(_, time)| std::cmp::Reverse(time));
    times
        .iter()
        .take(10)
        .for_each(|(name, time)| println!("{:8.1} s of the guest  {name}", time.as_secs_f64()));
    println!("{passed} passed, {failed} failed");
    // A word may match only cases of another guest.
    if failed == 0 && (passed > 0 || !filter.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Parses the numbers in "I/N".
fn part_of(text: &str) -> Option<(usize, usize)> {
    let (part, of) = text.split_once('/')?;
    let (part, of) = (part.parse().ok()?, of.parse().ok()?);
    (1..=of).contains(&part).then_some((part, of))
}

/// Converts a result to an exit code, and prints the error.
fn end_with(result: Result<(), String>) -> ExitCode {
    result.map_or_else(
        |why| {
            println!("{why}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// One run of a case, with the conditions that hold around every case.
fn one(case: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    tool::stop_scans()?;
    let result = case();
    let cleaned = tool::unload_everything();
    result?;
    cleaned?;
    tool::hackbench(1, 5)
}
