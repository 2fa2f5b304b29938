// SPDX-License-Identifier: GPL-2.0-only
//! Rings of messages: an agent that does not read, and messages that nobody is told of.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    sync::Mutex,
    thread::{self, sleep},
    time::{Duration, Instant},
};

use baton_abi::{BatonToken, BATON_EV_IDLE};
use baton_agent::{serve, Agent, Inbox, PerCpu, Turn, Wishes};
use rustix::process::{setpriority_process, Pid};

use crate::{
    agents::{begin, enclave, Running},
    tool::{baton, bind, check, is_well},
    Case,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(
            "agent: messages that find no room, global",
            overflow("--global")
        ),
        case!(
            "agent: messages that find no room, per-cpu",
            overflow("--per-cpu")
        ),
        case!("agent: messages that nobody is told of", unannounced()),
    ]
}

/// A policy whose rings overflow begins a new session, and no task is lost.
fn overflow(mode: &str) -> Result<(), String> {
    baton(&["enclave", "create", "narrow", "--entries", "64"])?;
    let agent = Running::start("narrow", &[mode, "fifo"])?;
    for round in 1..=3 {
        let sessions = attached("narrow")?;
        let mut load = begin(&["run", "-p", "narrow", "--", "baton-booted", "--nap", "3000"])?;
        let output = load.stdout.take().ok_or("the load has no output")?;
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        read.map_err(|e| format!("the load's output: {e}"))?;
        check(line == NAPPING, || format!("the load said {line:?}"))?;
        // While the agent does not read, each thread that wakes up writes a message.
        agent.signal("-STOP")?;
        sleep(Duration::from_millis(400));
        agent.signal("-CONT")?;
        let ended = load.wait_with_output().map_err(|e| e.to_string())?;
        check(ended.status.success(), || {
            let errors = String::from_utf8_lossy(&ended.stderr);
            format!("the load ended with {}: {errors}", ended.status)
        })?;
        let found = attached("narrow")?;
        check(found > sessions, || {
            format!("round {round}: no message was lost, {found} sessions as before")
        })?;
    }
    is_well("narrow")?;
    drop(agent);
    baton(&["enclave", "destroy", "narrow"]).map(drop)
}

/// How often an agent has begun anew in an enclave.
fn attached(name: &str) -> Result<u64, String> {
    let found = enclave(name)?;
    let sessions = found["attached"].as_u64();
    sessions.ok_or_else(|| format!("no number of sessions: {found}"))
}

/// What [`nap`] prints when its threads are there.
const NAPPING: &str = "napping\n";

/// A program with more threads than a CPU's ring has entries, on each of two CPUs. Each sleeps for
/// 100 ms at a time, and all end after so long.
pub fn nap(ms: u64) -> Result<(), String> {
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..300 {
            scope.spawn(|| {
                while begun.elapsed() < Duration::from_millis(ms) {
                    sleep(Duration::from_millis(100));
                }
            });
        }
        print!("{NAPPING}");
    });
    Ok(())
}

/// Few messages are announced to an agent. Those of a CPU that idles and wakes up for tasks that
/// are not the enclave's are not, and yet the agent reads them before its ring is full: also when
/// the message that half fills the ring is the last one before the CPU goes idle for long.
fn unannounced() -> Result<(), String> {
    let narrow = ["--cpus", "1", "--entries", "64", "--limit", "200ms"];
    baton(&[&["enclave", "create", "few"], &narrow[..]].concat())?;
    let wishes = Wishes {
        events: BATON_EV_IDLE,
        ..Wishes::default()
    };
    let agent = Agent::attach("few", &wishes).map_err(|e| e.to_string())?;
    let agents = Simple {
        state: Mutex::new((Inbox::new(&agent), Vec::new())),
        agent,
    };
    thread::scope(|scope| {
        let served = scope.spawn(|| serve(&agents));
        let done = scope.spawn(wake_one_cpu).join();
        agents.end();
        let served = served.join();
        done.unwrap_or_else(|_| Err("the test panicked".into()))?;
        let served = served.map_err(|_| "an agent panicked")?;
        served.map_err(|e| format!("the agents: {e}"))
    })?;
    drop(agents);
    baton(&["enclave", "destroy", "few"]).map(drop)
}

/// Agents that run tasks first come, first served.
struct Simple {
    agent: Agent,
    /// What was read, and the tasks that wait.
    state: Mutex<(Inbox, Vec<BatonToken>)>,
}

impl PerCpu for Simple {
    type Local = ();

    fn agent(&self) -> &Agent {
        &self.agent
    }

    fn is_over(&self) -> bool {
        false
    }

    fn begin(&self, _: usize) {}

    fn turn(&self, cpu: usize, (): &mut ()) -> Option<Turn> {
        let mut state = self.state.lock().expect("no agent panics");
        let (inbox, tokens) = &mut *state;
        while inbox.read(&self.agent, |message, _| {
            tokens.extend(Some(message.token).filter(|token| *token != 0));
        }) {}
        let fits = |token: &BatonToken| self.agent.may_run(*token as u32 - 1, cpu);
        if let Some(place) = tokens.iter().position(fits) {
            if self.agent.commit(cpu, tokens[place], 0) {
                tokens.remove(place);
            }
        }
        Some(Turn::default())
    }

    fn lost(&self, _: usize, _: Option<BatonToken>) {}

    fn end(&self) {
        // Fails only if it has ended already.
        let _ = self.agent.end();
    }
}

/// In a thread, which is bound to a CPU.
fn wake_one_cpu() -> Result<(), String> {
    bind(&[1])?;
    let mut task = Command::new("baton")
        .args(["run", "-p", "few", "--", "sh", "-c", "echo $$; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cat: {e}"))?;
    let (input, output) = (task.stdin.take(), task.stdout.take());
    let (mut input, output) = input.zip(output).ok_or("cat has no pipes")?;
    let mut output = BufReader::new(output);
    let mut line = String::new();
    let read = output.read_line(&mut line);
    read.map_err(|e| format!("cat's number: {e}"))?;
    let pid = line.trim().parse().ok().and_then(Pid::from_raw);
    for round in 0..24 {
        let wakes = 8 + round / 2;
        // The task runs, and sleeps. The agent has given way to it, and stays runnable.
        let mut byte = [0];
        let turn = input
            .write_all(&byte)
            .and_then(|()| output.read_exact(&mut byte));
        turn.map_err(|e| format!("cat, before {wakes} wakeups: {e}"))?;
        for wake in 0..wakes {
            sleep(Duration::from_millis(1));
            // One more message that nobody is told of: the ring may be half full as the CPU wakes
            // up, or as it goes idle.
            if wake == 0 && round % 2 == 0 {
                let nice = setpriority_process(pid, wakes % 2);
                nice.map_err(|e| format!("cat's nice value: {e}"))?;
            }
        }
        // Longer than an agent may leave messages unread.
        sleep(Duration::from_millis(400));
        is_well("few")?;
    }
    drop(input);
    let ended = task.wait().map_err(|e| format!("cat: {e}"))?;
    check(ended.success(), || format!("cat ended with {ended}"))
}
