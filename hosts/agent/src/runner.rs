// SPDX-License-Identifier: GPL-2.0-only
//! Runs a policy as the agent of an enclave.
//!
//! Each message is one call of the policy, in the order of the task's events. A pick is asked for
//! when a CPU has nothing to run, or when the policy kicks it, and the answer goes down as a
//! transaction. So the policy decides as it would in the kernel, but a little later.
//!
//! Agents of CPUs read all rings, and so make calls for each other's CPUs. Three rules keep the
//! policy's contract, which allows one call about a task and one pick for a CPU at a time:
//! - A message waits until the policy has seen the task's earlier ones (`Runner::seen`).
//! - A gate lets one agent at a time choose a task for a CPU (`Runner::picks`).
//! - Only the CPU's own agent asks whether the task that runs there goes on.

use std::hint::spin_loop;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use baton_abi::*;
use baton_native::Policy;
use rustix::io::Errno;

use crate::agent::{Agent, Failure, Message};
use crate::gates::Gates;
use crate::host::{self, Services};
use crate::inbox::follows;
use crate::record::{self, Tape};
use crate::ring::Ring;
use crate::scheduler::Polling;
use crate::serve::{bind, serve, PerCpu, Turn};
use crate::session::{Ended, Open, RunError, Session};
use crate::version::{NotUpgraded, Upgraded, Version, Versions, PAUSE};

/// Which threads decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One thread decides for all CPUs. It polls for messages on this CPU, which the enclave's
    /// tasks do not use.
    Global(usize),
    /// Each CPU of the enclave has an agent of its own, which runs there when there are messages
    /// for it. Agents begin and end as the enclave gets and loses CPUs.
    PerCpu,
}

/// A policy, and the enclave whose tasks it schedules.
pub struct Runner {
    pub(crate) services: Services,
    mode: Mode,
    pub(crate) options: String,
    pub(crate) versions: Versions,
    /// For each slot, the number of the last message that the policy has seen.
    seen: Vec<AtomicU32>,
    /// Held while a thread reads a CPU's ring.
    rings: Gates,
    /// Held while a thread chooses a task for a CPU, until that is committed.
    pub(crate) picks: Gates,
    stopping: AtomicBool,
    pub(crate) failure: OnceLock<Failure>,
    /// The enclave has got a CPU, which has no agent yet.
    pub(crate) has_new_cpu: AtomicBool,
}

// SAFETY: Policy-alive. A policy is `Sync`: several CPUs call it at once in every host. An instance
// is dropped when no agent has it any more.
unsafe impl Sync for Runner {}

/// What an agent's thread has: CPUs to kick after some calls, and the version of the policy.
pub struct Kicks {
    cpus: Vec<u16>,
    /// The version, in a turn.
    pub(crate) version: Arc<Version>,
    /// Number of that version in the runner; odd before the first turn.
    pub(crate) number: u32,
    /// A hint waits for messages that another agent is answering just now.
    has_blocked_hint: bool,
    /// The CPU whose agent this thread is. It looks for a task there when it has read all messages,
    /// and gives the CPU up in any case.
    pub served: Option<usize>,
}

/// What became of a look at the rings.
pub(crate) struct Round {
    /// A message was answered.
    had_work: bool,
    /// Messages are left that waited for others, which may have been read after them.
    is_left: bool,
}

/// See [`Runner::polling`].
struct Polled {
    // Has a version of the policy, the last of which the runner drops.
    kicks: Kicks,
    runner: Runner,
}

impl Polling for Polled {
    fn turn(&mut self, most: usize) -> bool {
        let own = self.runner.agent().polls_on();
        let own = own.expect("it is a global agent");
        let lost = self.runner.agent().lost();
        if lost != 0 {
            // Where there is a kernel, another session begins.
            let message = format!(
                "{lost} messages found no room: a policy cannot be told that it missed them"
            );
            self.runner.report(&Failure {
                kind: BatonFaultKind::AgentGone,
                message,
                ..failure_of(None, BatonMethod::None, 0)
            });
            return false;
        }
        self.runner.poll_once(own, &mut self.kicks, most)
    }

    fn timer(&self) -> Option<u64> {
        let timers = self.runner.services.timers.iter();
        let armed = timers.map(|at| at.load(Relaxed)).filter(|at| *at != 0);
        armed.min()
    }
}

impl Kicks {
    /// Adds a CPU, with flags of `BATON_AGENT_IOC_KICK`.
    pub fn add(&mut self, cpu: usize, flags: u16) {
        if self.served != Some(cpu) {
            self.cpus.push(cpu as u16 | flags);
        }
    }
}

/// How often the agent of a CPU looks at the rings before it chooses a task: messages that keep
/// coming do not keep its CPU from tasks. Those that are left are announced to it.
const ROUNDS: usize = 16;

impl Runner {
    /// Makes an instance of a policy for an enclave. `options` as for `baton load`. With `record`,
    /// its calls are recorded into that file.
    pub fn new(
        policy: Policy,
        options: &str,
        agent: Agent,
        mode: Mode,
        record: Option<&Path>,
    ) -> Result<Self, RunError> {
        let slots = agent.nr_slots();
        let cpus = agent.nr_cpus();
        let mut topology = agent.topology().to_vec();
        if let Mode::Global(own) = mode {
            agent.poll_on(own);
            if let Some(place) = topology.get_mut(own) {
                place.online = 0;
            }
        }
        let mut services = Services::new(agent);
        services.tape = record
            .map(|path| Tape::create(path, policy, options, &topology, slots))
            .transpose()
            .map_err(RunError::Recording)?;
        policy.install(Some(services.table()));
        host::reset_random();
        let instance = host::enter(&services, 0, || policy.make(&topology, slots, options))
            .map_err(RunError::Policy)?;
        Ok(Self {
            services,
            mode,
            options: options.into(),
            versions: Versions::new(Version::new(policy, instance), cpus),
            seen: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            rings: Gates::new(cpus),
            picks: Gates::new(cpus),
            stopping: AtomicBool::new(false),
            failure: OnceLock::new(),
            has_new_cpu: AtomicBool::new(false),
        })
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self.services.agent
    }

    /// For the agent of a CPU, or for a thread that is none.
    pub(crate) fn kicks(&self, served: Option<usize>) -> Kicks {
        Kicks {
            cpus: Vec::new(),
            version: self.versions.current(),
            number: u32::MAX,
            has_blocked_hint: false,
            served,
        }
    }

    /// The loop of a global agent.
    fn poll(&self, own: usize) -> Result<(), Errno> {
        bind(own)?;
        record::use_lane(own);
        let mut kicks = self.kicks(None);
        while !self.is_over() && !self.agent().has_ended() && self.agent().lost() == 0 {
            self.poll_once(own, &mut kicks, usize::MAX);
            spin_loop();
        }
        Ok(())
    }

    /// A turn of a global agent, with at most so many messages. True if there was one.
    fn poll_once(&self, own: usize, kicks: &mut Kicks, most: usize) -> bool {
        if !self.begin_turn(own, kicks) {
            return false;
        }
        let has_read = self.round(own, kicks, most).had_work;
        self.flush(kicks);
        self.end_turn(own);
        has_read
    }

    /// The policy as a global agent, turn by turn, for a model of the kernel. It polls on the CPU
    /// of its mode.
    pub fn polling(self) -> impl Polling {
        let kicks = self.kicks(None);
        Polled {
            kicks,
            runner: self,
        }
    }

    pub(crate) fn flush(&self, kicks: &mut Kicks) {
        if !kicks.cpus.is_empty() {
            // An error means that a CPU went offline, or that the session has ended.
            let _ = self.agent().kick(&kicks.cpus);
            kicks.cpus.clear();
        }
    }

    /// Reads at most so many messages from the rings of all CPUs, and calls due timers.
    pub(crate) fn round(&self, own: usize, kicks: &mut Kicks, most: usize) -> Round {
        let (mut left, mut is_left) = (most, false);
        let cpus = self.agent().nr_cpus();
        for cpu in 0..cpus {
            if !self.agent().has_message(cpu) {
                continue;
            }
            let gate = if cpu == own {
                Some(self.rings.enter(cpu))
            } else {
                self.rings.try_enter(cpu)
            };
            let Some(gate) = gate else {
                // Another agent reads this ring, and looks again when it has finished.
                is_left = true;
                continue;
            };
            self.read_ring(own, self.agent().ring(cpu), kicks, &mut left);
            drop(gate);
            // Another agent may have been kept from the ring meanwhile.
            is_left |= cpus > 1 && self.agent().has_message(cpu);
        }
        self.call_timers(kicks);
        Round {
            had_work: left < most,
            is_left,
        }
    }

    /// Answers messages in a ring, up to one that another agent must come before: at most `left`,
    /// which is counted down.
    fn read_ring(&self, own: usize, mut ring: Ring<'_>, kicks: &mut Kicks, left: &mut usize) {
        while *left > 0 {
            let Some(message) = ring.message() else {
                break;
            };
            if message.method == BatonMethod::Hint as u16 {
                let hint = ring.hint();
                let seen = |slot: u32| Some(self.seen.get(slot as usize)?.load(SeqCst));
                if !follows(&message, &hint, seen) {
                    // Nothing else has this agent look again.
                    kicks.has_blocked_hint = true;
                    break;
                }
                self.hint(own, &message, &hint, kicks);
            } else if !self.is_next(&message) || self.is_for_another(own, &message) {
                break;
            } else {
                self.handle(own, &message, kicks);
            }
            if message.sequence != 0 {
                // An agent that stopped before the next message of the task sees this when it looks
                // again, or this one finds that message in its next round.
                self.seen[message.slot as usize].store(message.sequence, SeqCst);
            }
            ring.advance(&message);
            *left -= 1;
        }
    }

    /// Has the policy seen all earlier messages of the task? One that it has not seen is in the
    /// ring of another CPU.
    fn is_next(&self, message: &Message) -> bool {
        message.sequence == 0
            || self.seen[message.slot as usize]
                .load(SeqCst)
                .wrapping_add(1)
                == message.sequence
    }

    /// Does the message ask another agent whether the task of its CPU goes on?
    fn is_for_another(&self, own: usize, message: &Message) -> bool {
        let cpu = message.cpu as usize;
        message.method == BatonMethod::PickNextTask as u16
            && message.slot != u32::MAX
            && cpu != own
            && self.is_served(cpu)
    }

    /// Has the CPU an agent of its own, or will it have one soon?
    pub(crate) fn is_served(&self, cpu: usize) -> bool {
        self.mode == Mode::PerCpu && self.agent().is_of_enclave(cpu)
    }

    /// The time until a CPU's timer expires.
    fn time_left(&self, cpu: usize) -> Option<Duration> {
        match self.services.timers[cpu].load(Relaxed) {
            0 => None,
            at => Some(Duration::from_nanos(
                at.saturating_sub(self.agent().now()).max(1),
            )),
        }
    }

    fn call_timers(&self, kicks: &mut Kicks) {
        for cpu in 0..self.services.timers.len() {
            let at = self.services.timers[cpu].load(Relaxed);
            if at != 0
                && at <= self.agent().now()
                && self.services.timers[cpu]
                    .compare_exchange(at, 0, AcqRel, Relaxed)
                    .is_ok()
            {
                self.tell_cpu(BatonMethod::Timer, cpu, kicks);
            }
        }
    }

    /// Makes one call of the policy. `None` if it was abandoned: the session then ends.
    #[inline]
    pub(crate) fn call(
        &self,
        version: &Version,
        method: BatonMethod,
        cpu: usize,
        pid: u32,
        ctx: &mut BatonCtx,
        a: Arg<'_>,
        b: Arg<'_>,
    ) -> Option<u64> {
        if let Some(tape) = &self.services.tape {
            return self.call_on_tape(tape, version, method, cpu, pid, ctx, (a, b));
        }
        if self.failure.get().is_some() {
            return None;
        }
        let answer = host::enter(&self.services, cpu, || {
            version.instance.call(method, ctx, a, b)
        });
        if answer == BATON_ABORTED || host::forgot_a_lock() {
            if let Some(failure) = self.fail_call(answer, method, pid) {
                self.report(failure);
            }
            return None;
        }
        Some(answer)
    }

    /// As [`Runner::call`], with a recording.
    #[cold]
    #[inline(never)]
    fn call_on_tape(
        &self,
        tape: &Tape,
        version: &Version,
        method: BatonMethod,
        cpu: usize,
        pid: u32,
        ctx: &mut BatonCtx,
        (a, b): (Arg<'_>, Arg<'_>),
    ) -> Option<u64> {
        let turn = tape.turn();
        if self.failure.get().is_some() {
            return None;
        }
        ctx.now = self.agent().now();
        tape.begin(method, ctx, &a, &b);
        let answer = host::enter(&self.services, cpu, || {
            version.instance.call(method, ctx, a, b)
        });
        let is_kept = answer != BATON_ABORTED && host::forgot_a_lock();
        if is_kept {
            tape.fail(BatonFaultKind::Deadlock);
        }
        tape.end(answer, ctx);
        if answer == BATON_ABORTED || is_kept {
            let failure = self.fail_call(answer, method, pid);
            drop(turn);
            if let Some(failure) = failure {
                self.report(failure);
            }
            return None;
        }
        Some(answer)
    }

    /// The call that has just ended on this thread was abandoned, or returned with a lock held.
    /// Nobody calls the policy after that. The first failure is the one that counts: `Some` if it
    /// is this one, and must be reported.
    #[cold]
    #[inline(never)]
    fn fail_call(&self, answer: u64, method: BatonMethod, pid: u32) -> Option<&Failure> {
        let fault = if answer == BATON_ABORTED {
            host::take_fault()
        } else {
            Some(host::Fault {
                kind: BatonFaultKind::Deadlock,
                file: String::new(),
                line: 0,
                message: "the call returned with a lock held; was its guard forgotten?".into(),
            })
        };
        let is_first = self.failure.set(failure_of(fault, method, pid)).is_ok();
        self.failure.get().filter(|_| is_first)
    }

    /// Reports the policy's failure at once: its tasks go on under the fallback.
    fn report(&self, failure: &Failure) {
        // An error means that the session has ended.
        let _ = self.agent().fail(failure);
    }

    /// A version failed when it had taken a part of the queues: no version has the tasks.
    pub(crate) fn fail_half_taken(&self, fault: Option<host::Fault>, why: &str) {
        let mut failure = failure_of(fault, BatonMethod::ReregisterTake, 0);
        if failure.message.is_empty() {
            failure.message = why.into();
        }
        if self.failure.set(failure.clone()).is_ok() {
            self.report(&failure);
        }
    }
}

fn failure_of(fault: Option<host::Fault>, method: BatonMethod, pid: u32) -> Failure {
    let fault = fault.unwrap_or_else(|| host::Fault {
        kind: BatonFaultKind::Panic,
        file: String::new(),
        line: 0,
        message: String::new(),
    });
    Failure {
        kind: fault.kind,
        method,
        pid,
        file: fault.file,
        line: fault.line,
        message: fault.message,
    }
}

impl Session for Runner {
    fn stop(&self) {
        self.stopping.store(true, Relaxed);
        // Fails only if it has ended already.
        let _ = self.agent().end();
    }

    fn run(&self) -> Result<Ended, RunError> {
        let thread = |errno: Errno| RunError::Thread(errno.into());
        match &self.mode {
            Mode::Global(cpu) => {
                self.poll(*cpu).map_err(thread)?;
            }
            Mode::PerCpu => serve(self).map_err(thread)?,
        }
        let is_stopping = self.stopping.load(Relaxed);
        self.stop();
        if let Some(tape) = &self.services.tape {
            tape.finish().map_err(RunError::Recording)?;
        }
        Ok(match (self.failure.get(), self.agent().lost()) {
            (Some(failure), _) => Ended::Fault(failure.clone()),
            (None, lost) if lost != 0 && !is_stopping => Ended::Lost(lost),
            _ => Ended::Stopped,
        })
    }

    fn upgrade(&self, open: &Open<'_>) -> Result<Upgraded, NotUpgraded> {
        self.replace(open().map_err(NotUpgraded)?)
    }
}

impl PerCpu for Runner {
    type Local = Kicks;

    fn agent(&self) -> &Agent {
        &self.services.agent
    }

    fn is_over(&self) -> bool {
        self.stopping.load(Relaxed) || self.failure.get().is_some()
    }

    fn begin(&self, cpu: usize) -> Kicks {
        record::use_lane(cpu);
        self.kicks(Some(cpu))
    }

    fn turn(&self, cpu: usize, kicks: &mut Kicks) -> Option<Turn> {
        if !self.begin_turn(cpu, kicks) {
            return Some(Turn {
                wait: Some(PAUSE),
                has_new_cpu: false,
            });
        }
        kicks.has_blocked_hint = false;
        for _ in 0..ROUNDS {
            let round = self.round(cpu, kicks, usize::MAX);
            if !(round.had_work && round.is_left) {
                break;
            }
        }
        let is_online = self.agent().is_of_enclave(cpu);
        if is_online {
            self.choose(cpu, kicks);
        }
        self.flush(kicks);
        self.end_turn(cpu);
        if !is_online {
            return None;
        }
        let has_new_cpu = self.has_new_cpu.load(Relaxed);
        if has_new_cpu {
            self.has_new_cpu.store(false, Relaxed);
        }
        let left = self.time_left(cpu);
        let wait = if kicks.has_blocked_hint {
            Some(left.map_or(PAUSE, |left| left.min(PAUSE)))
        } else {
            left
        };
        Some(Turn { wait, has_new_cpu })
    }

    fn lost(&self, cpu: usize, token: Option<BatonToken>) {
        if let Some(token) = token {
            let mut kicks = self.kicks(None);
            while !self.begin_turn(cpu, &mut kicks) {
                thread::sleep(PAUSE);
            }
            self.give_back(cpu, token, &mut kicks);
            self.flush(&mut kicks);
            self.end_turn(cpu);
        }
    }

    fn end(&self) {
        // A failure of the policy is being reported by the agent that made the call.
        if self.failure.get().is_none() {
            // An error means that the session has ended.
            let _ = self.agent().end();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.drop_all(self.versions.take());
    }
}
