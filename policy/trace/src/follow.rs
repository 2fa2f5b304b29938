// SPDX-License-Identifier: GPL-2.0-only
//! Follows tasks and CPUs through a recording: which tasks wait, and which CPU runs which task.

extern crate alloc;

use crate::{About, Call, Event, Item, Recording, Return, Stream};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use baton_abi::{BatonMethod, BatonTask, BATON_PICK_KEEP, BATON_PICK_NONE, BATON_SELECT_DIRECT};

/// A change of a task or a CPU. Tasks are identified by their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The policy received a task.
    Queued {
        /// The slot of the task.
        slot: u32,
        /// The task was asleep, or is new.
        woken: bool,
    },
    /// A task was taken from the policy's queues, but not to run.
    Taken {
        /// The slot of the task.
        slot: u32,
    },
    /// A CPU begins to run a task.
    Runs {
        /// The CPU.
        cpu: i32,
        /// The slot of the task.
        slot: u32,
        /// The task was picked, and not placed directly on the CPU at its wakeup.
        picked: bool,
    },
    /// A CPU has no task to run.
    Idle {
        /// The CPU.
        cpu: i32,
    },
}

/// Follows the events of a recording, in their order.
pub struct Follow {
    stamp_hz: u64,
    first: Option<u64>,
    /// Time of the last event, ns since the first.
    pub now: u64,
    /// Calls in progress, by the CPU that makes them.
    calls: BTreeMap<u16, Call>,
    /// Number of calls that have returned so far, by CPU.
    ends: BTreeMap<u16, u64>,
    /// Returns whose answer does not hold: it was refused, or it was empty and the host called
    /// another method.
    void: BTreeSet<(u16, u64)>,
    /// The last known state of each task, by slot.
    pub tasks: BTreeMap<u32, BatonTask>,
}

fn is(call: &Call, method: BatonMethod) -> bool {
    call.method == method as u8
}

fn slot(token: u64) -> Option<u32> {
    (token as u32).checked_sub(1)
}

impl Follow {
    /// Begins before the first event of a recording.
    pub fn new(recording: &Recording) -> Self {
        Self {
            stamp_hz: recording.header.stamp_hz,
            first: None,
            now: 0,
            calls: BTreeMap::new(),
            ends: BTreeMap::new(),
            void: recording.streams.iter().flat_map(void).collect(),
            tasks: BTreeMap::new(),
        }
    }

    /// The call in progress on a CPU.
    pub fn call(&self, cpu: u16) -> Option<&Call> {
        self.calls.get(&cpu)
    }

    /// Advances by one event. `step` is called for each change.
    pub fn event(&mut self, cpu: u16, event: &Event, mut step: impl FnMut(&Self, Step)) {
        self.tell_time(event);
        match event {
            Event::Call(call) => {
                if let Some(task) = call.about.task() {
                    self.tasks.insert(task.slot, *task);
                }
                if let About::Given(task, _) = call.about {
                    let woken = is(call, BatonMethod::TaskWakeup) || is(call, BatonMethod::TaskNew);
                    step(
                        self,
                        Step::Queued {
                            slot: task.slot,
                            woken,
                        },
                    );
                }
                self.calls.insert(cpu, *call);
            }
            Event::Return(end) => {
                let ends = self.ends.entry(cpu).or_default();
                *ends += 1;
                let holds = !self.void.contains(&(cpu, *ends));
                if let Some(call) = self.calls.remove(&cpu).filter(|_| holds) {
                    self.answer(&call, end, &mut step);
                }
            }
            Event::Abandoned { .. } => drop(self.calls.remove(&cpu)),
            _ => {}
        }
    }

    /// Are calls in progress?
    pub fn is_in_call(&self) -> bool {
        !self.calls.is_empty()
    }

    fn tell_time(&mut self, event: &Event) {
        let time = match (self.stamp_hz, event) {
            // Stamps that are mere counts do not measure time.
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

    fn answer(&mut self, call: &Call, end: &Return, step: &mut impl FnMut(&Self, Step)) {
        match (&call.about, end.answer) {
            (About::Waking(task, _), answer) if answer & BATON_SELECT_DIRECT != 0 => {
                step(
                    self,
                    Step::Runs {
                        cpu: answer as u32 as i32,
                        slot: task.slot,
                        picked: false,
                    },
                );
            }
            (About::Pick(_, _), BATON_PICK_KEEP) => {}
            (About::Pick(cpu, prev), BATON_PICK_NONE) => {
                // The host lets the previous task go on if it can.
                if prev.is_none() {
                    step(self, Step::Idle { cpu: *cpu });
                }
            }
            (About::Cpu(cpu), BATON_PICK_NONE) if is(call, BatonMethod::NewlyIdle) => {
                step(self, Step::Idle { cpu: *cpu });
            }
            (About::Pick(cpu, _), token) => self.runs(*cpu, token, step),
            (About::Cpu(cpu), token) if is(call, BatonMethod::NewlyIdle) => {
                self.runs(*cpu, token, step)
            }
            (About::Task(task), token)
                if token != 0
                    && (is(call, BatonMethod::TaskDequeued)
                        || is(call, BatonMethod::TaskDeparted)) =>
            {
                step(self, Step::Taken { slot: task.slot });
            }
            _ => {}
        }
    }

    fn runs(&self, cpu: i32, token: u64, step: &mut impl FnMut(&Self, Step)) {
        if let Some(slot) = slot(token) {
            step(
                self,
                Step::Runs {
                    cpu,
                    slot,
                    picked: true,
                },
            );
        }
    }
}

/// The returns, by CPU and number, whose answer does not hold. The call that makes an answer void
/// follows directly.
fn void(stream: &Stream) -> Vec<(u16, u64)> {
    let (mut void, mut ends, mut last) = (Vec::new(), 0, None);
    for item in stream.items() {
        match item {
            Item::Event(Event::Call(call)) => {
                let is_void = match last {
                    Some(BATON_PICK_NONE) => is(&call, BatonMethod::NewlyIdle),
                    Some(_) => is(&call, BatonMethod::PickRefused),
                    None => false,
                };
                if is_void {
                    void.push((stream.cpu, ends));
                }
                last = None;
            }
            Item::Event(Event::Return(end)) => {
                ends += 1;
                last = Some(end.answer);
            }
            _ => {}
        }
    }
    void
}
