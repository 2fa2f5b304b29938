// SPDX-License-Identifier: GPL-2.0-only
//! `sol`: one queue for all CPUs, for latency.
//!
//! A task that gets ready while a CPU idles is committed to that CPU. Any other waits in the
//! standby ring, so that a CPU whose task sleeps runs the next one without asking. ghOSt's `sol` is
//! the model.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use baton_abi::BatonToken;
use baton_agent::{
    schedule, Agent, Choice, Ended, Message, Mode, Poller, RunError, Scheduler, Session,
};

use crate::Native;

/// `sol`, as `baton agent run` finds it.
pub const SOL: Native = Native {
    name: "sol",
    is_per_cpu: false,
    events: 0,
    polling: Some(|agent, own| {
        let sol = Sol::new(&agent, own);
        Box::new(Poller::new(Rc::new(agent), own, sol))
    }),
    begin: |agent, mode| match mode {
        Mode::Global(own) => Ok(Box::new(Polling {
            agent,
            own,
            stopping: AtomicBool::new(false),
        })),
        Mode::PerCpu => Err(RunError::Policy(
            "sol decides for all CPUs: --global".into(),
        )),
    },
};

/// A session of `sol`.
struct Polling {
    agent: Agent,
    /// The CPU on which it polls.
    own: usize,
    stopping: AtomicBool,
}

impl Session for Polling {
    fn run(&self) -> Result<Ended, RunError> {
        let mut sol = Sol::new(&self.agent, self.own);
        schedule(&self.agent, self.own, &mut sol, &self.stopping)
            .map_err(|errno| RunError::Thread(errno.into()))?;
        self.stop();
        Ok(Ended::Stopped)
    }

    fn stop(&self) {
        self.stopping.store(true, Relaxed);
        // Fails only if it has ended already.
        let _ = self.agent.end();
    }
}

/// Where a task is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Not in the queue.
    Elsewhere,
    /// In the queue. It may run on every CPU, as the standby ring requires.
    Queued,
    /// In the queue. It may not run on every CPU.
    Bound,
}

/// The scheduler.
struct Sol {
    own: usize,
    /// Slots and tokens of the tasks that wait, but for those that the standby ring has.
    queue: VecDeque<(u32, BatonToken)>,
    /// By slot.
    places: Vec<Place>,
    /// How many of the queue are bound. While one waits, nothing passes it by the standby ring.
    bound: usize,
}

impl Sol {
    fn new(agent: &Agent, own: usize) -> Self {
        Self {
            own,
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
        let mut cpus = (0..agent.nr_cpus()).filter(|cpu| *cpu != self.own && agent.is_online(*cpu));
        let is_bound = !cpus.all(|cpu| agent.may_run(task.slot, cpu));
        self.bound += usize::from(is_bound);
        self.places[task.slot as usize] = match is_bound {
            true => Place::Bound,
            false => Place::Queued,
        };
        self.queue.push_back((task.slot, task.token));
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        let may_run = |(slot, _): &(u32, _)| agent.may_run(*slot, cpu);
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

    fn offer(&mut self, _: &Agent) -> Option<BatonToken> {
        if self.bound > 0 {
            return None;
        }
        self.remove(0)
    }
}
