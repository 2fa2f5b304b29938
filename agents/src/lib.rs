// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers that are written for agents: see docs/agents.md.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod edf;
mod global;
mod ranked;
mod search;
mod secure_vm;
mod snap;
mod sol;

use baton_abi::BatonStateType;
use baton_agent::{Agent, Mode, Polling, RunError, Session};

/// Makes a scheduler that decides for all CPUs, and polls on the CPU of this number.
pub type MakePolling = fn(Agent, usize) -> Box<dyn Polling>;

/// A scheduler for agents, as `baton agent run` finds it.
pub struct Native {
    /// Its name.
    pub name: &'static str,
    /// Does it have an agent on each CPU, or one that decides for all?
    pub is_per_cpu: bool,
    /// The type of the hints that it takes; without a name it takes none.
    pub hint_type: BatonStateType,
    /// The type of its replies.
    pub reply_type: BatonStateType,
    /// The `BATON_EV_*` that it wants messages about.
    pub events: u32,
    /// Makes the scheduler for a model of the kernel. `None` if each CPU has an agent of its own.
    pub polling: Option<MakePolling>,
    begin: fn(Agent, Mode) -> Result<Box<dyn Session>, RunError>,
}

/// All of them.
pub const NATIVE: [Native; 5] = [
    sol::SOL,
    edf::EDF,
    snap::SNAP,
    search::SEARCH,
    secure_vm::SECURE_VM,
];

/// The scheduler of this name.
pub fn find(name: &str) -> Option<&'static Native> {
    NATIVE.iter().find(|native| native.name == name)
}

impl Native {
    /// Makes a session of an agent that has attached, with the scheduler's own kind of mode.
    pub fn begin(&self, agent: Agent, mode: Mode) -> Result<Box<dyn Session>, RunError> {
        (self.begin)(agent, mode)
    }
}
