// SPDX-License-Identifier: GPL-2.0-only
//! Hints: permission to open a queue, and the threads that a hint may name.

use crate::{
    hints::{load, run, start, A_WHILE},
    tool::{baton, baton_fails, check, is_well, must},
    Case,
};
use std::{
    fs, process, thread,
    time::{Duration, Instant},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("hints: grants", grants()),
        case!("hints: granted to a group, and to a cgroup", groups()),
        case!("hints: threads that a hint may name", names()),
        case!("hints: what a user's queues take of the memory", memory()),
    ]
}

const USER: u32 = 4711;
const CGROUP: &str = "/sys/fs/cgroup/granted";

fn wait_for_queues(count: u32) -> Result<(), String> {
    let begin = Instant::now();
    while !baton(&["hints", "list", "--json"])?.contains(&format!("\"open\": {count}")) {
        check(begin.elapsed() < A_WHILE * 4, || {
            format!("{count} queues are not open")
        })?;
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn grants() -> Result<(), String> {
    load()?;
    let user = USER.to_string();
    let (ok, said) = run(&["open"], USER)?;
    check(!ok && said.contains("no grant permits"), || {
        format!("without a grant: {said}")
    })?;
    baton(&["hints", "grant", "fifo", "--user", &user])?;
    let (ok, said) = run(&["open"], USER)?;
    check(!ok && said.contains("no grant permits"), || {
        format!("with another policy's: {said}")
    })?;
    baton(&["hints", "revoke", "fifo", "--user", &user])?;
    baton_fails(
        &["hints", "revoke", "fifo", "--user", &user],
        "was not granted",
    )?;
    baton(&["hints", "grant", "echo", "--user", &user, "--queues", "1"])?;
    let child = start(&["open", "another"], USER)?;
    wait_for_queues(1)?;
    baton(&["hints", "revoke", "echo", "--user", &user])?;
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    check(
        said.contains("as many queues open as were granted") && said.contains("Some(Revoked)"),
        || said.to_string(),
    )?;
    let (ok, said) = run(&["open"], USER)?;
    check(!ok && said.contains("no grant permits"), || {
        format!("after the revocation: {said}")
    })?;
    let list = baton(&["hints", "list", "--json"])?;
    check(list.trim() == "[]", || format!("left: {list}"))?;
    is_well("echo")
}

/// Opens a queue as the user and revokes the grant, which must close the queue.
fn opens_until_revoked(to: &[&str]) -> Result<(), String> {
    let child = start(&["open"], USER)?;
    wait_for_queues(1)?;
    baton(&[&["hints", "revoke", "echo"], to].concat())?;
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    check(said.contains("Some(Revoked)"), || {
        format!("by {to:?}: {said}")
    })
}

/// Moves this process, and those that it starts, into the cgroup.
fn enter(cgroup: &str) -> Result<(), String> {
    fs::write(format!("{cgroup}/cgroup.procs"), process::id().to_string())
        .map_err(|e| format!("{cgroup}: {e}"))
}

fn groups() -> Result<(), String> {
    load()?;
    let user = USER.to_string();
    let by_group = ["--group", &user];
    baton(&[&["hints", "grant", "echo"], &by_group[..]].concat())?;
    opens_until_revoked(&by_group)?;
    fs::create_dir_all(CGROUP).map_err(|e| e.to_string())?;
    let result = (|| {
        let both = ["--group", &user, "--cgroup", "granted"];
        baton(&[&["hints", "grant", "echo"], &both[..]].concat())?;
        let (ok, said) = run(&["open"], USER)?;
        check(!ok && said.contains("no grant permits"), || {
            format!("outside of the cgroup: {said}")
        })?;
        enter(CGROUP)?;
        opens_until_revoked(&both)?;
        // Any process in the cgroup.
        let by_cgroup = ["--cgroup", "granted"];
        baton(&[&["hints", "grant", "echo"], &by_cgroup[..]].concat())?;
        opens_until_revoked(&by_cgroup)
    })();
    enter("/sys/fs/cgroup")?;
    let removed = fs::remove_dir(CGROUP).map_err(|e| e.to_string());
    result.and(removed)?;
    is_well("echo")
}

fn names() -> Result<(), String> {
    load()?;
    let (user, own) = (USER.to_string(), process::id().to_string());
    let expect = |said: &str, expected: &str| {
        check(said.starts_with(expected), || {
            format!("{said}, not {expected}")
        })
    };
    baton(&["hints", "grant", "echo", "--user", &user])?;
    expect(&run(&["name"], USER)?.1, "Ok(()) Some(Noted")?;
    expect(&run(&["name", &own], USER)?.1, "Err(Refused(Thread))")?;
    baton(&["hints", "grant", "echo", "--user", &user, "--any-thread"])?;
    expect(&run(&["name", &own], USER)?.1, "Ok(()) Some(Noted")?;
    expect(&run(&["name", "4000000"], USER)?.1, "Err(Refused(Thread))")?;
    baton(&["hints", "revoke", "echo", "--user", &user])?;
    // Ids are those of the sender's namespace, where its id is 1.
    expect(
        &must(
            "unshare",
            &["-p", "-f", "/usr/bin/baton-booted", "--hints", "name", "1"],
        )?,
        "Ok(()) Some(Noted",
    )?;
    expect(
        &must(
            "unshare",
            &["-p", "-f", "/usr/bin/baton-booted", "--hints", "name", &own],
        )?,
        "Err(Refused(Thread))",
    )?;
    is_well("echo")
}

/// The number of largest queues that occupy memory, from the kernel's list: two rings of 256 KiB,
/// and the pages of their head and of the guard.
fn queues_in_memory() -> Result<usize, String> {
    let list = fs::read_to_string("/proc/vmallocinfo").map_err(|e| format!("vmallocinfo: {e}"))?;
    let size = |line: &str| {
        line.split_whitespace()
            .nth(1)
            .and_then(|size| size.parse::<u64>().ok())
    };
    let is_one =
        |line: &&str| line.contains("[baton]") && size(line) == Some(2 * (256 << 10) + 2 * 4096);
    Ok(list.lines().filter(is_one).count())
}

/// Runs the client that opens queues as fast as it can. Returns how many it was granted, and the
/// most that occupied memory at a time.
fn insists() -> Result<(usize, usize), String> {
    const LARGEST: &str = "4096";
    let mut child = start(&["insist", LARGEST], USER)?;
    let mut most = 0;
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        most = most.max(queues_in_memory()?);
    }
    most = most.max(queues_in_memory()?);
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let opened = said
        .trim()
        .parse()
        .map_err(|_| format!("the client said {said}"))?;
    Ok((opened, most))
}

/// A refused queue takes no memory, and granted ones take no more than was granted, although they
/// are opened and closed all the time.
fn memory() -> Result<(), String> {
    load()?;
    let user = USER.to_string();
    let found = insists()?;
    check(found == (0, 0), || {
        format!("without a grant, opened and in memory: {found:?}")
    })?;
    baton(&[
        "hints",
        "grant",
        "echo",
        "--user",
        &user,
        "--queues",
        "2",
        "--entries",
        "4096",
    ])?;
    let (opened, most) = insists()?;
    check(opened == 300 && (1..=2).contains(&most), || {
        format!("opened {opened}, in memory {most} of 2")
    })?;
    baton(&["hints", "revoke", "echo", "--user", &user])?;
    is_well("echo")
}
