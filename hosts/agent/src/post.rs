// SPDX-License-Identifier: GPL-2.0-only
//! The CPU on which a global agent polls. When another program wants that CPU, the agent hands it
//! over and goes on where the enclave has a CPU that idles (ghOSt's hot handoff). This is for
//! schedulers that are written for agents: a policy may have queued tasks for that very CPU.

use std::fs;

use rustix::io::Errno;

use crate::agent::Agent;
use crate::serve::bind;

/// Turns between two looks at the clock.
const TURNS: u32 = 64;
/// So many turns take less time than this, ns, unless the thread was kept from its CPU for long. The
/// kernel's own threads take a CPU for shorter times, and are no reason to leave it.
const GAP: u64 = 10_000_000;

/// A thread that polls.
pub(crate) struct Post {
    turns: u32,
    /// The time at the last look, ns.
    looked: u64,
    /// How often the thread had lost its CPU to others, as of the last look that found a gap.
    switches: u64,
}

impl Post {
    /// This thread polls on the CPU of the agent.
    pub fn new(agent: &Agent) -> Result<Self, Errno> {
        agent.polls_on().map_or(Ok(()), bind)?;
        Ok(Self {
            turns: 0,
            looked: agent.now(),
            switches: switches(),
        })
    }

    /// Called in each turn. Moves the agent if it should, and if it can.
    #[inline]
    pub fn look(&mut self, agent: &Agent) {
        self.turns += 1;
        if self.turns < TURNS {
            return;
        }
        self.turns = 0;
        let now = agent.now();
        let gap = now.saturating_sub(self.looked);
        self.looked = now;
        if gap >= GAP {
            self.hand_over(agent);
        }
    }

    #[cold]
    fn hand_over(&mut self, agent: &Agent) {
        let before = std::mem::replace(&mut self.switches, switches());
        if before == self.switches {
            // Many messages, or a machine that stood still.
            return;
        }
        let Some(from) = agent.polls_on() else {
            return;
        };
        let idle = (0..agent.nr_cpus()).find(|cpu| agent.is_online(*cpu) && agent.is_idle(*cpu));
        let Some(to) = idle else {
            return;
        };
        let others = (0..agent.nr_cpus()).filter(|cpu| agent.is_of_enclave(*cpu) && *cpu != to);
        if others.count() == 0 {
            return;
        }
        agent.poll_on(to);
        // The CPU may have gone offline just now, or have taken a task from the standby ring, which
        // would wait for this thread.
        if bind(to).is_err() || agent.runs_task(to) {
            agent.poll_on(from);
            // If that CPU is offline, too, the thread stays where it is.
            let _ = bind(from);
        }
        self.looked = agent.now();
    }
}

/// How often this thread has lost its CPU to others.
fn switches() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    count
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}
