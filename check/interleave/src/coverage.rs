// SPDX-License-Identifier: GPL-2.0-only
//! Coverage: the schedules that differ in any call or answer, and the states of the machine at the
//! calls of the policy.

use crate::machine::Place;
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What one schedule has covered so far.
#[derive(Default)]
pub struct Trail {
    calls: Cell<u64>,
    states: RefCell<HashSet<u64>>,
}

/// What a schedule that has ended covered.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    calls: u64,
    states: Vec<u64>,
}

/// What all schedules together covered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    schedules: HashSet<u64>,
    states: HashSet<u64>,
    last_schedule: u64,
    last_state: u64,
}

impl Coverage {
    /// Number of distinct schedules: two are the same if the policy got the same calls in the same
    /// order and gave the same answers.
    pub fn schedules(&self) -> usize {
        self.schedules.len()
    }

    /// Number of different states of the machine at calls of the policy. A state is where each task
    /// is, its affinity, and what each CPU does.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    /// Number, from 1, of the last schedule that differed from all earlier ones.
    pub fn last_schedule(&self) -> u64 {
        self.last_schedule
    }

    /// Number, from 1, of the last schedule that reached a new state.
    pub fn last_state(&self) -> u64 {
        self.last_state
    }

    /// Adds the `number`th schedule, counted from 1.
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
    /// Notes a call of the policy, or its answer.
    pub fn note_passed(&self, what: impl Hash) {
        let calls = &self.trail.calls;
        calls.set(hash((calls.get(), self.here.get(), what)));
    }

    /// Notes the current state of the machine.
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

    /// What this schedule has covered.
    pub fn passed(&self) -> Passed {
        Passed {
            calls: self.trail.calls.get(),
            states: self.trail.states.take().into_iter().collect(),
        }
    }
}
