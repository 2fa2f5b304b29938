// SPDX-License-Identifier: GPL-2.0-only
//! `search`: threads stay near the caches that have their data.
//!
//! 1. The task that has had the least CPU time runs first.
//! 2. It runs on the CPU where it ran before, if that one idles, else on one of the same last-level
//!    cache. Only when it has waited for [`PATIENCE`] does it go to another cache of its node, and
//!    after twice that time to any CPU.
//!
//! After section 4.4 of the paper on ghOSt (SOSP '21), where it schedules the machines of Google
//! Search.

use baton_abi::BatonStateType;
use baton_agent::{Agent, Choice, Message, Scheduler};

use crate::ranked::Ranked;
use crate::{global, Native};

/// `search`, as `baton agent run` finds it.
pub const SEARCH: Native = Native {
    name: "search",
    is_per_cpu: false,
    hint_type: BatonStateType::NONE,
    reply_type: BatonStateType::NONE,
    events: 0,
    polling: Some(|agent, own| global::polling(agent, own, Search::new)),
    begin: |agent, mode| global::begin(agent, mode, Search::new),
};

/// How long a task waits for a CPU of its cache, ns: as in the paper.
const PATIENCE: u64 = 100_000;

/// What is known of the task in a slot.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The CPU where it ran last.
    cpu: usize,
    /// Since when it waits, ns.
    since: u64,
}

/// The scheduler.
struct Search {
    /// By slot.
    known: Vec<Known>,
    /// By CPU time, ns.
    tasks: Ranked<u64>,
}

impl Search {
    fn new(agent: &Agent) -> Self {
        Self {
            known: vec![Known::default(); agent.nr_slots() as usize],
            tasks: Ranked::new(agent, 0),
        }
    }

    /// How long a task must have waited before it runs on a CPU, ns.
    fn distance(agent: &Agent, from: usize, to: usize) -> u64 {
        let topology = agent.topology();
        let (Some(from), Some(to)) = (topology.get(from), topology.get(to)) else {
            return 0;
        };
        if from.llc == to.llc {
            0
        } else if from.node == to.node {
            PATIENCE
        } else {
            2 * PATIENCE
        }
    }
}

impl Scheduler for Search {
    fn ready(&mut self, agent: &Agent, task: &Message) {
        self.known[task.slot as usize] = Known {
            cpu: usize::try_from(task.cpu).unwrap_or(0),
            since: agent.now(),
        };
        self.tasks.insert(task, task.runtime);
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        let now = agent.now();
        let is_for = |slot: &u32| {
            let Known { cpu: from, since } = self.known[*slot as usize];
            if !agent.may_run(*slot, cpu) {
                return false;
            }
            // The CPU where it ran may be another enclave's by now.
            if from == cpu || !agent.may_run(*slot, from) {
                return true;
            }
            // If the CPU where it ran idles, the task is left to it: that CPU is asked in the same
            // turn. If it gets another task there, it does not idle in the next turn.
            !agent.is_idle(from) && now.saturating_sub(since) >= Self::distance(agent, from, cpu)
        };
        let slot = self.tasks.iter().find(is_for)?;
        Some(self.tasks.choose(slot))
    }

    fn timer(&self, agent: &Agent) -> Option<u64> {
        let now = agent.now();
        let ends = |slot: u32| {
            let since = self.known[slot as usize].since;
            let ends = [since + PATIENCE, since + 2 * PATIENCE];
            ends.into_iter().find(|end| *end > now)
        };
        self.tasks.iter().filter_map(ends).min()
    }

    fn gone(&mut self, _: &Agent, task: &Message) {
        self.tasks.remove(task.slot);
    }

    fn reset(&mut self, _: &Agent) {
        self.tasks.reset();
    }
}
