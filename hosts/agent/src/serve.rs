// SPDX-License-Identifier: GPL-2.0-only
//! The agents of CPUs: threads that begin and end as the enclave gets and loses CPUs.

use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::{sched_setaffinity, CpuSet};

use crate::host;
use crate::record;
use crate::runner::{Kicks, RunError, Runner};

/// How often the CPUs of the enclave are looked at, should no agent hear of a new one.
const LOOK: Duration = Duration::from_millis(100);

impl Runner {
    /// Has an agent on each CPU of the enclave, until the end.
    pub(crate) fn serve(&self) -> Result<(), RunError> {
        let cpus = self.agent().nr_cpus();
        let manager = thread::current();
        let serve = |cpu| {
            let served = self.serve_cpu(cpu, &manager);
            if served.is_err() {
                self.stop();
            }
            manager.unpark();
            served
        };
        let ended = thread::scope(|scope| {
            let join = |agent: ScopedJoinHandle<'_, _>| agent.join().expect("no agent panics");
            let mut ended = Ok(());
            let mut agents: Vec<Option<ScopedJoinHandle<'_, _>>> =
                (0..cpus).map(|_| None).collect();
            while !self.is_over() {
                for (cpu, agent) in agents.iter_mut().enumerate() {
                    if let Some(agent) = agent.take_if(|agent| agent.is_finished()) {
                        ended = ended.and(join(agent));
                    }
                    if agent.is_none() && self.agent().is_online(cpu) {
                        *agent = Some(scope.spawn(move || serve(cpu)));
                    }
                }
                thread::park_timeout(LOOK);
            }
            let agents = agents.into_iter().flatten();
            agents.map(join).fold(ended, Result::and)
        });
        ended.map_err(|errno: Errno| RunError::Thread(errno.into()))
    }

    /// The agent of a CPU, as long as the enclave has the CPU.
    fn serve_cpu(&self, cpu: usize, manager: &Thread) -> Result<(), Errno> {
        let begun = self.bind_to(cpu).and_then(|()| self.agent().serve(cpu));
        match begun {
            Err(Errno::SHUTDOWN) => return Ok(()),
            Err(_) if !self.agent().is_online(cpu) => return Ok(()),
            begun => begun?,
        }
        self.policy.install(Some(self.services.table()));
        record::use_lane(cpu);
        let mut kicks = Kicks::new(Some(cpu));
        // Whatever else ends the session ends a wait.
        while self.agent().lost() == 0 {
            while self.round(cpu, &mut kicks) {}
            if self.has_new_cpu.load(Relaxed) {
                self.has_new_cpu.store(false, Relaxed);
                manager.unpark();
            }
            if !self.agent().is_online(cpu) {
                self.flush(&mut kicks);
                return self.leave(cpu);
            }
            self.choose(cpu, &mut kicks);
            self.flush(&mut kicks);
            match self.agent().wait(self.time_left(cpu)) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::SHUTDOWN) => break,
                // The CPU went offline, and the kernel moved this thread.
                Err(Errno::PERM) => return self.leave(cpu),
                Err(errno) => return Err(errno),
            }
        }
        // In good order, before this thread ends: an enclave that loses the agent of a CPU takes
        // that for a failure. An error means that the session has ended. A failure of the policy is
        // being reported by the agent that made the call.
        if self.failure.get().is_none() {
            let _ = self.agent().end();
        }
        Ok(())
    }

    /// Binds this thread to a CPU of the enclave. The kernel's cpusets hear of a CPU that comes
    /// online later than the enclave does.
    fn bind_to(&self, cpu: usize) -> Result<(), Errno> {
        const LONGEST: Duration = Duration::from_secs(1);
        let begun = Instant::now();
        loop {
            match bind(cpu) {
                Err(Errno::INVAL) if self.agent().is_online(cpu) && begun.elapsed() < LONGEST => {
                    thread::sleep(Duration::from_millis(5));
                }
                bound => return bound,
            }
        }
    }

    /// The enclave has lost this agent's CPU.
    fn leave(&self, cpu: usize) -> Result<(), Errno> {
        match self.agent().leave() {
            Err(Errno::SHUTDOWN) => return Ok(()),
            left => left?,
        }
        // What was committed to the CPU meanwhile, if none of its last picks took it.
        if let Some(token) = self.agent().withdraw(cpu) {
            let mut kicks = Kicks::new(None);
            self.give_back(cpu, token, &mut kicks);
            self.flush(&mut kicks);
        }
        Ok(())
    }

    /// The time until this CPU's timer expires.
    fn time_left(&self, cpu: usize) -> Option<Duration> {
        match self.services.timers[cpu].load(Relaxed) {
            0 => None,
            at => Some(Duration::from_nanos(at.saturating_sub(host::now()).max(1))),
        }
    }
}

/// Binds this thread to a CPU.
pub(crate) fn bind(cpu: usize) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}
