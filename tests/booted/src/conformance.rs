// SPDX-License-Identifier: GPL-2.0-only
//! The kernel host does what every host must (`policy/conformance`), as the simulator does
//! (`hosts/sim/tests/behaviour/conforms.rs`).

use std::{thread, time::Duration};

use baton_conformance::{
    behaves, Host, Needs, Report, Step, BEGIN, BEHAVIOURS, LIFE, NAP, ROUNDS, TELL,
};
use rustix::{process, thread as task};
use serde_json::Value;

use crate::{
    containment, each_policy,
    tool::{baton, bind, check, is_well, run, status, Hog},
    Case,
};

pub fn cases() -> Vec<Case> {
    let calls = case!(
        "a task comes with the calls that it should",
        behaves(&mut Kernel::idle())
    );
    let live = each_policy("survives what tasks do", |policy| {
        Kernel::idle().live(policy)
    });
    [calls].into_iter().chain(live).collect()
}

/// The kernel of this guest, as a host to be tested. The tasks that make `faulty` fail are those of
/// `load`.
pub struct Kernel {
    pub load: fn() -> Result<(), String>,
}

impl Kernel {
    fn idle() -> Self {
        Self { load: || Ok(()) }
    }
}

impl Host for Kernel {
    fn perform(&mut self, steps: &'static [Step]) -> Result<String, String> {
        let number = BEHAVIOURS
            .iter()
            .position(|behaviour| behaviour.steps == steps)
            .ok_or("the steps are not those of a behaviour")?;
        baton(&["load", "witness"])?;
        // The task that is looked at is alone on CPU 0, because `baton run` is of the policy, too.
        // The policy fails while the command runs, so the end of that is not looked at.
        let act = ["--", "baton-booted", "--act", &number.to_string()];
        let alone = ["-c", "1", "baton", "run", "-p", "witness"];
        run("taskset", &[&alone[..], &act[..]].concat())?;
        let status = status()?;
        let fault = &status["faults"][0];
        check(fault["method"] == "task_prio_changed", || {
            format!("the witness does not report: {fault}")
        })?;
        baton(&["unload", "--everything"])?;
        Ok(fault["message"].as_str().unwrap_or("").into())
    }

    fn provoke(&mut self, option: &'static str) -> Result<Option<Report>, String> {
        containment::load(option)?;
        (self.load)()?;
        let status = status()?;
        let fault = &status["faults"][0];
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        // Without the line.
        let place = fault["place"].as_str().unwrap_or("");
        let file = place.rsplit_once(':').map_or(place, |(file, _)| file);
        Ok((!fault.is_null()).then(|| Report {
            kind: text(&fault["kind"]),
            method: text(&fault["method"]),
            file: file.into(),
            task: fault["task"]["pid"].as_u64().unwrap_or(0),
        }))
    }

    fn live(&mut self, policy: &str) -> Result<(), String> {
        survives(policy)
    }

    fn has(&self, _capability: Needs) -> bool {
        true
    }
}

/// Several threads do what [`LIFE`] says beside hogs, which are killed where they wait.
fn survives(policy: &str) -> Result<(), String> {
    const THREADS: usize = 4;
    baton(&["load", policy, "--all"])?;
    let hogs = (0..3)
        .map(|_| Hog::plain())
        .collect::<Result<Vec<_>, _>>()?;
    let threads: Vec<_> = (0..THREADS).map(|_| thread::spawn(live)).collect();
    threads
        .into_iter()
        .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)?;
    drop(hogs);
    is_well(policy)
}

/// Who is bound finds itself where it is bound to, after each step.
fn live() -> Result<(), String> {
    let mut bound = None;
    for &one in std::iter::repeat_n(LIFE, ROUNDS).flatten() {
        step(one)?;
        match one {
            Step::Bind(cpu) => bound = Some(cpu),
            Step::Unbind => bound = None,
            _ => {}
        }
        let cpu = task::sched_getcpu();
        check(bound.is_none_or(|bound| bound == cpu), || {
            format!("bound to CPU {bound:?}, on {cpu} after {one:?}")
        })?;
    }
    Ok(())
}

/// Does what the behaviour says, in the place of the task that is looked at.
pub fn act(number: usize) -> Result<(), String> {
    let behaviour = BEHAVIOURS.get(number).ok_or("there is no such behaviour")?;
    step(Step::Bind(0))?;
    step(Step::Nice(BEGIN))?;
    behaviour.steps.iter().try_for_each(|&one| step(one))?;
    step(Step::Nice(TELL))
}

fn step(step: Step) -> Result<(), String> {
    let nap = || thread::sleep(Duration::from_nanos(NAP));
    match step {
        Step::Sleep => nap(),
        Step::Yield => task::sched_yield(),
        Step::Nice(nice) => {
            process::setpriority_process(None, nice).map_err(|e| format!("nice {nice}: {e}"))?
        }
        Step::Bind(cpu) => bind(&[cpu])?,
        Step::Unbind => bind(&[0, 1])?,
        Step::Thread => thread::spawn(nap)
            .join()
            .map_err(|_| "the thread panicked")?,
    }
    Ok(())
}
