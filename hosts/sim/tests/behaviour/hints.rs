// SPDX-License-Identifier: GPL-2.0-only
//! Hints of simulated tasks, and their effects.

use crate::{echo, fifo, machine, run, workload};
use baton::Message;
use baton_sim::world::{Op, Spawn, TaskRef, World};
use echo::{Hint, Reply};
use std::sync::{Arc, Mutex};

const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/examples/hints.json"
);

/// The median time from a wakeup of the example's worker until it runs, ns.
fn worker_waits(spec: &str) -> u64 {
    let config = machine("1x1x1", echo(), 2_000);
    let outcome = run(&config, workload(spec, &config));
    let worker = outcome
        .stats
        .groups
        .iter()
        .find(|group| &*group.name == "worker")
        .unwrap();
    worker.wakeups.percentiles().p50
}

#[test]
fn who_asks_goes_first() {
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let without = std::env::temp_dir().join(format!("baton-no-hints-{}.json", std::process::id()));
    // A ping has no effect on the order of tasks.
    std::fs::write(&without, text.replace(r#"[2, "worker", 1]"#, "[1, 7, 1]")).unwrap();
    let (first, last) = (
        worker_waits(EXAMPLE),
        worker_waits(without.to_str().unwrap()),
    );
    std::fs::remove_file(without).unwrap();
    // The worker runs after the running hog's slice, or after those of all three hogs.
    assert!(
        first <= 20_000_000 && last > 40_000_000,
        "{first} and {last}"
    );
}

/// Sends a ping, a hint that another task goes first, a malformed hint and a ping, and takes the
/// replies. It waits for one more reply than there are.
fn talker(heard: Arc<Mutex<Vec<Reply>>>, other: TaskRef) -> Spawn {
    let mut step = 0;
    let hint = |hint: Hint, thread| Op::Hint {
        hint: hint.encode(),
        thread,
    };
    Spawn::new("talker", move |cx: &mut baton_sim::world::Cx<'_>| {
        heard
            .lock()
            .unwrap()
            .extend(cx.reply.map(|reply| Reply::decode(&reply).unwrap()));
        step += 1;
        match step {
            1 => hint(
                Hint::Ping {
                    number: 5,
                    times: 2,
                },
                None,
            ),
            2 | 3 | 5 => Op::Reply,
            // The id is ignored: `Op::Hint` names the task.
            4 => hint(
                Hint::First {
                    thread: baton::Thread::of_id(9),
                    yes: true,
                },
                Some(other),
            ),
            6 => Op::Hint {
                hint: baton_abi::BatonHint {
                    tag: 99,
                    ..Default::default()
                },
                thread: None,
            },
            7 => hint(
                Hint::Ping {
                    number: 6,
                    times: 20,
                },
                None,
            ),
            8..24 => Op::Reply,
            24 => Op::Reply,
            _ => Op::Exit,
        }
    })
}

fn conversation(policy: baton_native::Policy) -> (Vec<Reply>, u64, u64) {
    let heard = Arc::default();
    let mut world = World::new();
    let other = world.task(Spawn::new("other", |_: &mut baton_sim::world::Cx<'_>| {
        Op::Sleep(1_000_000)
    }));
    world.task(talker(Arc::clone(&heard), other));
    let outcome = run(&machine("1x2x1", policy, 100), world);
    let replies = heard.lock().unwrap().clone();
    (replies, outcome.stats.hints, outcome.stats.hints_refused)
}

#[test]
fn replies_come_and_a_full_ring_loses_them() {
    let (replies, hints, refused) = conversation(echo());
    let mut expected = vec![
        Reply::Pong {
            number: 5,
            heard: 1
        };
        2
    ];
    expected.push(Reply::Noted { slot: 0 });
    // The malformed hint is refused. There is room for 16 of the 20 replies, and the 17th never
    // arrives.
    expected.extend(
        [Reply::Pong {
            number: 6,
            heard: 3,
        }; 16],
    );
    assert_eq!((replies, hints, refused), (expected, 4, 1));
}

#[test]
fn a_policy_without_hints_refuses_them() {
    let (replies, hints, refused) = conversation(fifo());
    assert_eq!((replies, hints, refused), (vec![], 1, 1));
}
