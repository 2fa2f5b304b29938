// SPDX-License-Identifier: GPL-2.0-only
//! What a machine was doing at a moment of a recording, and what its tasks did from there on: so
//! that a simulation can go on with a policy as it was at that moment ([`crate::go_on`]).
//!
//! A moment is between calls, and every task is with the policy, on a CPU or asleep. What a
//! recording does not say is taken as follows: a task may use every CPU but those for which the
//! host said no (and one whose wakeups are never asked about, its own only); who woke a task is who
//! ran on the CPU of the wakeup.

mod history;
mod moment;

pub use moment::moment;

use std::sync::Arc;

use baton_core::Whereabouts;
use baton_trace::{Item, Recording};

use crate::topology::{CpuMask, Topology};
use crate::world::{Spawn, World};
use crate::Config;
use history::History;

/// A task that is there.
pub(crate) struct There {
    pub slot: u32,
    pub pid: u32,
    pub nice: i32,
    /// CPU time that it has used, ns.
    pub runtime: u64,
    /// The rest of its slice, ns; 0 if that is not known.
    pub slice: u64,
    /// The CPU whose run queue it is on.
    pub cpu: u32,
    /// The CPUs that it may use, if not all.
    pub mask: Option<Arc<CpuMask>>,
    pub whereabouts: Whereabouts,
    pub spawn: Spawn,
}

/// What a machine was doing.
pub struct Scene {
    /// The event before which it is.
    pub number: u64,
    /// How long the recording goes on, ns.
    pub rest: u64,
    /// The clock of the policy, ns.
    pub(crate) clock: u64,
    pub(crate) tasks: Vec<There>,
    /// By CPU: is it online?
    pub(crate) online: Vec<bool>,
    /// By CPU: in how many ns the policy's timer runs out.
    pub(crate) timers: Vec<Option<u64>>,
    /// Tasks that come later, and changes of CPUs.
    pub(crate) world: World,
}

impl Scene {
    /// Before this event, which is one that [`moment`] has found.
    pub fn of(recording: &Recording, number: u64) -> Result<Self, String> {
        let mut history = History::new(recording, number);
        for told in recording.merged() {
            match told.item {
                Item::Event(event) => history.event(told.number, told.cpu, &event),
                // What comes after a gap does not follow from what was before.
                Item::Gap { .. } | Item::Malformed => break,
            }
        }
        history.scene()
    }

    /// How many tasks were with the policy, on CPUs, and asleep.
    pub fn counts(&self) -> [usize; 3] {
        let count = |is: fn(&Whereabouts) -> bool| {
            self.tasks
                .iter()
                .filter(|task| is(&task.whereabouts))
                .count()
        };
        [
            count(|at| matches!(at, Whereabouts::Queued(_))),
            count(|at| *at == Whereabouts::Running),
            count(|at| *at == Whereabouts::Asleep),
        ]
    }

    /// The machine, as far as the recording tells; for the rest of the recording's time.
    pub fn config(&self, recording: &Recording) -> Result<Config, String> {
        let place = |&(core, llc, node, _): &(u32, u32, u32, bool)| baton_abi::BatonCpu {
            core,
            llc,
            node,
            online: 1,
        };
        let mut config = Config::new(Topology::of(
            recording.header.cpus.iter().map(place).collect(),
        )?);
        config.max_tasks = recording.header.max_tasks;
        config.duration = self.rest;
        Ok(config)
    }
}
