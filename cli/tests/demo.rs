// SPDX-License-Identifier: GPL-2.0-only
//! `baton demo`, called as by a user.

use std::process::{Command, Stdio};

#[test]
fn steps_at_enter_need_a_terminal() {
    let out = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(["demo", "--step"])
        .stdin(Stdio::null())
        .output()
        .expect("baton runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for part in [
        "standard input is not a terminal",
        "at fault: the command given",
        "leave out --step",
    ] {
        assert!(said.contains(part), "no '{part}' in: {said}");
    }
    assert!(out.stdout.is_empty(), "no step began");
}
