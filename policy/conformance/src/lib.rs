// SPDX-License-Identifier: GPL-2.0-only
//! What every host of policies must do. The same tables are held against the kernel
//! (`tests/booted`) and the simulator (`hosts/sim/tests`): which calls a policy gets about a task
//! that does this and that, and what is said of a policy that goes wrong.
//!
//! The calls are those that `policies/testing/witness` notes, the faults those of `policies/testing/faulty`.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// What a task does.
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
    /// Makes a thread that naps and ends, and waits for its end.
    Thread,
}

/// How long a nap is, ns.
pub const NAP: u64 = 1_000_000;

/// The nice value at which the witness begins to take notes, and at which it tells them.
pub const BEGIN: i32 = 1;
/// See [`BEGIN`].
pub const TELL: i32 = 19;

/// A task alone on a machine of two CPUs, bound to CPU 0 before it begins: what it does, and the
/// calls that its policy gets.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// Name.
    pub name: &'static str,
    /// What it does.
    pub steps: &'static [Step],
    /// The calls in order, a letter each: `s`elect_task_rq, task_`w`akeup, task_`n`ew,
    /// task_`y`ield, task_`r`estored, task_`b`locked, task_`d`equeued, task_`l`eft (departed),
    /// task_`a`ffinity_changed, task_pr`i`o_changed. Picks and preemptions are left out: when they
    /// come depends on who else is there.
    pub calls: &'static str,
}

/// A move that the kernel makes at once, and how it may be told of where the task is quick to
/// sleep: until it has been moved, or a moment longer (affine_move_task() in kernel/sched/core.c
/// waits for the stopper).
const MOVE: &str = "adr";
const MOVES: [&str; 3] = [MOVE, "adrbw", "abw"];

impl Behaviour {
    /// Are these the calls that its policy gets?
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

/// All of them.
pub const BEHAVIOURS: &[Behaviour] = &[
    Behaviour {
        name: "a task with one CPU sleeps: nobody is asked where it wakes up",
        steps: &[Sleep],
        calls: "bw",
    },
    Behaviour {
        name: "a task with a choice sleeps",
        steps: &[Unbind, Sleep],
        calls: "absw",
    },
    Behaviour {
        name: "each sleep is told",
        steps: &[Sleep, Sleep, Sleep],
        calls: "bwbwbw",
    },
    Behaviour {
        name: "a task that yields to nobody goes on",
        steps: &[Yield, Yield],
        calls: "",
    },
    Behaviour {
        name: "a nice value changes while the task runs",
        steps: &[Nice(5), Nice(5), Nice(10)],
        calls: "ii",
    },
    Behaviour {
        name: "a change of CPUs that is none",
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
        name: "a thread is made and waited for",
        steps: &[Thread],
        calls: "bw",
    },
];

/// What several tasks do [`ROUNDS`] times, under each policy that Baton comes with, while more can
/// run than there are CPUs (0 and 1): all of them come to the end, and who is bound runs where it
/// is bound to.
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

/// What is said of a policy that goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The option `fault` of `policies/testing/faulty`.
    pub option: &'static str,
    /// What kind of fault it is.
    pub kind: &'static str,
    /// In which method; `-` outside all.
    pub method: &'static str,
    /// In which source file, where there is one.
    pub file: Option<&'static str>,
    /// Must two CPUs be in the policy at once, or its stack be bounded? Not every host has that.
    pub needs: Option<Needs>,
}

/// What not every host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Calls at the same time.
    Parallel,
    /// A stack that ends before the host's does.
    BoundedStack,
    /// A bounded memory.
    BoundedMemory,
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

/// All of them.
pub const FAULTS: &[Fault] = &[
    fault("index", "panic", "task_wakeup", Some("wrong.rs")),
    fault("overflow", "panic", "task_wakeup", Some("wrong.rs")),
    fault("unwrap", "panic", "task_wakeup", Some("wrong.rs")),
    fault("select", "panic", "select_task_rq", Some("wrong.rs")),
    fault("timer", "panic", "timer", Some("wrong.rs")),
    fault("deadlock", "deadlock", "pick_next_task", None),
    fault("many-locks", "deadlock", "task_wakeup", None),
    fault("kept-lock", "deadlock", "task_wakeup", None),
    fault("dropped", "lost task", "task_yield", None),
    fault("forgotten", "lost task", "-", None),
    fault("stall", "stall", "-", None),
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

/// Answers of `policies/testing/faulty` that are refused and are no fault, by its option `fault`.
pub const REFUSED: &[&str] = &["not-allowed", "stale", "select-cpu"];

/// The fault that this option of `policies/testing/faulty` leads to. Panics when there is none in the
/// table.
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
