// SPDX-License-Identifier: GPL-2.0-only
//! Several policies at once: the order in which they are asked, and preemption.

use crate::host::{self, TestCore};
use baton_abi::{BatonCtx, BATON_F_PREV_RUNNABLE, BATON_F_WAKEUP, BATON_KICK_PREEMPT};
use baton_core::{PolicyEntry, Verdict};
use std::sync::{Arc, Mutex};

type Queue = Arc<Mutex<Vec<u64>>>;

fn start(core: &'static TestCore) -> (&'static PolicyEntry, Queue) {
    let (entry, queue) = (host::register(core), Queue::default());
    let own = queue.clone();
    host::start(
        core,
        entry,
        Arc::new(move |call: &mut host::Call<'_>| host::fifo(call, &own)),
    );
    (entry, queue)
}

/// Creates a task of a policy and returns its handle.
fn task(core: &TestCore, pid: u32, entry: &PolicyEntry) -> u64 {
    let handle = host::new_task(core, pid, 0).unwrap();
    core.assign(core.by_handle(handle).unwrap(), Some(entry));
    handle
}

/// The kicks that result from waking a task on CPU 0.
fn wake(core: &TestCore, task: u64) -> Vec<u16> {
    let mut ctx = BatonCtx {
        task,
        flags: BATON_F_WAKEUP,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::None
    );
    ctx.kicks[..ctx.nr_kicks as usize].to_vec()
}

/// What CPU 0 runs next. `prev` is the previous task if it can continue.
fn pick(core: &TestCore, prev: Option<u64>) -> (Verdict, u32) {
    let flags = if prev.is_some() {
        BATON_F_PREV_RUNNABLE
    } else {
        0
    };
    let mut ctx = BatonCtx {
        task: prev.unwrap_or(0),
        flags,
        ..BatonCtx::default()
    };
    let verdict = core.dispatch(0, core.cpu(0).unwrap(), &mut ctx);
    (
        verdict,
        if verdict == Verdict::Run {
            host::slot_of(core, ctx.task).pid()
        } else {
            0
        },
    )
}

#[test]
fn the_order_is_the_administrators() {
    let core = host::new_core(8, 1, true);
    let ((a, _), (b, _), (c, _)) = (start(core), start(core), start(core));
    for (order, expected) in [
        (vec![], [1, 2, 3]),
        (vec![c, a], [3, 1, 2]),
        (vec![b, b, c], [2, 3, 1]),
    ] {
        core.set_order(&order.iter().map(|entry| entry.index()).collect::<Vec<_>>());
        let tasks: Vec<u64> = [a, b, c]
            .iter()
            .zip(1..)
            .map(|(entry, pid)| task(core, pid, entry))
            .collect();
        tasks.iter().for_each(|task| drop(wake(core, *task)));
        assert_eq!(
            expected.map(|_| pick(core, None).1),
            expected,
            "{:?}",
            order.len()
        );
        for task in tasks {
            core.disable_task(
                0,
                core.cpu(0).unwrap(),
                &mut BatonCtx {
                    task,
                    ..BatonCtx::default()
                },
                true,
            );
            core.exit_task(task);
        }
    }
    // A new policy is last, even in a place of the table before those of the others.
    core.stop(b);
    core.unregister(b);
    let order = |core: &TestCore| {
        core.order()
            .filter(|at| core.policies()[*at as usize].id() != 0)
            .collect::<Vec<_>>()
    };
    assert_eq!(order(core), [c.index(), a.index()]);
    let newcomer = host::register(core);
    assert_eq!(order(core), [c.index(), a.index(), newcomer.index()]);
}

#[test]
fn a_policy_does_not_take_back_the_kicks_of_another() {
    let core = host::new_core(8, 1, true);
    let kicks = |kick: u16, forgets: bool| {
        let entry = host::register(core);
        let policy = move |call: &mut host::Call<'_>| {
            if forgets {
                (call.ctx.nr_kicks, call.ctx.kicks) = (0, [9; 4]);
            }
            call.ctx.kicks[call.ctx.nr_kicks as usize] = kick;
            call.ctx.nr_kicks += 1;
            0
        };
        host::start(core, entry, Arc::new(policy));
    };
    kicks(5, false);
    kicks(6, true);
    let mut ctx = BatonCtx::default();
    core.set_idle(0, core.cpu(0).unwrap(), &mut ctx, true);
    assert_eq!(
        (ctx.nr_kicks, ctx.kicks[0]),
        (1, 5),
        "the first one's is kept"
    );
}

#[test]
fn a_task_preempts_those_of_later_policies_only() {
    let core = host::new_core(8, 1, true);
    let ((a, _), (b, _)) = (start(core), start(core));
    let kick = vec![BATON_KICK_PREEMPT];
    let (early, late, later) = (task(core, 1, a), task(core, 2, b), task(core, 3, b));
    assert_eq!(wake(core, late), []);
    assert_eq!(pick(core, None), (Verdict::Run, 2));
    assert_eq!(wake(core, later), [], "of the same policy");
    assert_eq!(wake(core, early), kick);
    assert_eq!(pick(core, Some(late)), (Verdict::Run, 1));
    // The preempted task returns to its policy, and does not preempt in turn.
    let mut ctx = BatonCtx {
        task: late,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::None
    );
    assert_eq!(ctx.nr_kicks, 0);
    // The reverse order.
    core.set_order(&[b.index()]);
    let mut ctx = BatonCtx {
        task: early,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::None
    );
    assert_eq!(pick(core, None), (Verdict::Run, 3));
    assert_eq!(pick(core, None), (Verdict::Run, 2));
}

#[test]
fn nobody_is_preempted_where_one_policy_runs_or_the_cpu_idles() {
    let core = host::new_core(8, 1, true);
    let (a, _) = start(core);
    let (first, second) = (task(core, 1, a), task(core, 2, a));
    assert_eq!(wake(core, first), []);
    assert_eq!(pick(core, None).1, 1);
    assert_eq!(wake(core, second), []);
    let (_b, _) = start(core);
    let third = task(core, 3, a);
    core.set_idle(0, core.cpu(0).unwrap(), &mut BatonCtx::default(), true);
    assert_eq!(wake(core, third), []);
}

#[test]
fn a_policy_that_comes_later_is_asked_once_a_second() {
    let core = host::new_core(8, 1, true);
    let ((a, _), (b, _)) = (start(core), start(core));
    let (first, second) = (task(core, 1, a), task(core, 2, b));
    let ask = |now: u64| {
        let mut ctx = BatonCtx {
            now,
            ..BatonCtx::default()
        };
        (
            core.dispatch(0, core.cpu(0).unwrap(), &mut ctx),
            host::slot_of(core, ctx.task).pid(),
        )
    };
    for round in 0..3 {
        wake(core, first);
        wake(core, second);
        assert_eq!(ask(round * 2_000_000_000 + 900_000_000), (Verdict::Run, 1));
        wake(core, first);
        assert_eq!(
            ask(round * 2_000_000_000 + 1_800_000_000),
            (Verdict::Run, 2)
        );
        assert_eq!(
            ask(round * 2_000_000_000 + 1_900_000_000),
            (Verdict::Run, 1)
        );
    }
}

#[test]
fn the_turn_of_tasks_without_a_policy_is_not_cut_short() {
    let core = host::new_core(8, 1, true);
    let ((a, _), (_b, _)) = (start(core), start(core));
    let (first, second, without) = (
        task(core, 1, a),
        task(core, 2, a),
        host::new_task(core, 3, 0).unwrap(),
    );
    let mut ctx = BatonCtx {
        task: without,
        flags: BATON_F_WAKEUP,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::Fallback
    );
    wake(core, first);
    assert_eq!(pick(core, None), (Verdict::Run, 1));
    let mut ctx = BatonCtx {
        now: 60_000_000,
        task: first,
        flags: BATON_F_PREV_RUNNABLE,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.dispatch(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::Turn
    );
    let mut ctx = BatonCtx {
        task: first,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::None
    );
    assert_eq!(
        ctx.nr_kicks, 0,
        "the task that made way does not come back at once"
    );
    assert_eq!(
        wake(core, second),
        [],
        "nor does another take the turn away"
    );
}

/// A policy with a task that never sleeps precedes one with a crowd of them. The later one gets so
/// many slices that none of its tasks waits for long enough to be a stall.
#[test]
fn a_crowd_behind_a_hog_is_not_a_stall() {
    const SLICE: u64 = 20_000_000;
    const LIMIT: u64 = 10_000_000_000;
    let core = host::new_core(64, 1, true);
    let ((first, _), (later, _)) = (start(core), start(core));
    let put = |task: u64, flags: u16, now: u64| {
        let mut ctx = BatonCtx {
            task,
            flags,
            now,
            ..BatonCtx::default()
        };
        let verdict = core.enqueue(0, core.cpu(0).unwrap(), &mut ctx);
        assert_eq!(verdict, Verdict::None);
    };
    let entry = |pid| if pid == 0 { first } else { later };
    let tasks: Vec<u64> = (0..50).map(|pid| task(core, pid, entry(pid))).collect();
    tasks.iter().for_each(|task| put(*task, BATON_F_WAKEUP, 0));
    let mut slices = [0; 50];
    for now in (1..3_000).map(|turn| turn * SLICE) {
        let mut ctx = BatonCtx {
            now,
            ..BatonCtx::default()
        };
        let verdict = core.dispatch(0, core.cpu(0).unwrap(), &mut ctx);
        assert_eq!(verdict, Verdict::Run, "after {now} ns");
        let pid = host::slot_of(core, ctx.task).pid() as usize;
        slices[pid] += 1;
        put(tasks[pid], 0, now + SLICE);
        if now.is_multiple_of(25 * SLICE) {
            let stalled = core.find_stall(now, LIMIT).map(|slot| slot.pid());
            assert_eq!(stalled, None, "after {now} ns");
        }
    }
    assert!(slices[0] > 2_000, "the hog had {}", slices[0]);
    assert!(slices[1..].iter().all(|count| *count > 5), "{slices:?}");
}
