// SPDX-License-Identifier: GPL-2.0-only
//! `sol`: one queue for all CPUs, for latency.
//!
//! A task that gets ready while a CPU idles is committed to that CPU. Other tasks wait in the
//! standby ring, from which a CPU takes its next task without asking the agent. A task whose waker
//! is about to sleep also waits there, even if a CPU idles: the waker's CPU takes it with less work
//! than a CPU that must be woken. A task that may not run on every CPU waits in the queue. ghOSt's
//! `sol` is the model.

use std::collections::VecDeque;

use baton_abi::{BatonStateType, BatonToken, BATON_F_SYNC};
use baton_agent::{Agent, Choice, Message, Offer, Scheduler};

use crate::{global, Native};

/// `sol`, as `baton agent run` finds it.
pub const SOL: Native = Native {
    name: "sol",
    is_per_cpu: false,
    hint_type: BatonStateType::NONE,
    reply_type: BatonStateType::NONE,
    events: 0,
    polling: Some(|agent, own| global::polling(agent, own, Sol::new)),
    begin: |agent, mode| global::begin(agent, mode, Sol::new),
};

/// Where a task is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Not in the queue.
    Elsewhere,
    /// In the queue. It may run on every CPU, as the standby ring requires.
    Queued,
    /// The same. The task that woke it is about to sleep on this CPU.
    Following(usize),
    /// In the queue. It may not run on every CPU.
    Bound,
}

/// The scheduler.
struct Sol {
    /// Slots and tokens of the tasks that wait, but for those that the standby ring has.
    queue: VecDeque<(u32, BatonToken)>,
    /// By slot.
    places: Vec<Place>,
    /// The number of bound tasks in the queue. While it is not 0, `offer` puts no task into the
    /// standby ring, so that no task overtakes a bound one.
    bound: usize,
}

impl Sol {
    fn new(agent: &Agent) -> Self {
        Self {
            queue: VecDeque::new(),
            places: vec![Place::Elsewhere; agent.nr_slots() as usize],
            bound: 0,
        }
    }

    fn remove(&mut self, place: usize) -> Option<BatonToken> {
        let (slot, token) = self.queue.remove(place)?;
        let place = &mut self.places[slot as usize];
        self.bound -= usize::from(*place == Place::Bound);
        *place = Place::Elsewhere;
        Some(token)
    }
}

impl Scheduler for Sol {
    fn ready(&mut self, agent: &Agent, task: &Message) {
        self.gone(agent, task);
        let mut cpus = (0..agent.nr_cpus()).filter(|cpu| agent.is_online(*cpu));
        let is_bound = !cpus.all(|cpu| agent.may_run(task.slot, cpu));
        self.bound += usize::from(is_bound);
        self.places[task.slot as usize] = match usize::try_from(task.waker) {
            _ if is_bound => Place::Bound,
            Ok(waker) if task.flags & BATON_F_SYNC != 0 && agent.may_run(task.slot, waker) => {
                Place::Following(waker)
            }
            _ => Place::Queued,
        };
        self.queue.push_back((task.slot, task.token));
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        let may_run = |(slot, _): &(u32, _)| {
            // A task that follows its waker is left for `offer`, which runs after all picks. While
            // a bound task waits, `offer` returns nothing, so such a task is picked here.
            let is_offered = matches!(self.places[*slot as usize], Place::Following(_));
            agent.may_run(*slot, cpu) && (!is_offered || self.bound > 0)
        };
        let place = self.queue.iter().position(may_run)?;
        let token = self.remove(place)?;
        Some(Choice { token, slice: 0 })
    }

    fn gone(&mut self, _: &Agent, task: &Message) {
        if self.places[task.slot as usize] == Place::Elsewhere {
            return;
        }
        let is_task = |(slot, _): &(u32, _)| *slot == task.slot;
        if let Some(place) = self.queue.iter().position(is_task) {
            self.remove(place);
        }
    }

    fn reset(&mut self, _: &Agent) {
        self.queue.clear();
        self.places.fill(Place::Elsewhere);
        self.bound = 0;
    }

    fn offer(&mut self, _: &Agent) -> Option<Offer> {
        if self.bound > 0 {
            return None;
        }
        let (slot, _) = self.queue.front()?;
        let expected = match self.places[*slot as usize] {
            Place::Following(waker) => Some(waker),
            _ => None,
        };
        let token = self.remove(0)?;
        Some(Offer { token, expected })
    }
}
