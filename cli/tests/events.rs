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

/// Two hogs on a CPU. One of them sets its slice, and so has fewer turns.
#[test]
fn an_attribute_of_a_thread_has_its_effect() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("hogs.json");
    let turns = |request: &str| {
        let text = format!(
            r#"{{ "global": {{ "duration": 2 }}, "tasks": {{
                "hog": {{ "cpus": [0], "phases": {{
                    "ask": {{ "loop": 1, "hint": {request}, "reply": "" }},
                    "work": {{ "loop": -1, "run": 100000 }} }}, "loop": 1 }},
                "other": {{ "cpus": [0], "run": 100000 }} }} }}"#
        );
        std::fs::write(&file, text).expect("the file is written");
        let output = Command::new(env!("CARGO_BIN_EXE_baton"))
            .args(["sim", "cfs_c", "--topology", "1x1x1", "--json", "-w"])
            .arg(&file)
            .output()
            .expect("baton runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let json: serde_json::Value = serde_json::from_str(&said).expect(&said);
        json[0]["cpu"]["switches"].as_u64().expect(&said)
    };
    // The least slice, the greatest, and two that are refused.
    let (short, long) = (
        turns(r#"[3, "hog", 1, 100000]"#),
        turns(r#"[3, "hog", 1, 100000000]"#),
    );
    assert!(long * 2 < short, "{long} and {short}");
    let usual = turns("[1, 0]");
    for refused in [r#"[3, "hog", 1, 99999]"#, r#"[3, "hog", 1, 100000001]"#] {
        assert_eq!(turns(refused), usual, "{refused}");
    }
}

/// What a policy says of its attributes and hints is looked at before anything runs.
#[test]
fn attributes_that_are_not_as_described_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let new = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(["new", "--lang", "c", "mine", "--dir"])
        .arg(directory.path())
        .status()
        .expect("baton runs");
    assert!(new.success());
    let file = directory.path().join("mine/mine.c");
    let source = std::fs::read_to_string(&file).expect("the policy is there");
    let at = "BATON_ATTRIBUTES_AT(struct mine_thread, own),";
    let few = r#".attributes = { { "a", 0, 9, 1 } },"#;
    let many = r#".attributes = { { "a" }, { "b" }, { "c" }, { "d" }, { "e" } },"#;
    let hint = ".hint = mine_hint,";
    for (count, members, expected) in [
        ("1", [at, few, ""], None),
        ("5", [at, many, ""], None),
        ("0", [at, few, ""], Some("not as many as are described")),
        ("6", [at, many, ""], Some("not as many as are described")),
        (
            "100000",
            [at, few, ""],
            Some("not as many as are described"),
        ),
        ("1", [at, "", ""], Some("describes no attribute")),
        ("1", ["", few, ""], Some("not as many as are described")),
        (
            "1",
            [".attributes_at = 8, .attributes_size = 8,", few, ""],
            Some("no member of the policy's type"),
        ),
        (
            "1",
            [".attributes_at = 1 << 20, .attributes_size = 8,", few, ""],
            Some("no member of the policy's type"),
        ),
        (
            "1",
            [at, r#".attributes = { { "a", 0, 9, 10 } },"#, ""],
            Some("not in its range"),
        ),
        (
            "1",
            [at, r#".attributes = { { "a_name_of_16_let" } },"#, ""],
            Some("1 to 15 letters"),
        ),
        ("1", [at, few, hint], Some("but not both")),
        ("1", ["", "", hint], Some("a type with a name")),
    ] {
        let types = format!(
            "struct mine_thread {{ struct thread thread; s64 own[{count}]; }};\n\
             static bool __maybe_unused mine_hint(struct policy *policy, struct thread *from,\n\
             struct thread *named, const struct baton_hint *hint) {{ return false; }}\n"
        );
        let members = members.concat();
        let begin = "static const struct events mine = {";
        assert!(source.contains(begin), "{source}");
        let with = format!("{types}{begin} .thread_size = sizeof(struct mine_thread), {members}");
        std::fs::write(&file, source.replace(begin, &with)).expect("the policy is changed");
        let path = file.parent().expect("a directory").display().to_string();
        let (code, said) = sim(&format!("{path} -w hogs:n=2 --duration 20ms"));
        match expected {
            None => assert_eq!(code, Some(0), "{count}, {members}: {said}"),
            Some(why) => assert!(
                code != Some(0) && said.contains(why),
                "{count}, {members}: {said}"
            ),
        }
    }
}
