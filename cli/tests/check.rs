// SPDX-License-Identifier: GPL-2.0-only
//! `baton check`, as a user calls it, of policies in C: libraries, whose locks the checker sees as those of others.

use std::process::Command;

fn check(policy: &str, more: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    command.args(["check", policy, "--schedules", "2000", "--seconds", "3600", "--without", "work-conservation"]);
    let out = command.args(more.split_whitespace()).output().expect("baton runs");
    (out.status.code(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

#[test]
fn a_policy_in_c_is_tried_in_all_orders() {
    let (code, said) = check("fifo_c", "");
    assert!(code == Some(0) && said.contains("fifo_c: nothing found in 2000 schedules"), "{said}");
}

#[test]
fn what_a_policy_in_c_does_wrong_is_found() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faulty-c");
    let check = |fault: &str, parts: &[&str]| {
        let (code, said) = check(directory, &format!("--options fault={fault}"));
        assert_eq!(code, Some(4), "{fault}: {said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "{fault}: {part} is not in\n{said}"));
    };
    let place = "tests/faulty-c/faulty-c.c:";
    check("deadlock", &["deadlock of policy faulty_c", "(taken at ", place]);
    check("assert", &["panic of policy faulty_c", "it does not hold that faulty->wakeups < 100", place]);
    let overflow = "panic of policy faulty_c: stack overflow in task_wakeup: the call used up its stack";
    check("recursion", &[overflow, "again     baton check"]);
    check("hoard", &[overflow]);
    check("null", &["panic in task_wakeup: memory at 0x0 was used", "  fault     panic in task_wakeup"]);
    check("division", &["panic in task_wakeup: a division by zero"]);
    check("trap", &["panic in task_wakeup: a trap"]);
    check("create-null", &["panic of policy faulty_c: it could not be made: memory at 0x0 was used"]);
    check("destroy", &["panic of policy faulty_c: it could not be given up: memory at 0x0 was used"]);
    check("stall", &["lost-task of policy faulty_c"]);
}
