// SPDX-License-Identifier: GPL-2.0-only
//! The required behaviour of every host of policies. The tables list the calls that a policy
//! receives for the actions of a task, and the faults that are reported for a faulty policy.
//!
//! The policy `policies/testing/witness` notes the calls, and `policies/testing/faulty` causes the
//! faults. A host implements [`Host`] in its tests, and passes [`behaves`], [`fails`] and
//! [`lives`]: the kernel (`tests/booted`), the simulator (`hosts/sim/tests`) and the checker
//! (`check/interleave/tests`) do.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

use alloc::format;
use alloc::string::String;

/// A host of policies, as its tests see it. An error is a sentence for the person who reads the
/// failed test.
pub trait Host {
    /// Runs the policy `witness` on two CPUs, with a task that binds itself to CPU 0, sets its nice
    /// value to [`BEGIN`], performs the steps and sets its nice value to [`TELL`]. Returns the
    /// message of the fault with which the witness then reports the calls.
    fn perform(&mut self, steps: &'static [Step]) -> Result<String, String>;

    /// Runs the policy `faulty` with this value of its option `fault`, under tasks that sleep,
    /// yield and change their affinity. Returns the fault, if there was one.
    fn provoke(&mut self, option: &'static str) -> Result<Option<Report>, String>;

    /// Runs a policy under tasks that perform [`LIFE`] [`ROUNDS`] times, with more runnable tasks
    /// than CPUs. All tasks must reach the end, and a bound task must run on its CPU.
    fn live(&mut self, policy: &str) -> Result<(), String>;

    /// Has the host this capability?
    fn has(&self, capability: Needs) -> bool;
}

/// A fault, as a host reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Kind of the fault.
    pub kind: String,
    /// Method of the fault; `-` outside of all methods.
    pub method: String,
    /// Source file of the fault; empty if there is none.
    pub file: String,
    /// Process id or number of the task in question; 0 for none.
    pub task: u64,
}

/// Each action of a task causes the calls that [`BEHAVIOURS`] lists.
pub fn behaves(host: &mut impl Host) -> Result<(), String> {
    for behaviour in BEHAVIOURS {
        let message = host.perform(behaviour.steps)?;
        let calls = message.strip_prefix("calls: ").unwrap_or("-");
        if !behaviour.fits(calls) {
            return Err(format!(
                "{}: expected \"{}\", got \"{message}\"",
                behaviour.name, behaviour.calls
            ));
        }
    }
    Ok(())
}

/// A faulty policy is reported as [`FAULTS`] lists, and an answer in [`REFUSED`] is no fault.
pub fn fails(host: &mut impl Host) -> Result<(), String> {
    for fault in FAULTS {
        if fault.needs.is_none_or(|needs| host.has(needs)) {
            fault.is_reported(host)?;
        }
    }
    for option in REFUSED {
        if let Some(report) = host.provoke(option)? {
            return Err(format!("{option} is refused, and no fault: {report:?}"));
        }
    }
    Ok(())
}

/// Each of these policies survives what tasks do.
pub fn lives<'a>(
    host: &mut impl Host,
    policies: impl IntoIterator<Item = &'a str>,
) -> Result<(), String> {
    policies
        .into_iter()
        .try_for_each(|policy| host.live(policy).map_err(|why| format!("{policy}: {why}")))
}

/// An action of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sleeps for [`NAP`].
    Sleep,
    /// sched_yield().
    Yield,
    /// Sets its nice value.
    Nice(i32),
    /// Binds itself to this CPU, 0 or 1.
    Bind(usize),
    /// May use both CPUs again.
    Unbind,
    /// Creates a thread that sleeps for [`NAP`] and exits, and waits for its exit.
    Thread,
}

/// Length of a sleep, ns.
pub const NAP: u64 = 1_000_000;

/// The nice value at which the witness begins to take notes ([`TELL`]: at which it reports them).
pub const BEGIN: i32 = 1;
/// See [`BEGIN`].
pub const TELL: i32 = 19;

/// The actions of a task, and the calls that its policy receives. The task is alone on a machine of
/// two CPUs, and is bound to CPU 0 before it begins.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// Name.
    pub name: &'static str,
    /// The actions of the task.
    pub steps: &'static [Step],
    /// The calls in order, a letter each: `s`elect_task_rq, task_`w`akeup, task_`n`ew,
    /// task_`y`ield, task_`r`estored, task_`b`locked, task_`d`equeued, task_`l`eft (departed),
    /// task_`a`ffinity_changed, task_pr`i`o_changed. Picks and preemptions are left out: their
    /// times depend on other tasks.
    pub calls: &'static str,
}

/// The calls for a move that the kernel makes at once, and the variants for a task that sleeps
/// early, until it has been moved or slightly longer (affine_move_task() in kernel/sched/core.c
/// waits for the stopper).
const MOVE: &str = "adr";
const MOVES: [&str; 3] = [MOVE, "adrbw", "abw"];

impl Behaviour {
    /// Do these calls match the expected ones?
    pub fn fits(&self, calls: &str) -> bool {
        fits(self.calls, calls)
    }
}

fn fits(expected: &str, calls: &str) -> bool {
    if let Some(rest) = expected.strip_prefix(MOVE) {
        return MOVES.iter().any(|told| {
            calls
                .strip_prefix(told)
                .is_some_and(|calls| fits(rest, calls))
        });
    }
    match (expected.chars().next(), calls.chars().next()) {
        (Some(one), Some(other)) if one == other => fits(&expected[1..], &calls[1..]),
        (None, None) => true,
        _ => false,
    }
}

use Step::{Bind, Nice, Sleep, Thread, Unbind, Yield};

/// The complete table.
pub const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "a task with one CPU sleeps: the policy is not asked where it wakes",
        steps: &[Sleep],
        calls: "bw",
    },
    Behaviour {
        name: "a task with a choice sleeps",
        steps: &[Unbind, Sleep],
        calls: "absw",
    },
    Behaviour {
        name: "each sleep is reported",
        steps: &[Sleep, Sleep, Sleep],
        calls: "bwbwbw",
    },
    Behaviour {
        name: "a task that yields while no other waits goes on",
        steps: &[Yield, Yield],
        calls: "",
    },
    Behaviour {
        name: "a nice value changes while the task runs",
        steps: &[Nice(5), Nice(5), Nice(10)],
        calls: "ii",
    },
    Behaviour {
        name: "a change to the same CPUs",
        steps: &[Bind(0), Unbind, Unbind],
        calls: "a",
    },
    Behaviour {
        name: "a task must leave its CPU",
        steps: &[Bind(1), Bind(0)],
        calls: "adradr",
    },
    Behaviour {
        name: "it sleeps where it was sent",
        steps: &[Bind(1), Sleep, Unbind, Sleep],
        calls: "adrbwabsw",
    },
    Behaviour {
        name: "a thread is created and waited for",
        steps: &[Thread],
        calls: "bw",
    },
];

/// The actions that several tasks repeat [`ROUNDS`] times under each policy of Baton, with more
/// runnable tasks than CPUs (0 and 1). All tasks must reach the end, and a bound task must run on
/// its CPU.
pub const LIFE: &[Step] = &[
    Yield,
    Nice(5),
    Yield,
    Bind(1),
    Yield,
    Nice(0),
    Yield,
    Bind(0),
    Sleep,
    Yield,
    Unbind,
    Sleep,
    Nice(10),
    Thread,
    Nice(0),
];

/// See [`LIFE`].
pub const ROUNDS: usize = 3;

/// The fault that is reported for a faulty policy.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The option `fault` of `policies/testing/faulty`.
    pub option: &'static str,
    /// Kind of the fault.
    pub kind: &'static str,
    /// Method of the fault; `-` outside of all methods.
    pub method: &'static str,
    /// Source file of the fault, if there is one.
    pub file: Option<&'static str>,
    /// A capability that the fault requires and that not every host has.
    pub needs: Option<Needs>,
}

impl Fault {
    /// Does the host report the fault as the table lists it?
    pub fn is_reported(&self, host: &mut impl Host) -> Result<(), String> {
        let option = self.option;
        let report = host
            .provoke(option)?
            .ok_or_else(|| format!("{option} caused no fault"))?;
        let file = self.file.unwrap_or("");
        // These faults are about one task.
        let about_a_task = self.method.starts_with("task_")
            || self.method == "select_task_rq"
            || ["stall", "lost task"].contains(&self.kind);
        let is_right = report.kind == self.kind
            && report.method == self.method
            && report.file.ends_with(file)
            && (report.task != 0 || !about_a_task);
        if is_right {
            Ok(())
        } else {
            Err(format!(
                "{option}: expected {} in {}, file \"{file}\", got {report:?}",
                self.kind, self.method
            ))
        }
    }
}

/// A capability that not every host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Calls on several CPUs at the same time.
    Parallel,
    /// A stack that ends before the host's does.
    BoundedStack,
    /// A memory limit.
    BoundedMemory,
    /// A watch over tasks that wait for long. The checker finds them otherwise.
    Watch,
}

const fn fault(
    option: &'static str,
    kind: &'static str,
    method: &'static str,
    file: Option<&'static str>,
) -> Fault {
    Fault {
        option,
        kind,
        method,
        file,
        needs: None,
    }
}

/// The complete table.
pub const FAULTS: &[Fault] = &[
    fault("index", "panic", "task_wakeup", Some("wrong.rs")),
    fault("overflow", "panic", "task_wakeup", Some("wrong.rs")),
    fault("large-message", "panic", "task_wakeup", Some("wrong.rs")),
    fault("unwrap", "panic", "task_wakeup", Some("wrong.rs")),
    fault(
        "index,in=select_task_rq",
        "panic",
        "select_task_rq",
        Some("wrong.rs"),
    ),
    fault("index,in=timer", "panic", "timer", Some("wrong.rs")),
    fault("deadlock", "deadlock", "pick_next_task", None),
    fault("many-locks", "deadlock", "task_wakeup", None),
    fault("kept-lock", "deadlock", "task_wakeup", None),
    fault("dropped", "lost task", "task_yield", None),
    Fault {
        needs: Some(Needs::Watch),
        ..fault("forgotten", "lost task", "-", None)
    },
    Fault {
        needs: Some(Needs::Watch),
        ..fault("stall", "stall", "-", None)
    },
    fault("loop", "refusal loop", "pick_next_task", None),
    Fault {
        needs: Some(Needs::BoundedMemory),
        ..fault("memory", "out of memory", "task_wakeup", None)
    },
    Fault {
        needs: Some(Needs::BoundedStack),
        ..fault("recursion", "stack overflow", "task_wakeup", None)
    },
    Fault {
        needs: Some(Needs::Parallel),
        ..fault("cycle", "deadlock", "pick_next_task", None)
    },
];

/// Answers of `policies/testing/faulty` that are refused but are not faults, by its option `fault`.
pub const REFUSED: &[&str] = &["not-allowed", "stale", "select-cpu"];

/// The fault that this option of `policies/testing/faulty` causes. Panics when the table has none.
pub const fn of_option(option: &str) -> Fault {
    let mut at = 0;
    while at < FAULTS.len() {
        if same(FAULTS[at].option, option) {
            return FAULTS[at];
        }
        at += 1;
    }
    panic!("there is no such fault")
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    a.len() == b.len() && at == a.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_may_be_slept_through() {
        let one = Behaviour {
            name: "",
            steps: &[],
            calls: "adrbwsadr",
        };
        for calls in [
            "adrbwsadr",
            "adrbwbwsadr",
            "abwbwsadr",
            "adrbwsabw",
            "abwbwsadrbw",
        ] {
            assert!(one.fits(calls), "{calls}");
        }
        for calls in [
            "",
            "adrbws",
            "abwsadr",
            "adrbwsadrb",
            "adrbwsadrbwbw",
            "aadr",
            "adrsadr",
        ] {
            assert!(!one.fits(calls), "{calls}");
        }
    }
}
