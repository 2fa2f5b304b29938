// SPDX-License-Identifier: GPL-2.0-only
//! The required behaviour of every host of policies. The tables list the calls that a policy
//! receives for the actions of a task, and the faults that are reported for a faulty policy. The
//! kernel (`tests/booted`) and the simulator (`hosts/sim/tests`) are tested against the same
//! tables.
//!
//! The policy `policies/testing/witness` notes the calls, and `policies/testing/faulty` causes the
//! faults.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

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

/// A capability that not every host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Calls on several CPUs at the same time.
    Parallel,
    /// A stack that ends before the host's does.
    BoundedStack,
    /// A memory limit.
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

/// The complete table.
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
