// SPDX-License-Identifier: GPL-2.0-only
//! `baton check`, called as by a user: on libraries, whose atomics are scheduling points, and on
//! policies in C.

use std::path::Path;
use std::process::Command;

fn check_only(policy: &str, more: &[&str]) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(["check", policy])
        .args(more)
        .output();
    let out = out.expect("baton runs");
    (
        out.status.code(),
        String::from_utf8_lossy(&[out.stderr, out.stdout].concat()).into_owned(),
    )
}

fn check(policy: &str, more: &str) -> (Option<i32>, String) {
    let usual = [
        "--schedules",
        "2000",
        "--seconds",
        "3600",
        "--without",
        "work-conservation",
    ];
    check_only(
        policy,
        &usual
            .into_iter()
            .chain(more.split_whitespace())
            .collect::<Vec<_>>(),
    )
}

/// Writes a policy in Rust with this source.
fn policy(directory: &Path, name: &str, source: &str) -> String {
    let new = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(["new", name])
        .current_dir(directory)
        .output();
    assert!(new.expect("baton runs").status.success());
    std::fs::write(directory.join(name).join("src/lib.rs"), source).unwrap();
    directory.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_race_about_an_atomic_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let aba = policy(directory.path(), "aba", include_str!("aba/lib.rs"));
    let (code, said) = check(&aba, "");
    assert_eq!(code, Some(4), "{said}");
    for part in [
        "was taken twice",
        "panic of policy aba",
        "uses an atomic at ",
        "aba/src/lib.rs:",
        "coverage  ",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    let seed = said
        .split("--replay ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .expect("it has a seed");
    let (code, again) = check_only(&aba, &["--replay", seed, "--without", "work-conservation"]);
    assert!(
        code == Some(4) && again.contains("was taken twice"),
        "{again}"
    );
}

/// The cases of `shipped.rs` in baton-interleave, with the policies' atomics as scheduling points.
#[test]
fn the_atomics_of_shipped_policies_are_tried_in_all_orders() {
    let check = |policies: &str, without: &[&str]| {
        let mut arguments = vec!["--schedules", "2000", "--seconds", "3600"];
        without
            .iter()
            .for_each(|property| arguments.extend(["--without", property]));
        let mut policies = policies.split(' ');
        let first = policies.next().unwrap_or_default();
        arguments.extend(policies);
        let (code, said) = check_only(first, &arguments);
        assert_eq!(code, Some(0), "{said}");
    };
    check("wfq central shinjuku arbiter", &[]);
    check("cfs_like eevdf_like", &["bounded-wait"]);
    check(
        "fifo locality template relay_v1 relay_v2",
        &["work-conservation"],
    );
    check("echo", &["work-conservation", "bounded-wait"]);
}

#[test]
fn what_a_user_says_is_looked_at() {
    let refused = |arguments: &[&str], why: &str| {
        let (code, said) = check_only("fifo", arguments);
        assert!(
            code == Some(2) && said.contains(why),
            "{arguments:?}: {said}"
        );
    };
    refused(&["--topology", "1x8x1"], "the checker has four at most");
    refused(
        &["--topology", "1x2x2", "--cpus", "4"],
        "cannot be used with",
    );
    refused(&["--hint", "1 5-2"], "has no number");
    refused(&["--without", "nonsense"], "idle-beside-waiting");
    let (code, said) = check("arbiter", "--topology 1x2x2 --json");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = check_only(
        "arbiter",
        &[
            "--schedules",
            "500",
            "--hint",
            "1 2",
            "--hint",
            "2:task",
            "--json",
        ],
    );
    let json: serde_json::Value = serde_json::from_str(&said[said.find("[\n").unwrap()..]).unwrap();
    assert_eq!(code, Some(0), "{said}");
    assert!(json[0]["coverage"]["states"].as_u64() > Some(100), "{json}");
    assert!(json[0]["replies_by_tag"].is_object(), "{json}");
    // Hints that a workload gives.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/arbiter.json");
    let (code, said) = check_only("arbiter", &["--schedules", "500", "-w", file, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said[said.find("[\n").unwrap()..]).unwrap();
    assert!(
        code == Some(0) && json[0]["hints"].as_u64() > Some(100),
        "{said}"
    );
    let without = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/examples/pipeline.json"
    );
    let (code, said) = check_only("arbiter", &["-w", without]);
    assert!(
        code == Some(1) && said.contains("none of its tasks gives a hint"),
        "{said}"
    );
}

#[test]
fn a_policy_in_c_is_tried_in_all_orders() {
    for policy in ["fifo_c", "global_fifo", "cfs_c", "central_c", "rusty_c"] {
        let (code, said) = check(policy, "");
        let nothing = format!("{policy}: nothing found in 2000 schedules");
        assert!(code == Some(0) && said.contains(&nothing), "{said}");
    }
}

#[test]
fn what_a_policy_in_c_does_wrong_is_found() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faulty-c");
    let check = |fault: &str, parts: &[&str]| {
        let (code, said) = check(directory, &format!("--options fault={fault}"));
        assert_eq!(code, Some(4), "{fault}: {said}");
        parts
            .iter()
            .for_each(|part| assert!(said.contains(part), "{fault}: {part} is not in\n{said}"));
    };
    let place = "tests/faulty-c/faulty-c.c:";
    check(
        "deadlock",
        &["deadlock of policy faulty_c", "(taken at ", place],
    );
    check(
        "assert",
        &[
            "panic of policy faulty_c",
            "it does not hold that faulty->wakeups < 100",
            place,
        ],
    );
    let overflow =
        "panic of policy faulty_c: stack overflow in task_wakeup: the call used up its stack";
    check("recursion", &[overflow, "again     baton check"]);
    check("hoard", &[overflow]);
    check(
        "null",
        &[
            "panic in task_wakeup: memory at 0x0 was used",
            "  fault     panic in task_wakeup",
        ],
    );
    check("division", &["panic in task_wakeup: a division by zero"]);
    check("trap", &["panic in task_wakeup: a trap"]);
    check(
        "create-null",
        &["panic of policy faulty_c: it could not be made: memory at 0x0 was used"],
    );
    check(
        "destroy",
        &["panic of policy faulty_c: it could not be given up: memory at 0x0 was used"],
    );
    check("stall", &["lost-task of policy faulty_c"]);
    check(
        "loop",
        &["discipline of policy faulty_c: pick_next_task answers what is refused"],
    );
    check(
        "spin",
        &[
            "endless of policy faulty_c: task_wakeup does not come to an end",
            "it went on and on",
        ],
    );
}
