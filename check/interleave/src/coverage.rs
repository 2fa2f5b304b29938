// SPDX-License-Identifier: GPL-2.0-only
//! How much of what there is was seen: schedules that differ in any call or answer, and states of
//! the machine as a call finds them.

use crate::machine::Place;
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What one schedule came by.
#[derive(Default)]
pub struct Trail {
    calls: Cell<u64>,
    states: RefCell<HashSet<u64>>,
}

/// The same, of a schedule that has ended.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    calls: u64,
    states: Vec<u64>,
}

/// What all schedules came by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    schedules: HashSet<u64>,
    states: HashSet<u64>,
    last_schedule: u64,
    last_state: u64,
}

impl Coverage {
    /// How many schedules differ from all others, in a call of the policy, its order or its answer.
    pub fn schedules(&self) -> usize {
        self.schedules.len()
    }

    /// In how many states the machine was when the policy was called: where each task is, what it
    /// may use, and what each CPU does.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    /// Which schedule, from 1, was the last that differed from all before.
    pub fn last_schedule(&self) -> u64 {
        self.last_schedule
    }

    /// Which schedule, from 1, was the last in which there was a new state.
    pub fn last_state(&self) -> u64 {
        self.last_state
    }

    /// The `number`th schedule, from 1.
    pub(crate) fn add(&mut self, number: u64, passed: &Passed) {
        if self.schedules.insert(passed.calls) {
            self.last_schedule = number;
        }
        let before = self.states.len();
        self.states.extend(&passed.states);
        if self.states.len() > before {
            self.last_state = number;
        }
    }
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl World {
    /// The policy is called, or has answered.
    pub fn note_passed(&self, what: impl Hash) {
        let calls = &self.trail.calls;
        calls.set(hash((calls.get(), self.here.get(), what)));
    }

    /// The state of the machine as it is now.
    pub fn note_state(&self) {
        let mut hasher = DefaultHasher::new();
        for cpu in &self.cpus {
            let queue = cpu.local.borrow();
            (
                cpu.current.get(),
                cpu.resched.get(),
                cpu.in_balance.get(),
                cpu.off.get(),
                &*queue,
            )
                .hash(&mut hasher);
        }
        for task in self.tasks.borrow().iter().filter(|task| task.is_alive()) {
            let place = match task.place.get() {
                Place::Away => 0,
                Place::Custody => 1,
                Place::Local(cpu) => 2 + cpu,
                Place::OnCpu(cpu) => 16 + cpu,
            };
            let slot = self.core.slots()[task.slot() as usize].state() as u32;
            (
                task.pid,
                place,
                slot,
                task.rq.get(),
                task.mask.get(),
                task.nice.get(),
            )
                .hash(&mut hasher);
            (task.runnable.get(), task.ours.get(), task.holding.get()).hash(&mut hasher);
        }
        self.trail.states.borrow_mut().insert(hasher.finish());
    }

    /// What this schedule came by.
    pub fn passed(&self) -> Passed {
        Passed {
            calls: self.trail.calls.get(),
            states: self.trail.states.take().into_iter().collect(),
        }
    }
}
