// SPDX-License-Identifier: GPL-2.0-only
//! Counts how often activations sleep. All activations of the process are counted, so this is the
//! only test of its file.

use baton_runtime::{sleep, Options, Runtime};
use std::fs::{read_dir, read_to_string};
use std::time::Duration;

/// Number of times that all activations together have slept.
fn sleeps() -> u64 {
    let tasks = read_dir("/proc/self/task")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let own = tasks.filter(|task| {
        read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("activation-"))
    });
    let count = |status: String| {
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    own.map(|task| count(read_to_string(task.join("status")).unwrap()))
        .sum()
}

#[test]
fn who_wakes_up_alone_wakes_no_other_core() {
    const TIMES: u64 = 200;
    let runtime = Runtime::start(Options::fixed(4)).unwrap();
    let doze = || {
        let before = sleeps();
        (0..TIMES).for_each(|_| sleep(Duration::from_millis(1)));
        sleeps() - before
    };
    let slept = runtime.spawn(doze).join().unwrap();
    runtime.end();
    // Occasionally it wakes so late that the next sleep is already over.
    assert!((TIMES / 2..TIMES * 3 / 2).contains(&slept), "{slept}");
}
