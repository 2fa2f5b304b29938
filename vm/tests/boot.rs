// SPDX-License-Identifier: GPL-2.0-only
//! Boots real guests. Runs inside Baton's Debian root (vm/enter cargo test -p baton-vm).

use std::time::{Duration, Instant};

use baton_vm::{Error, FileIn, Vm};

fn shell(script: &str) -> Vm {
    let command = ["sh", "-c", script].map(String::from).to_vec();
    Vm {
        command,
        tools: Vec::new(),
        ..Default::default()
    }
}

#[test]
fn a_command_gives_code_output_and_files() {
    let input = format!(
        "{}/src/cpio.rs",
        std::env::var("CARGO_MANIFEST_DIR").unwrap()
    );
    let vm = Vm {
        files_in: vec![FileIn {
            host: input.clone().into(),
            guest: "/data/in".into(),
        }],
        files_out: vec!["/tmp/made".into(), "/tmp/missing".into()],
        topology: Some("2x2x2".parse().unwrap()),
        ..shell(
            "echo out; echo err >&2; mkdir /tmp/made; cp /data/in /tmp/made/copy; printf \
             'a\\r\\n\\0' >/tmp/made/raw
             nproc; ls -d1 /sys/devices/system/node/node*; cd /sys/devices/system/cpu/cpu5
             cat topology/thread_siblings_list cache/index3/shared_cpu_list; exit 7",
        )
    };
    let mut streamed = Vec::new();
    let outcome = vm.run(&mut streamed).unwrap();
    assert_eq!(outcome.exit_code, 7);
    let nodes = "/sys/devices/system/node/node0\n/sys/devices/system/node/node1\n";
    assert_eq!(
        String::from_utf8_lossy(&streamed),
        format!("out\nerr\n8\n{nodes}4-5\n4-7\n")
    );
    assert_eq!(outcome.output, streamed);
    assert!(
        outcome.kernel_log.contains("Linux version"),
        "{}",
        outcome.kernel_log
    );
    let names: Vec<_> = outcome.files.keys().map(String::as_str).collect();
    assert_eq!(names, ["/tmp/made/copy", "/tmp/made/raw"]);
    assert_eq!(
        outcome.files["/tmp/made/copy"],
        std::fs::read(input).unwrap()
    );
    assert_eq!(outcome.files["/tmp/made/raw"], b"a\r\n\0");
}

#[test]
fn a_warning_in_the_kernel_log_is_a_failure() {
    let vm = shell("echo 'WARNING: kernel/made/up.c:1 at nothing' >/dev/kmsg; kill -9 $$");
    match vm.run(&mut std::io::sink()) {
        Err(Error::Complaints {
            complaints,
            outcome,
        }) => {
            assert_eq!(complaints, ["WARNING: kernel/made/up.c:1 at nothing"]);
            assert_eq!(outcome.exit_code, 128 + 9);
        }
        other => panic!("not found: {other:?}"),
    }
    let outcome = Vm {
        tolerate_complaints: true,
        ..vm
    }
    .run(&mut std::io::sink())
    .unwrap();
    assert_eq!(outcome.complaints.len(), 1);
}

#[test]
fn a_guest_that_panics_or_hangs_is_named_with_its_log() {
    match shell("echo c >/proc/sysrq-trigger; sleep 60").run(&mut std::io::sink()) {
        Err(Error::Died { log, .. }) => assert!(log.contains("Kernel panic"), "{log}"),
        other => panic!("not seen: {other:?}"),
    }
    // On a busy machine a guest has not reached its command after the first of these.
    for limit in [15, 150] {
        let vm = Vm {
            timeout: Duration::from_secs(limit),
            ..shell("echo hanging >/dev/kmsg; sleep 600")
        };
        let start = Instant::now();
        match vm.run(&mut std::io::sink()) {
            Err(Error::TimedOut { seconds, log, .. }) => {
                assert_eq!(seconds, limit);
                assert!(start.elapsed() < Duration::from_secs(limit + 30));
                if log.contains("hanging") {
                    return;
                }
            }
            other => panic!("not seen: {other:?}"),
        }
    }
    panic!("the log does not have what the guest wrote");
}

#[test]
fn counted_instructions_repeat_exactly() {
    let vm = Vm {
        cpus: 1,
        icount: Some(0),
        files_out: vec!["/tmp/big".into()],
        ..shell("seq 40000 >/tmp/big; cat /proc/uptime /proc/interrupts")
    };
    let first = vm.run(&mut std::io::sink()).unwrap();
    let lines: String = (1..=40000).map(|n| format!("{n}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&first.files["/tmp/big"]), lines);
    assert_eq!(first, vm.run(&mut std::io::sink()).unwrap());
}
