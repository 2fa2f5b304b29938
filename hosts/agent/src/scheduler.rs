// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers that are written for agents: they hear of tasks by callbacks, and choose tasks for
//! CPUs. [`crate::Runner`] is for policies, which run in every host.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use baton_abi::{
    BatonAgentCommit, BatonCommit, BatonMethod, BatonToken, BATON_AGENT_TASK_AGENT,
    BATON_AGENT_TASK_MEMBER, BATON_KICK_PREEMPT,
};
use rustix::io::Errno;

use crate::agent::{Agent, Message};
use crate::serve::bind;

/// What a CPU is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The task's token.
    pub token: BatonToken,
    /// How long it may run, ns; 0 for the default.
    pub slice: u64,
}

/// A scheduler for an agent that decides for all CPUs of an enclave.
pub trait Scheduler {
    /// The task waits for a CPU. The method of the message says why; [`BatonMethod::None`]: it was
    /// found in its status word after messages were lost.
    fn ready(&mut self, agent: &Agent, task: &Message);

    /// Chooses a task for a CPU that has none, or whose task's slice has ended.
    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice>;

    /// The task sleeps, or its token is no longer valid.
    fn gone(&mut self, agent: &Agent, task: &Message);

    /// Every other message: ticks, affinity, CPUs that come and go.
    fn other(&mut self, _agent: &Agent, _message: &Message) {}

    /// Messages were lost. Forgets all tasks; [`Scheduler::ready`] follows for those that wait.
    fn reset(&mut self, agent: &Agent);
}

/// The state of [`schedule`].
struct Poller<'a, S> {
    agent: &'a Agent,
    own: usize,
    scheduler: &'a mut S,
    /// Messages lost at the last look.
    lost: u64,
    /// By slot: the number of the last message.
    seen: Vec<u32>,
    /// By slot: a token that was found in the status word, and whose message has yet to come.
    found: Vec<BatonToken>,
    commits: Vec<BatonAgentCommit>,
}

/// Schedules until the enclave ends that, or `stop` is set. Polls on CPU `own`, which gets no
/// tasks. Fails if this thread cannot be bound to that CPU.
pub fn schedule<S: Scheduler>(
    agent: &Agent,
    own: usize,
    scheduler: &mut S,
    stop: &AtomicBool,
) -> Result<(), Errno> {
    bind(own)?;
    let slots = agent.nr_slots() as usize;
    let mut poller = Poller {
        agent,
        own,
        scheduler,
        lost: 0,
        seen: vec![0; slots],
        found: vec![0; slots],
        commits: Vec::new(),
    };
    while !agent.has_ended() && !stop.load(Relaxed) {
        poller.turn();
    }
    Ok(())
}

impl<S: Scheduler> Poller<'_, S> {
    fn turn(&mut self) {
        if self.agent.lost() != self.lost {
            self.resync();
        }
        for cpu in 0..self.agent.nr_cpus() {
            self.read(cpu);
        }
        for cpu in 0..self.agent.nr_cpus() {
            let is_idle = self.agent.wants(cpu) && !self.agent.is_pending(cpu);
            if cpu != self.own && self.agent.is_online(cpu) && is_idle {
                self.serve(cpu, false);
            }
        }
        self.flush();
    }

    /// Answers the messages of a CPU's ring, up to one that another ring's must come before.
    fn read(&mut self, cpu: usize) {
        while let Some(message) = self.agent.peek(cpu) {
            if message.sequence == 0 {
                self.handle(&message, 0);
            } else {
                let slot = message.slot as usize;
                let ahead = message.sequence.wrapping_sub(self.seen[slot]) as i32;
                if ahead > 1 {
                    return;
                }
                if ahead == 1 {
                    self.seen[slot] = message.sequence;
                    let found = std::mem::take(&mut self.found[slot]);
                    self.handle(&message, found);
                }
            }
            self.agent.advance(cpu);
        }
    }

    fn handle(&mut self, message: &Message, found: BatonToken) {
        use BatonMethod as M;
        match M::of(u32::from(message.method)) {
            M::TaskNew
            | M::TaskWakeup
            | M::TaskPreempt
            | M::TaskYield
            | M::TaskRestored
            | M::PickRefused => {
                if found != message.token {
                    self.scheduler.ready(self.agent, message);
                }
            }
            M::TaskBlocked | M::TaskDequeued | M::TaskDeparted | M::TaskDead => {
                self.scheduler.gone(self.agent, message);
            }
            M::PickNextTask => {
                if message.slot != u32::MAX {
                    self.serve(message.cpu as usize, true);
                }
            }
            _ => self.scheduler.other(self.agent, message),
        }
    }

    /// Has a CPU run what the scheduler chooses, if anything.
    fn serve(&mut self, cpu: usize, preempt: bool) {
        if let Some(Choice { token, slice }) = self.scheduler.pick(self.agent, cpu) {
            self.commits.push(BatonAgentCommit {
                token,
                slice,
                cpu: cpu as u16 | if preempt { BATON_KICK_PREEMPT } else { 0 },
                ..Default::default()
            });
        }
    }

    /// Commits what was collected. A token that was refused comes back by `ready`.
    fn flush(&mut self) {
        let mut commits = std::mem::take(&mut self.commits);
        // Fails only when the session has ended.
        if self.agent.commit_all(&mut commits).is_ok() {
            for commit in &commits {
                // The messages of the task say what became of a stale token.
                let is_known = [
                    BatonCommit::Complete,
                    BatonCommit::Stale,
                    BatonCommit::NotFound,
                ]
                .iter()
                .any(|outcome| *outcome as u32 == commit.outcome);
                if !is_known {
                    self.found(commit.token, BatonMethod::PickRefused);
                }
            }
        }
        commits.clear();
        self.commits = commits;
    }

    /// The scheduler hears of a token that no message has.
    fn found(&mut self, token: BatonToken, method: BatonMethod) {
        let slot = (token as u32).wrapping_sub(1);
        if slot >= self.agent.nr_slots() {
            return;
        }
        let word = self.agent.task(slot);
        let task = Message {
            token,
            runtime: word.runtime,
            method: method as u16,
            slot,
            pid: word.pid,
            nice: word.nice,
            cpu: word.cpu,
            waker: -1,
            ..Default::default()
        };
        self.scheduler.ready(self.agent, &task);
    }

    /// Messages were lost: what they said is in the status words.
    fn resync(&mut self) {
        self.lost = self.agent.lost();
        for cpu in 0..self.agent.nr_cpus() {
            self.agent.skip(cpu);
        }
        self.scheduler.reset(self.agent);
        for slot in 0..self.agent.nr_slots() {
            // The number first: the token is then not older.
            self.seen[slot as usize] = self.agent.sequence(slot);
            let word = self.agent.task(slot);
            let ours = word.flags & (BATON_AGENT_TASK_MEMBER | BATON_AGENT_TASK_AGENT);
            let is_waiting = ours == BATON_AGENT_TASK_MEMBER && word.token != 0;
            self.found[slot as usize] = if is_waiting { word.token } else { 0 };
            if is_waiting {
                self.found(word.token, BatonMethod::None);
            }
        }
    }
}
