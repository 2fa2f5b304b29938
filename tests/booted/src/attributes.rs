// SPDX-License-Identifier: GPL-2.0-only
//! Attributes that a policy in C gives its threads: set by the tool and by programs, refused, and
//! of threads whose policy changes.

use crate::{
    hostile,
    tool::{baton, baton_fails, check, is_well, must, Hog},
    Case,
};
use serde_json::Value;
use std::{
    os::unix::process::CommandExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("attributes: set, shown, and refused", set()),
        case!("attributes: a user's", of_user()),
        case!("attributes: threads whose policy changes", switched()),
        case!("attributes: the examples of docs/attributes.md", examples()),
        case!("attributes: hostile clients", hostile::attributes(3)),
    ]
}

const USER: u32 = 4712;

/// The attribute `slice` of a thread, ns.
fn slice(pid: &str) -> Result<i64, String> {
    let said = baton(&["attr", "get", "-p", "cfs_c", "--pid", pid, "--json"])?;
    let json: Value = serde_json::from_str(&said).map_err(|e| format!("{e}: {said}"))?;
    json[0]["attributes"]["slice"]
        .as_i64()
        .ok_or(format!("no slice: {said}"))
}

fn has(pid: &str, ns: i64) -> Result<(), String> {
    let slice = slice(pid)?;
    check(slice == ns, || format!("slice is {slice}, not {ns}"))
}

fn set() -> Result<(), String> {
    // This process is not a task of the policy: the tool makes itself one.
    baton(&["load", "cfs_c"])?;
    let hog = Hog::of("cfs_c", None)?;
    let (normal, pid) = (Hog::plain()?, hog.pid());
    let set = |pid: &str, value: &'static str| {
        ["attr", "set", "-p", "cfs_c", "--pid", pid, value].map(str::to_owned)
    };
    let wrong = |pid: &str, value, expected| {
        let words = set(pid, value);
        baton_fails(&words.each_ref().map(String::as_str), expected)
    };
    let list = baton(&["attr", "list", "-p", "cfs_c"])?;
    check(list.contains("slice") && list.contains("100ms"), || {
        list.clone()
    })?;
    has(&pid, 0)?;
    baton(&set(&pid, "slice=3ms").each_ref().map(String::as_str))?;
    has(&pid, 3_000_000)?;
    wrong(&pid, "slice=101ms", "slice is from 0 to 100ms")?;
    wrong(&pid, "slice=99us", "slice is 0, or 100 us or more")?;
    wrong(&pid, "slice=3", "'3' is no value")?;
    wrong(&pid, "size=3", "it has: slice")?;
    wrong(&normal.pid(), "slice=3ms", "is no task of cfs_c")?;
    wrong("4000000", "slice=3ms", "is no task of cfs_c")?;
    // What was refused has changed nothing.
    has(&pid, 3_000_000)?;
    baton_fails(&["attr", "list", "-p", "wfq"], "no policy wfq runs")?;
    // A policy without hints, one with other ones, and other threads of the process.
    baton(&["load", "echo"])?;
    baton_fails(&["attr", "list", "-p", "echo"], "have no attributes")?;
    let all = ["attr", "set", "-p", "cfs_c", "--pid", &pid, "--threads"];
    baton(&[&all[..], &["slice=0"]].concat())?;
    has(&pid, 0)?;
    // A version that takes over has the attributes as they were.
    baton(&["attr", "set", "-p", "cfs_c", "--pid", &pid, "slice=5ms"])?;
    baton(&["upgrade", "cfs_c"])?;
    has(&pid, 5_000_000)?;
    is_well("cfs_c")
}

/// The output of the tool as a user runs it, and whether it succeeded.
fn as_user(args: &[&str]) -> Result<(bool, String), String> {
    let output = Command::new("baton")
        .args(args)
        .uid(USER)
        .gid(USER)
        .output()
        .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.success(), said))
}

/// A user sets nothing without a grant, with one only for its own processes, and with another one
/// for all threads of the policy.
fn of_user() -> Result<(), String> {
    baton(&["load", "cfs_c", "--all"])?;
    let hog = Hog::plain()?;
    let (user, pid) = (USER.to_string(), hog.pid());
    let set = ["attr", "set", "-p", "cfs_c", "--pid", &pid, "slice=3ms"];
    // The shell sets its own.
    let own = "baton attr set -p cfs_c --pid $$ slice=3ms && baton attr get -p cfs_c --pid $$";
    let as_shell = || {
        let mut command = Command::new("sh");
        command.args(["-c", own]).uid(USER).gid(USER);
        let output = command.output().map_err(|e| e.to_string())?;
        Ok::<_, String>(output.status.success())
    };
    let (ok, said) = as_user(&set)?;
    check(!ok && said.contains("no grant permits"), || {
        format!("without a grant: {said}")
    })?;
    baton(&["hints", "grant", "cfs_c", "--user", &user])?;
    let (ok, said) = as_user(&set)?;
    check(!ok && said.contains("you may not set"), || {
        format!("another user's thread: {said}")
    })?;
    // A grant is for the threads of the process that asks. The shell is another one.
    check(!as_shell()?, || "another process of the user".into())?;
    has(&pid, 0)?;
    baton(&["hints", "grant", "cfs_c", "--user", &user, "--any-thread"])?;
    let (ok, said) = as_user(&set)?;
    check(ok, || format!("with a grant for any thread: {said}"))?;
    has(&pid, 3_000_000)?;
    check(as_shell()?, || "with a grant, the shell itself".into())?;
    baton(&["hints", "revoke", "cfs_c", "--user", &user])?;
    let (ok, said) = as_user(&set)?;
    check(!ok && said.contains("no grant permits"), || {
        format!("after the revocation: {said}")
    })?;
    is_well("cfs_c")
}

/// Threads that run, wait and sleep go to another policy and come back. Their attributes are gone
/// with the policy's data about them.
fn switched() -> Result<(), String> {
    baton(&["load", "cfs_c"])?;
    baton(&["load", "fifo_c"])?;
    let hogs = [Hog::of("cfs_c", Some("1"))?, Hog::of("cfs_c", Some("1"))?];
    let sleeper = Hog::that_sleeps()?;
    let pids = [hogs[0].pid(), hogs[1].pid(), sleeper.pid()];
    for _ in 0..3 {
        for policy in ["fifo_c", "cfs_c"] {
            for pid in &pids {
                baton(&["attach", policy, "--pid", pid])?;
            }
            // A thread comes to its policy when it wakes up, or has lost its CPU.
            for pid in &pids {
                let begin = Instant::now();
                while slice(pid).is_ok() != (policy == "cfs_c") {
                    check(begin.elapsed() < Duration::from_secs(5), || {
                        format!("{pid} does not come to {policy}")
                    })?;
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
        for pid in &pids {
            has(pid, 0)?;
            baton(&["attr", "set", "-p", "cfs_c", "--pid", pid, "slice=7ms"])?;
            has(pid, 7_000_000)?;
        }
    }
    is_well("fifo_c")?;
    is_well("cfs_c")
}

/// Each sets the slice of its thread, and prints it.
fn examples() -> Result<(), String> {
    const PROGRAMS: [&[&str]; 3] = [
        &["/usr/bin/baton-attributes-rust"],
        &["/usr/bin/baton-attributes-c"],
        &["/usr/bin/python3", "-S", "/usr/lib/baton/attributes.py"],
    ];
    baton(&["load", "cfs_c", "--all"])?;
    for words in PROGRAMS {
        let said = must(words[0], &words[1..])?;
        check(said == "slice 3000000\n", || {
            format!("{words:?} prints {said:?}")
        })?;
    }
    is_well("cfs_c")
}
