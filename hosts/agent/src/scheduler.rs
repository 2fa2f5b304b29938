// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers that are written for agents: they hear of tasks by callbacks, and choose tasks for
//! CPUs. [`crate::Runner`] is for policies, which run in every host.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use baton_abi::{
    BatonAgentCommit, BatonCommit, BatonHint, BatonMethod, BatonToken, BATON_AGENT_TASK_AGENT,
    BATON_AGENT_TASK_MEMBER, BATON_KICK_PREEMPT,
};
use rustix::io::Errno;

use crate::agent::{Agent, Message};
use crate::inbox::Inbox;
use crate::post::Post;

/// What a CPU is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The task's token.
    pub token: BatonToken,
    /// How long it may run, ns; 0 for the default.
    pub slice: u64,
}

/// A task for the standby ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The task's token.
    pub token: BatonToken,
    /// A CPU that is about to look for a task. If it idles, it is woken. Otherwise no CPU is woken
    /// for this offer until [`PATIENCE`] has passed.
    pub expected: Option<usize>,
}

/// How long an offer waits for the CPU that is expected to take it, ns. Two switches between tasks
/// take less.
pub const PATIENCE: u64 = 100_000;

/// A scheduler for an agent that decides for all CPUs of an enclave.
pub trait Scheduler {
    /// The task waits for a CPU. The method of the message says why; [`BatonMethod::None`]: it was
    /// found in its status word after messages were lost.
    fn ready(&mut self, agent: &Agent, task: &Message);

    /// Chooses a task for a CPU that has none.
    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice>;

    /// The slice of the task in slot `running` has ended on a CPU while others wait. Chooses the
    /// next one; `None`: the task goes on.
    fn slice_ended(&mut self, agent: &Agent, cpu: usize, _running: u32) -> Option<Choice> {
        self.pick(agent, cpu)
    }

    /// A CPU whose task is to be preempted, without a transaction that waits, and by which task.
    /// Asked until there is none, once the CPUs that idle have been served.
    fn preempt(&mut self, _agent: &Agent) -> Option<(usize, Choice)> {
        None
    }

    /// The task sleeps, or its token is no longer valid.
    fn gone(&mut self, agent: &Agent, task: &Message);

    /// Every other message: ticks, affinity, CPUs that come and go.
    fn other(&mut self, _agent: &Agent, _message: &Message) {}

    /// A task of the enclave sent a hint. [`Agent::reply`] answers.
    fn hint(&mut self, _agent: &Agent, _task: &Message, _hint: &BatonHint) {}

    /// Messages were lost. Forgets all tasks; [`Scheduler::ready`] follows for those that wait.
    fn reset(&mut self, agent: &Agent);

    /// The time at which [`Scheduler::pick`] must be called again for idle CPUs though no message
    /// arrives, ns; later than now. A real agent calls it in every turn. A simulated one has a turn
    /// only for a message or at this time.
    fn timer(&self, _agent: &Agent) -> Option<u64> {
        None
    }

    /// A task for the standby ring, from which a CPU that has no transaction takes one without
    /// asking. It must be allowed on all CPUs. Asked once the CPUs that idle have been served.
    fn offer(&mut self, _agent: &Agent) -> Option<Offer> {
        None
    }
}

/// An offer in the standby ring for which no CPU has been woken.
struct Patient {
    /// Its number among all offers.
    number: u32,
    expected: usize,
    /// When its patience ends, ns.
    until: u64,
}

/// A global agent, turn by turn.
pub trait Polling {
    /// Answers at most so many messages, and does what else is due. True if there was a message.
    fn turn(&mut self, most: usize) -> bool;

    /// When the earliest of the timers expires, ns; `None` if none is armed.
    fn timer(&self) -> Option<u64> {
        None
    }
}

/// A scheduler as a global agent.
pub struct Poller<A, S> {
    agent: A,
    scheduler: S,
    /// Messages lost at the last look.
    lost: u64,
    inbox: Inbox,
    /// By slot: a token that was found in the status word, and whose message has yet to come.
    found: Vec<BatonToken>,
    commits: Vec<BatonAgentCommit>,
    /// The oldest first.
    patient: VecDeque<Patient>,
}

/// Schedules until the enclave ends that, or `stop` is set. Polls on CPU `own`, which gets no
/// tasks, and on another one when a program that is not the enclave's wants that CPU. Fails if this
/// thread cannot be bound to that CPU.
pub fn schedule<S: Scheduler>(
    agent: &Agent,
    own: usize,
    scheduler: &mut S,
    stop: &AtomicBool,
) -> Result<(), Errno> {
    let mut poller = Poller::new(agent, own, scheduler);
    let mut post = Post::new(agent)?;
    while !agent.has_ended() && !stop.load(Relaxed) {
        poller.turn(usize::MAX);
        post.look(agent);
        spin_loop();
    }
    Ok(())
}

impl<S: Scheduler + ?Sized> Scheduler for &mut S {
    fn ready(&mut self, agent: &Agent, task: &Message) {
        S::ready(self, agent, task);
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        S::pick(self, agent, cpu)
    }

    fn slice_ended(&mut self, agent: &Agent, cpu: usize, running: u32) -> Option<Choice> {
        S::slice_ended(self, agent, cpu, running)
    }

    fn preempt(&mut self, agent: &Agent) -> Option<(usize, Choice)> {
        S::preempt(self, agent)
    }

    fn gone(&mut self, agent: &Agent, task: &Message) {
        S::gone(self, agent, task);
    }

    fn other(&mut self, agent: &Agent, message: &Message) {
        S::other(self, agent, message);
    }

    fn hint(&mut self, agent: &Agent, task: &Message, hint: &BatonHint) {
        S::hint(self, agent, task, hint);
    }

    fn reset(&mut self, agent: &Agent) {
        S::reset(self, agent);
    }

    fn timer(&self, agent: &Agent) -> Option<u64> {
        S::timer(self, agent)
    }

    fn offer(&mut self, agent: &Agent) -> Option<Offer> {
        S::offer(self, agent)
    }
}

impl<A: Deref<Target = Agent> + Clone, S: Scheduler> Polling for Poller<A, S> {
    fn turn(&mut self, most: usize) -> bool {
        if self.agent.lost() != self.lost {
            self.resync();
        }
        let has_read = self.read(most);
        for cpu in 0..self.agent.nr_cpus() {
            if self.is_idle(cpu) {
                let choice = self.scheduler.pick(&self.agent, cpu);
                self.commit(cpu, choice, false);
            }
        }
        self.flush();
        while let Some((cpu, choice)) = self.scheduler.preempt(&self.agent) {
            self.commit(cpu, Some(choice), true);
            self.flush();
        }
        self.fill();
        self.hurry();
        has_read
    }

    fn timer(&self) -> Option<u64> {
        let offer = self.patient.front().map(|offer| offer.until);
        offer
            .into_iter()
            .chain(self.scheduler.timer(&self.agent))
            .min()
    }
}

impl<A: Deref<Target = Agent> + Clone, S: Scheduler> Poller<A, S> {
    /// A scheduler that polls on CPU `own`, which gets no tasks.
    pub fn new(agent: A, own: usize, scheduler: S) -> Self {
        agent.poll_on(own);
        Self {
            scheduler,
            lost: 0,
            inbox: Inbox::new(&agent),
            found: vec![0; agent.nr_slots() as usize],
            commits: Vec::new(),
            patient: VecDeque::new(),
            agent,
        }
    }

    /// Does the CPU wait for a task?
    fn is_idle(&self, cpu: usize) -> bool {
        self.agent.is_idle(cpu) && self.agent.is_online(cpu)
    }

    /// Answers messages.
    fn read(&mut self, most: usize) -> bool {
        let agent = self.agent.clone();
        let mut inbox = std::mem::take(&mut self.inbox);
        let has_read = inbox.read_some(&agent, most, |message, hint| {
            if let Some(hint) = hint {
                return self.scheduler.hint(&agent, message, hint);
            }
            // A message without a number (a refusal, for example) is never the one that a token in
            // `found` waits for.
            let found = match message.sequence {
                0 => 0,
                _ => std::mem::take(&mut self.found[message.slot as usize]),
            };
            self.handle(message, found);
        });
        self.inbox = inbox;
        has_read
    }

    /// Fills the standby ring. A CPU sets `wants` before it looks into the ring for the last time,
    /// so either it finds the new offer, or `wake_one` sees that the CPU is idle.
    fn fill(&mut self) {
        while self.agent.can_offer() {
            let Some(Offer { token, expected }) = self.scheduler.offer(&self.agent) else {
                return;
            };
            let number = self.agent.offer(token);
            match (number, expected) {
                (Some(number), Some(expected)) => self.patient.push_back(Patient {
                    number,
                    expected,
                    until: self.agent.now() + PATIENCE,
                }),
                _ => self.wake_one(),
            }
        }
    }

    /// Wakes a CPU that idles, which then looks into the standby ring.
    fn wake_one(&self) {
        let idle = (0..self.agent.nr_cpus()).find(|cpu| self.is_idle(*cpu));
        if let Some(cpu) = idle {
            // Fails if the CPU goes offline: another one takes the task.
            let _ = self.agent.kick(&[cpu as u16]);
        }
    }

    /// Wakes CPUs for offers that were expected to be taken without that.
    fn hurry(&mut self) {
        while let Some(offer) = self.patient.front() {
            if !self.agent.is_taken(offer.number) {
                if self.is_idle(offer.expected) {
                    let _ = self.agent.kick(&[offer.expected as u16]);
                } else if self.agent.now() >= offer.until {
                    self.wake_one();
                } else {
                    return;
                }
            }
            self.patient.pop_front();
        }
    }

    fn handle(&mut self, message: &Message, found: BatonToken) {
        use BatonMethod as M;
        match M::of(u32::from(message.method)) {
            M::PickRefused if !self.agent.has_token(message) => {}
            M::TaskNew
            | M::TaskWakeup
            | M::TaskPreempt
            | M::TaskYield
            | M::TaskRestored
            | M::PickRefused => {
                if found != message.token {
                    self.scheduler.ready(&self.agent, message);
                }
            }
            M::TaskBlocked | M::TaskDequeued | M::TaskDeparted | M::TaskDead => {
                self.scheduler.gone(&self.agent, message);
            }
            M::PickNextTask => {
                if message.slot != u32::MAX {
                    let cpu = message.cpu as usize;
                    let choice = self.scheduler.slice_ended(&self.agent, cpu, message.slot);
                    self.commit(cpu, choice, true);
                }
            }
            _ => self.scheduler.other(&self.agent, message),
        }
    }

    /// Has a CPU run what the scheduler has chosen, if anything.
    fn commit(&mut self, cpu: usize, choice: Option<Choice>, preempt: bool) {
        if let Some(Choice { token, slice }) = choice {
            self.commits.push(BatonAgentCommit {
                token,
                slice,
                cpu: cpu as u16 | if preempt { BATON_KICK_PREEMPT } else { 0 },
                ..Default::default()
            });
        }
    }

    /// Commits what was collected. If a token is refused but still valid, the scheduler gets it
    /// again by `ready`. Stale and unknown tokens do not come back.
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
        self.scheduler.ready(&self.agent, &task);
    }

    /// Messages were lost: what they said is in the status words.
    fn resync(&mut self) {
        self.lost = self.agent.lost();
        self.scheduler.reset(&self.agent);
        // Each waiting transaction is withdrawn: the scheduler hears of its task again, and chooses
        // anew. Tasks whose transaction a CPU is taking, or that are in the standby ring, are
        // placed already, and are not reported.
        let cpus = 0..self.agent.nr_cpus();
        let claimed = cpus.filter_map(|cpu| {
            self.agent.withdraw(cpu);
            self.agent.claimed(cpu)
        });
        let claimed: Vec<BatonToken> = claimed.chain(self.agent.standing_by()).collect();
        let mut inbox = std::mem::take(&mut self.inbox);
        let agent = self.agent.clone();
        inbox.resync(&agent, |slot| {
            let word = self.agent.task(slot);
            let ours = word.flags & (BATON_AGENT_TASK_MEMBER | BATON_AGENT_TASK_AGENT);
            let is_waiting = ours == BATON_AGENT_TASK_MEMBER
                && word.token != 0
                && !claimed.contains(&word.token);
            self.found[slot as usize] = if is_waiting { word.token } else { 0 };
            if is_waiting {
                self.found(word.token, BatonMethod::None);
            }
        });
        self.inbox = inbox;
    }
}
