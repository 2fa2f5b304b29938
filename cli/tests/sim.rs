// SPDX-License-Identifier: GPL-2.0-only
//! `baton sim`, as a user calls it, with policies as libraries.

use std::process::{Command, Output};

fn sim(arguments: &str) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_baton")).arg("sim").args(arguments.split(' ')).output();
    command.expect("baton runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The numbers of hosts/sim/tests/golden/logs.txt are those of a build without optimization, with the policies linked in. Here the
/// policy is a library of its own, optimized as a whole.
#[test]
fn another_build_comes_to_the_same_log() {
    let golden = format!("{}/../hosts/sim/tests/golden/logs.txt", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    let golden = std::fs::read_to_string(golden).unwrap();
    let mut compared = 0;
    for line in golden.lines().filter(|line| line.starts_with("wfq ")) {
        let [_, _, workload, hash] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let out = sim(&format!("wfq -w {workload} --topology 2x4x2 --duration 20ms --max-tasks 4096 --json"));
        assert!(out.status.success(), "{}", text(&out.stderr));
        let runs: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(runs[0]["hash"], hash, "{workload}");
        compared += 1;
    }
    assert_eq!(compared, 9);
}

/// File and line of the index that is out of range.
fn place_of_the_panic() -> String {
    let file = "policies/faulty/src/wrong.rs";
    let path = format!("{}/../{file}", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    let source = std::fs::read_to_string(path).unwrap();
    let line = source.lines().position(|line| line.contains("three[")).unwrap() + 1;
    format!("{file}:{line}")
}

#[test]
fn a_fault_is_told_and_gives_the_exit_code() {
    let check = |arguments: &str, code: i32, parts: &[&str]| {
        let out = sim(arguments);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{arguments}: {said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "{arguments}: {part} is not in\n{said}"));
    };
    let run = "-w hackbench:groups=2 --topology 1x2x1 --stall 200 --duration 2s";
    let place = &place_of_the_panic();
    let parts = [
        "FAULT of policy faulty: panic in task_wakeup",
        "the policy faulty",
        place,
        "(hackbench",
        "the run ended here",
    ];
    check(&format!("faulty:fault=index,after=100 {run}"), 43, &parts);
    check(&format!("faulty:fault=memory,after=100 {run}"), 43, &["out of memory in", "memory allocation of"]);
    check(&format!("faulty:fault=stall,after=100 {run}"), 42, &["FAULT of policy faulty: stall\n"]);
    check(&format!("faulty:fault=create {run}"), 4, &["at fault: the policy faulty", place]);
    let spinning = ["does not come back from task_wakeup", "one that waits for another CPU"];
    check(&format!("faulty:fault=forever,after=100 {run}"), 43, &spinning);
}

#[test]
fn what_is_wrong_is_said() {
    let check = |arguments: &str, code: i32, part: &str| {
        let out = sim(arguments);
        assert_eq!(out.status.code(), Some(code), "{arguments}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains(part), "{arguments}: {}", text(&out.stderr));
    };
    check("wfq -w nonsense", 1, "nonsense");
    check("wfq -w pipe:nonsense=1", 1, "nonsense");
    check("no_such_policy", 1, "there is no policy 'no_such_policy'");
    check("wfq:nonsense=1", 4, "no option of that name");
    check("wfq --topology 4", 2, "NODESxCORESxTHREADS");
    check("wfq --assign a=b", 1, "none of the policies of this run");
    check("wfq --offline 9@1ms..2ms", 1, "there is no CPU 9");
}

#[test]
fn runs_beside_each_other_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let out = sim(&format!("--compare wfq,wfq:period=6ms -w hogs:n=3 --duration 50ms -o {}", path("runs.json")));
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("wfq:period=6ms"));
    let runs: Vec<baton_sim::report::Run> = serde_json::from_slice(&std::fs::read(path("runs.json")).unwrap()).unwrap();
    assert!(runs.len() == 2 && runs.iter().all(|run| run.timeline.is_some() && run.duration_ns == 50_000_000));
    let out = sim("wfq -w hogs:n=3 --sweep period=2ms..8ms/3 --duration 20ms --json");
    let runs: Vec<baton_sim::report::Run> = serde_json::from_slice(&out.stdout).unwrap();
    let policies: Vec<&str> = runs.iter().map(|run| run.policy.as_str()).collect();
    assert_eq!(policies, ["wfq:period=2000000ns", "wfq:period=4000000ns", "wfq:period=8000000ns"]);
    let out = sim(&format!("wfq -w pipe --duration 5ms --trace {}", path("trace")));
    assert!(out.status.success() && std::fs::metadata(path("trace")).unwrap().len() > 10_000, "{}", text(&out.stderr));
}
