// SPDX-License-Identifier: GPL-2.0-only
//! The state of a machine at a moment of a recording, and the later actions of its tasks. A
//! simulation can continue from there ([`crate::go_on`]).
//!
//! A moment is between calls, and every task is with the policy, on a CPU or asleep. A recording
//! does not contain everything, so this is assumed:
//! - A task may use every CPU except those that the host reported as not allowed. A task whose
//!   wakeups never asked the policy to select a CPU may use only its own.
//! - The waker of a task is the current task of the CPU on which the wakeup happened.

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

/// A task that exists at the moment.
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

/// The state of a machine at a moment of a recording.
pub struct Scene {
    /// The number of the event that follows the moment.
    pub number: u64,
    /// The time from the moment to the end of the recording, ns.
    pub rest: u64,
    /// The clock of the policy, ns.
    pub(crate) clock: u64,
    pub(crate) tasks: Vec<There>,
    /// By CPU: is it online?
    pub(crate) online: Vec<bool>,
    /// By CPU: the time until the policy's timer expires, ns.
    pub(crate) timers: Vec<Option<u64>>,
    /// Tasks that come later, and changes of CPUs.
    pub(crate) world: World,
}

impl Scene {
    /// The scene before this event, which [`moment`] has found.
    pub fn of(recording: &Recording, number: u64) -> Result<Self, String> {
        let mut history = History::new(recording, number);
        for told in recording.merged() {
            match told.item {
                Item::Event(event) => history.event(told.number, told.cpu, &event),
                // Events after a gap do not continue those before it.
                Item::Gap { .. } | Item::Malformed => break,
            }
        }
        history.scene()
    }

    /// The numbers of tasks with the policy, on CPUs, and asleep.
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

    /// A configuration of the recorded machine, as far as the recording describes it. Its duration
    /// is the rest of the recording.
    pub fn config(&self, recording: &Recording) -> Result<Config, String> {
        let mut places = recording.header.places();
        places.iter_mut().for_each(|place| place.online = 1);
        let mut config = Config::new(Topology::of(places)?);
        config.max_tasks = recording.header.max_tasks;
        config.duration = self.rest;
        Ok(config)
    }
}
