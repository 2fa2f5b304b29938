// SPDX-License-Identifier: GPL-2.0-only
//! Policies in C by events (policy/c/events.h), in the simulator.

mod mine;

use std::collections::BTreeSet;
use std::process::{Command, Output};

use mine::Mine;

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

/// A policy may refuse to be the one of all tasks.
#[test]
fn a_policy_that_refuses_all_tasks() {
    let (code, said) = sim("wrong_c:wrong=picky --topology 1x2x1 --duration 10ms");
    let expected = "it refuses to have all tasks: it is for few threads";
    assert!(code != Some(0) && said.contains(expected), "{said}");
    // As one of two, it has only the tasks that are assigned to it.
    let (code, said) = sim("wrong_c:wrong=picky fifo_c --topology 1x2x1 --duration 10ms");
    assert_eq!(code, Some(0), "{said}");
}

/// SMT, cluster, cache, node, machine.
#[test]
fn groups_of_cores_by_level() {
    for (topology, sizes) in [
        ("2x8x2/4/2", "02 04 08 16 32"),
        ("1x4x1", "01 01 04 04 04"),
        ("1x1x1", "01 01 01 01 01"),
    ] {
        let (code, said) = sim(&format!("wrong_c:wrong=levels --topology {topology}"));
        assert!(
            code != Some(0) && said.contains(sizes),
            "{topology}: {said}"
        );
    }
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

/// The place where `mine` lists its handlers.
const EVENTS: &str = "static const struct events mine = {";

/// A policy without a handler that it needs is refused, with its name.
#[test]
fn a_missing_handler_is_named() {
    let mine = Mine::new();
    for (parts, expected) in [
        (
            &[("\t.schedule = mine_schedule,\n", "")][..],
            "needs the handler `schedule`",
        ),
        (
            &[
                ("\t.new_place = mine_place,\n", ""),
                ("\t.unblock_place = mine_place,\n", ""),
            ],
            "needs one of the handlers `new_place` and `unblock_place`",
        ),
        (
            &[("core, QUEUE_FIFO", "core, QUEUE_RBTREE")],
            "it does not hold that kind == QUEUE_FIFO || baton_events->before",
        ),
    ] {
        mine.change(parts);
        let (code, said) = sim(&format!("{} -w hogs:n=2 --duration 20ms", mine.path()));
        assert!(code != Some(0) && said.contains(expected), "{said}");
    }
    // With these alone it runs.
    for absent in [
        "new_prepare = mine_prepare",
        "unblock_prepare = mine_prepare",
        "new_place = mine_place",
    ] {
        let line = format!("\t.{absent},\n");
        mine.change(&[(&line, "")]);
        let (code, said) = sim(&format!(
            "{} -w random:tasks=8 --duration 50ms",
            mine.path()
        ));
        assert_eq!(code, Some(0), "{absent}: {said}");
    }
}

/// An order by differences of 64 bits does not turn round after 2^31 or 2^32 ns, or where times
/// wrap.
#[test]
fn an_order_lasts_for_more_than_some_seconds() {
    let mine = Mine::new();
    let before = "static bool mine_before(const struct thread *a, const struct thread *b)\n\
                  {\n\treturn baton_before(a->runtime, b->runtime);\n}\n";
    let with = format!("{before}{EVENTS} .before = mine_before,");
    for kind in ["QUEUE_LIST", "QUEUE_RBTREE"] {
        mine.change(&[
            (EVENTS, &with),
            ("core, QUEUE_FIFO", &format!("core, {kind}")),
        ]);
        assert_eq!(late_hog(&mine.path()), 3, "{kind}");
    }
    assert_eq!(late_hog("cfs_c"), 2);
    assert_eq!(late_hog("fifo_c"), 2);
}

/// A hog begins when two others have run for 6 s. Returns the seconds that it gets of the next 6.
/// If it always precedes a thread that has run for longer, it has every second turn.
fn late_hog(policy: &str) -> u64 {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("late.json");
    let text = r#"{ "global": { "duration": 12 }, "tasks": {
        "early": { "instance": 2, "cpus": [0], "run": 100000 },
        "late": { "cpus": [0], "delay": 6000000, "run": 100000 } } }"#;
    std::fs::write(&file, text).expect("the file is written");
    let output = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args([
            "sim",
            policy,
            "--topology",
            "1x1x1",
            "--duration",
            "12s",
            "--json",
            "-w",
        ])
        .args([file.as_os_str()])
        .output()
        .expect("baton runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let json: serde_json::Value = serde_json::from_str(&said).expect(&said);
    let groups = json[0]["groups"].as_array().expect(&said);
    let late = groups.iter().find(|group| group["name"] == "late");
    let ns = late
        .and_then(|group| group["cpu_ns"].as_u64())
        .expect(&said);
    (ns + 500_000_000) / 1_000_000_000
}

/// Machines on which each core has a cache of its own, all are SMT siblings, or there is one core.
#[test]
fn machines_of_any_shape_are_scheduled() {
    for policy in ["fifo_c", "global_fifo", "cfs_c", "central_c", "rusty_c"] {
        for topology in ["1x1x1", "4x1x1", "4x1x2", "1x1x4", "3x2x1"] {
            let run = format!("{policy} -w random:tasks=16 --topology {topology} --duration 100ms");
            let (code, said) = sim(&run);
            assert_eq!(code, Some(0), "{policy} on {topology}: {said}");
        }
    }
}

/// What a policy says of its attributes and hints is looked at before anything runs.
#[test]
fn attributes_that_are_not_as_described_are_refused() {
    let mine = Mine::new();
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
        let with = format!("{types}{EVENTS} .thread_size = sizeof(struct mine_thread), {members}");
        mine.change(&[(EVENTS, &with)]);
        let (code, said) = sim(&format!("{} -w hogs:n=2 --duration 20ms", mine.path()));
        match expected {
            None => assert_eq!(code, Some(0), "{count}, {members}: {said}"),
            Some(why) => assert!(
                code != Some(0) && said.contains(why),
                "{count}, {members}: {said}"
            ),
        }
    }
}

/// The log of states of a recording: each thread goes on where it was, and the policy's own changes
/// have a line.
#[test]
fn the_log_of_states_is_whole() {
    let dir = tempfile::tempdir().expect("there is room");
    let file = dir.path().join("a.rec");
    let file = file.to_str().expect("a plain path");
    for policy in ["fifo_c", "global_fifo", "cfs_c", "central_c", "rusty_c"] {
        let run = format!("{policy} -w random:tasks=24 --topology 1x4x2 --duration 200ms");
        let (code, said) = sim(&format!("{run} --record {file}"));
        assert_eq!(code, Some(0), "{said}");
        let output = Command::new(env!("CARGO_BIN_EXE_baton"))
            .args(["trace", "states", file, "--json"])
            .output()
            .expect("baton runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{policy}: {error}");
        let mut states = std::collections::BTreeMap::new();
        let mut handlers = BTreeSet::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let change: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let text = |name: &str| change[name].as_str().unwrap_or_default().to_owned();
            let before = states.insert(change["pid"].as_u64(), text("to"));
            // A thread is new in a slot in which the last one has terminated.
            let is_new = text("to") == "NEW";
            assert!(
                is_new || before.as_ref().is_none_or(|before| *before == text("from")),
                "{policy}: it was {before:?}: {line}"
            );
            let is_own = text("handler") == "schedule" && text("to") == "RUNNING";
            assert!(!is_own || change["line"].is_u64(), "{policy}: {line}");
            handlers.insert(text("handler"));
        }
        for handler in ["new_place", "unblock_place", "schedule"] {
            assert!(handlers.contains(handler), "{policy}: {handlers:?}");
        }
    }
}
