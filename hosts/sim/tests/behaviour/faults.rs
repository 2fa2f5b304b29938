// SPDX-License-Identifier: GPL-2.0-only
//! A policy's fault is reported as in the kernel (`tests/booted/src/containment.rs`): its kind, the
//! method, the task, file and line.

use std::sync::Arc;

use baton_abi::{BATON_FAULT_NAMES, BATON_METHOD_NAMES};
use baton_conformance::{Fault, Needs, FAULTS, REFUSED};
use baton_sim::topology::CpuMask;
use baton_sim::world::{Cx, Happening, Op, Spawn, TaskRef, World};
use baton_sim::{Outcome, SimError};

use crate::{faulty, machine};

/// Two tasks that run and yield, and four that run and sleep, two of them bound to one CPU each.
/// The affinity of the first task changes every ms.
fn world() -> World {
    let mut world = World::new();
    for _ in 0..2 {
        let mut works = false;
        world.task(Spawn::new("yielder", move |_: &mut Cx<'_>| {
            works = !works;
            if works {
                Op::Run(20_000)
            } else {
                Op::Yield
            }
        }));
    }
    for number in 0..4 {
        let mut works = false;
        let sleeper = Spawn::new("sleeper", move |_: &mut Cx<'_>| {
            works = !works;
            if works {
                Op::Run(20_000)
            } else {
                Op::Sleep(50_000)
            }
        });
        world.task(Spawn {
            affinity: (number < 2).then(|| Arc::new(CpuMask::of([number]))),
            ..sleeper
        });
    }
    for at in 0..1_000 {
        let cpus = CpuMask::of([at as usize % 2]);
        world.happens(
            at * 1_000_000,
            Happening::Affinity(TaskRef(0), Some(Arc::new(cpus))),
        );
    }
    world
}

fn simulate(kind: &str) -> Result<Outcome, SimError> {
    let mut config = machine("1x2x1", faulty(), 2_000);
    config.policies[0].options = format!("fault={kind},after=100");
    config.stall = 100_000_000;
    baton_sim::run(&config, world(), None)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Checks that the report of a fault is that of the table.
fn check(expected: &Fault) {
    let kind = expected.option;
    let faults = simulate(kind).unwrap().faults;
    let [fault] = &faults[..] else {
        panic!("{kind}: {} faults", faults.len())
    };
    assert_eq!(
        BATON_FAULT_NAMES[fault.kind as usize], expected.kind,
        "{kind}"
    );
    assert_eq!(
        BATON_METHOD_NAMES[fault.method as usize], expected.method,
        "{kind}"
    );
    assert!(
        text(&fault.file).ends_with(expected.file.unwrap_or("")),
        "{kind}: {}",
        text(&fault.file)
    );
    assert_eq!(fault.line != 0, expected.file.is_some(), "{kind}");
    assert_eq!(text(&fault.policy), "faulty");
    let task = text(&fault.comm);
    assert!(
        fault.pid == 0 || ["yielder", "sleeper"].contains(&task.as_str()),
        "{kind}: {task}"
    );
    assert!(
        fault.nr_events > 0 && fault.now > 0 && !text(&fault.message).is_empty(),
        "{kind}"
    );
}

/// Faults that need a memory limit are tested in `cli/tests/sim.rs`. Those that need parallel calls
/// cannot occur in the simulator.
#[test]
fn what_a_policy_does_wrong_is_named() {
    FAULTS
        .iter()
        .filter(|fault| fault.needs.is_none_or(|needs| needs == Needs::BoundedStack))
        .for_each(check);
}

/// The run may end long before the watch would miss the task.
#[test]
fn a_forgotten_task_is_named_at_the_end() {
    let run = |stall: u64| {
        let mut config = machine("1x2x1", faulty(), 2_000);
        config.policies[0].options = "fault=forgotten,after=100".into();
        config.stall = stall;
        baton_sim::run(&config, world(), None).unwrap()
    };
    let [late, soon] = [run(10_000_000_000), run(100_000_000)];
    for outcome in [&late, &soon] {
        let [fault] = &outcome.faults[..] else {
            panic!("{} faults", outcome.faults.len())
        };
        assert_eq!(BATON_FAULT_NAMES[fault.kind as usize], "lost task");
        assert_eq!((fault.method, text(&fault.comm).as_str()), (0, "yielder"));
        assert!(text(&fault.message).contains("forgotten"));
    }
    assert!(late.faults[0].now > 1_900_000_000 && soon.faults[0].now < 500_000_000);
}

/// The remains of an abandoned call do not disturb later runs on the same thread.
#[test]
fn the_next_run_is_as_if_nothing_had_been() {
    let sound = || {
        let config = machine("1x2x1", faulty(), 100);
        baton_sim::run(&config, world(), None).unwrap().stats.hash
    };
    let before = sound();
    for _ in 0..3 {
        assert_eq!(simulate("recursion").unwrap().faults.len(), 1);
        assert_eq!(sound(), before);
    }
}

#[test]
fn a_refusal_is_no_fault() {
    for kind in REFUSED {
        let outcome = simulate(kind).unwrap();
        assert!(
            outcome.faults.is_empty() && outcome.refusals > 0,
            "{kind}: {} refusals",
            outcome.refusals
        );
    }
}

#[test]
fn a_policy_that_cannot_be_made() {
    let Err(SimError::Policy(name, why)) = simulate("create") else {
        panic!("it was made")
    };
    assert_eq!(name, "faulty");
    assert!(
        why.contains("index out of bounds") && why.contains("wrong.rs:"),
        "{why}"
    );
    let Err(SimError::Policy(_, why)) = simulate("nonsense") else {
        panic!("it was made")
    };
    assert!(why.contains("there is no fault nonsense"), "{why}");
}
