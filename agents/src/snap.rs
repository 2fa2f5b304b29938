// SPDX-License-Identifier: GPL-2.0-only
//! `snap`: threads that serve a network, before all others.
//!
//! 1. Threads with a negative nice value are workers. A worker that becomes runnable runs at once:
//!    on a CPU that idles, else in the place of a thread that is no worker.
//! 2. Workers share CPUs in turns, and so do the others with what the workers leave.
//! 3. A thread that has waited for [`LONGEST`] because of workers gets a slice of [`TURN`] on the
//!    next CPU whose worker sleeps or has used its slice.
//!
//! After section 4.3 of the paper on ghOSt (SOSP '21), where Snap's workers poll beside threads
//! that take all CPU time that they get.

use baton_abi::BatonStateType;
use baton_agent::{Agent, Choice, Message, Scheduler};

use crate::ranked::Ranked;
use crate::{global, Native};

/// `snap`, as `baton agent run` finds it.
pub const SNAP: Native = Native {
    name: "snap",
    is_per_cpu: false,
    hint_type: BatonStateType::NONE,
    reply_type: BatonStateType::NONE,
    events: 0,
    polling: Some(|agent, own| global::polling(agent, own, Snap::new)),
    begin: |agent, mode| global::begin(agent, mode, Snap::new),
};

/// How long workers can keep a thread waiting, ns, and how long it then runs.
const LONGEST: u64 = 100_000_000;
const TURN: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Worker,
    Other,
}

/// The scheduler.
struct Snap {
    tasks: Ranked<Class>,
    /// By slot: since when the task waits, ns.
    since: Vec<u64>,
}

impl Snap {
    fn new(agent: &Agent) -> Self {
        Self {
            tasks: Ranked::new(agent, Class::Other),
            since: vec![0; agent.nr_slots() as usize],
        }
    }

    /// A thread that has waited for too long for a CPU.
    fn starved(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        let now = agent.now();
        let slot = self.tasks.iter().find(|slot| {
            let waits = now.saturating_sub(self.since[*slot as usize]);
            waits >= LONGEST && agent.may_run(*slot, cpu)
        })?;
        let choice = self.tasks.choose(slot);
        // No worker preempts it until that time is over.
        self.tasks.set_rank(slot, Class::Worker);
        Some(Choice {
            slice: TURN,
            ..choice
        })
    }
}

impl Scheduler for Snap {
    fn ready(&mut self, agent: &Agent, task: &Message) {
        let class = if task.nice < 0 {
            Class::Worker
        } else {
            Class::Other
        };
        self.since[task.slot as usize] = agent.now();
        self.tasks.insert(task, class);
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        self.starved(agent, cpu)
            .or_else(|| self.tasks.take(agent, cpu))
    }

    fn slice_ended(&mut self, agent: &Agent, cpu: usize, running: u32) -> Option<Choice> {
        match self.tasks.rank(running) {
            // Another worker has its turn, and a thread that is none waits.
            Class::Worker => self
                .starved(agent, cpu)
                .or_else(|| self.tasks.take_before(agent, cpu, Class::Other)),
            Class::Other => self.tasks.take(agent, cpu),
        }
    }

    fn preempt(&mut self, agent: &Agent) -> Option<(usize, Choice)> {
        self.tasks.preempt(agent)
    }

    fn gone(&mut self, _: &Agent, task: &Message) {
        self.tasks.remove(task.slot);
    }

    fn reset(&mut self, _: &Agent) {
        self.tasks.reset();
    }
}
