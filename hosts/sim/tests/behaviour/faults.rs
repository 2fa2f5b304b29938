// SPDX-License-Identifier: GPL-2.0-only
//! A policy's fault is what it would be in the kernel (`tests/booted/src/containment.rs`): its kind, the method, the task, file and line.

use std::rc::Rc;

use baton_abi::{BatonFault, BATON_FAULT_NAMES, BATON_METHOD_NAMES};
use baton_sim::topology::CpuMask;
use baton_sim::world::{Cx, Happening, Op, Spawn, TaskRef, World};
use baton_sim::{Outcome, SimError};

use crate::{faulty, machine};

/// Tasks that always run and yield, tasks that wake, of which two have a CPU each, and one whose CPUs change.
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
        world.task(Spawn { affinity: (number < 2).then(|| Rc::new(CpuMask::of([number]))), ..sleeper });
    }
    for at in 0..1_000 {
        let cpus = CpuMask::of([at as usize % 2]);
        world.happens(at * 1_000_000, Happening::Affinity(TaskRef(0), Some(Rc::new(cpus))));
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
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// In a line: kind, methods that it may be in, whose task, file, message.
fn check(kind: &str, expected: (&str, &[&str], &str, &str)) {
    let outcome = simulate(kind).unwrap();
    let [fault]: [BatonFault; 1] =
        outcome.faults.try_into().unwrap_or_else(|faults: Vec<_>| panic!("{kind}: {} faults", faults.len()));
    let (name, methods, file, message) = expected;
    assert_eq!(BATON_FAULT_NAMES[fault.kind as usize], name, "{kind}");
    assert!(
        methods.contains(&BATON_METHOD_NAMES[fault.method as usize]),
        "{kind}: in {}",
        BATON_METHOD_NAMES[fault.method as usize]
    );
    assert!(
        text(&fault.file).ends_with(file) && (fault.line != 0) == !file.is_empty(),
        "{kind}: {}",
        text(&fault.file)
    );
    assert!(text(&fault.message).contains(message), "{kind}: {}", text(&fault.message));
    assert_eq!(text(&fault.policy), "faulty");
    assert!(
        fault.pid == 0 || ["yielder", "sleeper"].contains(&text(&fault.comm).as_str()),
        "{kind}: {}",
        text(&fault.comm)
    );
    assert!(fault.nr_events > 0 && fault.now > 0, "{kind}");
}

const ENQUEUES: &[&str] = &["task_new", "task_wakeup", "task_preempt", "task_yield", "task_restored"];

#[test]
fn what_a_policy_does_wrong_is_named() {
    check("index", ("panic", ENQUEUES, "wrong.rs", "index out of bounds"));
    check("overflow", ("panic", ENQUEUES, "wrong.rs", "overflow"));
    check("unwrap", ("panic", ENQUEUES, "wrong.rs", "None"));
    check("select", ("panic", &["select_task_rq"], "wrong.rs", "index out of bounds"));
    check("timer", ("panic", &["timer"], "wrong.rs", "index out of bounds"));
    check("deadlock", ("deadlock", &["pick_next_task"], "", "held by this CPU already"));
    check("dropped", ("lost task", ENQUEUES, "", "would never have run again"));
    check("stall", ("stall", &["-"], "", "longer than the stall limit"));
    check("loop", ("refusal loop", &["pick_next_task"], "", "64 answers in a row were refused"));
}

#[test]
fn a_refusal_is_no_fault() {
    for kind in ["stale", "not-allowed", "select-cpu"] {
        let outcome = simulate(kind).unwrap();
        assert!(outcome.faults.is_empty() && outcome.refusals > 0, "{kind}: {} refusals", outcome.refusals);
    }
}

#[test]
fn a_policy_that_cannot_be_made() {
    let Err(SimError::Policy(name, why)) = simulate("create") else { panic!("it was made") };
    assert_eq!(name, "faulty");
    assert!(why.contains("index out of bounds") && why.contains("wrong.rs:"), "{why}");
    let Err(SimError::Policy(_, why)) = simulate("nonsense") else { panic!("it was made") };
    assert!(why.contains("fault is not one of those"), "{why}");
}
