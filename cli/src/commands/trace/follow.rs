// SPDX-License-Identifier: GPL-2.0-only
//! What a recording says of tasks and CPUs: who waits, who runs where.

use std::collections::BTreeMap;

use baton_abi::{BatonMethod, BatonTask, BATON_PICK_KEEP, BATON_PICK_NONE, BATON_SELECT_DIRECT};
use baton_trace::{About, Call, Event, Header, Return};

/// Something that happened to a task or a CPU. Tasks by their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A task has been given to the policy; woken, if it was asleep or is new.
    Queued { slot: u32, woken: bool },
    /// A task has been taken from the policy's queues, not to run.
    Taken { slot: u32 },
    /// A CPU runs a task from now on; picked, if it waited for that.
    Runs { cpu: i32, slot: u32, picked: bool },
    /// A CPU has nobody to run any more.
    Idle { cpu: i32 },
}

/// Follows the events of a recording, in their order.
pub struct Follow {
    stamp_hz: u64,
    first: Option<u64>,
    /// Time of the last event, ns since the first.
    pub now: u64,
    /// Calls under way, by CPU that makes them.
    calls: BTreeMap<u16, Call>,
    /// An answer of a pick that may yet be refused, by CPU that asked: which CPU it is for, and the token.
    answers: BTreeMap<u16, (i32, u64)>,
    /// Process ids, by slot.
    pub tasks: BTreeMap<u32, BatonTask>,
}

fn is(call: &Call, method: BatonMethod) -> bool {
    call.method == method as u8
}

fn slot(token: u64) -> Option<u32> {
    (token as u32).checked_sub(1)
}

impl Follow {
    pub fn new(header: &Header) -> Self {
        Self {
            stamp_hz: header.stamp_hz,
            first: None,
            now: 0,
            calls: BTreeMap::new(),
            answers: BTreeMap::new(),
            tasks: BTreeMap::new(),
        }
    }

    /// The call that is under way on a CPU.
    pub fn call(&self, cpu: u16) -> Option<&Call> {
        self.calls.get(&cpu)
    }

    /// Goes one event on. `step` is told of what happened.
    pub fn event(&mut self, cpu: u16, event: &Event, mut step: impl FnMut(&Self, Step)) {
        self.tell_time(event);
        match event {
            Event::Call(call) => {
                // A refusal comes at once, or not at all.
                let refused = is(call, BatonMethod::PickRefused);
                let asked_anew = is(call, BatonMethod::NewlyIdle);
                if let Some((which, token)) = self.answers.remove(&cpu).filter(|_| !refused) {
                    self.settle(which, token, asked_anew, &mut step);
                }
                if let Some(task) = call.about.task() {
                    self.tasks.insert(task.slot, *task);
                }
                if let About::Given(task, _) = call.about {
                    let woken = is(call, BatonMethod::TaskWakeup) || is(call, BatonMethod::TaskNew);
                    step(self, Step::Queued { slot: task.slot, woken });
                }
                self.calls.insert(cpu, *call);
            }
            Event::Return(end) => {
                if let Some(call) = self.calls.remove(&cpu) {
                    self.answer(cpu, &call, end, &mut step);
                }
            }
            Event::Abandoned { .. } => drop(self.calls.remove(&cpu)),
            Event::End { .. } => {
                if let Some((which, token)) = self.answers.remove(&cpu) {
                    self.settle(which, token, false, &mut step);
                }
            }
            _ => {}
        }
    }

    fn tell_time(&mut self, event: &Event) {
        let time = match (self.stamp_hz, event) {
            // Stamps that only count say nothing of time.
            (0, Event::Call(call)) => call.now,
            (0, _) => return,
            (hz, event) => match event.stamp() {
                Some(stamp) => (u128::from(stamp) * 1_000_000_000 / u128::from(hz)) as u64,
                None => return,
            },
        };
        let first = *self.first.get_or_insert(time);
        self.now = self.now.max(time.saturating_sub(first));
    }

    fn answer(&mut self, cpu: u16, call: &Call, end: &Return, step: &mut impl FnMut(&Self, Step)) {
        match (&call.about, end.answer) {
            (About::Waking(task, _), answer) if answer & BATON_SELECT_DIRECT != 0 => {
                step(self, Step::Runs { cpu: answer as u32 as i32, slot: task.slot, picked: false });
            }
            (About::Pick(_, _), BATON_PICK_KEEP) => {}
            (About::Pick(which, _), token) => drop(self.answers.insert(cpu, (*which, token))),
            (About::Cpu(which), token) if is(call, BatonMethod::NewlyIdle) => {
                self.answers.insert(cpu, (*which, token));
            }
            (About::Task(task), token)
                if token != 0 && (is(call, BatonMethod::TaskDequeued) || is(call, BatonMethod::TaskDeparted)) =>
            {
                step(self, Step::Taken { slot: task.slot });
            }
            _ => {}
        }
    }

    fn settle(&self, which: i32, token: u64, asked_anew: bool, step: &mut impl FnMut(&Self, Step)) {
        match slot(token).filter(|_| token > BATON_PICK_KEEP) {
            Some(slot) => step(self, Step::Runs { cpu: which, slot, picked: true }),
            None if token == BATON_PICK_NONE && !asked_anew => step(self, Step::Idle { cpu: which }),
            None => {}
        }
    }
}
