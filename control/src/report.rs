// SPDX-License-Identifier: GPL-2.0-only
//! State and faults as text for people: tables and reports. The functions are pure, and tests
//! compare their results with golden files.

use std::fmt::Write;

use crate::error::Blame;
use crate::status::{Core, Cpu, Fault, Partition, Policy, Status};

/// Columns under their titles. Texts are aligned left, numbers (cells that begin with a digit)
/// right.
pub fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let numeric = |column: usize| {
        let mut cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .filter(|cell| *cell != "-")
            .peekable();
        cells.peek().is_some() && cells.all(|cell| cell.starts_with(|c: char| c.is_ascii_digit()))
    };
    let columns: Vec<(usize, bool)> = (0..titles.len())
        .map(|i| {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(i))
                .map(|cell| cell.chars().count());
            (
                cells.max().unwrap_or(0).max(titles[i].chars().count()),
                numeric(i),
            )
        })
        .collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&columns).map(|(cell, (width, numeric))| {
            if *numeric {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    };
    line(&mut titles.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

/// A size in memory, with three digits.
pub fn bytes(n: u64) -> String {
    let (value, unit) = match n {
        0..1024 => return format!("{n} B"),
        1024..0x10_0000 => (n as f64 / 1024.0, "KiB"),
        0x10_0000..0x4000_0000 => (n as f64 / 1048576.0, "MiB"),
        _ => (n as f64 / 1073741824.0, "GiB"),
    };
    match value {
        0.0..9.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A time with three digits.
pub fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value {
        0.0..9.995 => format!("{value:.2} {unit}"),
        9.995..99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A part in percent.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.2} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// The output of `baton list`.
pub fn list(policies: &[Policy]) -> String {
    if policies.is_empty() {
        return "no policy is loaded; load one: baton load POLICY\n".into();
    }
    let rows = policies.iter().map(|p| {
        let options = if p.options.is_empty() {
            "-"
        } else {
            &p.options
        };
        vec![
            p.name.clone(),
            p.state.into(),
            p.tasks.to_string(),
            p.running.to_string(),
            p.queued.to_string(),
            p.asleep.to_string(),
            bytes(p.memory_bytes),
            p.refusals.to_string(),
            p.faults.to_string(),
            if p.share == 0 {
                "-".into()
            } else {
                format!("{} %", p.share)
            },
            options.into(),
        ]
    });
    let titles = [
        "POLICY", "STATE", "TASKS", "RUNNING", "QUEUED", "ASLEEP", "MEMORY", "REFUSALS", "FAULTS",
        "SHARE", "OPTIONS",
    ];
    table(&titles, &rows.collect::<Vec<_>>())
}

/// The last changes of a policy's version, if there were any.
fn versions(policy: &Policy) -> String {
    if policy.history.is_empty() {
        return String::new();
    }
    let changes = policy.history.iter().map(|change| {
        let (from, to) = (change.from_version, change.to_version);
        let at = change.at_ns as f64 / 1e9;
        format!("{} from {from} to {to} at {at:.3} s", change.kind)
    });
    let changes: Vec<_> = changes.collect();
    format!(
        "{} has version {}: {} (times since the boot)\n\n",
        policy.name,
        policy.version,
        changes.join(", ")
    )
}

/// The changes of threads' states that were refused, if there were any.
pub fn refused_changes(policy: &Policy) -> String {
    if policy.refused_changes.is_empty() {
        return String::new();
    }
    let rows = policy.refused_changes.iter().map(|change| {
        let line = change.line.map_or("-".into(), |line| line.to_string());
        vec![
            change.handler.clone(),
            line,
            change.times.to_string(),
            format!("{} to {}", change.from, change.to),
            change.why.clone(),
        ]
    });
    let titles = ["HANDLER", "LINE", "TIMES", "CHANGE", "WHY"];
    let rows: Vec<_> = rows.collect();
    format!(
        "Changes of states that {} was refused:\n{}\n",
        policy.name,
        table(&titles, &rows)
    )
}

/// The output of `baton partition list`.
pub fn partitions(partitions: &[Partition]) -> String {
    if partitions.is_empty() {
        return "there is no partition; every policy has all CPUs\n".into();
    }
    let rows = partitions
        .iter()
        .map(|p| vec![p.name.clone(), p.cpus.to_string(), p.policies.join(", ")]);
    table(
        &["PARTITION", "CPUS", "POLICIES"],
        &rows.collect::<Vec<_>>(),
    )
}

/// The output of `baton status`.
pub fn status(status: &Status) -> String {
    let Some(found) = &status.core else {
        return "Baton's core is not loaded; `baton load POLICY` loads it\n".into();
    };
    let mut text = core(found);
    text.push('\n');
    text.push_str(&list(&status.policies));
    text.push('\n');
    for policy in &status.policies {
        text.push_str(&versions(policy));
        text.push_str(&refused_changes(policy));
    }
    if !status.partitions.is_empty() {
        text.push_str(&partitions(&status.partitions));
        text.push('\n');
    }
    if !status.cgroups.is_empty() {
        let rows = status
            .cgroups
            .iter()
            .map(|c| vec![c.cgroup.clone(), c.policy.clone()]);
        text.push_str(&table(&["CGROUP", "POLICY"], &rows.collect::<Vec<_>>()));
        text.push('\n');
    }
    text.push_str(&cpus(&status.cpus, found.attached));
    for one in &status.faults {
        text.push('\n');
        text.push_str(&fault(one));
    }
    text
}

fn core(core: &Core) -> String {
    let shim = match (core.attached, core.all) {
        (true, true) => "attached, every normal task is Baton's",
        (true, false) => "attached, tasks of class SCHED_EXT are Baton's",
        (false, _) => "not attached: the kernel's own scheduler has all tasks",
    };
    let mut text = format!("shim      {shim}\n");
    let default = match (&core.default_policy, core.attached) {
        (Some(policy), _) => policy.as_str(),
        (None, true) => "none: tasks of Baton's without a policy run first come, first served",
        (None, false) => "none",
    };
    let _ = writeln!(text, "default   {default}");
    let _ = write!(text, "tasks     {} of {} slots", core.tasks, core.max_tasks);
    if core.no_slot > 0 {
        let _ = write!(
            text,
            "; {} got none and ran under the fallback (see --max-tasks)",
            core.no_slot
        );
    }
    let _ = writeln!(
        text,
        "\nstall     a queued task may wait {} ms",
        core.stall_ms
    );
    text
}

/// The core knows which CPUs are online only while it is attached.
fn cpus(cpus: &[Cpu], attached: bool) -> String {
    let rows = cpus.iter().map(|c| {
        let counters = [
            c.dispatches,
            c.picks,
            c.enqueues,
            c.directs,
            c.refusals,
            c.fallbacks,
            c.timers,
        ];
        let name = if c.online || !attached {
            c.cpu.to_string()
        } else {
            format!("{} (off)", c.cpu)
        };
        std::iter::once(name)
            .chain(counters.map(|n| n.to_string()))
            .collect()
    });
    let titles = [
        "CPU",
        "DISPATCHES",
        "PICKS",
        "ENQUEUES",
        "DIRECT",
        "REFUSALS",
        "FALLBACK",
        "TIMERS",
    ];
    table(&titles, &rows.collect::<Vec<_>>())
}

/// The full report of a fault.
pub fn fault(fault: &Fault) -> String {
    let mut text = fault_head(
        fault,
        &format!("; fault no. {} since the core was loaded", fault.serial),
        |ns| {
            // These times have the resolution of the tick.
            format!("{:>6} ms", ns / 1_000_000)
        },
    );
    let now = if fault.stopped {
        format!(
            "the policy is stopped; its tasks ({}) go on under the fallback, all others as \
             before",
            fault.tasks
        )
    } else {
        "the policy was stopped by hand since, and has no tasks".into()
    };
    line(&mut text, "now", &now);
    let policy = &fault.policy;
    if fault.recorded {
        line(
            &mut text,
            "recorded",
            &format!("save what led to it: baton fault save fault.rec -p {policy}"),
        );
    }
    line(&mut text, "to do", cause(fault));
    let then = if fault.in_agent {
        format!("then: baton agent run --enclave {policy} POLICY")
    } else {
        format!("then: baton build {policy} && baton unload {policy} && baton load {policy}")
    };
    line(&mut text, "", &then);
    line(
        &mut text,
        "",
        &format!("or give its tasks back to the kernel's scheduler: baton unload {policy}"),
    );
    text
}

/// The report of a fault that ended a simulated run.
pub fn simulated_fault(fault: &Fault) -> String {
    let mut text = fault_head(fault, "", |ns| format!("{:>9.1} µs", ns as f64 / 1e3));
    line(
        &mut text,
        "now",
        &format!(
            "the run ended here, after {:.3} ms of simulated time",
            fault.at_ns as f64 / 1e6
        ),
    );
    line(&mut text, "to do", cause(fault));
    line(
        &mut text,
        "",
        "then: run the same command again, which reaches the same place",
    );
    text
}

fn line(text: &mut String, title: &str, value: &str) {
    let _ = writeln!(text, "  {title:<9} {value}");
}

/// The party at fault.
pub fn blame(fault: &Fault) -> Blame {
    match fault.kind {
        "agent starved" => Blame::Environment,
        _ => Blame::Policy(fault.policy.clone()),
    }
}

/// What happened, where, and the calls before it.
fn fault_head(fault: &Fault, serial: &str, time: impl Fn(u64) -> String) -> String {
    let mut text = format!("FAULT of policy {}: {}", fault.policy, fault.kind);
    if fault.method != "-" {
        let _ = write!(text, " in {}", fault.method);
    }
    text.push('\n');
    line(&mut text, "at fault", &blame(fault).to_string());
    if let Some(place) = &fault.place {
        line(&mut text, "source", place);
    }
    if !fault.message.is_empty() {
        line(&mut text, "message", &fault.message);
    }
    if let Some(task) = &fault.task {
        let comm = if task.comm.is_empty() {
            String::new()
        } else {
            format!(" ({})", task.comm)
        };
        line(&mut text, "task", &format!("{}{comm}", task.pid));
    }
    line(&mut text, "where", &format!("on CPU {}{serial}", fault.cpu));
    for (i, call) in fault.calls.iter().enumerate() {
        let ago = time(fault.at_ns.saturating_sub(call.at_ns));
        let pid = call
            .pid
            .map_or(String::new(), |pid| format!("  task {pid}"));
        let title = if i == 0 { "calls" } else { "" };
        line(
            &mut text,
            title,
            format!("{ago} before  {:<21}{pid}", call.method).trim_end(),
        );
    }
    text
}

/// What to do about a fault.
fn cause(fault: &Fault) -> &'static str {
    match fault.kind {
        "panic" => "fix the source line above, or its caller",
        "out of memory" => "let it keep less, or allocate when it is created and not in a call",
        "stack overflow" => {
            "replace the recursion by a loop, and large local values by storage \
            that is allocated once"
        }
        "deadlock" => "take each lock once, and several always in the same order",
        "lock timeout" => "hold locks for a shorter time: no loop over all tasks inside",
        "lost task" if fault.method == "-" => {
            "keep each Schedulable in a queue, or return it: mem::forget, or a collection that is \
             forgotten, loses it"
        }
        "lost task" => {
            "keep each Schedulable in a queue, or return it; the call before dropped \
            one"
        }
        "stall" => {
            "make sure that pick_next_task reaches every queued task, on a CPU that the task may \
            use"
        }
        "refusal loop" => {
            "handle pick_refused: a refused Schedulable must not be returned unchanged for \
             the same CPU"
        }
        "endless loop" => {
            "bound the loop above by the data that it walks; if it does end, it is too long for a \
             call with interrupts off: leave the rest to a later call"
        }
        "agent starved" => {
            "see which tasks hold its CPU: of the fair or a real-time class, or of a policy that is \
             asked before (baton order); move them or the enclave, or use a global agent"
        }
        "agent gone" => "see why the agent ended, or was too slow (enclave create --limit)",
        _ => "see the message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Call, RefusedChange, Task};

    /// BATON_BLESS=1 writes the golden files anew.
    fn check(name: &str, got: &str) {
        // The variable is read at run time, as a build directory may outlive the location of the
        // source tree.
        let path = format!(
            "{}/tests/golden/{name}.txt",
            std::env::var("CARGO_MANIFEST_DIR").unwrap()
        );
        if std::env::var_os("BATON_BLESS").is_some() {
            std::fs::write(&path, got).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            got, expected,
            "{path} differs; if the new text is right: BATON_BLESS=1 cargo test -p baton-control"
        );
    }

    fn panicked() -> Fault {
        let call = |at_ns, method, pid| Call { at_ns, method, pid };
        Fault {
            policy: "wfq".into(),
            stopped: true,
            tasks: 17,
            kind: "panic",
            method: "pick_next_task",
            cpu: 1,
            task: Some(Task {
                pid: 412,
                comm: "stress-ng".into(),
            }),
            place: Some("policies/wfq/src/lib.rs:123".into()),
            message: "index out of bounds: the len is 4 but the index is 9".into(),
            at_ns: 12_345_678_901,
            serial: 1,
            calls: vec![
                call(12_344_475_000, "task_wakeup", Some(412)),
                call(12_345_678_101, "select_task_rq", Some(1)),
                call(12_345_678_901, "pick_next_task", None),
            ],
            recorded: true,
            in_agent: false,
        }
    }

    fn whole() -> Status {
        let policy = |name: &str, state, tasks, memory_bytes, options: &str| Policy {
            name: name.into(),
            state,
            id: 17,
            version: 1,
            tasks,
            running: 1,
            queued: 3,
            asleep: tasks - 4,
            memory_bytes,
            refusals: 2,
            faults: 0,
            options: options.into(),
            share: if name == "wfq" { 20 } else { 0 },
            recording: false,
            flight_mib: 0,
            partition: (name == "wfq").then(|| "fast".into()),
            can_roll_back: false,
            history: vec![],
            refused_changes: vec![],
        };
        let cpu = |cpu, online| Cpu {
            cpu,
            online,
            dispatches: 123_456,
            picks: 120_000,
            enqueues: 99,
            directs: 1_000,
            refusals: 0,
            fallbacks: 5,
            timers: 7,
        };
        Status {
            core: Some(Core {
                abi: 1,
                attached: true,
                all: true,
                nr_cpus: 2,
                max_tasks: 32768,
                tasks: 104,
                no_slot: 3,
                default_policy: Some("fifo".into()),
                stall_ms: 10000,
            }),
            policies: vec![
                policy("wfq", "faulted", 17, 5 << 20, "slice=3ms"),
                Policy {
                    refused_changes: vec![RefusedChange {
                        handler: "schedule".into(),
                        line: Some(57),
                        times: 1_000,
                        from: "READY".into(),
                        to: "BLOCKED".into(),
                        pid: 4711,
                        why: "a thread is BLOCKED by its own `block`, and leaves its queue".into(),
                    }],
                    ..policy("fifo", "running", 104, 2000, "")
                },
            ],
            partitions: vec![crate::status::Partition {
                name: "fast".into(),
                cpus: "2-5".parse().unwrap(),
                policies: vec!["wfq".into()],
            }],
            cgroups: vec![crate::status::Cgroup {
                cgroup: "batch".into(),
                policy: "wfq".into(),
            }],
            cpus: vec![cpu(0, true), cpu(1, false)],
            faults: vec![panicked()],
        }
    }

    #[test]
    fn a_panic_in_full() {
        check("fault-panic", &fault(&panicked()));
    }

    #[test]
    fn a_stall_that_is_over() {
        let stall = Fault {
            kind: "stall",
            method: "-",
            stopped: false,
            place: None,
            message: "the task was queued and not picked for longer than the stall limit".into(),
            calls: Vec::new(),
            recorded: false,
            ..panicked()
        };
        check("fault-stall", &fault(&stall));
        let gone = Fault {
            kind: "agent gone",
            in_agent: true,
            message: "the agent's process was ended by signal 9".into(),
            ..stall
        };
        check("fault-agent", &fault(&gone));
        let starved = Fault {
            kind: "agent starved",
            message: "other tasks kept an agent from its CPU".into(),
            ..gone
        };
        check("fault-starved", &fault(&starved));
    }

    #[test]
    fn the_whole_status() {
        check("status", &status(&whole()));
        check(
            "status-json",
            &format!("{}\n", serde_json::to_string_pretty(&whole()).unwrap()),
        );
    }

    #[test]
    fn an_idle_core() {
        let mut idle = whole();
        idle.core = idle.core.map(|core| Core {
            attached: false,
            all: false,
            default_policy: None,
            no_slot: 0,
            ..core
        });
        idle.policies.clear();
        idle.faults.clear();
        check("status-idle", &status(&idle));
    }

    #[test]
    fn every_kind_of_fault_has_advice() {
        for kind in baton_abi::BATON_FAULT_NAMES.iter().skip(1) {
            assert_ne!(
                cause(&Fault { kind, ..panicked() }),
                "see the message",
                "{kind}"
            );
        }
    }

    #[test]
    fn sizes() {
        let check = |n, expected| assert_eq!(bytes(n), expected);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1536, "1.5 KiB");
        check(10 << 10, "10 KiB");
        check(5 << 20, "5.0 MiB");
        check(3 << 30, "3.0 GiB");
    }
}
