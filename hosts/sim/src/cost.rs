// SPDX-License-Identifier: GPL-2.0-only
//! The costs of the machine's own work. The defaults are round numbers for a current server. Each
//! can be set.

use crate::topology::Distance;

/// Costs, ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The period of the tick (CONFIG_HZ=250).
    pub tick: u64,
    /// What a tick takes of the running task's time.
    pub tick_work: u64,
    /// A context switch: from `__schedule()` to the first instruction of the next task.
    pub switch: u64,
    /// What a wakeup takes of the waker's time.
    pub wakeup: u64,
    /// Any other system call.
    pub syscall: u64,
    /// From one CPU's request to the interrupt on another.
    pub ipi: u64,
    /// From the interrupt to `__schedule()` on a CPU that was idle.
    pub idle_exit: u64,
    /// What a fork takes of the parent's time.
    pub fork: u64,
    /// What a task that comes to another CPU waits for memory, by what the two CPUs share: a core,
    /// a last-level cache, a node, nothing. As much as it lost on its own when others ran there.
    pub refill: [u64; 4],
    /// From a message to when a polling agent sees it.
    pub agent_message: u64,
    /// What an agent takes to answer a message.
    pub agent_work: u64,
    /// An agent's system call that makes CPUs look at their transactions.
    pub agent_commit: u64,
    /// The speed of a CPU whose SMT sibling is busy, in 1/1024 of its full speed.
    pub smt: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            tick: 4_000_000,
            tick_work: 1_000,
            switch: 1_200,
            wakeup: 500,
            syscall: 200,
            ipi: 500,
            idle_exit: 1_000,
            fork: 30_000,
            refill: [0, 2_000, 8_000, 20_000],
            agent_message: 250,
            agent_work: 250,
            agent_commit: 650,
            smt: 640,
        }
    }
}

impl Costs {
    /// All costs by name, for options and lists.
    pub fn by_name(&mut self) -> [(&'static str, &mut u64); 16] {
        let [core, llc, node, machine] = &mut self.refill;
        [
            ("tick", &mut self.tick),
            ("tick_work", &mut self.tick_work),
            ("switch", &mut self.switch),
            ("wakeup", &mut self.wakeup),
            ("syscall", &mut self.syscall),
            ("ipi", &mut self.ipi),
            ("idle_exit", &mut self.idle_exit),
            ("fork", &mut self.fork),
            ("refill_core", core),
            ("refill_llc", llc),
            ("refill_node", node),
            ("refill_machine", machine),
            ("agent_message", &mut self.agent_message),
            ("agent_work", &mut self.agent_work),
            ("agent_commit", &mut self.agent_commit),
            ("smt", &mut self.smt),
        ]
    }

    /// What a task waits for memory after a migration over this distance.
    pub fn refill(&self, distance: Distance) -> u64 {
        match distance {
            Distance::Same => 0,
            Distance::Core => self.refill[0],
            Distance::Llc => self.refill[1],
            Distance::Node => self.refill[2],
            Distance::Machine => self.refill[3],
        }
    }
}
