// SPDX-License-Identifier: GPL-2.0-only
//! `edf`: the earliest deadline first.
//!
//! 1. A thread gets a deadline by a hint. It is due this long after each time that it becomes
//!    runnable.
//! 2. CPUs run the tasks that are due first. A task that becomes runnable preempts the one that is
//!    due last, if that one is due later.
//! 3. Tasks without a deadline run when no task with one waits, in turns.
//! 4. A task that runs on after its deadline has none from the end of its slice until it next
//!    becomes runnable, so it cannot keep the others waiting.

use baton_abi::{BatonHint, BatonMethod};
use baton_agent::{Agent, Choice, Message, Scheduler};
use baton_message::{message, Message as _, Thread};

use crate::ranked::Ranked;
use crate::{global, Native};

message! {
    /// A message from an application.
    pub enum Hint, version 1 {
        /// From now on, the thread is due within this time of becoming runnable.
        Within {
            /// The thread.
            thread: Thread,
            /// The time, ns; 0 takes the deadline back.
            ns: u64,
        } = 1,
    }
}

message! {
    /// The answer.
    pub enum Reply, version 1 {
        /// The thread has that deadline.
        Noted {
            /// As in the hint.
            ns: u64,
        } = 1,
    }
}

/// `edf`, as `baton agent run` finds it.
pub const EDF: Native = Native {
    name: "edf",
    is_per_cpu: false,
    hint_type: Hint::TYPE,
    reply_type: Reply::TYPE,
    events: 0,
    polling: Some(|agent, own| global::polling(agent, own, Edf::new)),
    begin: |agent, mode| global::begin(agent, mode, Edf::new),
};

/// When a task is due, ns; `u64::MAX` without a deadline.
type Due = u64;
const NEVER: Due = Due::MAX;

/// The deadline that a hint asked for.
#[derive(Clone, Copy, Default)]
struct Wish {
    /// The thread.
    pid: u32,
    /// How long after becoming runnable it is due, ns; 0 without a deadline.
    within: u64,
}

/// The scheduler.
struct Edf {
    /// By slot.
    wishes: Vec<Wish>,
    /// The tasks that wait, in the order in which they are due. The due time of a task stays here
    /// while it runs.
    tasks: Ranked<Due>,
}

impl Edf {
    fn new(agent: &Agent) -> Self {
        Self {
            wishes: vec![Wish::default(); agent.nr_slots() as usize],
            tasks: Ranked::new(agent, NEVER),
        }
    }

    /// When a task is due that goes on: one that is late has no deadline any more.
    fn due(&self, agent: &Agent, slot: u32) -> Due {
        Some(self.tasks.rank(slot))
            .filter(|due| *due > agent.now())
            .unwrap_or(NEVER)
    }
}

impl Scheduler for Edf {
    fn ready(&mut self, agent: &Agent, message: &Message) {
        let wish = &mut self.wishes[message.slot as usize];
        // A task that has a dead one's slot has not its deadline.
        if wish.pid != message.pid {
            *wish = Wish::default();
        }
        let within = wish.within;
        let due = match BatonMethod::of(u32::from(message.method)) {
            _ if within == 0 => NEVER,
            BatonMethod::TaskNew | BatonMethod::TaskWakeup => agent.now().saturating_add(within),
            // It was runnable before.
            _ => self.due(agent, message.slot),
        };
        self.tasks.insert(message, due);
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        self.tasks.take(agent, cpu)
    }

    fn slice_ended(&mut self, agent: &Agent, cpu: usize, running: u32) -> Option<Choice> {
        match self.due(agent, running) {
            // All without a deadline have their turns.
            NEVER => self.tasks.take(agent, cpu),
            due => self.tasks.take_before(agent, cpu, due),
        }
    }

    fn preempt(&mut self, agent: &Agent) -> Option<(usize, Choice)> {
        self.tasks.preempt(agent)
    }

    fn gone(&mut self, _: &Agent, task: &Message) {
        self.tasks.remove(task.slot);
    }

    fn hint(&mut self, agent: &Agent, from: &Message, hint: &BatonHint) {
        // What is no hint of this type is not answered.
        let Some(Hint::Within { thread, ns }) = Hint::decode(hint) else {
            return;
        };
        let slot = thread.slot();
        let Some(wish) = self.wishes.get_mut(slot as usize) else {
            return;
        };
        *wish = Wish {
            pid: agent.task(slot).pid,
            within: ns,
        };
        // It counts from the next time on. A full queue is the application's affair.
        let _ = agent.reply(from.slot, &Reply::Noted { ns }.encode());
    }

    fn reset(&mut self, _: &Agent) {
        self.tasks.reset();
    }
}
