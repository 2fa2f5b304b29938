// SPDX-License-Identifier: GPL-2.0-only
//! The simulator reports a policy's fault as the kernel does (`tests/booted/src/containment.rs`).
//! `conforms.rs` compares the kind, the method and the file with the table of `policy/conformance`.

use std::sync::Arc;

use baton_abi::{BatonFault, BATON_FAULT_NAMES};
use baton_conformance::REFUSED;
use baton_sim::topology::CpuMask;
use baton_sim::world::{Cx, Happening, Op, Spawn, TaskRef, World};
use baton_sim::{Outcome, SimError};

use crate::{faulty, machine, text};

/// Two tasks that run and yield, and four that run and sleep. Two of these four are each bound to
/// one CPU. The affinity of the first task changes every ms.
pub fn world() -> World {
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

/// Runs `faulty` with this value of its option `fault`.
pub fn simulate(kind: &str) -> Result<Outcome, SimError> {
    let mut config = machine("1x2x1", faulty(), 2_000);
    config.policies[0].options = format!("fault={kind},after=100");
    config.stall = 100_000_000;
    baton_sim::run(&config, world(), None)
}

/// Checks that a report has every part that a report of the kernel has.
pub fn is_complete(fault: &BatonFault) {
    let (kind, task) = (fault.kind, text(&fault.comm));
    assert_eq!(fault.line != 0, fault.file[0] != 0, "{kind}");
    assert_eq!(text(&fault.policy), "faulty");
    assert!(
        fault.pid == 0 || ["yielder", "sleeper"].contains(&task.as_str()),
        "{kind}: {task}"
    );
    assert!(
        fault.nr_events > 0 && fault.now > 0 && !text(&fault.message).is_empty(),
        "{kind}"
    );
}

/// A forgotten task is reported at the end of the run, even if the stall limit has not expired by
/// then.
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
    let Err(SimError::Policy(name, why)) = simulate("index,in=new") else {
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
