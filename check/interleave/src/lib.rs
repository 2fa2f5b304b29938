// SPDX-License-Identifier: GPL-2.0-only
//! Searches for an order of events in which a policy fails. The rules of every host
//! ([`baton_core`]) call the policy's methods on two to four simulated CPUs, in thousands of
//! orders. Each run starts from the beginning.
//!
//! The CPUs are threads of `shuttle`: coroutines of one thread, one of which runs until it comes to
//! a scheduling point. Scheduling points are the entry to a method and its end, the taking of a
//! lock and its release, every other question of a policy to its host, and the use of an atomic by
//! a policy that was built for it (`hosts/native/c/atomics.c`). The simulated kernel that causes
//! these calls is in `kernel`. It follows the real kernel function by function, and has scheduling
//! points of its own.
//!
//! A [`Seed`] determines a schedule completely: it holds the machine, the way in which the next CPU
//! is chosen, and the number that seeds all random choices. The same seed therefore gives exactly
//! the same story.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod agent;
mod apart;
mod arena;
mod choose;
mod coverage;
mod drain;
mod events;
mod hint;
mod host;
mod kernel;
mod locks;
mod machine;
mod random;
mod search;
mod seed;
mod steps;
mod story;
mod table;
mod world;

pub use coverage::Coverage;
pub use hint::{HintSample, Said};
pub use search::{check, replay, Outcome, Progress};
pub use seed::{Seed, Way};
pub use story::{Abridged, Finding, Kind, Line, Report, Story};

pub use baton_enclave::AgentSpec;

use baton_abi::BatonCpu;
use baton_conformance::Step;
use baton_native::Policy;
use std::time::Duration;

/// What is checked.
#[derive(Clone)]
pub enum Subject {
    /// A policy, in the kernel.
    Policy(Policy),
    /// A policy, or a scheduler that is written for agents, as the agent of an enclave. The agent
    /// polls on the last CPU of the machine. At least one other CPU runs tasks.
    Agent(AgentSpec),
}

impl From<Policy> for Subject {
    fn from(policy: Policy) -> Self {
        Self::Policy(policy)
    }
}

impl From<AgentSpec> for Subject {
    fn from(spec: AgentSpec) -> Self {
        Self::Agent(spec)
    }
}

impl Subject {
    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Self::Policy(policy) => policy.name(),
            Self::Agent(spec) => spec.name.clone(),
        }
    }
}

/// A property that a correct policy keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// No CPU takes a lock twice, no two CPUs wait for each other's locks, and locks are released
    /// in the reverse order.
    Deadlock,
    /// No panic, no impossible allocation, and nothing that would end a process.
    Panic,
    /// No `Schedulable` is dropped, and each runnable task is picked when all CPUs ask for tasks.
    LostTask,
    /// No task is in two places.
    OnePlace,
    /// Answers are correct: the policy returns a `Schedulable` when the host asks for it, and does
    /// not repeat a refused answer again and again. No change of a thread's state is refused to a
    /// policy in C.
    Discipline,
    /// No CPU idles while a task waits that could run there, for longer than a number of ticks
    /// after the last wakeup (Ipanema's work conservation, in its concurrent form).
    WorkConservation,
    /// No CPU idles beside a task that it could run for more than [`Options::idle_ticks`]. This is
    /// stronger than `WorkConservation`, and is left out with it.
    IdleBeside,
    /// Each call returns.
    Endless,
    /// A waiting task runs within a time that depends on weights only, however long others want to
    /// run.
    BoundedWait,
    /// A CPU that was claimed gets a task.
    ClaimedIdle,
}

impl Property {
    /// All properties.
    pub const ALL: [Self; 10] = [
        Self::Deadlock,
        Self::Panic,
        Self::LostTask,
        Self::OnePlace,
        Self::Discipline,
        Self::WorkConservation,
        Self::IdleBeside,
        Self::Endless,
        Self::BoundedWait,
        Self::ClaimedIdle,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::Panic => "panic",
            Self::LostTask => "lost-task",
            Self::OnePlace => "one-place",
            Self::Discipline => "discipline",
            Self::WorkConservation => "work-conservation",
            Self::IdleBeside => "idle-beside-waiting",
            Self::Endless => "endless",
            Self::BoundedWait => "bounded-wait",
            Self::ClaimedIdle => "claimed-idle",
        }
    }
}

/// What to check, and for how long.
#[derive(Clone)]
pub struct Options {
    /// Options of the policy, as for `baton load`.
    pub policy: String,
    /// Number of CPUs; 0 draws two to four for each schedule.
    pub cpus: usize,
    /// The CPUs of the machine, which also gives their number; empty for pairs that share a cache.
    pub topology: Vec<BatonCpu>,
    /// Number of tasks; 0 draws two to six for each schedule.
    pub tasks: usize,
    /// Number of schedules.
    pub schedules: u64,
    /// Limit of the time of the search.
    pub time: Duration,
    /// Limit of the time spent on shortening the story of a failure.
    pub shorten: Duration,
    /// Number of the first seed.
    pub first: u64,
    /// The properties that are not checked.
    pub without: Vec<Property>,
    /// Limit of the ticks, of 4 ms each, for which a CPU may idle beside a task that it could run.
    pub idle_ticks: u64,
    /// Limit of the time that a call may take without a lock or a question; detection takes at most
    /// twice as long.
    pub call_limit: Duration,
    /// Hints that tasks send to the policy; if empty, random hints of small numbers.
    pub hints: Vec<HintSample>,
    /// The version that replaces the policy where an upgrade is one of the events; by default the
    /// policy itself, if it supports upgrades.
    pub next: Option<Policy>,
    /// The steps that the first task performs, alone and in order. If empty, all CPUs perform
    /// random events instead.
    pub steps: Vec<Step>,
}

impl Options {
    /// Number of CPUs; 0 draws two to four for each schedule.
    fn cpus(&self) -> usize {
        if self.topology.is_empty() {
            self.cpus
        } else {
            self.topology.len()
        }
    }

    /// The CPUs of a machine of `count` CPUs: pairs that share a cache, unless a topology was
    /// given.
    fn machine(&self, count: usize) -> Vec<BatonCpu> {
        if self.topology.len() == count {
            return self.topology.clone();
        }
        (0..count as u32)
            .map(|cpu| BatonCpu {
                core: cpu,
                llc: cpu / 2,
                node: 0,
                online: 1,
                cluster: cpu,
            })
            .collect()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: String::new(),
            cpus: 0,
            topology: Vec::new(),
            tasks: 0,
            schedules: 10_000,
            time: Duration::from_secs(60),
            shorten: Duration::from_secs(3),
            first: 0,
            without: Vec::new(),
            idle_ticks: 4,
            call_limit: Duration::from_secs(2),
            hints: Vec::new(),
            next: None,
            steps: Vec::new(),
        }
    }
}
