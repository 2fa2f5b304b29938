// SPDX-License-Identifier: GPL-2.0-only
//! A fault of a booted kernel, examined in a debugger on this machine. Boots a guest: runs inside
//! Baton's Debian root.

use std::process::Command;

fn baton(arguments: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(arguments)
        .output()
        .expect("baton runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{arguments:?}: {text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    text
}

#[test]
fn a_fault_in_the_kernel_stops_in_the_debugger() {
    const GUEST: &str = "
        baton load faulty --all --options fault=index,after=3000 || exit 1
        baton record -p faulty --flight 4 || exit 2
        stress-ng --switch 2 --timeout 5s --quiet
        baton fault save /tmp/fault.rec || exit 3
        baton unload faulty
        # Alone: it takes seconds to hoard, and a CPU beside it would fill its ring before who \
        empties it can run.
        echo 0 > /sys/devices/system/cpu/cpu1/online || exit 5
        baton load faulty --all --turns 1073741824 --options fault=hoard,after=500 || exit 4
        baton record -p faulty -o /tmp/hoard.rec -- stress-ng --switch 2 --timeout 1s --quiet";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fault.rec");
    let file = file.to_str().unwrap();
    let hoard = dir.path().join("hoard.rec");
    let hoard = hoard.to_str().unwrap();
    let out = [
        format!("/tmp/fault.rec:{file}"),
        format!("/tmp/hoard.rec:{hoard}"),
    ];
    let guest = "--icount=2 --cpus 2 --memory 2000 --timeout 1200 --with faulty --out";
    let guest: Vec<&str> = guest
        .split(' ')
        .chain([&*out[0], "--out", &*out[1]])
        .collect();
    let saved = baton(&[&["vm", "run"], &guest[..], &["--", "sh", "-c", GUEST]].concat());
    assert!(saved.contains("the policy failed"), "{saved}");

    let replayed: serde_json::Value =
        serde_json::from_str(&baton(&["replay", file, "--single", "--json"])).unwrap();
    assert_eq!(
        (&replayed["end"], &replayed["faults"][0]["kind"]),
        (&"whole".into(), &"panic".into()),
        "{replayed}"
    );
    assert!(replayed["events"].as_u64().unwrap() > 10_000, "{replayed}");

    let looks = [
        "-batch",
        "-ex",
        "info locals",
        "-ex",
        "up",
        "-ex",
        "up",
        "-ex",
        "print self.after",
        "-ex",
        "print baton",
    ];
    let seen = baton(&[&["replay", file, "--gdb", "--"], &looks[..]].concat());
    let place = replayed["faults"][0]["place"]
        .as_str()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap();
    assert!(
        place.starts_with("wrong.rs:") && seen.contains(&format!("src/{place}")),
        "{place}: {seen}"
    );
    assert!(
        seen.contains("three = [1, 2, 3]")
            && seen.contains(" = 3000")
            && seen.contains("Schedulable"),
        "{seen}"
    );

    // Memory that was refused in the kernel is refused here.
    assert!(
        baton(&["trace", "json", hoard]).contains("\"no_memory\""),
        "it was given all that it asked for"
    );
    let replayed: serde_json::Value =
        serde_json::from_str(&baton(&["replay", hoard, "--json"])).unwrap();
    assert_eq!(
        (&replayed["end"], &replayed["events"]),
        (&"whole".into(), &replayed["events_in_file"]),
        "{replayed}"
    );

    // And before a given call.
    let seen = baton(&[
        "replay",
        file,
        "--gdb",
        "--stop-at",
        "0",
        "--",
        "-batch",
        "-ex",
        "bt 2",
    ]);
    assert!(seen.contains("baton_replay_stop"), "{seen}");
}
