// SPDX-License-Identifier: GPL-2.0-only
//! `edf`, the policy in Baton's language that takes hints.

use std::sync::{Arc, Mutex};

use baton::Message;
use baton_sim::world::{Cx, Op, Spawn, TaskRef, World};
use baton_sim::Outcome;
use edf::{Hint, Reply};

use crate::{machine, run};

const MS: i64 = 1_000_000;

/// A task that always runs.
fn hog(world: &mut World) -> Spawn {
    Spawn::new("hog", |_: &mut Cx<'_>| Op::Run(100_000_000)).group(world.group("hogs"))
}

/// The thread is due so many ns after each wakeup.
fn within(thread: TaskRef, ns: i64) -> Op {
    Op::Hint {
        hint: Hint::Deadline {
            // The id is ignored: `Op::Hint` names the task.
            t: baton::Thread::of_id(9),
            within: ns,
        }
        .encode(),
        thread: Some(thread),
    }
}

/// Three tasks that always run, and on the same CPU some that sleep for 10 ms and run for 1 ms.
/// Each says first by when it is due.
fn beside_hogs(due: &[i64]) -> Outcome {
    let mut world = World::new();
    for _ in 0..3 {
        let hog = hog(&mut world);
        world.task(hog);
    }
    for &due in due {
        let mut step = 0;
        let name = format!("within {due}");
        let group = world.group(&name);
        let program = move |cx: &mut Cx<'_>| {
            step += 1;
            match step {
                1 => within(cx.me, due),
                _ if step % 2 == 0 => Op::Sleep(10_000_000),
                _ => Op::Run(1_000_000),
            }
        };
        world.task(Spawn::new(name, program).group(group));
    }
    run(&machine("1x1x1", crate::edf(), 2_000), world)
}

/// The 99th percentile of the time from a wakeup of a group's task until it ran, ns. The task has no
/// deadline when it first runs, which is one of 150 times.
fn longest_wait(outcome: &Outcome, group: usize) -> i64 {
    let waits = outcome.stats.groups[group].wakeups.percentiles().p99;
    waits.try_into().unwrap()
}

#[test]
fn a_thread_with_a_deadline_precedes_those_without() {
    let [with, without] = [5 * MS, 0].map(|due| longest_wait(&beside_hogs(&[due]), 1));
    // A slice is 5 ms, and three hogs have turns.
    assert!(with < MS / 10 && without > 10 * MS, "{with} {without}");
}

#[test]
fn the_thread_that_is_due_first_runs_first() {
    let outcome = beside_hogs(&[9 * MS, 3 * MS, 6 * MS]);
    let [last, first, second] = [1, 2, 3].map(|group| longest_wait(&outcome, group));
    // Each of the others runs for 1 ms.
    assert!(first < MS / 10, "{first}");
    assert!(second < 5 * MS / 4, "{second}");
    assert!(last < 9 * MS / 4, "{last}");
}

/// A thread that does not sleep loses its deadline, so that the others have turns.
#[test]
fn a_thread_that_is_late_has_no_deadline() {
    let mut world = World::new();
    let hog = hog(&mut world);
    world.task(hog);
    let mut step = 0;
    let group = world.group("greedy");
    let program = move |cx: &mut Cx<'_>| {
        step += 1;
        match step {
            1 => within(cx.me, 2 * MS),
            2 => Op::Sleep(1_000_000),
            _ => Op::Run(100_000_000),
        }
    };
    world.task(Spawn::new("greedy", program).group(group));
    let outcome = run(&machine("1x1x1", crate::edf(), 1_000), world);
    let ran = |group: usize| outcome.stats.groups[group].runtime;
    assert!(ran(0) * 5 > ran(1) * 4, "{} {}", ran(0), ran(1));
}

/// A core that was idle for long, or just began, has kept no thread waiting.
#[test]
fn a_wait_begins_when_a_thread_waits() {
    let mut world = World::new();
    let group = world.group("due");
    let mut step = 0;
    let program = move |cx: &mut Cx<'_>| {
        step += 1;
        match step {
            1 => within(cx.me, MS),
            _ if step % 2 == 0 => Op::Sleep(200_000_000),
            _ => Op::Run(1_000_000),
        }
    };
    world.task(Spawn::new("due", program).group(group));
    let mut step = 0;
    // Wakes up just before the other, on the idle core.
    let program = move |_: &mut Cx<'_>| {
        step += 1;
        match step % 2 {
            1 => Op::Sleep(199_950_000),
            _ => Op::Run(2_000_000),
        }
    };
    let group = world.group("other");
    world.task(Spawn::new("other", program).group(group));
    let outcome = run(&machine("1x1x1", crate::edf(), 2_000), world);
    let waits = outcome.stats.groups[0].wakeups.percentiles().p50 as i64;
    assert!(waits < MS / 10, "{waits}");
}

/// Threads that are always due soon leave a turn to the others, again and again.
#[test]
fn threads_without_a_deadline_are_not_starved() {
    let mut world = World::new();
    let hog = hog(&mut world);
    world.task(hog);
    let group = world.group("due");
    for _ in 0..3 {
        let mut step = 0;
        let program = move |cx: &mut Cx<'_>| {
            step += 1;
            match step {
                1 => within(cx.me, 10_000 * MS),
                _ if step % 2 == 0 => Op::Sleep(100_000),
                _ => Op::Run(10_000_000),
            }
        };
        world.task(Spawn::new("due", program).group(group));
    }
    let outcome = run(&machine("1x1x1", crate::edf(), 2_000), world);
    // A turn of 5 ms after each 100 ms, and the first ones.
    let ran = outcome.stats.groups[0].runtime as i64 / MS;
    assert!((80..160).contains(&ran), "{ran} of 2000 ms");
}

#[test]
fn a_value_out_of_range_is_refused() {
    let heard: Arc<Mutex<Vec<Reply>>> = Arc::default();
    let said = Arc::clone(&heard);
    let mut step = 0;
    let mut world = World::new();
    world.task(Spawn::new("sender", move |cx: &mut Cx<'_>| {
        let replies = cx.reply.map(|reply| Reply::decode(&reply).unwrap());
        said.lock().unwrap().extend(replies);
        step += 1;
        match step {
            // Longer than 10 s, and in the past.
            1 => within(cx.me, 10_000 * MS + 1),
            2 | 4 => Op::Reply,
            3 => within(cx.me, -1),
            5 => within(cx.me, MS),
            _ => Op::Exit,
        }
    }));
    let outcome = run(&machine("1x1x1", crate::edf(), 100), world);
    let refused = Reply::OutOfRange { tag: 1 };
    assert_eq!(*heard.lock().unwrap(), [refused; 2]);
    // A hint that is refused for its value was taken all the same.
    assert_eq!((outcome.stats.hints, outcome.stats.hints_refused), (3, 0));
}
