// SPDX-License-Identifier: GPL-2.0-only
//! The agent of an enclave: when it sees messages, and when CPUs see what it decides.
//!
//! A message is visible to the agent after the cost `agent_message`, and keeps it busy for
//! `agent_work`. Then the agent decides, so what it has read may be outdated, as in life. If a CPU
//! must be made to look at its transaction, the system call for that takes `agent_commit`, and
//! interrupts are sent at its end.

use super::Machine;
use crate::queue::Next;

impl Machine<'_> {
    /// The agent polls on its CPU from the beginning to the end.
    pub(super) fn begin_agent(&mut self) {
        let Some(own) = self.agent.as_ref().map(|agent| agent.cpu) else {
            return;
        };
        self.higher_begins(own, u64::MAX);
        // CPUs that idle say so: `begin` in hosts/agent/kernel/session.c.
        (0..self.cpus.len() as u32).for_each(|cpu| self.kick(cpu, own, false));
        self.look_at_agent();
    }

    /// Has the agent look when there is something to see.
    pub(super) fn look_at_agent(&mut self) {
        let Some(agent) = &mut self.agent else { return };
        let costs = &self.config.costs;
        let message = agent.enclave.has_unread().then(|| {
            let seen = (self.now + costs.agent_message).max(agent.busy_until);
            seen + costs.agent_work
        });
        let clock = self.core.host().clock.get();
        let timer = agent
            .polling
            .timer()
            .map(|at| at.saturating_sub(clock).max(agent.busy_until).max(self.now));
        let next = message
            .into_iter()
            .chain(timer)
            .min()
            .map_or(u64::MAX, |at| at.max(self.now + 1));
        if next < agent.next {
            agent.next = next;
            agent.turn = agent.turn.wrapping_add(1);
            let turn = agent.turn;
            self.queue.push(next, Next::Agent { turn });
        }
    }

    /// The agent has read a message, or a timer has expired.
    pub(super) fn agent_acts(&mut self, turn: u32) {
        let core = self.core;
        let host = core.host();
        let Some(agent) = self.agent.as_mut().filter(|agent| agent.turn == turn) else {
            return;
        };
        agent.next = u64::MAX;
        host.here.set(agent.cpu);
        self.stats.events += 1;
        host.in_agent(|| agent.polling.turn(1));
        let kicks = host.agent_kicks.take();
        agent.busy_until = self.now;
        if !kicks.is_empty() {
            agent.busy_until += self.config.costs.agent_commit;
        }
        let at = agent.busy_until;
        for (cpu, preempt) in kicks {
            self.queue.push(at, Next::Kick { cpu, preempt });
        }
        self.deliver_all();
    }

    /// The agent's system call makes a CPU look for a task.
    pub(super) fn agent_kicks(&mut self, cpu: u32, preempt: bool) {
        if let Some(here) = self.agent.as_ref().map(|agent| agent.cpu) {
            self.kick(cpu, here, preempt);
        }
    }
}
