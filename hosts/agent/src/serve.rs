// SPDX-License-Identifier: GPL-2.0-only
//! The agents of CPUs: threads that begin and end as the enclave gets and loses CPUs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

use baton_abi::BatonToken;
use rustix::io::Errno;
use rustix::thread::{sched_setaffinity, CpuSet};

use crate::agent::Agent;

/// How often the CPUs of the enclave are looked at, should no agent hear of a new one.
const LOOK: Duration = Duration::from_millis(100);

/// How long a CPU that is online may refuse its agent in the first session of a process. Tasks may
/// be bound to the CPU, and if this process may not use it, that does not pass.
const FIRST: Duration = Duration::from_secs(2);
/// The same for a CPU that was offline, or that the enclave lost, and in a later session, which can
/// begin because a CPU kept others waiting as it left. A CPU can take seconds to come.
const LATER: Duration = Duration::from_secs(10);

/// Has this process had a session with agents of CPUs?
static HAS_SERVED: AtomicBool = AtomicBool::new(false);

/// What the agents of an enclave's CPUs do. Each is a thread on its CPU, which runs there when
/// there are messages, and several run at once.
pub trait PerCpu: Sync {
    /// What each of the threads has for itself.
    type Local;

    /// The connection to the enclave.
    fn agent(&self) -> &Agent;

    /// Has something other than the enclave ended the session?
    fn is_over(&self) -> bool;

    /// This thread has become the agent of a CPU.
    fn begin(&self, cpu: usize) -> Self::Local;

    /// Answers the messages of all CPUs, and chooses a task for this agent's CPU. The CPU gets it
    /// when the agent gives way, which follows. `None` if that CPU is not the enclave's any more.
    fn turn(&self, cpu: usize, local: &mut Self::Local) -> Option<Turn>;

    /// The enclave has lost this agent's CPU, which did not take the task of this token.
    fn lost(&self, cpu: usize, token: Option<BatonToken>);

    /// This agent ends, for any reason but the loss of its CPU. The session ends before the thread
    /// does: an enclave that loses the agent of a CPU takes that for a failure.
    fn end(&self);
}

/// What follows on [`PerCpu::turn`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// The agent runs again after this time, if there is no message before.
    pub wait: Option<Duration>,
    /// The enclave has got a CPU, which needs an agent.
    pub has_new_cpu: bool,
}

/// Has an agent on each CPU of the enclave, until the end of the session.
pub fn serve(agents: &impl PerCpu) -> Result<(), Errno> {
    let cpus = agents.agent().nr_cpus();
    let manager = thread::current();
    let serve = |cpu, patience| {
        let served = serve_cpu(agents, cpu, patience, &manager);
        if served.is_err() {
            agents.end();
        }
        manager.unpark();
        served
    };
    thread::scope(|scope| {
        let join = |agent: ScopedJoinHandle<'_, _>| agent.join().expect("no agent panics");
        let mut ended = Ok(());
        let mut threads: Vec<Option<ScopedJoinHandle<'_, _>>> = (0..cpus).map(|_| None).collect();
        let is_first = !HAS_SERVED.swap(true, Relaxed);
        let mut patience = vec![if is_first { FIRST } else { LATER }; cpus];
        while !is_over(agents) {
            for (cpu, thread) in threads.iter_mut().enumerate() {
                if let Some(thread) = thread.take_if(|thread| thread.is_finished()) {
                    ended = ended.and(join(thread));
                    patience[cpu] = LATER;
                }
                if !agents.agent().is_online(cpu) {
                    patience[cpu] = LATER;
                } else if thread.is_none() {
                    let patience = patience[cpu];
                    *thread = Some(scope.spawn(move || serve(cpu, patience)));
                }
            }
            thread::park_timeout(LOOK);
        }
        let threads = threads.into_iter().flatten();
        threads.map(join).fold(ended, Result::and)
    })
}

fn is_over(agents: &impl PerCpu) -> bool {
    let agent = agents.agent();
    agents.is_over() || agent.has_ended() || agent.lost() != 0
}

/// The agent of a CPU, as long as the enclave has the CPU.
fn serve_cpu(
    agents: &impl PerCpu,
    cpu: usize,
    patience: Duration,
    manager: &Thread,
) -> Result<(), Errno> {
    let agent = agents.agent();
    if !become_agent(agents, cpu, patience)? {
        return Ok(());
    }
    let mut local = agents.begin(cpu);
    // Whatever else ends the session ends a wait.
    while agent.lost() == 0 {
        let Some(turn) = agents.turn(cpu, &mut local) else {
            return leave(agents, cpu);
        };
        if turn.has_new_cpu {
            manager.unpark();
        }
        match agent.wait(turn.wait) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::SHUTDOWN) => break,
            // The CPU went offline, and the kernel moved this thread.
            Err(Errno::PERM) => return leave(agents, cpu),
            Err(errno) => return Err(errno),
        }
    }
    agents.end();
    Ok(())
}

/// Makes this thread the agent of a CPU. False if the enclave does not have the CPU any more.
///
/// A CPU that goes offline refuses tasks before the enclave hears of it. Between the two, the
/// thread cannot be bound to the CPU, or is moved from it, and the enclave answers `AGAIN`. That
/// takes as long as it takes, and is no part of the CPU's patience.
fn become_agent(agents: &impl PerCpu, cpu: usize, patience: Duration) -> Result<bool, Errno> {
    let agent = agents.agent();
    let mut begun = Instant::now();
    loop {
        let bound = bind(cpu);
        let errno = match agent.serve(cpu) {
            Ok(()) => return Ok(true),
            Err(Errno::AGAIN) => {
                begun = Instant::now();
                Errno::AGAIN
            }
            // Not bound: the reason says more.
            Err(errno @ Errno::XDEV) => bound.err().unwrap_or(errno),
            Err(errno) => errno,
        };
        if is_over(agents) || !agent.is_online(cpu) {
            return Ok(false);
        }
        let may_pass = matches!(
            errno,
            Errno::AGAIN | Errno::INVAL | Errno::XDEV | Errno::NXIO
        );
        if !may_pass || begun.elapsed() >= patience {
            return Err(errno);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The enclave has lost this agent's CPU.
fn leave(agents: &impl PerCpu, cpu: usize) -> Result<(), Errno> {
    match agents.agent().leave() {
        Err(Errno::SHUTDOWN) => return Ok(()),
        left => left?,
    }
    // What was committed to the CPU meanwhile, if none of its last picks took it.
    agents.lost(cpu, agents.agent().withdraw(cpu));
    Ok(())
}

/// Binds this thread to a CPU.
pub(crate) fn bind(cpu: usize) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}
