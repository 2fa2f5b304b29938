// SPDX-License-Identifier: GPL-2.0-only
//! The simulator does what every host must (`policy/conformance`), as the kernel does (`tests/booted/src/conformance.rs`).

use std::sync::Arc;

use baton_conformance::{Behaviour, Step, BEGIN, BEHAVIOURS, NAP, TELL};
use baton_sim::topology::CpuMask;
use baton_sim::world::{Cx, Object, Op, Spawn, World};

use crate::{machine, witness};

/// The operations of a step. A thread gives `ended` one when it ends.
fn operations(step: Step, ended: Object) -> Vec<Op> {
    match step {
        Step::Sleep => vec![Op::Sleep(NAP)],
        Step::Yield => vec![Op::Yield],
        Step::Nice(nice) => vec![Op::Nice(nice)],
        Step::Bind(cpu) => vec![Op::Affinity(Some(Arc::new(CpuMask::of([cpu]))))],
        Step::Unbind => vec![Op::Affinity(None)],
        Step::Thread => {
            let mut step = 0;
            let thread = Spawn::new("thread", move |_: &mut Cx<'_>| {
                step += 1;
                match step {
                    1 => Op::Sleep(NAP),
                    2 => Op::Up { to: ended, sync: false },
                    _ => Op::Exit,
                }
            });
            vec![Op::Fork(Box::new(thread)), Op::Down(ended)]
        }
    }
}

/// The calls that the policy tells of.
fn calls(behaviour: &Behaviour) -> String {
    let mut world = World::new();
    let ended = world.semaphore(0);
    let steps = [&[Step::Bind(0), Step::Nice(BEGIN)], behaviour.steps, &[Step::Nice(TELL)]].concat();
    let mut all = steps.into_iter().flat_map(move |step| operations(step, ended)).chain([Op::Exit]);
    world.task(Spawn::new("subject", move |_: &mut Cx<'_>| all.next().unwrap_or(Op::Exit)));
    let outcome = baton_sim::run(&machine("1x2x1", witness(), 1_000), world, None).unwrap();
    let message = &outcome.faults.first().expect("the witness tells").message;
    let end = message.iter().position(|&byte| byte == 0).unwrap_or(message.len());
    String::from_utf8_lossy(&message[..end]).trim_start_matches("calls: ").to_owned()
}

#[test]
fn a_task_comes_with_the_calls_that_it_should() {
    for behaviour in BEHAVIOURS {
        assert_eq!(calls(behaviour), behaviour.calls, "{}", behaviour.name);
    }
}

/// Each place that is marked has its row in docs/simulator.md, and no other has.
#[test]
fn deviations_are_listed() {
    fn marked(dir: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                marked(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                let marks = text.lines().filter(|line| line.contains("Deviation: ")).count();
                found.extend((0..marks).map(|_| path.display().to_string()));
            }
        }
    }
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let source = format!("{root}/src/");
    let mut found = Vec::new();
    marked(std::path::Path::new(&source), &mut found);
    let mut found: Vec<&str> = found.iter().map(|path| path.trim_start_matches(&source)).collect();
    let docs = std::fs::read_to_string(format!("{root}/../../docs/simulator.md")).unwrap();
    let mut listed: Vec<&str> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('`').next())
        .filter(|place| place.ends_with(".rs"))
        .collect();
    found.sort_unstable();
    listed.sort_unstable();
    assert_eq!(found, listed);
}
