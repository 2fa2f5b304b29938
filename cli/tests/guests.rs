// SPDX-License-Identifier: GPL-2.0-only
//! Guests whose command does not end as it should: the reported culprit, the exit code, and the
//! log. Boots guests: runs inside Baton's Debian root.

use std::fs;
use std::process::Command;

/// Runs `baton vm run` with these arguments. Returns its exit code, its messages, and its --log.
/// `without` names a part of Baton without which policies are built.
fn vm_run(without: &str, arguments: &str, command: &[&str]) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut baton = Command::new(env!("CARGO_BIN_EXE_baton"));
    baton
        .args(["vm", "run", "--log"])
        .arg(&log)
        .args(arguments.split_whitespace())
        .arg("--")
        .args(command)
        .env("BATON_WITHOUT", without);
    let out = baton.output().expect("baton runs");
    let said =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (
        out.status.code(),
        said,
        fs::read_to_string(log).unwrap_or_default(),
    )
}

/// It ends with this code and these messages, and its log contains these words.
#[track_caller]
fn check(arguments: &str, command: &[&str], code: i32, words: &[&str], in_log: &str) {
    let (ended, said, log) = vm_run("", arguments, command);
    ends(ended, &said, &log, code, words, in_log);
}

#[track_caller]
fn ends(ended: Option<i32>, said: &str, log: &str, code: i32, words: &[&str], in_log: &str) {
    assert_eq!(ended, Some(code), "{said}");
    words
        .iter()
        .for_each(|part| assert!(said.contains(part), "no '{part}' in: {said}"));
    assert!(log.contains(in_log), "no '{in_log}' in the log: {log}");
}

#[test]
fn a_policy_that_fails_at_its_first_task() {
    let words = [
        "FAULT of policy faulty: panic",
        "wrong.rs",
        "at fault: the policy faulty",
    ];
    check(
        "-p faulty --options fault=index,in=task_new,after=0",
        &["true"],
        4,
        &words,
        "policy faulty stopped",
    );
}

#[test]
fn a_policy_that_does_not_come_back() {
    let words = [
        "does not return from the policy faulty",
        "faulty::Faulty",
        "at fault: the policy faulty",
    ];
    // One CPU, as the panic of the one that takes the NMI would wait for another that is in a loop.
    let guest = |limit: u32| {
        format!("--cpus 1 -p faulty --all --options fault=forever,after=50 --timeout {limit}")
    };
    let command = ["hackbench", "-g", "1", "-l", "1000000"];
    let run = |limit: u32| vm_run("polls", &guest(limit), &command);
    // On a busy machine a guest does not reach its command within the first of these times.
    if !run(120).1.contains(words[0]) {
        let (ended, said, log) = run(300);
        ends(ended, &said, &log, 4, &words, "NMI: Not continuing");
    }
}

#[test]
fn a_policy_that_kills_the_kernel() {
    let words = [
        "It died in the policy faulty_c, at pick_next_task",
        "at fault: the policy faulty_c",
    ];
    check(
        "-p faulty_c --options fault=kernel",
        &["hackbench", "-g", "1", "-l", "10"],
        4,
        &words,
        "Oops",
    );
}

#[test]
fn a_command_that_reboots_or_has_too_little_memory() {
    check(
        "",
        &["sh", "-c", "reboot -f"],
        1,
        &["at fault: the command given", "rebooted"],
        "reboot: Restarting system",
    );
    // Room for the kernel and its files, an unoptimised tool of some 190 MB, but not for a copy.
    let words = ["at fault: the command given", "--memory"];
    check("--memory 320", &["true"], 1, &words, "Kernel panic");
}

#[test]
fn a_load_that_fails_leaves_nothing() {
    const GUEST: &str = "baton load wfq --all; code=$?; [ ! -e /sys/module/baton ] && exit $code";
    let words = ["isolcpus=1", "at fault: this machine"];
    check(
        "--with wfq --append isolcpus=1",
        &["sh", "-c", GUEST],
        3,
        &words,
        "isolcpus=1",
    );
}
