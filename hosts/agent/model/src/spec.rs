// SPDX-License-Identifier: GPL-2.0-only
//! What runs as the agent of an enclave.

use std::fmt;
use std::sync::Arc;

use baton_abi::BATON_AGENT_ENTRIES;
use baton_agent::{Agent, Mode, Polling, Runner};
use baton_native::Policy;

/// Makes the agent's half of an enclave, which polls on the CPU of this number. The error is the
/// scheduler's own message.
pub type MakeAgent = dyn Fn(Agent, usize) -> Result<Box<dyn Polling>, String> + Send + Sync;

/// A policy, or a scheduler that is written for agents, as the agent of an enclave.
#[derive(Clone)]
pub struct AgentSpec {
    /// Its name.
    pub name: String,
    /// The `BATON_EV_*` that it wants messages about.
    pub events: u32,
    /// Messages that the ring of a CPU holds, a power of two.
    pub entries: u32,
    /// It goes on after messages were lost.
    pub resyncs: bool,
    /// Makes it.
    pub make: Arc<MakeAgent>,
}

impl fmt::Debug for AgentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent {}", self.name)
    }
}

impl AgentSpec {
    /// A policy as an agent. `options` as for `baton load`.
    pub fn of_policy(policy: Policy, options: &str) -> Self {
        let options = options.to_owned();
        let make = move |agent, own| -> Result<Box<dyn Polling>, String> {
            let runner = Runner::new(policy, &options, agent, Mode::Global(own), None);
            runner
                .map(|runner| Box::new(runner.polling()) as Box<dyn Polling>)
                .map_err(|why| why.to_string())
        };
        Self {
            resyncs: false,
            ..Self::of_scheduler(&policy.name(), policy.events(), make)
        }
    }

    /// A scheduler that is written for agents.
    pub fn of_scheduler(
        name: &str,
        events: u32,
        make: impl Fn(Agent, usize) -> Result<Box<dyn Polling>, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            events,
            entries: BATON_AGENT_ENTRIES,
            resyncs: true,
            make: Arc::new(make),
        }
    }
}
