// SPDX-License-Identifier: GPL-2.0-only
//! `baton replay` and `baton trace`, called as by a user.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn baton(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(arguments)
        .output()
        .expect("baton runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a successful command.
fn good(arguments: &[&str]) -> String {
    let out = baton(arguments);
    assert!(
        out.status.success(),
        "{}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
    text(&out.stdout)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&good(arguments)).unwrap()
}

/// Writes a recording of wfq. Returns the simulator's report of the run.
fn record(file: &str) -> Value {
    let line = "sim wfq -w hackbench:groups=2 --duration 300ms --max-tasks 4096 --json --record";
    let arguments: Vec<&str> = line.split(' ').chain([file]).collect();
    json(&arguments)
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_recording_is_replayed_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("wfq.rec"), dir.path().join("wfq.pftrace"));
    let (file, out) = (name(&file), name(&out));
    let run = &record(file)[0];
    for mode in [
        &["replay", file, "--single", "--json"][..],
        &["replay", file, "--json"],
    ] {
        let replayed = json(mode);
        assert_eq!(replayed["end"], "whole");
        assert_eq!(replayed["events"], replayed["events_in_file"]);
    }
    assert!(good(&["replay", file, "--single"]).starts_with("same: all "));

    let other = baton(&["replay", file, "--single", "--options", "credit=0"]);
    assert_eq!(other.status.code(), Some(1));
    let said = text(&other.stdout);
    for part in [
        "DIVERGENCE at event ",
        "\n  recorded  ",
        "\n  got       ",
        "a new instance does the same on this input",
    ] {
        assert!(said.contains(part), "{said}");
    }

    let stats = json(&["trace", "stats", file, "--json"]);
    let lines = good(&["trace", "json", file]);
    let events: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(stats["events"], events.len());
    assert_eq!(
        stats["calls"],
        events
            .iter()
            .filter(|event| event["event"] == "call")
            .count()
    );
    // The calls of the policy and the activity of the machine are counted in different ways, with
    // the same result.
    let near = |ours: u64, theirs: &Value| {
        let theirs = theirs.as_u64().unwrap() as f64;
        assert!(
            (ours as f64 - theirs).abs() < theirs * 0.05,
            "{ours} {theirs}"
        );
    };
    let ran = stats["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["runtime_ns"].as_u64().unwrap())
        .sum();
    near(ran, &run["groups"][0]["cpu_ns"]);
    near(
        stats["wakeup"]["p99_ns"].as_u64().unwrap(),
        &run["groups"][0]["wakeup"]["p99"],
    );
    assert!(good(&["trace", "stats", file]).contains("\nTasks that wait with the policy: "));

    let told = good(&["trace", "print", file, "--from", "10", "--to", "20"]);
    assert_eq!(told.lines().count(), 10);
    assert!(told.starts_with("        10  CPU "), "{told}");
    good(&["trace", "perfetto", file, out]);
    assert!(std::fs::metadata(out).unwrap().len() > 100_000);
}

/// A second reading of the policy's text gives each answer that the compiled policy gave.
#[test]
fn the_interpreter_replays_what_the_compiled_policy_did() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("language.rec");
    let file = name(&file);
    for policy in ["ule_cwc", "cfs_cwc", "edf"] {
        let line = format!(
            "sim {policy} -w random --duration 200ms --json --checkpoint 50ms --record {file}"
        );
        json(&line.split(' ').collect::<Vec<_>>());
        for mode in [&["--single"][..], &[]] {
            let replayed = json(&[&["replay", file, "--interpreted", "--json"], mode].concat());
            assert_eq!(replayed["end"], "whole", "{policy}");
            assert_eq!(replayed["policy"], "interpreted");
            assert!(replayed["calls"].as_u64() > Some(1000), "{replayed}");
            assert_eq!(replayed["events"], replayed["events_in_file"], "{policy}");
        }
        // It also reads a state that the compiled policy has saved.
        let later = json(&["replay", file, "--interpreted", "--json", "--from", "150ms"]);
        assert_eq!(later["end"], "whole", "{policy}");
        assert!(
            later["events"].as_u64() < later["events_in_file"].as_u64(),
            "{later}"
        );
    }
    // Another policy answers otherwise.
    let other = ["replay", file, "--interpreted", "-p", "lottery", "--json"];
    assert_eq!(baton(&other).status.code(), Some(1));
    // One that is not in the language has no text to read.
    record(file);
    let refused = baton(&["replay", file, "--interpreted"]);
    let said = text(&refused.stderr);
    assert!(
        said.contains("wfq is not written in Baton's language"),
        "{said}"
    );
}

#[test]
fn a_policy_in_c_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fifo_c.rec");
    let file = name(&file);
    let line = "sim fifo_c -w random:tasks=24 --topology 2x4x1 --duration 100ms --json --record";
    good(&line.split(' ').chain([file]).collect::<Vec<_>>());
    for mode in [
        &["replay", file, "--single", "--json"][..],
        &["replay", file, "--json"],
    ] {
        let replayed = json(mode);
        assert_eq!(replayed["end"], "whole");
        assert_eq!(replayed["events"], replayed["events_in_file"]);
        assert!(replayed["events"].as_u64() > Some(1_000), "{replayed}");
    }
}

#[test]
fn what_another_policy_would_have_done_is_simulated_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wfq.rec");
    let file = name(&file);
    record(file);
    let what_if = ["replay", file, "--single", "--what-if"];
    assert!(
        good(&what_if).starts_with("same: all "),
        "where nothing differs there is nothing to ask"
    );

    let other = baton(&[&what_if[..], &["--options", "credit=0"]].concat());
    assert_eq!(other.status.code(), Some(1));
    let said = text(&other.stdout);
    for part in [
        "DIVERGENCE at event ",
        "\nWHAT IF from event ",
        "\nwfq, as recorded ",
        "\nwfq:credit=0 ",
    ] {
        assert!(said.contains(part), "{said}");
    }

    let other = baton(&[&what_if[..], &["--options", "credit=0", "--json"]].concat());
    let found: Value = serde_json::from_slice(&other.stdout).unwrap();
    let what = &found["what_if"];
    assert!(what["event"].as_u64() <= found["divergence"]["call"].as_u64());
    let count = |place: &str| what["tasks"][place].as_u64().unwrap();
    assert_eq!(count("running"), 4, "hackbench leaves no CPU idle");
    assert_eq!(count("queued") + count("running") + count("asleep"), 80);
    let runs = what["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["groups"][0]["tasks"], 80);
        assert_eq!(run["faults"].as_array().map(Vec::len), Some(0), "{run}");
    }
    assert_ne!(runs[0]["hash"], runs[1]["hash"]);

    // Another policy altogether.
    let other = baton(&["replay", file, "--single", "--what-if", "--policy", "fifo"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(
        text(&other.stdout).contains("\nfifo "),
        "{}",
        text(&other.stdout)
    );
}

#[test]
fn a_replay_begins_at_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wfq.rec");
    let file = name(&file);
    let line = "sim wfq -w hackbench:groups=2 --duration 300ms --max-tasks 4096 --json \
        --checkpoint 50ms --record";
    json(&line.split(' ').chain([file]).collect::<Vec<_>>());
    let all = json(&["replay", file, "--single", "--json"])["events"]
        .as_u64()
        .unwrap();
    let checkpoints = json(&["trace", "stats", file, "--json"])["checkpoints"].clone();
    let events: Vec<u64> = checkpoints
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["event"].as_u64().unwrap())
        .collect();
    assert_eq!(events.len(), 6, "{events:?}");
    assert!(good(&["trace", "stats", file]).contains(&format!("\n{:<24}", events[4])));

    let replayed = json(&["replay", file, "--json", "--from", "210ms"]);
    assert_eq!(
        (&replayed["end"], replayed["first"].as_u64()),
        (&Value::from("whole"), Some(events[3]))
    );
    assert_eq!(replayed["events"].as_u64(), Some(all - events[3]));
    let until = (events[3] + 20).to_string();
    let told = good(&[
        "replay", file, "--single", "--from", "210ms", "--until", &until, "--print",
    ]);
    assert!(
        told.starts_with(&format!("{:>10}  CPU ", events[3])),
        "{told}"
    );
    assert!(
        told.contains(&format!(
            " from the checkpoint before event {} on",
            events[3]
        )),
        "{told}"
    );

    let out = baton(&["replay", file, "--from", "10"]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(
        said.contains(&format!(
            "checkpoints are later: before events {} to {}",
            events[0], events[5]
        )),
        "{said}"
    );

    // An early block is missing.
    let mut bytes = std::fs::read(file).unwrap();
    bytes[100_000] ^= 1;
    std::fs::write(file, &bytes).unwrap();
    let out = baton(&["replay", file, "--single"]);
    assert_eq!(
        out.status.code(),
        Some(1),
        "nothing before it could be replayed"
    );
    let said = text(&out.stdout);
    let (_, next) = said
        .split_once(&format!("\n  next      baton replay {file} --from "))
        .expect(&said);
    let next = next.lines().next().unwrap();
    // The missing events have no numbers.
    assert!(
        next.parse::<u64>().unwrap() < events[0],
        "{next}, and {events:?}"
    );
    assert!(good(&["replay", file, "--single", "--from", next]).contains(", to the end\n"));

    let refused = baton(&[
        "sim",
        "fifo",
        "-w",
        "hackbench",
        "--record",
        file,
        "--checkpoint",
        "1ms",
    ]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("fifo saves no state"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(
        std::fs::read(file).unwrap(),
        bytes,
        "what is refused leaves what there is"
    );
}

#[test]
fn a_fault_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("faulty.rec");
    let line = "sim faulty:fault=index,after=500 -w hackbench --record";
    let arguments: Vec<&str> = line.split(' ').chain([name(&file)]).collect();
    assert_eq!(baton(&arguments).status.code(), Some(43));
    let said = good(&["replay", name(&file), "--single"]);
    assert!(
        said.contains("panic in task_wakeup")
            && said.contains("policies/testing/faulty/src/wrong.rs:"),
        "{said}"
    );
    assert!(said.contains("the len is 3 but the index is 5"), "{said}");
}

#[test]
fn damaged_and_foreign_files_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("some.rec");
    record(name(&file));
    let whole = std::fs::read(&file).unwrap();
    let write = |bytes: &[u8]| std::fs::write(&file, bytes).unwrap();

    write(&whole[..whole.len() * 2 / 3]);
    let torn = json(&["replay", name(&file), "--single", "--json"]);
    assert_eq!(torn["end"], "gap");
    assert!(torn["events"].as_u64() < torn["events_in_file"].as_u64());
    assert_eq!(
        json(&["trace", "stats", name(&file), "--json"])["damaged_places"],
        1
    );

    let refused = |bytes: &[u8], what: &str| {
        write(bytes);
        for command in [
            &["replay", name(&file)][..],
            &["trace", "stats", name(&file)],
            &["trace", "json", name(&file)],
        ] {
            let out = baton(command);
            assert_eq!(out.status.code(), Some(1));
            assert!(text(&out.stderr).contains(what), "{}", text(&out.stderr));
        }
    };
    refused(b"\x7fELF", "it is no recording of Baton's");
    let mut future = whole.clone();
    future[8] = 9;
    refused(
        &future,
        "it is of version 9 of the format, and this Baton reads version 1",
    );
    let mut header = whole;
    header[30] ^= 1;
    refused(&header, "its checksum is wrong");
}
