// SPDX-License-Identifier: GPL-2.0-only
//! `edf`: the earliest deadline first.
//!
//! 1. A thread gets a deadline by a hint. It is due this long after each time that it becomes
//!    runnable.
//! 2. CPUs run the tasks that are due first. A task that becomes runnable preempts the one that is
//!    due last, if that one is due later.
//! 3. Tasks without a deadline run when no task with one waits, in the order in which they became
//!    runnable.

use std::collections::BTreeSet;

use baton_abi::{BatonHint, BatonMethod, BatonToken};
use baton_agent::{Agent, Choice, Message, Scheduler};
use baton_message::{message, Message as _, Thread};

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

/// What is known of the task in a slot.
#[derive(Clone, Copy)]
struct Known {
    /// How long after becoming runnable it is due, ns; 0 without a deadline.
    within: u64,
    /// When it is due, from becoming runnable until it sleeps.
    due: Due,
    /// Its place among those that are due at the same time.
    turn: u64,
    /// Its token while it waits, else 0.
    token: BatonToken,
}

const UNKNOWN: Known = Known {
    within: 0,
    due: NEVER,
    turn: 0,
    token: 0,
};

/// The scheduler.
struct Edf {
    own: usize,
    /// By slot.
    tasks: Vec<Known>,
    /// Those that wait: when they are due, their turn, and their slot.
    queue: BTreeSet<(Due, u64, u32)>,
    turn: u64,
}

impl Edf {
    fn new(agent: &Agent, own: usize) -> Self {
        Self {
            own,
            tasks: vec![UNKNOWN; agent.nr_slots() as usize],
            queue: BTreeSet::new(),
            turn: 0,
        }
    }

    fn remove(&mut self, slot: u32) {
        let task = &mut self.tasks[slot as usize];
        task.token = 0;
        self.queue.remove(&(task.due, task.turn, slot));
    }

    /// The task for a CPU that is due first, before `than`.
    fn take(&mut self, agent: &Agent, cpu: usize, than: Due) -> Option<Choice> {
        let mut earlier = self.queue.iter().take_while(|(due, ..)| *due < than);
        let slot = earlier.find(|(.., slot)| agent.may_run(*slot, cpu))?.2;
        self.choose(slot)
    }

    fn choose(&mut self, slot: u32) -> Option<Choice> {
        let token = self.tasks[slot as usize].token;
        self.remove(slot);
        Some(Choice { token, slice: 0 })
    }
}

impl Scheduler for Edf {
    fn ready(&mut self, agent: &Agent, message: &Message) {
        self.remove(message.slot);
        self.turn += 1;
        let is_new = message.method == BatonMethod::TaskNew as u16;
        let goes_on = [BatonMethod::TaskPreempt, BatonMethod::PickRefused]
            .iter()
            .any(|method| message.method == *method as u16);
        let task = &mut self.tasks[message.slot as usize];
        if is_new {
            *task = UNKNOWN;
        }
        if !goes_on {
            task.due = match task.within {
                0 => NEVER,
                within => agent.now().saturating_add(within),
            };
        }
        task.turn = self.turn;
        task.token = message.token;
        self.queue.insert((task.due, task.turn, message.slot));
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        let mut all = self.queue.iter();
        let slot = all.find(|(.., slot)| agent.may_run(*slot, cpu))?.2;
        self.choose(slot)
    }

    fn slice_ended(&mut self, agent: &Agent, cpu: usize, running: u32) -> Option<Choice> {
        match self.tasks[running as usize].due {
            // All without a deadline have their turns.
            NEVER => self.pick(agent, cpu),
            due => self.take(agent, cpu, due),
        }
    }

    fn preempt(&mut self, agent: &Agent) -> Option<(usize, Choice)> {
        let (first, ..) = *self.queue.first()?;
        let due = |cpu: usize| {
            let running = agent.running(cpu).filter(|_| !agent.is_pending(cpu))?;
            Some((self.tasks.get(running.slot as usize)?.due, cpu))
        };
        let cpus = (0..agent.nr_cpus()).filter(|cpu| *cpu != self.own && agent.is_online(*cpu));
        let mut later: Vec<(Due, usize)> = cpus.filter_map(due).collect();
        later.retain(|(due, _)| *due > first);
        later.sort_unstable_by_key(|(due, _)| std::cmp::Reverse(*due));
        later
            .into_iter()
            .find_map(|(due, cpu)| Some((cpu, self.take(agent, cpu, due)?)))
    }

    fn gone(&mut self, _: &Agent, task: &Message) {
        self.remove(task.slot);
    }

    fn hint(&mut self, agent: &Agent, from: &Message, hint: &BatonHint) {
        // What is no hint of this type is not answered.
        let Some(Hint::Within { thread, ns }) = Hint::decode(hint) else {
            return;
        };
        let Some(task) = self.tasks.get_mut(thread.slot() as usize) else {
            return;
        };
        task.within = ns;
        // It counts from the next time on. A full queue is the application's affair.
        let _ = agent.reply(from.slot, &Reply::Noted { ns }.encode());
    }

    fn reset(&mut self, _: &Agent) {
        self.queue.clear();
        for task in &mut self.tasks {
            task.token = 0;
        }
    }
}
