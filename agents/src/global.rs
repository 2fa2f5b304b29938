// SPDX-License-Identifier: GPL-2.0-only
//! Sessions of schedulers that decide for all CPUs.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use baton_agent::{schedule, Agent, Ended, Mode, Poller, Polling, RunError, Scheduler, Session};

/// Makes a scheduler.
type Make<S> = fn(&Agent) -> S;

struct Global<S> {
    agent: Agent,
    /// The CPU on which it begins to poll.
    own: usize,
    stopping: AtomicBool,
    make: Make<S>,
}

impl<S: Scheduler> Session for Global<S> {
    fn run(&self) -> Result<Ended, RunError> {
        let mut scheduler = (self.make)(&self.agent);
        schedule(&self.agent, self.own, &mut scheduler, &self.stopping)
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

/// A session of such a scheduler.
pub fn begin<S: Scheduler + 'static>(
    agent: Agent,
    mode: Mode,
    make: Make<S>,
) -> Result<Box<dyn Session>, RunError> {
    match mode {
        Mode::Global(own) => Ok(Box::new(Global {
            agent,
            own,
            stopping: AtomicBool::new(false),
            make,
        })),
        Mode::PerCpu => Err(RunError::Policy(
            "this scheduler decides for all CPUs: --global".into(),
        )),
    }
}

/// Such a scheduler for a model of the kernel.
pub fn polling<S: Scheduler + 'static>(
    agent: Agent,
    own: usize,
    make: Make<S>,
) -> Box<dyn Polling> {
    let scheduler = make(&agent);
    Box::new(Poller::new(Rc::new(agent), own, scheduler))
}
