// SPDX-License-Identifier: GPL-2.0-only
//! Threads that are due soon after each wakeup, beside hogs that fill all CPUs: under the scheduler
//! `edf` for agents, and the policy `edf` in Baton's language.

use std::{
    fmt::Debug,
    thread::sleep,
    time::{Duration, Instant},
};

use baton_agents::edf as agent;
use baton_hints::{Message, Queue};

use crate::{
    agents::{ends_well, number, serves, BOOTED},
    hints::{this_thread, A_WHILE},
    several::run_all,
    tool::{baton, check, is_well, Hog},
    Case,
};

pub fn of_agents() -> Vec<Case> {
    vec![case!("agent: edf, by deadlines from hints", in_agent())]
}

pub fn of_hints() -> Vec<Case> {
    vec![case!("hints: edf, by deadlines", in_kernel())]
}

fn in_agent() -> Result<(), String> {
    let agent = serves("edf")?;
    // Four hogs have turns of 20 ms.
    runs_more_often("--due-in-agent", 60)?;
    ends_well("edf", agent)
}

fn in_kernel() -> Result<(), String> {
    baton(&["load", "edf", "--all"])?;
    // They have turns of 5 ms.
    runs_more_often("--due", 90)?;
    is_well("edf")
}

/// A program that naps runs more often if it is due soon. Without a deadline, it runs less often
/// than `most` times.
fn runs_more_often(due: &str, most: u64) -> Result<(), String> {
    let hogs = (0..4).map(|_| Hog::of("edf", None));
    let hogs: Vec<Hog> = hogs.collect::<Result<_, _>>()?;
    // Other programs can keep an agent from its CPU for some milliseconds, so the longest wait says
    // little.
    let runs = |option| number(&["run", "-p", "edf", "--", BOOTED, option, "500"]);
    let (without, with) = (runs("--naps")?, runs(due)?);
    check(without < most && with > 3 * without.max(20), || {
        format!("in 500 ms it ran {with} times with a deadline, and {without} times without")
    })?;
    run_all(&hogs)
}

const WITHIN_NS: u64 = 1_000_000;

/// [`naps`] as a thread that is due within 1 ms, under the scheduler for agents.
pub fn due_in_agent(ms: u64) -> Result<(), String> {
    let hint = agent::Hint::Within {
        thread: this_thread(),
        ns: WITHIN_NS,
    };
    says(&[hint], agent::Reply::Noted { ns: WITHIN_NS })?;
    naps(ms)
}

/// The same under the policy. It answers only what is out of range: that hint comes behind the
/// other, which it does not undo.
pub fn due(ms: u64) -> Result<(), String> {
    let hint = |within| edf::Hint::Deadline {
        t: this_thread(),
        within,
    };
    let hints = [hint(WITHIN_NS as i64), hint(-1)];
    says(&hints, edf::Reply::OutOfRange { tag: 1 })?;
    naps(ms)
}

/// Sends hints, and waits for this reply.
fn says<H: Message, R: Message + Debug + PartialEq>(
    hints: &[H],
    expected: R,
) -> Result<(), String> {
    let mut queue = Queue::<H, R>::open("edf", 16).map_err(|e| e.to_string())?;
    for hint in hints {
        queue.send(hint).map_err(|e| e.to_string())?;
    }
    let reply = queue.wait(A_WHILE).map_err(|e| e.to_string())?;
    check(reply == Some(expected), || {
        format!("the reply is {reply:?}")
    })
}

/// Sleeps for 1 ms again and again, and prints how often it could in this time.
pub fn naps(ms: u64) -> Result<(), String> {
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < Duration::from_millis(ms) {
        sleep(Duration::from_millis(1));
        count += 1;
    }
    println!("{count}");
    Ok(())
}
