// SPDX-License-Identifier: GPL-2.0-only
//! Looks for the order of events in which a policy goes wrong: its methods, called by the rules of
//! every host ([`baton_core`]) on two to four simulated CPUs, in thousands of orders, each from the
//! beginning.
//!
//! The CPUs are threads of `shuttle`: coroutines of one thread, of which one goes on until it comes
//! to a scheduling point. Such are the entry to a method and its end, the taking of a lock and its
//! release, whatever else a policy asks its host, and the use of an atomic by a policy that was
//! built for it (`hosts/native/c/atomics.c`). What the simulated kernel does between them is in
//! `kernel`, function by function of the real one; it has the same points.
//!
//! What a schedule does is in its [`Seed`] whole: the machine, the way in which the next CPU is
//! chosen, and a number of which all chance comes. So the same seed gives the same story, to the
//! letter.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

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
mod story;
mod table;
mod world;

pub use coverage::Coverage;
pub use hint::{HintSample, Said};
pub use search::{check, replay, Outcome, Progress};
pub use seed::{Seed, Way};
pub use story::{Abridged, Finding, Kind, Line, Report, Story};

use baton_abi::BatonCpu;
use baton_native::Policy;
use std::time::Duration;

/// What a right policy keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// No lock is taken twice by one CPU, no two CPUs wait for each other's, all are released in
    /// the reverse order.
    Deadlock,
    /// No panic, no allocation that cannot be, and nothing that would end a process.
    Panic,
    /// No `Schedulable` is dropped, and each task that can run is picked when all CPUs ask for
    /// tasks.
    LostTask,
    /// No task is in two places.
    OnePlace,
    /// Answers are what they should be: no `Schedulable` is kept that the host asked back, and none
    /// is answered again and again.
    Discipline,
    /// No CPU idles while a task waits that could run there, for longer than a number of ticks
    /// after the last wakeup (Ipanema's work conservation, in its concurrent form).
    WorkConservation,
    /// No CPU idles beside a task that it could run for more than [`Options::idle_ticks`]. The
    /// stronger form of the one before, and left out with it.
    IdleBeside,
    /// Each call comes to its end.
    Endless,
    /// Who waits runs within a time that depends on weights only, however long others want to run.
    BoundedWait,
    /// A CPU that was claimed gets something to do.
    ClaimedIdle,
}

impl Property {
    /// All.
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

    /// As the command line has it.
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
    /// As for `baton load`.
    pub policy: String,
    /// CPUs; 0 for two to four by turns.
    pub cpus: usize,
    /// The machine: its CPUs, of which there are then so many; none for pairs that share a cache.
    pub topology: Vec<BatonCpu>,
    /// Tasks; 0 for two to six by turns.
    pub tasks: usize,
    /// How many schedules.
    pub schedules: u64,
    /// For how long at most.
    pub time: Duration,
    /// For how long a failure is looked at for a shorter story.
    pub shorten: Duration,
    /// Where seeds begin.
    pub first: u64,
    /// The properties that are not looked at.
    pub without: Vec<Property>,
    /// For how many ticks, of 4 ms, a CPU may idle beside a task that it could run.
    pub idle_ticks: u64,
    /// For how long a call may go on that neither locks nor asks; at most twice as long pass until
    /// that is noticed.
    pub call_limit: Duration,
    /// What tasks say to the policy; small numbers by chance if there are none.
    pub hints: Vec<HintSample>,
    /// The version that takes the place of the policy, where an upgrade is one of the events; the
    /// policy itself if it can.
    pub next: Option<Policy>,
}

impl Options {
    /// CPUs; 0 for two to four by turns.
    fn cpus(&self) -> usize {
        if self.topology.is_empty() {
            self.cpus
        } else {
            self.topology.len()
        }
    }

    /// The CPUs of a machine of so many: pairs that share a cache, unless a topology was given.
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
        }
    }
}
