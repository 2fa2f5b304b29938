// SPDX-License-Identifier: GPL-2.0-only
//! The simulator behaves as every host must (`policy/conformance`), like the kernel
//! (`tests/booted/src/conformance.rs`).

use std::sync::{Arc, Mutex};

use baton_abi::{BATON_FAULT_NAMES, BATON_METHOD_NAMES};
use baton_conformance::{
    behaves, fails, lives, Host, Needs, Report, Step, BEGIN, LIFE, NAP, ROUNDS, TELL,
};
use baton_native::Policy;
use baton_sim::topology::CpuMask;
use baton_sim::world::{Cx, Object, Op, Spawn, World};

use crate::life::{hog, watched};
use crate::{faults, find, machine, text, witness, POLICIES};

/// The operations of a step. A thread increments `ended` when it ends.
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
                    2 => Op::Up {
                        to: ended,
                        sync: false,
                    },
                    _ => Op::Exit,
                }
            });
            vec![Op::Fork(Box::new(thread)), Op::Down(ended)]
        }
    }
}

/// The simulator, as a host to be tested.
struct Simulator;

impl Host for Simulator {
    fn perform(&mut self, steps: &'static [Step]) -> Result<String, String> {
        let mut world = World::new();
        let ended = world.semaphore(0);
        let steps = [
            &[Step::Bind(0), Step::Nice(BEGIN)],
            steps,
            &[Step::Nice(TELL)],
        ]
        .concat();
        let mut all = steps
            .into_iter()
            .flat_map(move |step| operations(step, ended))
            .chain([Op::Exit]);
        world.task(Spawn::new("subject", move |_: &mut Cx<'_>| {
            all.next().unwrap_or(Op::Exit)
        }));
        let outcome = baton_sim::run(&machine("1x2x1", witness(), 1_000), world, None).unwrap();
        let fault = outcome
            .faults
            .first()
            .ok_or("the witness does not report")?;
        Ok(text(&fault.message))
    }

    fn provoke(&mut self, option: &'static str) -> Result<Option<Report>, String> {
        let outcome = faults::simulate(option).map_err(|e| format!("{option}: {e:?}"))?;
        if let [_, _, ..] = &outcome.faults[..] {
            return Err(format!("{option}: {} faults", outcome.faults.len()));
        }
        Ok(outcome.faults.first().map(|fault| {
            faults::is_complete(fault);
            Report {
                kind: BATON_FAULT_NAMES[fault.kind as usize].into(),
                method: BATON_METHOD_NAMES[fault.method as usize].into(),
                file: text(&fault.file),
                task: fault.pid.into(),
            }
        }))
    }

    fn live(&mut self, policy: &str) -> Result<(), String> {
        survives((find(policy).policy)());
        Ok(())
    }

    /// Calls are made one at a time. A policy that wants too much memory is tested as a process of
    /// its own (`cli/tests/sim.rs`).
    fn has(&self, capability: Needs) -> bool {
        matches!(capability, Needs::BoundedStack | Needs::Watch)
    }
}

#[test]
fn a_task_comes_with_the_calls_that_it_should() {
    behaves(&mut Simulator).unwrap();
}

#[test]
fn what_a_policy_does_wrong_is_named() {
    fails(&mut Simulator).unwrap();
}

#[test]
fn every_policy_survives_what_tasks_do() {
    let sound = POLICIES.iter().filter(|linked| linked.sound);
    lives(&mut Simulator, sound.map(|linked| linked.name)).unwrap();
}

/// The number of a task, a time in ns, and the CPU to which it is bound from then on, if any.
type Bound = Arc<Mutex<Vec<(usize, u64, Option<usize>)>>>;

/// A task that performs [`LIFE`], and records the CPU to which it is bound.
fn subject(number: usize, ended: Object, bound: Bound) -> Spawn {
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        for &step in LIFE {
            all.extend(
                operations(step, ended)
                    .into_iter()
                    .map(|operation| (Some(step), operation)),
            );
        }
        all.push((None, Op::Done(1)));
    }
    let mut all = all.into_iter();
    let mut before = None;
    Spawn::new("subject", move |cx: &mut Cx<'_>| {
        if let Some(Step::Bind(cpu)) = before {
            bound.lock().unwrap().push((number, cx.now, Some(cpu)));
        }
        let (step, operation) = all.next().unwrap_or((None, Op::Exit));
        if matches!(step, Some(Step::Bind(_) | Step::Unbind)) {
            bound.lock().unwrap().push((number, cx.now, None));
        }
        before = step;
        operation
    })
}

/// All tasks reach the end, and a bound task runs on its CPU.
fn survives(policy: Policy) {
    const SUBJECTS: usize = 4;
    let mut world = World::new();
    let bound = Bound::default();
    let subjects: Vec<_> = (0..SUBJECTS)
        .map(|number| {
            let ended = world.semaphore(0);
            world.task(subject(number, ended, bound.clone()))
        })
        .collect();
    (0..2).for_each(|_| _ = world.task(hog("hog")));
    let (outcome, runs) = watched(&machine("1x2x1", policy, 60_000), world);
    assert_eq!(
        outcome.stats.groups[0].done,
        (SUBJECTS * ROUNDS) as u64,
        "{}",
        policy.name()
    );
    let bound = bound.lock().unwrap();
    let mut looked = 0;
    for (now, cpu, task) in runs {
        let Some(number) = subjects.iter().position(|&subject| subject == task) else {
            continue;
        };
        // Records of the same time may be from before or after the switch, so such ambiguous
        // switches are skipped.
        let of_it = || bound.iter().filter(|&&(of, ..)| of == number);
        let last = of_it().rfind(|&&(_, at, _)| at < now);
        if let Some((.., Some(expected))) = last.filter(|_| of_it().all(|&(_, at, _)| at != now)) {
            assert_eq!(cpu as usize, *expected, "{} at {now}", policy.name());
            looked += 1;
        }
    }
    assert!(looked >= SUBJECTS * ROUNDS, "{}: {looked}", policy.name());
}

/// Each marked place in the source has a row in docs/simulator.md, and there are no other rows.
#[test]
fn deviations_are_listed() {
    fn marked(dir: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                marked(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                let marks = text
                    .lines()
                    .filter(|line| line.contains("Deviation: "))
                    .count();
                found.extend((0..marks).map(|_| path.display().to_string()));
            }
        }
    }
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let source = format!("{root}/src/");
    let mut found = Vec::new();
    marked(std::path::Path::new(&source), &mut found);
    let mut found: Vec<&str> = found
        .iter()
        .map(|path| path.trim_start_matches(&source))
        .collect();
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
