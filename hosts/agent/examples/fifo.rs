// SPDX-License-Identifier: GPL-2.0-only
//! A scheduler in Rust, in a process: one queue for all CPUs. See docs/agents.md.
//!
//! ```text
//! cargo build --release -p baton-agent --example fifo
//! baton enclave create mine --cpus 1-3
//! target/release/examples/fifo mine
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::AtomicBool;

use baton_agent::{schedule, Agent, Choice, Message, Scheduler, Wishes};

/// Slots and tokens of the tasks that wait.
#[derive(Default)]
struct Fifo(VecDeque<(u32, u64)>);

impl Scheduler for Fifo {
    fn ready(&mut self, agent: &Agent, task: &Message) {
        self.gone(agent, task);
        self.0.push_back((task.slot, task.token));
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        let place = self
            .0
            .iter()
            .position(|(slot, _)| agent.may_run(*slot, cpu))?;
        let (_, token) = self.0.remove(place)?;
        Some(Choice { token, slice: 0 })
    }

    fn gone(&mut self, _: &Agent, task: &Message) {
        self.0.retain(|(slot, _)| *slot != task.slot);
    }

    fn reset(&mut self, _: &Agent) {
        self.0.clear();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let enclave = std::env::args().nth(1).ok_or("usage: fifo ENCLAVE")?;
    let agent = Agent::attach(&enclave, &Wishes::default())?;
    schedule(&agent, 0, &mut Fifo::default(), &AtomicBool::new(false))?;
    Ok(())
}
