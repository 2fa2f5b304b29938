// SPDX-License-Identifier: GPL-2.0-only
//! The CPU on which a global agent polls. When another program wants that CPU, the agent hands it
//! over and goes on where the enclave has a CPU that idles (ghOSt's hot handoff). This is for
//! schedulers that are written for agents: a policy may have queued tasks for that very CPU.

use rustix::io::Errno;
use rustix::time::ClockId;

use crate::agent::{time, Agent};
use crate::serve::bind;

/// Turns between two looks at the clock.
const TURNS: u32 = 64;
/// The time between two looks at the thread's own clock, which is a system call, ns. It is several
/// slices of a program that shares the CPU with the agent.
const PERIOD: u64 = 40_000_000;
/// An agent that did not have its CPU for this part of a period leaves it. The kernel's own threads
/// take a CPU for shorter times, and are no reason to leave it.
const MAX_KEPT: u64 = 4;

/// A thread that polls.
pub(crate) struct Post {
    turns: u32,
    last: Times,
}

/// Times at a look at both clocks, ns.
#[derive(Clone, Copy)]
struct Times {
    now: u64,
    /// For which the thread had run.
    used: u64,
}

impl Times {
    /// Of this thread.
    fn read(agent: &Agent) -> Self {
        Self {
            now: agent.now(),
            used: time(ClockId::ThreadCPUTime),
        }
    }

    /// Has another thread had this one's CPU for long since an earlier look? A virtual machine that
    /// stood still takes nothing from its threads.
    fn is_kept_since(self, earlier: Self) -> bool {
        let passed = self.now.saturating_sub(earlier.now);
        let used = self.used.saturating_sub(earlier.used);
        passed.saturating_sub(used) > passed / MAX_KEPT
    }
}

impl Post {
    /// This thread polls on the CPU of the agent.
    pub fn new(agent: &Agent) -> Result<Self, Errno> {
        agent.polls_on().map_or(Ok(()), bind)?;
        Ok(Self {
            turns: 0,
            last: Times::read(agent),
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
        if agent.now().saturating_sub(self.last.now) < PERIOD {
            return;
        }
        let times = Times::read(agent);
        let is_kept = times.is_kept_since(self.last);
        self.last = times;
        if is_kept {
            self.hand_over(agent);
        }
    }

    #[cold]
    fn hand_over(&mut self, agent: &Agent) {
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
        self.last = Times::read(agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_threads_keep_an_agent_from_its_cpu() {
        let start = Times { now: 5, used: 3 };
        let is_kept = |now, used| Times { now, used }.is_kept_since(start);
        assert!(is_kept(5 + PERIOD, 3), "another thread ran");
        assert!(
            is_kept(5 + PERIOD, 3 + PERIOD / 2),
            "it had every second slice"
        );
        assert!(!is_kept(5 + PERIOD, 3 + PERIOD), "nothing else ran");
        assert!(
            !is_kept(5 + PERIOD, 3 + PERIOD / 10 * 9),
            "it ran for a moment"
        );
        assert!(
            !is_kept(5 + 9 * PERIOD, 3 + 9 * PERIOD),
            "the machine stood still"
        );
        // The clocks are read one after the other.
        assert!(!is_kept(5 + PERIOD, 4 + PERIOD));
    }
}
