// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that wait, in the order of a rank, for schedulers that preempt by rank.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use baton_abi::BatonToken;
use baton_agent::{Agent, Choice, Message};

#[derive(Clone, Copy)]
struct Known<R> {
    rank: R,
    /// Its place among those of its rank.
    turn: u64,
    /// Its token while it waits, else 0.
    token: BatonToken,
}

/// The ranks of all tasks, and the tasks that wait. The lowest rank runs first.
pub struct Ranked<R> {
    /// By slot.
    tasks: Vec<Known<R>>,
    /// Ranks, turns and slots.
    queue: BTreeSet<(R, u64, u32)>,
    turn: u64,
}

impl<R: Ord + Copy> Ranked<R> {
    /// `rank` is that of tasks that have not waited yet.
    pub fn new(agent: &Agent, rank: R) -> Self {
        let known = Known {
            rank,
            turn: 0,
            token: 0,
        };
        Self {
            tasks: vec![known; agent.nr_slots() as usize],
            queue: BTreeSet::new(),
            turn: 0,
        }
    }

    /// The rank of the task in a slot when it last waited.
    pub fn rank(&self, slot: u32) -> R {
        self.tasks[slot as usize].rank
    }

    /// Gives a task that does not wait another rank.
    pub fn set_rank(&mut self, slot: u32, rank: R) {
        debug_assert_eq!(self.tasks[slot as usize].token, 0, "its place would change");
        self.tasks[slot as usize].rank = rank;
    }

    /// Queues the task of a message, after those of its rank.
    pub fn insert(&mut self, message: &Message, rank: R) {
        self.remove(message.slot);
        self.turn += 1;
        self.tasks[message.slot as usize] = Known {
            rank,
            turn: self.turn,
            token: message.token,
        };
        self.queue.insert((rank, self.turn, message.slot));
    }

    /// Removes the task in a slot, and returns its token; 0 if it did not wait.
    pub fn remove(&mut self, slot: u32) -> BatonToken {
        let task = &mut self.tasks[slot as usize];
        self.queue.remove(&(task.rank, task.turn, slot));
        std::mem::take(&mut task.token)
    }

    /// The slots of those that wait, in their order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter().map(|(.., slot)| *slot)
    }

    /// Removes the first task that may run on a CPU.
    pub fn take(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        let slot = self.iter().find(|slot| agent.may_run(*slot, cpu))?;
        Some(self.choose(slot))
    }

    /// Removes the first task that may run on a CPU, if its rank is lower than this one.
    pub fn take_before(&mut self, agent: &Agent, cpu: usize, rank: R) -> Option<Choice> {
        let slot = self
            .iter()
            .take_while(|slot| self.rank(*slot) < rank)
            .find(|slot| agent.may_run(*slot, cpu))?;
        Some(self.choose(slot))
    }

    /// Removes the task in a slot, which waits, to run it.
    pub fn choose(&mut self, slot: u32) -> Choice {
        let token = self.remove(slot);
        Choice { token, slice: 0 }
    }

    /// Removes a task that is to preempt a running one. CPUs are tried from the one whose task has
    /// the highest rank, the least urgent, downwards. The first of them that a waiting task of a
    /// lower rank may use gets that task.
    pub fn preempt(&mut self, agent: &Agent) -> Option<(usize, Choice)> {
        let (first, ..) = *self.queue.first()?;
        let rank = |cpu: usize| {
            if agent.is_pending(cpu) {
                return None;
            }
            // Read after that: a CPU that has taken a transaction runs its task.
            let running = agent.running(cpu)?;
            Some((self.tasks.get(running.slot as usize)?.rank, cpu))
        };
        let cpus = (0..agent.nr_cpus()).filter(|cpu| agent.is_online(*cpu));
        let mut higher: Vec<(R, usize)> = cpus.filter_map(rank).collect();
        higher.retain(|(rank, _)| *rank > first);
        higher.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        higher
            .into_iter()
            .find_map(|(rank, cpu)| Some((cpu, self.take_before(agent, cpu, rank)?)))
    }

    /// Forgets the tasks that wait.
    pub fn reset(&mut self) {
        self.queue.clear();
        for task in &mut self.tasks {
            task.token = 0;
        }
    }
}
