// SPDX-License-Identifier: GPL-2.0-only
//! Policies in C by events (policy/c/events.h), in the simulator.

use std::collections::BTreeSet;
use std::process::{Command, Output};

fn sim(arguments: &str) -> (Option<i32>, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_baton"))
        .arg("sim")
        .args(arguments.split_whitespace())
        .output()
        .expect("baton runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

const STATES: [&str; 7] = [
    "TERMINATED",
    "NEW",
    "READY",
    "READY_TICK",
    "RUNNING",
    "MIGRATING",
    "BLOCKED",
];

/// `wrong_c` wants in each handler every change that is not legal there, and panics if one is
/// accepted. Each pair of states must be refused somewhere, with the line and a reason.
#[test]
fn every_wrong_change_of_a_state_is_refused() {
    let mut said = String::new();
    for workload in ["random:tasks=24", "hogs:n=12"] {
        let run = format!("wrong_c -w {workload} --topology 1x4x2 --duration 400ms");
        let (code, text) = sim(&run);
        assert_eq!(code, Some(0), "{text}");
        said += &text;
    }
    let mut pairs = BTreeSet::new();
    let mut handlers = BTreeSet::new();
    for line in said.lines().filter(|line| line.contains("(refused ")) {
        // "baton: wrong_c: HANDLER: thread N, FROM to TO, line N: WHY (refused N times)"
        let words: Vec<&str> = line
            .split([' ', ',', ':'])
            .filter(|w| !w.is_empty())
            .collect();
        let [_, policy, handler, _, _, from, _, to, _, number, ..] = words[..] else {
            panic!("{line}")
        };
        assert_eq!(policy, "wrong_c", "{line}");
        assert!(number.parse::<u32>().is_ok_and(|line| line > 0), "{line}");
        handlers.insert(handler.to_owned());
        pairs.insert((from.to_owned(), to.to_owned()));
    }
    for from in STATES {
        for to in STATES {
            assert!(
                pairs.contains(&(from.to_owned(), to.to_owned())),
                "{from} to {to}: {said}"
            );
        }
    }
    for handler in [
        "new_prepare",
        "new_place",
        "new_end",
        "unblock_prepare",
        "unblock_place",
        "unblock_end",
        "block",
        "preempt",
        "tick",
        "terminate",
        "schedule",
        "balancing_select",
    ] {
        assert!(handlers.contains(handler), "{handler}: {said}");
    }
}

/// What would lose a thread, or misuses a lock, stops the policy, and is named.
#[test]
fn forgotten_threads_and_locks_are_faults() {
    let check = |option: &str, expected: &[&str]| {
        let (code, said) = sim(&format!(
            "wrong_c:wrong={option} -w hogs:n=12 --topology 1x4x1 --duration 400ms"
        ));
        assert_ne!(code, Some(0), "{option}: {said}");
        for text in expected {
            assert!(said.contains(text), "{option}: {text}: {said}");
        }
    };
    check(
        "lost",
        &["lost task", "preempt: thread", "left without a queue"],
    );
    check(
        "moving",
        &[
            "lost task",
            "balancing_select: thread",
            "left without a queue",
        ],
    );
    check("lock", &["deadlock"]);
    check("order", &["reverse order"]);
    check("held", &["returned with a lock held"]);
}

/// A core that the thread may not use is refused, and the thread runs where the kernel puts it.
#[test]
fn a_core_that_is_not_allowed_is_refused() {
    let (code, said) =
        sim("wrong_c:wrong=core -w random:tasks=24 --topology 1x4x1 --duration 100ms");
    assert_eq!(code, Some(0), "{said}");
}
