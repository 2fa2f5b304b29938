// SPDX-License-Identifier: GPL-2.0-only
//! The kernel host does what every host must (`policy/conformance`), as the simulator does (`hosts/sim/tests/behaviour/conforms.rs`).

use std::{thread, time::Duration};

use baton_conformance::{Step, BEGIN, BEHAVIOURS, NAP, TELL};
use rustix::{process, thread as task};

use crate::{
    tool::{baton, check, run, status},
    Case,
};

pub fn cases() -> Vec<Case> {
    vec![case!("a task comes with the calls that it should", behave())]
}

/// Each behaviour, by this program under the witness.
fn behave() -> Result<(), String> {
    for (number, behaviour) in BEHAVIOURS.iter().enumerate() {
        baton(&["load", "witness"])?;
        // Its end is not looked at: the policy fails while it runs.
        run("baton", &["run", "-p", "witness", "--", "baton-booted", "--act", &number.to_string()])?;
        let status = status()?;
        let fault = &status["faults"][0];
        let message = fault["message"].as_str().unwrap_or("");
        let calls = message.strip_prefix("calls: ").unwrap_or("-");
        check(fault["method"] == "task_prio_changed" && behaviour.fits(calls), || {
            format!("{}: expected \"{}\", and got {fault}", behaviour.name, behaviour.calls)
        })?;
        baton(&["unload", "--everything"])?;
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
        Step::Nice(nice) => process::setpriority_process(None, nice).map_err(|e| format!("nice {nice}: {e}"))?,
        Step::Bind(cpu) => bind(&[cpu])?,
        Step::Unbind => bind(&[0, 1])?,
        Step::Thread => thread::spawn(nap).join().map_err(|_| "the thread panicked")?,
    }
    Ok(())
}

fn bind(cpus: &[usize]) -> Result<(), String> {
    let mut set = task::CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    task::sched_setaffinity(None, &set).map_err(|e| format!("CPUs {cpus:?}: {e}"))
}
