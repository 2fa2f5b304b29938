// SPDX-License-Identifier: GPL-2.0-only
//! The cost of commits: table 3 of the ghOSt paper. Threads of this process are the tasks of an
//! enclave, each bound to a CPU of its own, and its main thread is the agent.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use baton_abi::{BatonAgentCommit, BatonCommit, BatonMethod};
use baton_agent::{Agent, Wishes};
use rustix::thread::{gettid, sched_setaffinity, CpuSet};

use crate::report::{entries, Series};
use crate::table::Measured;
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::{tasks, unload};

/// CPUs of a group, as in the paper, beside the agent's own.
pub const GROUP: u32 = 10;
/// The largest cost of a group's commit, relative to that of one.
const MAX_RATIO: f64 = 4.0;
const ENCLAVE: &str = "commits";
const ROUNDS: usize = 50;
/// How long the tasks may take to wake up, and to sleep again.
const PATIENCE: Duration = Duration::from_millis(50);

/// A thread that sleeps until it is told to run for a moment.
struct Sleeper {
    wake: Sender<()>,
}

impl Sleeper {
    /// Starts the thread on a CPU. It is a task of the enclave, and needs the agent from then on.
    fn start(device: &Device, cpu: u32) -> Result<Self> {
        let (wake, woken) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || sleep_on(cpu, &woken, &tell));
        let tid = told
            .recv()
            .map_err(|_| Error::environment("a thread cannot be bound to its CPU", "try again"))?;
        tasks::give(device, &device.core()?, tid, ENCLAVE)?;
        Ok(Self { wake })
    }
}

fn sleep_on(cpu: u32, woken: &Receiver<()>, tell: &Sender<u32>) {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    if sched_setaffinity(None, &set).is_err() {
        return;
    }
    // Both channels are there for as long as the bench runs.
    let _ = tell.send(gettid().as_raw_pid() as u32);
    while woken.recv().is_ok() {}
}

/// The agent: the tokens of the tasks that wait, by CPU.
struct Waiting<'a> {
    agent: &'a Agent,
    tokens: BTreeMap<i32, u64>,
}

impl Waiting<'_> {
    fn read(&mut self) {
        for cpu in 0..self.agent.nr_cpus() {
            let mut ring = self.agent.ring(cpu);
            while let Some(message) = ring.message() {
                ring.advance(&message);
                match BatonMethod::of(u32::from(message.method)) {
                    BatonMethod::TaskBlocked => drop(self.tokens.remove(&message.cpu)),
                    _ if message.token != 0 => drop(self.tokens.insert(message.cpu, message.token)),
                    _ => {}
                }
            }
        }
    }

    /// Waits until so many tasks wait. False if they do not, or if the enclave gives the agent up.
    fn until(&mut self, count: usize) -> bool {
        let begin = Instant::now();
        while self.tokens.len() != count {
            if self.agent.has_ended() || begin.elapsed() > PATIENCE {
                return false;
            }
            self.read();
        }
        true
    }

    /// Has all run that wait. Returns the time of the call, ns, and how many were accepted.
    fn commit(&mut self) -> (f64, usize) {
        let commit = |(cpu, token): (i32, u64)| BatonAgentCommit {
            token,
            cpu: cpu as u16,
            ..Default::default()
        };
        let tokens = std::mem::take(&mut self.tokens);
        let mut commits: Vec<_> = tokens.into_iter().map(commit).collect();
        let begin = Instant::now();
        // An error means that the session has ended, which `until` sees.
        let _ = self.agent.commit_all(&mut commits);
        let took = begin.elapsed().as_nanos() as f64;
        let accepted = |commit: &&BatonAgentCommit| commit.outcome == BatonCommit::Complete as u32;
        (took, commits.iter().filter(accepted).count())
    }

    /// Has all tasks run until they sleep.
    fn settle(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            self.read();
            if !self.tokens.is_empty() {
                self.commit();
            }
        }
        !self.agent.has_ended()
    }
}

/// Measures commits for one CPU, and for a group.
pub fn measure(cpus: u32) -> Result<Measured> {
    let own = std::env::current_exe().map_err(|e| Error::file("looking for this program", &e))?;
    let made = Command::new(own)
        .args(["enclave", "create", ENCLAVE])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return Err(Error::environment("the enclave was not made", "see above"));
    }
    let result = in_enclave(cpus);
    unload::unload(None)?;
    result
}

fn in_enclave(cpus: u32) -> Result<Measured> {
    let agent = Agent::attach(ENCLAVE, &Wishes::default())
        .map_err(|why| Error::environment(why.to_string(), "see baton enclave list"))?;
    let device = Device::open()?;
    let mut waiting = Waiting {
        agent: &agent,
        tokens: BTreeMap::new(),
    };
    let mut sleepers = Vec::new();
    for cpu in 1..=GROUP {
        sleepers.push(Sleeper::start(&device, cpu)?);
        waiting.settle();
    }
    let mut series = Vec::new();
    for count in [1, GROUP as usize] {
        let mut values = Vec::new();
        for _ in 0..ROUNDS {
            for sleeper in &sleepers[..count] {
                // The thread is there for as long as its sender.
                let _ = sleeper.wake.send(());
            }
            // A thread that did not sleep yet needs no commit.
            if waiting.until(count) {
                let (took, accepted) = waiting.commit();
                if accepted == count {
                    values.push(took);
                }
            }
            if !waiting.settle() {
                return Err(Error::environment(
                    "the enclave has given the agent up",
                    "see baton status",
                ));
            }
        }
        series.push(Series {
            subject: format!("commit for {count} CPUs"),
            values,
        });
    }
    let unit = "instructions";
    let results = entries(cpus, "instructions_per_commit", unit, &series, false);
    let [one, group] = &results[..] else {
        return Err(Error::baton("no commit was accepted as it should be"));
    };
    let ratio = group.min / one.min;
    let holds = ratio <= MAX_RATIO;
    eprintln!(
        "baton: a commit for {GROUP} CPUs: {ratio:.2} of one for a single CPU, bound \
         {MAX_RATIO:.2}: {}",
        crate::judged::verdict(holds)
    );
    Ok(Measured {
        entries: results,
        broken: !holds,
    })
}
