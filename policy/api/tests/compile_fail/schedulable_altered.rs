// SPDX-License-Identifier: GPL-2.0-only
//! Nor can it turn one task's `Schedulable` into another's.
#![forbid(unsafe_code)]

use baton::Schedulable;

fn redirect(task: &mut Schedulable) {
    task.slot = 7;
}

fn main() {
    let _ = redirect;
}
