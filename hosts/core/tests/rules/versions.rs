// SPDX-License-Identifier: GPL-2.0-only
//! Replacement of one version of a policy by another.

use crate::host::{self, TestCore};
use baton_abi::{BatonCtx, BatonMethod, BATON_EV_ALL, BATON_F_WAKEUP};
use baton_core::{TaskState, Verdict};
use std::sync::{Arc, Mutex};

const TASKS: u32 = 8;

/// The tasks that a version holds, and the methods by which they arrived.
#[derive(Default)]
struct Version {
    queue: Mutex<Vec<u64>>,
    came: Mutex<Vec<BatonMethod>>,
}

fn policy(version: &Arc<Version>) -> host::Policy {
    let version = version.clone();
    Arc::new(move |call| {
        if call.token != 0 && call.method != BatonMethod::PickRefused {
            version.came.lock().unwrap().push(call.method);
        }
        host::fifo(call, &version.queue)
    })
}

/// A core with one policy, `old`, that has queued [`TASKS`] tasks.
fn with_queued(old: &Arc<Version>) -> (&'static TestCore, &'static baton_core::PolicyEntry) {
    let core = host::new_core(16, 2, true);
    let entry = host::register(core);
    host::start(core, entry, policy(old));
    core.set_default(Some(entry));
    for pid in 1..=TASKS {
        let task = host::new_task(core, pid, 0).unwrap();
        let mut ctx = BatonCtx {
            task,
            flags: BATON_F_WAKEUP,
            ..BatonCtx::default()
        };
        assert_eq!(
            core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
            Verdict::None
        );
    }
    (core, entry)
}

/// Picks until no task is left. Returns the tasks in order.
fn drain(core: &TestCore) -> Vec<u32> {
    let mut picked = Vec::new();
    loop {
        let mut ctx = BatonCtx::default();
        match core.dispatch(0, core.cpu(0).unwrap(), &mut ctx) {
            Verdict::Run => picked.push(host::slot_of(core, ctx.task).pid()),
            Verdict::Nothing => return picked,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_swap_touches_no_task() {
    let (old, new) = (Arc::new(Version::default()), Arc::new(Version::default()));
    let (core, entry) = with_queued(&old);
    // The new version has the old one's queue, as with a shared state.
    *new.queue.lock().unwrap() = old.queue.lock().unwrap().clone();
    core.swap(entry, host::version(core, policy(&new)), BATON_EV_ALL);
    assert_eq!(drain(core), (1..=TASKS).collect::<Vec<_>>());
    assert_eq!(
        old.queue.lock().unwrap().len(),
        TASKS as usize,
        "the old version was asked"
    );
    assert!(new.came.lock().unwrap().is_empty());
    assert_eq!(
        (core.fallback_tasks(), host::count(core, TaskState::Running)),
        (0, TASKS as usize)
    );
}

#[test]
fn what_is_handed_anew_is_the_only_fresh_token() {
    for is_new in [false, true] {
        let (old, new) = (Arc::new(Version::default()), Arc::new(Version::default()));
        let (core, entry) = with_queued(&old);
        let running = drain_one(core);
        let version = if is_new { &new } else { &old };
        if is_new {
            core.swap(entry, host::version(core, policy(&new)), BATON_EV_ALL);
        }
        let stale = version.queue.lock().unwrap().len();
        core.hand_anew(entry, is_new, 0, 0, core.cpu(0).unwrap());
        let method = if is_new {
            BatonMethod::TaskNew
        } else {
            BatonMethod::TaskRestored
        };
        let came = version
            .came
            .lock()
            .unwrap()
            .iter()
            .filter(|m| **m == method)
            .count();
        // The old version got all tasks as new ones at first.
        assert_eq!(came, TASKS as usize - 1, "{method:?}");
        assert_eq!(
            version.queue.lock().unwrap().len(),
            stale + TASKS as usize - 1
        );
        // Tokens that the old version still has are refused as stale.
        assert_eq!(drain(core), (2..=TASKS).collect::<Vec<_>>());
        assert_eq!(
            entry.refusals.load(std::sync::atomic::Ordering::Relaxed),
            stale as u64
        );
        // The task that was running is new to a new version when it is next enqueued.
        let mut ctx = BatonCtx {
            task: running,
            ..BatonCtx::default()
        };
        assert_eq!(
            core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
            Verdict::None
        );
        let last = *version.came.lock().unwrap().last().unwrap();
        assert_eq!(
            last,
            if is_new {
                BatonMethod::TaskNew
            } else {
                BatonMethod::TaskPreempt
            }
        );
    }
}

/// Picks one task and returns its handle.
fn drain_one(core: &TestCore) -> u64 {
    let mut ctx = BatonCtx::default();
    assert_eq!(
        core.dispatch(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::Run
    );
    host::slot_of(core, ctx.task).handle()
}

#[test]
fn another_policy_gets_all_tasks_in_the_order_of_the_first() {
    let (old, new) = (Arc::new(Version::default()), Arc::new(Version::default()));
    let (core, from) = with_queued(&old);
    let to = host::register(core);
    host::start(core, to, policy(&new));
    let running = drain_one(core);
    // Last in, first out: the order is that of the picks, not of the slots.
    old.queue.lock().unwrap().reverse();
    core.hand_over(from, to, 0, 0, core.cpu(0).unwrap());
    assert!(old.queue.lock().unwrap().is_empty());
    assert!(new
        .came
        .lock()
        .unwrap()
        .iter()
        .all(|method| *method == BatonMethod::TaskNew));
    assert_eq!(drain(core), (2..=TASKS).rev().collect::<Vec<_>>());
    assert_eq!((core.fallback_tasks(), core.default_policy()), (0, to.id()));
    // The task that was running is new to the policy when it is next enqueued.
    let mut ctx = BatonCtx {
        task: running,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::None
    );
    assert_eq!(new.queue.lock().unwrap().len(), 1);
    assert_eq!(core.by_handle(running).unwrap().policy(), to.id());
}

#[test]
fn what_the_first_policy_never_picks_is_handed_over_too() {
    let (old, new) = (Arc::new(Version::default()), Arc::new(Version::default()));
    let (core, from) = with_queued(&old);
    let to = host::register(core);
    host::start(core, to, policy(&new));
    old.queue.lock().unwrap().clear();
    core.hand_over(from, to, 0, 0, core.cpu(0).unwrap());
    assert_eq!(drain(core), (1..=TASKS).collect::<Vec<_>>());
}
