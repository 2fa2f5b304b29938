// SPDX-License-Identifier: GPL-2.0-only
//! The cost of a global agent for the CPUs that it schedules. The agent polls on CPU 0. The load
//! runs on the other CPUs, also when EEVDF is measured.
//!
//! A plugin of QEMU counts the instructions of each CPU of the guest, and the CPUs run at the same
//! time. If they took turns, a CPU would always be idle before the agent could see it.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use rustix::thread::{sched_setaffinity, CpuSet};

use crate::arguments::Arguments;
use crate::counter;
use crate::guest::{self, guest_with, Needs};
use crate::loads;
use crate::programs::COUNTER;
use crate::report::{entries, Entry, Report, Series, BASELINE};
use crate::subject::Subject;
use crate::table::Measured;
use baton_control::error::{Error, Result};
use baton_control::modules::Search;

/// The schedulers that are measured. The second is judged.
const SUBJECTS: [&str; 4] = [BASELINE, JUDGED, "fifo --global", "wfq --global"];
/// It fills the standby ring.
const JUDGED: &str = "sol --global";
/// The largest cost of an operation of pipe, relative to EEVDF.
const MAX_RATIO: f64 = 1.25;
/// The largest number of instructions from a wakeup until a polling agent can see its message.
const MAX_MESSAGE: f64 = 500.0;
/// Operations of a run.
const LOOPS: u32 = 6_000;
/// Numbers of CPUs that the load has.
const LOADS: [u32; 2] = [1, 2];

/// EEVDF beside a CPU that the load may not use. A machine whose CPUs take turns has another
/// figure for it.
const COUNTED_BASELINE: &str = "eevdf, counted";
const UNIT: &str = "instructions";
const OF_LOAD: &str = "instructions_per_op";
const OF_AGENT: &str = "agent_instructions_per_op";
const TO_MESSAGE: &str = "instructions_to_message";

/// Boots a guest for each number of CPUs of the load, if there is a global agent to measure.
pub fn in_guests(args: &Arguments) -> Result<Measured> {
    let subjects = subjects(args);
    if subjects.len() < 2 {
        return Ok(Measured::default());
    }
    let plugin: PathBuf = COUNTER.build()?.join("counter.so");
    let needs = Needs {
        tools: &["perf"],
        files: guest_with(&subjects)?,
        counter: Some(plugin),
        ..Needs::default()
    };
    let args = Arguments {
        subjects,
        ..args.clone()
    };
    let mut whole = Measured::default();
    let guests = args.guests();
    for cpus in LOADS.into_iter().filter(|cpus| guests.contains(cpus)) {
        let before = Busy::read()?;
        let (report, holds) = guest::boot::<Report>(&args, cpus + 1, needs.clone())?;
        Busy::read()?.warn_of_others(&before);
        whole.entries.extend(report.results);
        whole.broken |= !holds;
    }
    Ok(whole)
}

/// What this machine's CPUs have done since it started, in clock ticks.
struct Busy {
    by_all: u64,
    /// By this process and the guests that have ended.
    by_us: u64,
    /// Time in which the CPUs idled.
    idle: u64,
}

/// The largest share of the machine's CPUs that other programs may use.
const MAX_OTHERS: f64 = 0.05;

impl Busy {
    fn read() -> Result<Self> {
        let read = |file: &str| {
            fs::read_to_string(file).map_err(|e| Error::file(format!("reading {file}"), &e))
        };
        let numbers = |text: &str| -> Vec<u64> {
            let words = text.split_ascii_whitespace();
            words.map(|word| word.parse().unwrap_or(0)).collect()
        };
        // user nice system idle iowait irq softirq steal; what guests use is part of the first two.
        let all = read("/proc/stat")?;
        let all = numbers(all.lines().next().and_then(|l| l.get(4..)).unwrap_or(""));
        // The name of the program, which is in parentheses, may have spaces. utime stime cutime
        // cstime are the fields 14 to 17, and the first after the name is field 3.
        let own = read("/proc/self/stat")?;
        let own = numbers(own.rsplit(')').next().unwrap_or(""));
        let sum = |of: &[u64], from: usize, to: usize| of.iter().take(to).skip(from).sum::<u64>();
        let idle = sum(&all, 3, 5);
        Ok(Self {
            by_all: sum(&all, 0, 8) - idle,
            by_us: sum(&own, 11, 15),
            idle,
        })
    }

    /// The CPUs of the guest run at the same time, and wait for each other. Beside programs that
    /// use the machine's CPUs, an operation has been seen to cost ten times as much.
    fn warn_of_others(&self, before: &Self) {
        let all = self.by_all - before.by_all;
        let others = all.saturating_sub(self.by_us - before.by_us) as f64;
        let share = others / (all + self.idle - before.idle).max(1) as f64;
        if share > MAX_OTHERS {
            eprintln!(
                "baton: other programs used {:.0} % of this machine's CPUs: the figures of global \
                 agents are wrong; run this bench alone",
                share * 100.0
            );
        }
    }
}

/// The kernel's own scheduler, and the global agents among those that are wanted.
fn subjects(args: &Arguments) -> Vec<Subject> {
    let subject = |name: &str| Subject::parse(name).expect("the name is one");
    if args.subjects.is_empty() {
        return SUBJECTS.map(subject).into();
    }
    let wanted = args.subjects.iter().filter(|s| is_global(s)).cloned();
    [subject(BASELINE)].into_iter().chain(wanted).collect()
}

/// Is this a policy or a scheduler in a global agent?
pub fn is_global(subject: &Subject) -> bool {
    matches!(
        subject,
        Subject::Agent {
            mode: "--global",
            ..
        }
    )
}

/// Measures in such a guest.
pub fn measure(search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
    bind(1..cpus)?;
    let mut of_load = Vec::new();
    let mut of_agent = Vec::new();
    let mut to_message = Vec::new();
    for subject in &subjects(args) {
        let (mut load, mut agent) = (Vec::new(), Vec::new());
        subject.measure(search, || {
            loads::pipe(LOOPS / 5)?;
            for _ in 0..args.runs() {
                let [first, second] = operation(cpus)?;
                load.push(first);
                agent.push(second);
            }
            if subject.name() == JUDGED {
                to_message.push(until_message()?);
            }
            Ok(())
        })?;
        let series = |values| Series {
            subject: subject.name(),
            values,
        };
        of_load.push(series(load));
        if subject.name() != BASELINE {
            of_agent.push(series(agent));
        }
    }
    let loads = cpus - 1;
    let mut results = entries(loads, OF_LOAD, UNIT, &of_load, true);
    let message = Series {
        subject: JUDGED.into(),
        values: to_message,
    };
    let message = entries(loads, TO_MESSAGE, UNIT, &[message], false);
    let verdicts = [judge_load(&results), judge_message(&message)];
    for entry in results.iter_mut().filter(|e| e.subject == BASELINE) {
        entry.subject = COUNTED_BASELINE.into();
    }
    for (text, _) in verdicts.iter().flatten() {
        eprintln!("baton: {text}");
    }
    results.extend(entries(loads, OF_AGENT, UNIT, &of_agent, false));
    results.extend(message);
    Ok(Measured {
        entries: results,
        broken: verdicts.iter().flatten().any(|verdict| !verdict.1),
    })
}

/// Binds this process, and what it starts, to these CPUs.
fn bind(cpus: Range<u32>) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.for_each(|cpu| set.set(cpu as usize));
    sched_setaffinity(None, &set).map_err(|errno| {
        Error::environment(
            format!("this process cannot be bound to CPUs: {errno}"),
            "try again",
        )
    })
}

/// The instructions of an operation of pipe: those of the load's CPUs, and those of the agent's.
/// The difference of two runs, so that the start and the end of the program do not count.
fn operation(cpus: u32) -> Result<[f64; 2]> {
    let run = |loops: u32| -> Result<[f64; 2]> {
        let read =
            || -> Result<[u64; 2]> { Ok([counter::executed(1..cpus)?, counter::executed(0..1)?]) };
        let before = read()?;
        loads::pipe(loops)?;
        let after = read()?;
        Ok([0, 1].map(|i| (after[i] - before[i]) as f64))
    };
    let (short, long) = (run(LOOPS)?, run(3 * LOOPS)?);
    Ok([0, 1].map(|i| (long[i] - short[i]) / f64::from(2 * LOOPS)))
}

/// The instructions from the moment that the core gets a runnable task until its message can be
/// seen.
fn until_message() -> Result<f64> {
    let symbols = fs::read_to_string("/proc/kallsyms")
        .map_err(|e| Error::file("reading /proc/kallsyms", &e))?;
    // The kernel half calls `baton_alert` directly after it has posted a message, to decide whether
    // to wake the agent. So the entry of that function is when the message can be seen.
    let (from, to) = ("baton_enqueue", "baton_alert");
    match (address(&symbols, from), address(&symbols, to)) {
        (Some(from), Some(to)) => {
            counter::watch(from, to)?;
            loads::pipe(LOOPS)?;
            counter::watched()?.ok_or_else(|| {
                Error::baton(format!("no CPU came from {from} to {to} while pipe ran"))
            })
        }
        _ => Err(Error::baton(format!(
            "/proc/kallsyms has no {from} or no {to}"
        ))),
    }
}

/// The address of a function of a module.
fn address(symbols: &str, name: &str) -> Option<u64> {
    symbols.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next()?;
        let found = (words.nth(1)?, words.next()?);
        let is_it = found.0 == name && found.1.starts_with("[baton");
        is_it
            .then(|| u64::from_str_radix(address, 16).ok())
            .flatten()
    })
}

fn judge_load(results: &[Entry]) -> Option<(String, bool)> {
    let entry = results.iter().find(|entry| entry.subject == JUDGED)?;
    let ratio = entry.ratio_to_eevdf?;
    let holds = ratio <= MAX_RATIO;
    let text = format!(
        "{JUDGED}, a load on {} CPUs: {ratio:.3} of EEVDF, bound {MAX_RATIO:.2}: {}",
        entry.cpus,
        crate::judged::verdict(holds)
    );
    Some((text, holds))
}

fn judge_message(message: &[Entry]) -> Option<(String, bool)> {
    let count = message.first()?.median;
    let holds = count <= MAX_MESSAGE;
    let text = format!(
        "a message can be seen {count:.0} instructions after its task is runnable, \
         bound {MAX_MESSAGE:.0}: {}",
        crate::judged::verdict(holds)
    );
    Some((text, holds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_those_of_the_modules() {
        let symbols = "ffffffff81000000 T baton_alert\n\
                       ffffffffc0201000 t baton_alert\t[baton_agent]\n";
        assert_eq!(address(symbols, "baton_alert"), Some(0xffff_ffff_c020_1000));
        assert_eq!(address(symbols, "baton_enqueue"), None);
    }

    #[test]
    fn bounds_are_judged() {
        let check = |value: f64, expected: bool| {
            let series = [(BASELINE, 1000.0), (JUDGED, value)].map(|(subject, value)| Series {
                subject: subject.into(),
                values: vec![value],
            });
            let results = entries(1, OF_LOAD, UNIT, &series, true);
            assert_eq!(judge_load(&results).unwrap().1, expected);
        };
        check(1250.0, true);
        check(1251.0, false);
        let message = |value| {
            let values = vec![value];
            let subject = JUDGED.into();
            let series = Series { subject, values };
            judge_message(&entries(1, TO_MESSAGE, UNIT, &[series], false)).unwrap()
        };
        assert!(message(500.0).1 && !message(501.0).1);
    }
}
