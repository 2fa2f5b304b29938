// SPDX-License-Identifier: GPL-2.0-only
//! `baton sim`, called as by a user, with policies as libraries.

use std::path::Path;
use std::process::{Command, Output};

fn sim(arguments: &str) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_baton"))
        .arg("sim")
        .args(arguments.split(' '))
        .output();
    command.expect("baton runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The numbers of hosts/sim/tests/golden/logs.txt come from an unoptimized build with linked
/// policies. Here the policy is a library of its own, optimized as a whole.
#[test]
fn another_build_comes_to_the_same_log() {
    let golden = format!(
        "{}/../hosts/sim/tests/golden/logs.txt",
        std::env::var("CARGO_MANIFEST_DIR").unwrap()
    );
    let golden = std::fs::read_to_string(golden).unwrap();
    let mut compared = 0;
    for line in golden.lines().filter(|line| line.starts_with("wfq ")) {
        let [_, _, workload, hash] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let out = sim(&format!(
            "wfq -w {workload} --topology 2x4x2 --duration 20ms --max-tasks 4096 --jitter 0 --json"
        ));
        assert!(out.status.success(), "{}", text(&out.stderr));
        let runs: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(runs[0]["hash"], hash, "{workload}");
        compared += 1;
    }
    assert_eq!(compared, 10);
}

#[test]
fn a_seed_changes_every_workload() {
    for workload in [
        "pipe",
        "hackbench:groups=1",
        "schbench",
        "hogs",
        "hogs:n=6",
        "forkjoin",
        "requests",
    ] {
        let hash = |seed: u32| {
            let out = sim(&format!(
                "fifo -w {workload} --duration 20ms --max-tasks 4096 --seed {seed} --json"
            ));
            let runs: serde_json::Value = serde_json::from_slice(&out.stdout).expect(workload);
            runs[0]["hash"].to_string()
        };
        assert_eq!(hash(1), hash(1), "{workload}");
        assert_ne!(hash(1), hash(2), "{workload}");
    }
}

#[test]
fn seeds_give_means_and_what_they_are_within() {
    let line = "--compare fifo,wfq -w rocksdb --duration 50ms --max-tasks 4096 --seeds 5";
    let shown = text(&sim(line).stdout);
    assert!(
        shown.contains("means of seeds 1 to 5, jitter 1 %") && shown.contains(" ±"),
        "{shown}"
    );
    let runs: serde_json::Value =
        serde_json::from_slice(&sim(&format!("{line} --json")).stdout).unwrap();
    assert_eq!(runs.as_array().map(Vec::len), Some(2));
    let of = |seed: u32| -> u64 {
        let out = sim(&format!(
            "fifo -w rocksdb --duration 50ms --max-tasks 4096 --seed {seed} --json"
        ));
        let run: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        run[0]["groups"][0]["response"]["p99"].as_u64().unwrap()
    };
    let mean = (1..=5).map(of).sum::<u64>() as f64 / 5.0;
    let [shown, low, high] = [
        &runs[0]["groups"][0]["response"]["p99"],
        &runs[0]["confidence"]["groups"][0]["response"]["p99"][0],
        &runs[0]["confidence"]["groups"][0]["response"]["p99"][1],
    ]
    .map(|value| value.as_f64().unwrap());
    assert!(
        (shown - mean).abs() <= 1.0 && low < mean && mean < high,
        "{shown} of {mean} in {low} to {high}"
    );
    assert_eq!(runs[0]["seeds"], 5);
    let refused = sim("fifo --seeds 2 --record /dev/null");
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn requests_come_as_a_file_says() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "1ms 100us\n2ms 200us\n3ms 300us\n").unwrap();
    let line = format!(
        "fifo -w requests:file={} --duration 20ms --jitter 0 --json",
        file.path().display()
    );
    let runs: serde_json::Value = serde_json::from_slice(&sim(&line).stdout).unwrap();
    let group = &runs[0]["groups"][0];
    assert_eq!(group["operations"], 3);
    let longest = group["response"]["max"].as_u64().unwrap();
    assert!((300_000..320_000).contains(&longest), "{group}");
    std::fs::write(file.path(), "2ms\n1ms\n").unwrap();
    let refused = sim(&line);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("line 2: its time is before"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn a_file_that_ends_or_gets_stuck_is_told_as_it_is() {
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let run = |text: &str| {
        std::fs::write(file.path(), text).unwrap();
        sim(&format!(
            "fifo -w {} --duration 4s --jitter 0 --json",
            file.path().display()
        ))
    };
    let ends = run(
        r#"{"global": {"duration": 1, "frag": 1}, "tasks": {"t": {"run": 5000, "sleep": 5000}}}"#,
    );
    let runs: serde_json::Value = serde_json::from_slice(&ends.stdout).unwrap();
    let group = &runs[0]["groups"][0];
    let active = group["active_ns"].as_u64().unwrap();
    assert!((1_000_000_000..1_020_000_000).contains(&active), "{group}");
    assert!(!text(&ends.stderr).contains("wait for each other") && runs[0]["stuck_ns"].is_null());
    // The printed rate refers to the second in which there were tasks, not to all four.
    let shown = text(
        &sim(&format!(
            "fifo -w {} --duration 4s --jitter 0",
            file.path().display()
        ))
        .stdout,
    );
    let row = shown
        .lines()
        .find(|line| line.split_whitespace().nth(1) == Some("t"))
        .expect(&shown);
    let rate: f64 = row.split_whitespace().last().unwrap().parse().expect(row);
    let operations = group["operations"].as_f64().unwrap();
    assert!((98.0..=100.0).contains(&operations), "{group}");
    assert!(
        (rate - operations * 1e9 / active as f64).abs() <= 0.5,
        "{shown}"
    );
    let stuck =
        run(r#"{"tasks": {"a": {"run": 5000, "suspend": ""}, "b": {"run": 7000, "suspend": ""}}}"#);
    let said = text(&stuck.stderr);
    assert!(
        said.contains("from 7.0") && said.contains("ms on all tasks wait for each other"),
        "{said}"
    );
}

/// The file and line of the index that is out of range.
fn place_of_the_panic() -> String {
    let file = "policies/testing/faulty/src/wrong.rs";
    let path = format!("{}/../{file}", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    let source = std::fs::read_to_string(path).unwrap();
    let line = source
        .lines()
        .position(|line| line.contains("three["))
        .unwrap()
        + 1;
    format!("{file}:{line}")
}

#[test]
fn a_fault_is_told_and_gives_the_exit_code() {
    let check = |arguments: &str, code: i32, parts: &[&str]| {
        let out = sim(arguments);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{arguments}: {said}");
        parts
            .iter()
            .for_each(|part| assert!(said.contains(part), "{arguments}: {part} is not in\n{said}"));
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
    check(
        &format!("faulty:fault=memory,after=100 {run}"),
        43,
        &["out of memory in", "memory allocation of"],
    );
    check(
        &format!("faulty:fault=stall,after=100 {run}"),
        42,
        &["FAULT of policy faulty: stall\n"],
    );
    check(
        &format!("faulty:fault=index,in=new {run}"),
        4,
        &["at fault: the policy faulty", place],
    );
    let spinning = [
        "does not return from task_wakeup",
        "one that waits for another CPU",
    ];
    check(
        &format!("faulty:fault=forever,after=100 {run}"),
        43,
        &spinning,
    );
}

#[test]
fn what_is_wrong_is_said() {
    let check = |arguments: &str, code: i32, part: &str| {
        let out = sim(arguments);
        assert_eq!(
            out.status.code(),
            Some(code),
            "{arguments}: {}",
            text(&out.stderr)
        );
        assert!(
            text(&out.stderr).contains(part),
            "{arguments}: {}",
            text(&out.stderr)
        );
    };
    check("wfq -w nonsense", 1, "nonsense");
    check("wfq -w pipe:nonsense=1", 1, "nonsense");
    check("no_such_policy", 1, "there is no policy 'no_such_policy'");
    check("wfq:nonsense=1", 4, "no option nonsense; it has period");
    check("wfq --topology 4", 2, "NODESxCORESxTHREADS");
    check("wfq --assign a=b", 1, "none of the policies of this run");
    check("wfq --offline 9@1ms..2ms", 1, "there is no CPU 9");
}

#[test]
fn runs_beside_each_other_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let out = sim(&format!(
        "--compare wfq,wfq:period=6ms -w hogs:n=3 --duration 50ms -o {}",
        path("runs.json")
    ));
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("wfq:period=6ms"));
    let runs: Vec<baton_sim::report::Run> =
        serde_json::from_slice(&std::fs::read(path("runs.json")).unwrap()).unwrap();
    assert!(
        runs.len() == 2
            && runs
                .iter()
                .all(|run| run.timeline.is_some() && run.duration_ns == 50_000_000)
    );
    let out = sim("wfq -w hogs:n=3 --sweep period=2ms..8ms/3 --duration 20ms --json");
    let runs: Vec<baton_sim::report::Run> = serde_json::from_slice(&out.stdout).unwrap();
    let policies: Vec<&str> = runs.iter().map(|run| run.policy.as_str()).collect();
    assert_eq!(
        policies,
        [
            "wfq:period=2000000ns",
            "wfq:period=4000000ns",
            "wfq:period=8000000ns"
        ]
    );
    let size = |name: &str| std::fs::metadata(path(name)).unwrap().len();
    let run = "wfq -w pipe --duration 5ms";
    let out = sim(&format!(
        "{run} --trace {} --record {}",
        path("trace"),
        path("recording")
    ));
    assert!(
        out.status.success() && size("trace") > 10_000 && size("recording") > 1_000,
        "{}",
        text(&out.stderr)
    );
    // Each file has the same contents without the other.
    for alone in ["trace", "recording"] {
        let with = path(alone);
        let alone = path("alone");
        let option = if with.ends_with("trace") {
            "--trace"
        } else {
            "--record"
        };
        assert!(sim(&format!("{run} {option} {alone}")).status.success());
        assert!(
            std::fs::read(&with).unwrap() == std::fs::read(&alone).unwrap(),
            "{option}"
        );
    }
}

/// An upgrade is part of a run's identity, and is reported.
#[test]
fn an_upgrade_is_told() {
    let run = "wfq -w hogs:n=3 --duration 50ms";
    let out = sim(&format!("{run} --upgrade 20ms:wfq"));
    assert!(
        out.status.success() && text(&out.stdout).contains("wfq: upgrades that took place: 1"),
        "{}",
        text(&out.stdout)
    );
    let [with, other, without] = [
        "--upgrade 20ms:wfq",
        "--upgrade 20ms:wfq --upgrade 30ms:wfq",
        "--seed 1",
    ]
    .map(|arguments| hashes(&format!("{run} {arguments}")).remove(0));
    assert!(with != without && with != other, "{with} {other} {without}");
}

fn hashes(arguments: &str) -> Vec<String> {
    let out = sim(&format!("{arguments} --json"));
    assert!(out.status.success(), "{arguments}: {}", text(&out.stderr));
    let runs: Vec<baton_sim::report::Run> = serde_json::from_slice(&out.stdout).unwrap();
    runs.into_iter().map(|run| run.hash).collect()
}

/// `fifo` and `fifo_c` have the same rules, and the same order of CPUs on a machine with one cache.
#[test]
fn a_policy_in_c_does_what_the_same_in_rust_does() {
    for workload in [
        "pipe",
        "hackbench",
        "schbench",
        "forkjoin",
        "rocksdb",
        "memcached",
        "build",
        "random",
        "hogs:n=12,nice=0/5/-5",
    ] {
        let run = format!("--compare fifo,fifo_c -w {workload} --topology 1x4x1 --duration 100ms");
        let [rust, c] = &hashes(&run)[..] else {
            panic!("two runs")
        };
        assert_eq!(rust, c, "{workload}");
    }
    // Other workloads, on a larger machine: no fault, and the same result each time.
    for workload in ["hackbench", "random"] {
        let run = format!(
            "fifo_c -w {workload} --topology 2x4x2 --duration 200ms --noise higher=3ms/100us"
        );
        assert_eq!(hashes(&run), hashes(&run), "{workload}");
    }
}

#[test]
fn what_a_policy_in_c_does_wrong_is_told() {
    let check = |fault: &str, code: i32, parts: &[&str]| {
        let run = "-w hackbench:groups=2 --topology 1x2x1 --stall 200 --duration 2s";
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faulty-c");
        let out = sim(&format!("{directory}:fault={fault} {run}"));
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{fault}: {said}");
        parts
            .iter()
            .for_each(|part| assert!(said.contains(part), "{fault}: {part} is not in\n{said}"));
    };
    let place = "cli/tests/faulty-c/faulty-c.c:";
    let panic = "FAULT of policy faulty_c: panic in task_wakeup";
    check(
        "assert",
        43,
        &[
            panic,
            place,
            "it does not hold that faulty->wakeups < 100",
            "(hackbench",
        ],
    );
    check(
        "large",
        43,
        &[
            panic,
            place,
            "it does not hold that baton_host_alloc(9000, 8)",
        ],
    );
    check(
        "null",
        43,
        &[panic, place, "memory at 0x0 was used", "(hackbench"],
    );
    check("division", 43, &[panic, place, "a division by zero"]);
    check("trap", 43, &[panic, place, "a trap"]);
    check(
        "recursion",
        43,
        &[
            "FAULT of policy faulty_c: stack overflow in task_wakeup",
            "is there a recursion?",
        ],
    );
    check(
        "hoard",
        43,
        &["FAULT of policy faulty_c: stack overflow in task_wakeup"],
    );
    check(
        "deadlock",
        43,
        &["FAULT of policy faulty_c: deadlock in task_wakeup"],
    );
    check("stall", 42, &["FAULT of policy faulty_c: stall\n"]);
    check(
        "loop",
        44,
        &["FAULT of policy faulty_c: refusal loop in pick_next_task"],
    );
    check("create-assert", 4, &["it could not be made", place]);
    check(
        "create-null",
        4,
        &[
            "at fault: the policy faulty_c",
            "it could not be made: memory at 0x0",
        ],
    );
    check(
        "destroy",
        4,
        &[
            "at fault: the policy faulty_c",
            "it could not be given up: memory at 0x0",
        ],
    );
}

/// Writes a policy like `template` into a directory, with a line of its own in `new`.
fn policy_with(dir: &Path, name: &str, line: &str) {
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let code = std::fs::read_to_string(format!("{tree}/policies/template/src/lib.rs")).unwrap();
    let code = code
        .replace("#![forbid(unsafe_code)]\n", "")
        .replace("\"template\"", &format!("\"{name}\""))
        .replace(
            "env.known_options(",
            &format!("{line}\n        env.known_options("),
        );
    let package = format!(
        "[package]\nname = \"{}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n\
         [dependencies]\nbaton = {{ path = \"{tree}/policy/api\" }}\n",
        name.replace('_', "-")
    );
    std::fs::create_dir(dir.join("src")).unwrap();
    std::fs::write(dir.join("src/lib.rs"), code).unwrap();
    std::fs::write(dir.join("Cargo.toml"), package).unwrap();
}

/// What `baton build` says about a policy that it refuses.
fn build_refuses(policy: &Path) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_baton"))
        .arg("build")
        .arg(policy)
        .output();
    let out = out.expect("baton runs");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(4), "{said}");
    said
}

/// A frame that the kernel's stack has no room for is found before the policy is loaded.
#[test]
fn a_function_with_a_large_frame_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    policy_with(
        dir.path(),
        "has_large_frame",
        "core::hint::black_box(&mut [0u64; 2048]);",
    );
    let said = build_refuses(dir.path());
    assert!(
        said.contains("bytes of stack at once, of 5120")
            && said
                .contains("the function baton_bridge::make::create::<has_large_frame::Template>")
            && said.contains("at fault: the policy has_large_frame"),
        "{said}"
    );

    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("large");
    std::fs::create_dir(&policy).unwrap();
    let fifo_c = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../policies/fifo-c/fifo-c.c"
    ));
    let fifo_c = fifo_c.unwrap();
    let refuses = |functions: &str| {
        let include = "#include \"events.h\"";
        let deep = "static noinline int deep(void) \
                    { char frame[3000]; barrier_data(frame); return frame[7]; }";
        let code = fifo_c.replace(include, &format!("{include}\n\n{deep}\n{functions}"));
        std::fs::write(policy.join("large.c"), code).unwrap();
        build_refuses(&policy)
    };
    let said = refuses(
        "int large(void);\n\
         int large(void) { char frame[3000]; barrier_data(frame); return frame[7] + deep(); }",
    );
    assert!(
        said.contains("the function large, which calls deep, needs 60")
            && said.contains("bytes of stack at once, of 5120")
            && said.contains("at fault: the policy large"),
        "{said}"
    );

    // Through a pointer that is in no variable when the policy begins.
    let said = refuses(
        "struct call { int (*of)(void); };\n\
         int large(struct call *call);\n\
         int large(struct call *call) { char frame[3000]; barrier_data(frame); \
         return frame[7] + call->of(); }\n\
         void begin(struct call *call);\n\
         void begin(struct call *call) { call->of = deep; }",
    );
    assert!(
        said.contains("the function large, which calls deep, needs 60"),
        "{said}"
    );
}

/// A policy with unsafe code of its own is not built unless that is requested.
#[test]
fn a_policy_with_unsafe_code_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    policy_with(
        dir.path(),
        "has_unsafe",
        "unsafe { core::hint::assert_unchecked(true) }",
    );
    let run = |allowed: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
        command
            .arg("sim")
            .arg(dir.path())
            .args(["-w", "pipe", "--duration", "10ms"]);
        allowed.map(|value| command.env("BATON_ALLOW_UNSAFE", value));
        command.output().expect("baton runs")
    };
    let refused = run(None);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(
        said.contains("usage of an `unsafe` block") && said.contains("--allow-unsafe"),
        "{said}"
    );
    // It is not built for the kernel either.
    let said = build_refuses(dir.path());
    assert!(
        said.contains("usage of an `unsafe` block") && said.contains("--allow-unsafe"),
        "{said}"
    );
    let built = run(Some("1"));
    assert!(built.status.success(), "{}", text(&built.stderr));
}

#[test]
fn a_run_that_fails_takes_no_other_with_it() {
    let out = sim(
        "--compare faulty:fault=recursion,wfq,faulty -w hackbench:groups=1 --duration 300ms --json",
    );
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(43), "{said}");
    let runs: Vec<baton_sim::report::Run> = serde_json::from_slice(&out.stdout).unwrap();
    let failed: Vec<bool> = runs.iter().map(|run| !run.faults.is_empty()).collect();
    assert_eq!(failed, [true, false, false], "{said}");
    assert!(
        runs[0].faults[0].contains("stack overflow in task_wakeup"),
        "{:?}",
        runs[0].faults
    );
    assert!(
        runs[0].duration_ns < 300_000_000
            && runs[1..].iter().all(|run| run.duration_ns == 300_000_000)
    );
    let out = sim(
        "faulty:fault=recursion --sweep after=100..100000000/2 -w hackbench:groups=1 \
        --duration 300ms",
    );
    assert_eq!(out.status.code(), Some(43), "{}", text(&out.stderr));
    assert_eq!(
        text(&out.stdout).matches("(failed at ").count(),
        1,
        "{}",
        text(&out.stdout)
    );
}

/// The shares that `wfq` gives to mixes of tasks: by weight over the whole machine, and for
/// sleeping tasks against hogs of lower weight.
#[test]
fn wfq_shares_the_machine() {
    let run = |workload: &str, topology: &str| -> serde_json::Value {
        let out = sim(&format!(
            "wfq -w {workload} --topology {topology} --duration 2s --seed 3 --json"
        ));
        assert!(out.status.success(), "{}", text(&out.stderr));
        let runs: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        runs[0].clone()
    };
    // The task that is furthest behind, in percent of its due; and a task migrates less often than
    // each CPU searches for one.
    let shares = |hogs: u32, cpus: u32| {
        let run = run(&format!("hogs:n={hogs}"), &format!("1x{cpus}x1"));
        let due = 2e9 * f64::from(cpus) / f64::from(hogs);
        let behind = 100.0 * run["fairness"]["worst_lag_ns"].as_f64().unwrap() / due;
        let moves = run["cpu"]["migrations"]["llc"].as_u64().unwrap();
        assert!(
            behind < 5.0 && moves < u64::from(cpus) * 2000 / 64,
            "{hogs} on {cpus}: {behind} %, {moves} moves"
        );
    };
    [(5, 4), (6, 4), (7, 4), (96, 64)]
        .into_iter()
        .for_each(|(hogs, cpus)| shares(hogs, cpus));
    let mixed = run("rocksdb:workers=20,load=0.8+hogs:n=3,nice=19", "1x4x1");
    let hogs = mixed["groups"][1]["cpu_ns"].as_u64().unwrap();
    let p50 = mixed["groups"][0]["response"]["p50"].as_u64().unwrap();
    assert!(
        hogs < 2_000_000_000 && p50 < 100_000,
        "hogs of nice 19 had {hogs} ns of 8 s, and p50 is {p50} ns"
    );
    let alone = run("rocksdb", "1x4x1");
    let p90 = alone["groups"][0]["response"]["p90"].as_u64().unwrap();
    assert!(p90 < 1_000_000, "p90 of requests is {p90} ns");
}
