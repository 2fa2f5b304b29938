// SPDX-License-Identifier: GPL-2.0-only
//! The kernel host passes the conformance tests of all hosts (`policy/conformance`), as the
//! simulator does (`hosts/sim/tests/behaviour/conforms.rs`).

use std::{thread, time::Duration};

use baton_conformance::{Step, BEGIN, BEHAVIOURS, LIFE, NAP, ROUNDS, TELL};
use rustix::{process, thread as task};

use crate::{
    tool::{baton, bind, check, is_well, run, status, Hog},
    Case,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("a task comes with the calls that it should", behave()),
        case!("fifo survives what tasks do", survives("fifo")),
        case!("wfq survives what tasks do", survives("wfq")),
        case!("fifo_c survives what tasks do", survives("fifo_c")),
        case!("template survives what tasks do", survives("template")),
        case!("cfs_like survives what tasks do", survives("cfs_like")),
        case!("eevdf_like survives what tasks do", survives("eevdf_like")),
        case!("central survives what tasks do", survives("central")),
        case!("shinjuku survives what tasks do", survives("shinjuku")),
        case!("locality survives what tasks do", survives("locality")),
        case!("arbiter survives what tasks do", survives("arbiter")),
        case!("echo survives what tasks do", survives("echo")),
    ]
}

/// Performs each behaviour with this program, under the policy `witness`.
fn behave() -> Result<(), String> {
    for (number, behaviour) in BEHAVIOURS.iter().enumerate() {
        baton(&["load", "witness"])?;
        // The observed task is alone on CPU 0, because `baton run` itself also belongs to the
        // policy. The exit code of the command is not checked, because the policy fails while it
        // runs.
        let act = ["--", "baton-booted", "--act", &number.to_string()];
        let alone = ["-c", "1", "baton", "run", "-p", "witness"];
        run("taskset", &[&alone[..], &act[..]].concat())?;
        let status = status()?;
        let fault = &status["faults"][0];
        let message = fault["message"].as_str().unwrap_or("");
        let calls = message.strip_prefix("calls: ").unwrap_or("-");
        check(
            fault["method"] == "task_prio_changed" && behaviour.fits(calls),
            || {
                format!(
                    "{}: expected \"{}\", and got {fault}",
                    behaviour.name, behaviour.calls
                )
            },
        )?;
        baton(&["unload", "--everything"])?;
    }
    Ok(())
}

/// Several threads perform [`LIFE`] beside hogs, which are killed while they wait.
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

/// After each step, a bound thread is on the CPU that it is bound to.
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

/// Performs the behaviour as the observed task.
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
