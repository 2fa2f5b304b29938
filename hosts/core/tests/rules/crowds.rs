// SPDX-License-Identifier: GPL-2.0-only
//! Any number of tasks without a policy: the slices that the fallback gives them.

use crate::host::{new_core, new_task, TestCore};
use baton_abi::{BatonCtx, BATON_F_WAKEUP};
use baton_core::Verdict;

const MS: u64 = 1_000_000;

/// Maximum and minimum slice, ns.
const LONGEST: u64 = 20 * MS;
const SHORTEST: u64 = MS / 10;

/// Time within which each task must have run, ns. The fallback is guaranteed a quarter of it.
const ROUND: u64 = 10_000 * MS;

fn enter(core: &TestCore, pid: u32) {
    let task = new_task(core, pid, 0).unwrap();
    let mut ctx = BatonCtx {
        task,
        flags: BATON_F_WAKEUP,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::Fallback
    );
    assert_eq!(ctx.slice, core.fallback_slice(), "with {pid} tasks");
}

#[test]
fn slices_get_shorter_with_the_number_of_tasks() {
    for cpus in [1, 2, 8] {
        let all = 30_000 * cpus;
        let core = new_core(all as usize, cpus as i32, true);
        assert_eq!(core.fallback_slice(), LONGEST);
        let mut before = LONGEST;
        for tasks in 1..=all {
            enter(core, tasks);
            let slice = core.fallback_slice();
            assert!(
                (SHORTEST..=before).contains(&slice),
                "{cpus} CPUs, {tasks} tasks: {slice} after {before}"
            );
            let each = u64::from(tasks.div_ceil(cpus));
            assert_eq!(
                slice == LONGEST,
                each <= 125,
                "{cpus} CPUs, {tasks} tasks: {slice}"
            );
            assert!(
                each > 25_000 || 4 * each * slice <= ROUND + 4 * LONGEST,
                "{cpus} CPUs, {tasks} tasks: {slice}"
            );
            before = slice;
        }
        assert_eq!(before, SHORTEST);
    }
}

#[test]
fn a_cpu_that_is_gone_takes_none() {
    let core = new_core(1_000, 2, true);
    (1..=1_000).for_each(|pid| enter(core, pid));
    assert_eq!(core.fallback_slice(), 5 * MS);
    core.set_online(
        0,
        core.cpu(0).unwrap(),
        &mut BatonCtx {
            cpu: 1,
            ..BatonCtx::default()
        },
        false,
    );
    assert_eq!(core.fallback_slice(), 5 * MS / 2);
}
