// SPDX-License-Identifier: GPL-2.0-only
//! Cores that `arbiter` grants, reclaims and takes.

use crate::{arbiter, machine, run, workload};
use ::arbiter::{Hint, Reply};
use baton::{Message, Thread};
use baton_sim::world::{Cx, Op, Spawn, TaskRef, World};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const MS: u64 = 1_000_000;
/// More than a wakeup and a context switch take.
const SOON: u64 = MS / 2;

/// The replies to activations, with the time and the name of the process.
type Told = Arc<Mutex<Vec<(u64, &'static str, Reply)>>>;

/// The use that an activation makes of its core.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Waits for replies, and parks when its core is reclaimed.
    Obeys,
    /// Computes, and takes no replies.
    Computes,
}

/// A process that requests cores at a level from the time `from` to the time `until`, ns, with as
/// many activations as cores.
struct Process {
    name: &'static str,
    from: u64,
    until: u64,
    level: u8,
    cores: u32,
    manner: Manner,
}

impl Process {
    /// Adds its activations. The first one is the leader.
    fn add(&self, world: &mut World, told: &Told) {
        let (mut leader, group) = (None, world.group(self.name));
        for _ in 0..self.cores {
            let task = world.task(self.activation(leader, Arc::clone(told)).group(group));
            leader = leader.or(Some(task));
        }
    }

    fn activation(&self, leader: Option<TaskRef>, told: Told) -> Spawn {
        let &Process {
            name,
            from,
            until,
            level,
            cores,
            manner,
        } = self;
        let mut step = 0;
        let hint = |hint: Hint, thread| Op::Hint {
            hint: hint.encode(),
            thread,
        };
        Spawn::new(name, move |cx: &mut Cx<'_>| {
            let reply = cx.reply.take().map(|reply| Reply::decode(&reply).unwrap());
            told.lock()
                .unwrap()
                .extend(reply.map(|reply| (cx.now, name, reply)));
            step += 1;
            match (step, reply) {
                (1, _) => Op::SleepUntil(from),
                // The id is ignored: `Op::Hint` names the task.
                (2, _) => hint(
                    Hint::Join {
                        leader: Thread::of_id(9),
                    },
                    Some(leader.unwrap_or(cx.me)),
                ),
                (3, _) => hint(Hint::Request { level, cores }, None),
                (4, _) => Op::Reply,
                _ if cx.now >= until => Op::Exit,
                (_, Some(Reply::Reclaim { .. })) => hint(Hint::Park {}, None),
                _ if manner == Manner::Computes => Op::Run(MS),
                _ => Op::Reply,
            }
        })
    }
}

fn replies(
    processes: &[Process],
    others: &str,
    shape: &str,
) -> (Vec<(u64, &'static str, Reply)>, baton_sim::Outcome) {
    let (config, told) = (machine(shape, arbiter(), 500), Told::default());
    let mut world = if others.is_empty() {
        World::new()
    } else {
        workload(others, &config)
    };
    processes
        .iter()
        .for_each(|process| process.add(&mut world, &told));
    let outcome = run(&config, world);
    let told = told.lock().unwrap().clone();
    (told, outcome)
}

const LOW: Process = Process {
    name: "low",
    from: 0,
    until: u64::MAX,
    level: 3,
    cores: 3,
    manner: Manner::Obeys,
};
const HIGH: Process = Process {
    name: "high",
    from: 100 * MS,
    until: u64::MAX,
    level: 0,
    cores: 2,
    manner: Manner::Obeys,
};

/// The times at which a process was granted cores, or had to give one back.
fn times(told: &[(u64, &'static str, Reply)], of: &str, granted: bool) -> Vec<u64> {
    let is = |reply: &Reply| matches!(reply, Reply::Granted { .. }) == granted;
    told.iter()
        .filter(|(_, name, reply)| *name == of && is(reply))
        .map(|&(when, ..)| when)
        .collect()
}

#[test]
fn a_higher_level_goes_before_a_lower_one() {
    let (told, _) = replies(&[LOW, HIGH], "", "1x4x1");
    let (first, second) = (times(&told, "low", true), times(&told, "high", true));
    assert!(
        first.len() == 3 && first.iter().all(|&when| when < SOON),
        "{told:?}"
    );
    assert!(
        second.len() == 2 && second.iter().all(|&when| when < 100 * MS + SOON),
        "{told:?}"
    );
    assert_eq!(times(&told, "low", false).len(), 2, "{told:?}");
    let granted = told.iter().filter_map(|(_, _, reply)| {
        if let Reply::Granted { cpu } = reply {
            Some(cpu)
        } else {
            None
        }
    });
    let cpus: BTreeSet<_> = granted.take(3).collect();
    assert_eq!(cpus.len(), 3, "one CPU is left for plain tasks: {cpus:?}");
}

#[test]
fn within_a_level_all_have_equally_many() {
    let (told, _) = replies(
        &[
            LOW,
            Process {
                level: 3,
                cores: 4,
                ..HIGH
            },
        ],
        "",
        "1x5x1",
    );
    assert_eq!(
        (
            times(&told, "low", true).len(),
            times(&told, "high", true).len()
        ),
        (3, 2),
        "{told:?}"
    );
    assert_eq!(times(&told, "low", false).len(), 1, "{told:?}");
}

#[test]
fn a_core_that_is_not_given_back_is_taken_in_time() {
    let (told, outcome) = replies(
        &[
            Process {
                manner: Manner::Computes,
                ..LOW
            },
            HIGH,
        ],
        "",
        "1x4x1",
    );
    let granted = times(&told, "high", true);
    let in_time = |&when: &u64| (110 * MS..110 * MS + SOON).contains(&when);
    assert!(
        granted.len() == 2 && granted.iter().all(in_time),
        "{told:?}"
    );
    // The activation whose core was taken continues as a plain task: three compute on two CPUs and
    // the lent time of two more.
    let busy = outcome
        .stats
        .groups
        .iter()
        .find(|group| &*group.name == "low")
        .unwrap();
    assert!(busy.runtime > 1_400 * MS, "{} ns", busy.runtime);
}

#[test]
fn a_process_that_ends_gives_its_cores_back() {
    // An activation checks the time after each operation, so it exits although it computes.
    let short = Process {
        until: 50 * MS,
        manner: Manner::Computes,
        ..HIGH
    };
    let (told, _) = replies(
        &[
            LOW,
            Process {
                from: 0,
                level: 0,
                ..short
            },
        ],
        "",
        "1x3x1",
    );
    let again = times(&told, "low", true);
    assert!(
        again
            .iter()
            .filter(|&&when| (50 * MS..52 * MS).contains(&when))
            .count()
            == 2,
        "{told:?}"
    );
}

#[test]
fn plain_tasks_have_the_shared_cpu_and_what_is_not_used() {
    let computes = Process {
        manner: Manner::Computes,
        ..LOW
    };
    let (_, outcome) = replies(&[computes], "hogs:n=2", "1x4x1");
    let used = |name: &str| {
        outcome
            .stats
            .groups
            .iter()
            .find(|group| &*group.name == name)
            .unwrap()
            .runtime
    };
    assert!(
        used("hogs") > 490 * MS && used("low") > 1_450 * MS,
        "{} and {}",
        used("hogs"),
        used("low")
    );
    // Activations that sleep lend their CPUs.
    let (_, outcome) = replies(&[LOW], "hogs:n=4", "1x4x1");
    let hogs = outcome
        .stats
        .groups
        .iter()
        .find(|group| &*group.name == "hogs")
        .unwrap()
        .runtime;
    assert!(hogs > 1_980 * MS, "{hogs}");
}

/// Rule 6.
#[test]
fn a_task_bound_to_a_core_takes_turns_with_its_activation() {
    const EXAMPLE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/examples/arbiter.json"
    );
    let config = machine("1x4x1", arbiter(), 1_000);
    let outcome = run(&config, workload(EXAMPLE, &config));
    let used = |name: &str| {
        outcome
            .stats
            .groups
            .iter()
            .find(|group| &*group.name == name)
            .unwrap()
            .runtime
            / MS
    };
    assert!(
        (480..520).contains(&used("bound")) && (480..520).contains(&used("activation")),
        "{}",
        used("bound")
    );
}
