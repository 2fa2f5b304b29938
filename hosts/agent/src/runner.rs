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
//! - `Gates` lets one agent at a time choose a task for a CPU.
//! - Only the CPU's own agent asks whether the task that runs there goes on.

use std::hint::spin_loop;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::OnceLock;
use std::thread::{self, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};
use std::{fmt, io};

use baton_abi::*;
use baton_native::{Instance, Policy};
use rustix::io::Errno;
use rustix::thread::{sched_setaffinity, CpuSet};

use crate::agent::{Agent, Failure, Message};
use crate::host::{self, Services};
use crate::record::{self, Tape};

/// How often the CPUs of the enclave are looked at, should no agent hear of a new one.
const LOOK: Duration = Duration::from_millis(100);

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

/// How a runner ended.
#[derive(Debug)]
pub enum Ended {
    /// The enclave no longer asks this agent, or [`Runner::stop`] was called.
    Stopped,
    /// The policy failed, which was reported to the enclave.
    Fault(Failure),
    /// This many messages found no room, so the policy no longer knows its tasks. The session has
    /// ended in good order; a new one begins with all tasks of the enclave.
    Lost(u64),
}

/// Why a policy could not be run.
#[derive(Debug)]
pub enum RunError {
    /// The policy could not be made: its own message.
    Policy(String),
    /// A thread could not be started, or bound to its CPU.
    Thread(io::Error),
    /// The recording could not be written.
    Recording(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(why) => write!(f, "the policy cannot be created: {why}"),
            Self::Thread(why) => write!(f, "an agent's thread cannot be bound to its CPU: {why}"),
            Self::Recording(why) => write!(f, "the recording cannot be written: {why}"),
        }
    }
}

impl std::error::Error for RunError {}

/// A policy, and the enclave whose tasks it schedules.
pub struct Runner {
    services: Services,
    mode: Mode,
    policy: Policy,
    /// Always there, until the runner is dropped.
    instance: Option<Instance>,
    /// For each slot, the number of the last message that the policy has seen.
    seen: Vec<AtomicU32>,
    /// Held while a thread reads a CPU's ring.
    rings: Gates,
    /// Held while a thread chooses a task for a CPU, until that is committed.
    picks: Gates,
    stopping: AtomicBool,
    failure: OnceLock<Failure>,
    /// The enclave has got a CPU, which has no agent yet.
    has_new_cpu: AtomicBool,
    /// Whether the policy has a `newly_idle`.
    steals: bool,
}

// SAFETY: Policy-alive. A policy is `Sync`: several CPUs call it at once in every host. The
// instance is dropped with the runner.
unsafe impl Sync for Runner {}

/// CPUs to kick after some calls.
struct Kicks {
    cpus: Vec<u16>,
    /// The CPU whose agent this thread is. It looks for a task there when it has read all messages,
    /// and gives the CPU up in any case.
    served: Option<usize>,
}

/// A lock for each CPU. The CPU's own agent waits for it. Any other leaves the work to that agent,
/// or to the one that holds the lock.
struct Gates(Vec<AtomicBool>);

/// A gate that is held.
struct Held<'a>(&'a AtomicBool);

impl Gates {
    fn new(cpus: usize) -> Self {
        Self((0..cpus).map(|_| AtomicBool::new(false)).collect())
    }

    fn try_enter(&self, cpu: usize) -> Option<Held<'_>> {
        let gate = &self.0[cpu];
        (!gate.swap(true, SeqCst)).then(|| Held(gate))
    }

    fn enter(&self, cpu: usize) -> Held<'_> {
        loop {
            if let Some(held) = self.try_enter(cpu) {
                return held;
            }
            spin_loop();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl Kicks {
    fn new(served: Option<usize>) -> Self {
        Self {
            cpus: Vec::new(),
            served,
        }
    }

    /// Adds a CPU, with flags of `BATON_AGENT_IOC_KICK`.
    fn add(&mut self, cpu: usize, flags: u16) {
        if self.served != Some(cpu) {
            self.cpus.push(cpu as u16 | flags);
        }
    }
}

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
        let own = match mode {
            Mode::Global(cpu) => Some(cpu),
            Mode::PerCpu => None,
        };
        let mut topology = agent.topology().to_vec();
        if let Some(place) = own.and_then(|own| topology.get_mut(own)) {
            place.online = 0;
        }
        let mut services = Services::new(agent, own);
        services.tape = record
            .map(|path| Tape::create(path, policy, options, &topology, slots))
            .transpose()
            .map_err(RunError::Recording)?;
        policy.install(Some(services.table()));
        let instance = host::enter(&services, 0, || policy.make(&topology, slots, options))
            .map_err(RunError::Policy)?;
        Ok(Self {
            services,
            mode,
            policy,
            instance: Some(instance),
            seen: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            rings: Gates::new(cpus),
            picks: Gates::new(cpus),
            stopping: AtomicBool::new(false),
            failure: OnceLock::new(),
            has_new_cpu: AtomicBool::new(false),
            steals: policy.ops().newly_idle.is_some(),
        })
    }

    fn agent(&self) -> &Agent {
        &self.services.agent
    }

    /// Ends the session, and so makes the runner return soon. Any thread.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
        // Fails only if it has ended already.
        let _ = self.agent().end();
    }

    /// Answers messages until the enclave or [`Runner::stop`] ends that.
    pub fn run(&self) -> Result<Ended, RunError> {
        match &self.mode {
            Mode::Global(cpu) => {
                bind(*cpu).map_err(|errno| RunError::Thread(errno.into()))?;
                self.poll(*cpu);
            }
            Mode::PerCpu => self.serve()?,
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

    fn is_over(&self) -> bool {
        self.stopping.load(Relaxed)
            || self.failure.get().is_some()
            || self.agent().has_ended()
            || self.agent().lost() != 0
    }

    /// The loop of a global agent.
    fn poll(&self, own: usize) {
        self.policy.install(Some(self.services.table()));
        record::use_lane(own);
        let mut kicks = Kicks::new(None);
        while !self.is_over() {
            self.round(own, &mut kicks);
            self.flush(&mut kicks);
            spin_loop();
        }
    }

    /// Has an agent on each CPU of the enclave, until the end.
    fn serve(&self) -> Result<(), RunError> {
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
            let mut agents: Vec<Option<ScopedJoinHandle<'_, _>>> =
                (0..cpus).map(|_| None).collect();
            while !self.is_over() {
                for (cpu, agent) in agents.iter_mut().enumerate() {
                    // One that has left its CPU has had no error.
                    agent.take_if(|agent| agent.is_finished());
                    if agent.is_none() && self.agent().is_online(cpu) {
                        *agent = Some(scope.spawn(move || serve(cpu)));
                    }
                }
                thread::park_timeout(LOOK);
            }
            let agents = agents.into_iter().flatten();
            agents
                .map(|agent| agent.join().expect("no agent panics"))
                .fold(Ok(()), Result::and)
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
        while !self.is_over() {
            while self.round(cpu, &mut kicks) {}
            if self.has_new_cpu.swap(false, Relaxed) {
                manager.unpark();
            }
            if self.agent().is_online(cpu) {
                self.choose(cpu, &mut kicks);
            }
            self.flush(&mut kicks);
            if !self.agent().is_online(cpu) {
                return self.leave(cpu);
            }
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
        self.agent().leave()?;
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

    fn flush(&self, kicks: &mut Kicks) {
        if !kicks.cpus.is_empty() {
            // An error means that a CPU went offline, or that the session has ended.
            let _ = self.agent().kick(&kicks.cpus);
            kicks.cpus.clear();
        }
    }

    /// Reads the rings of all CPUs and calls due timers. True if there was work and messages are
    /// left: one of them may have waited for one that was read after it.
    fn round(&self, own: usize, kicks: &mut Kicks) -> bool {
        let (mut had_work, mut is_left) = (false, false);
        for cpu in 0..self.agent().nr_cpus() {
            while self.agent().has_message(cpu) {
                let ring = if cpu == own {
                    Some(self.rings.enter(cpu))
                } else {
                    self.rings.try_enter(cpu)
                };
                let Some(ring) = ring else {
                    // Another agent reads this ring, and looks again when it has finished.
                    is_left = true;
                    break;
                };
                let has_read = self.read_ring(own, cpu, kicks);
                drop(ring);
                had_work |= has_read;
                if !has_read {
                    is_left = true;
                    break;
                }
            }
        }
        self.call_timers(kicks);
        had_work && is_left
    }

    /// Answers the messages in the ring of a CPU, up to one that another agent must come before.
    fn read_ring(&self, own: usize, cpu: usize, kicks: &mut Kicks) -> bool {
        let mut had_work = false;
        while let Some(message) = self.agent().peek(cpu) {
            if !self.is_next(&message) || self.is_for_another(own, &message) {
                break;
            }
            self.handle(own, &message, kicks);
            if message.sequence != 0 {
                // An agent that stopped before the next message of the task sees this when it looks
                // again, or this one finds that message in its next round.
                self.seen[message.slot as usize].store(message.sequence, SeqCst);
            }
            self.agent().advance(cpu);
            had_work = true;
        }
        had_work
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
    fn is_served(&self, cpu: usize) -> bool {
        self.mode == Mode::PerCpu && self.agent().is_online(cpu)
    }

    fn call_timers(&self, kicks: &mut Kicks) {
        for cpu in 0..self.services.timers.len() {
            let at = self.services.timers[cpu].load(Relaxed);
            if at != 0
                && at <= host::now()
                && self.services.timers[cpu]
                    .compare_exchange(at, 0, AcqRel, Relaxed)
                    .is_ok()
            {
                self.tell_cpu(BatonMethod::Timer, cpu, kicks);
            }
        }
    }

    /// Makes one call of the policy. `None` if it was abandoned: the session then ends.
    fn call(
        &self,
        method: BatonMethod,
        cpu: usize,
        pid: u32,
        ctx: &mut BatonCtx,
        a: Arg<'_>,
        b: Arg<'_>,
    ) -> Option<u64> {
        let instance = self.instance.as_ref()?;
        let tape = self.services.tape.as_ref();
        let turn = tape.map(Tape::turn);
        if self.failure.get().is_some() {
            return None;
        }
        if let Some(tape) = tape {
            ctx.now = host::now();
            tape.begin(method, ctx, &a, &b);
        }
        let answer = host::enter(&self.services, cpu, || instance.call(method, ctx, a, b));
        let is_kept = answer != BATON_ABORTED && host::forgot_a_lock();
        if let Some(tape) = tape {
            if is_kept {
                tape.fail(BatonFaultKind::Deadlock);
            }
            tape.end(answer, ctx);
        }
        let fault = if answer == BATON_ABORTED {
            host::take_fault()
        } else if is_kept {
            Some(host::Fault {
                kind: BatonFaultKind::Deadlock,
                file: String::new(),
                line: 0,
                message: "the call returned with a lock held; was its guard forgotten?".into(),
            })
        } else {
            return Some(answer);
        };
        let failure = Failure {
            kind: fault
                .as_ref()
                .map_or(BatonFaultKind::Panic, |fault| fault.kind),
            method,
            pid,
            file: fault
                .as_ref()
                .map_or(String::new(), |fault| fault.file.clone()),
            line: fault.as_ref().map_or(0, |fault| fault.line),
            message: fault.map_or(String::new(), |fault| fault.message),
        };
        // The first failure is the one that counts, and nobody calls the policy after it.
        let is_first = self.failure.set(failure.clone()).is_ok();
        drop(turn);
        if is_first {
            // At once: the policy's tasks go on under the fallback. An error means that the session
            // has ended.
            let _ = self.agent().fail(&failure);
        }
        None
    }

    /// A call about a CPU.
    fn tell_cpu(&self, method: BatonMethod, cpu: usize, kicks: &mut Kicks) {
        let mut ctx = BatonCtx::default();
        let which = Arg::Word(cpu as u64);
        if self
            .call(method, cpu, 0, &mut ctx, which, Arg::Word(0))
            .is_some()
        {
            self.carry_out(&ctx, kicks);
        }
    }

    /// Carries out the kicks of a call.
    fn carry_out(&self, ctx: &BatonCtx, kicks: &mut Kicks) {
        for kick in ctx.kicks.iter().take(usize::from(ctx.nr_kicks)) {
            let cpu = usize::from(kick & !BATON_KICK_PREEMPT);
            if cpu < self.agent().nr_cpus() {
                self.look(cpu, kick & BATON_KICK_PREEMPT != 0, kicks);
            }
        }
    }

    /// The policy has something for a CPU, perhaps. `preempt`: also if it runs a task.
    fn look(&self, cpu: usize, preempt: bool, kicks: &mut Kicks) {
        if kicks.served == Some(cpu) || self.agent().is_pending(cpu) {
            return;
        }
        let is_served = self.is_served(cpu);
        if self.agent().wants(cpu) {
            match self.picks.try_enter(cpu) {
                Some(gate) => self.pick(gate, cpu, None, kicks),
                // A choice that is being made may have come too early.
                None => kicks.add(cpu, BATON_AGENT_KICK_AGENT),
            }
        } else if is_served && !self.agent().runs_task(cpu) {
            // Its agent runs, or gives way just now. It may not look again by itself.
            kicks.add(cpu, BATON_AGENT_KICK_AGENT);
        } else if is_served && preempt {
            // Its agent then asks whether the task goes on.
            kicks.add(cpu, BATON_AGENT_KICK_AGENT | BATON_KICK_PREEMPT);
        } else if preempt {
            if let Some(prev) = self.agent().running(cpu) {
                self.pick(self.picks.enter(cpu), cpu, Some(&prev), kicks);
            }
        }
    }

    /// Asks the policy for a task for a CPU, and commits the answer. `prev` is the task that runs
    /// there and can go on.
    fn pick(&self, gate: Held<'_>, cpu: usize, prev: Option<&BatonTask>, kicks: &mut Kicks) {
        let mut ctx = BatonCtx {
            cpu: cpu as i32,
            ..BatonCtx::default()
        };
        let method = BatonMethod::PickNextTask;
        let which = Arg::Word(cpu as u64);
        let before = prev.map_or(Arg::Word(0), Arg::Task);
        self.services.claimed[cpu].store(false, Relaxed);
        let mut answer = self.call(method, cpu, 0, &mut ctx, which, before);
        if answer == Some(BATON_PICK_NONE) && prev.is_none() && self.steals {
            let (method, none) = (BatonMethod::NewlyIdle, Arg::Word(0));
            answer = self.call(method, cpu, 0, &mut ctx, which, none);
        }
        if let Some(token) = answer.filter(|answer| *answer > BATON_PICK_KEEP) {
            self.commit(cpu, token, ctx.slice, prev.is_some(), kicks);
        } else if prev.is_some() && self.agent().runs_agent(cpu) {
            // The CPU holds the task until its agent gives way.
            self.agent().commit(cpu, BATON_PICK_KEEP, ctx.slice);
        }
        // A kick may ask for this CPU again.
        drop(gate);
        self.carry_out(&ctx, kicks);
    }

    /// Asks for a task for this agent's own CPU.
    fn choose(&self, cpu: usize, kicks: &mut Kicks) {
        let gate = self.picks.enter(cpu);
        if !self.agent().is_pending(cpu) {
            self.pick(gate, cpu, None, kicks);
        }
    }

    /// The task's slice has ended, or something interrupts it. It goes on unless the policy has
    /// another one.
    fn end_slice(&self, cpu: usize, task: &BatonTask, kicks: &mut Kicks) {
        let gate = self.picks.enter(cpu);
        let runs_it = || {
            let running = self.agent().running(cpu);
            running.is_some_and(|running| running.slot == task.slot)
        };
        if !self.agent().is_pending(cpu) && (self.agent().runs_agent(cpu) || runs_it()) {
            self.pick(gate, cpu, Some(task), kicks);
        }
    }

    /// Commits the policy's choice for a CPU whose gate is held.
    fn commit(&self, cpu: usize, token: u64, slice: u64, preempt: bool, kicks: &mut Kicks) {
        if !self.agent().commit(cpu, token, slice) {
            self.give_back(cpu, token, kicks);
        } else if preempt || self.agent().wants(cpu) {
            kicks.add(cpu, if preempt { BATON_KICK_PREEMPT } else { 0 });
        }
    }

    /// A CPU has a transaction already: the policy gets the token again.
    fn give_back(&self, cpu: usize, token: u64, kicks: &mut Kicks) {
        let slot = (token as u32).wrapping_sub(1);
        let word = self.agent().task(slot);
        let task = BatonTask {
            slot,
            pid: word.pid,
            cpu: cpu as i32,
            nice: word.nice,
            runtime: word.runtime,
        };
        self.hand_over(BatonMethod::TaskRestored, &task, token, kicks);
    }

    /// A call that hands a token over.
    fn hand_over(&self, method: BatonMethod, task: &BatonTask, token: u64, kicks: &mut Kicks) {
        let mut ctx = BatonCtx::default();
        let mut task = *task;
        // The kernel left the task where the agent polls.
        if self.services.own == Some(task.cpu as usize) {
            let others = 0..self.agent().nr_cpus();
            if let Some(cpu) = others
                .into_iter()
                .find(|cpu| self.services.may_run(task.slot, *cpu))
            {
                task.cpu = cpu as i32;
            }
        }
        let task = &task;
        let cpu = task.cpu as usize;
        let (about, token) = (Arg::Task(task), Arg::Word(token));
        if self
            .call(method, cpu, task.pid, &mut ctx, about, token)
            .is_some()
        {
            self.carry_out(&ctx, kicks);
            self.look(cpu, false, kicks);
        }
    }

    /// Answers a message.
    fn handle(&self, own: usize, message: &Message, kicks: &mut Kicks) {
        use BatonMethod as M;
        let task = BatonTask {
            slot: message.slot,
            pid: message.pid,
            cpu: message.cpu,
            nice: message.nice,
            runtime: message.runtime,
        };
        let Ok(cpu) = usize::try_from(message.cpu) else {
            return;
        };
        match M::of(u32::from(message.method)) {
            method @ (M::TaskNew | M::TaskWakeup) => self.arrive(method, message, task, kicks),
            method @ (M::TaskPreempt | M::TaskYield | M::TaskRestored) => {
                self.hand_over(method, &task, message.token, kicks);
            }
            M::PickNextTask if message.slot != u32::MAX => self.end_slice(cpu, &task, kicks),
            M::PickNextTask => self.look(cpu, false, kicks),
            method @ M::PickRefused => {
                let mut ctx = BatonCtx::default();
                let (token, why) = (
                    Arg::Word(message.token),
                    Arg::Word(u64::from(message.flags)),
                );
                if self
                    .call(method, cpu, message.pid, &mut ctx, token, why)
                    .is_some()
                {
                    self.carry_out(&ctx, kicks);
                    self.look(cpu, false, kicks);
                }
            }
            method @ (M::CpuOnline | M::CpuOffline) => {
                if let Some(token) = self.agent().withdraw(cpu) {
                    self.give_back(cpu, token, kicks);
                }
                self.tell_cpu(method, cpu, kicks);
                self.has_new_cpu.store(method == M::CpuOnline, Relaxed);
            }
            method @ (M::Balance | M::EnterIdle | M::ExitIdle) => {
                self.tell_cpu(method, cpu, kicks);
            }
            method => {
                let mut ctx = BatonCtx::default();
                let (about, none) = (Arg::Task(&task), Arg::Word(0));
                let on = if method == M::TaskTick { cpu } else { own };
                if self
                    .call(method, on, message.pid, &mut ctx, about, none)
                    .is_some()
                {
                    self.carry_out(&ctx, kicks);
                }
            }
        }
    }

    /// A task is new, or woke up: the policy chooses its CPU, and receives it.
    fn arrive(
        &self,
        method: BatonMethod,
        message: &Message,
        mut task: BatonTask,
        kicks: &mut Kicks,
    ) {
        if message.waker >= 0 && self.policy.ops().select_task_rq.is_some() {
            let wake = BatonWake {
                prev_cpu: task.cpu,
                waker_cpu: message.waker,
                flags: message.flags & (BATON_F_SYNC | BATON_F_FORK),
            };
            let mut ctx = BatonCtx::default();
            let waker = message.waker as usize;
            let (about, wake) = (Arg::Task(&task), Arg::Wake(&wake));
            let select = BatonMethod::SelectTaskRq;
            let Some(answer) = self.call(select, waker, task.pid, &mut ctx, about, wake) else {
                return;
            };
            let chosen = answer as u32 as i32;
            let is_valid =
                usize::try_from(chosen).is_ok_and(|cpu| self.services.may_run(task.slot, cpu));
            if is_valid {
                task.cpu = chosen;
            }
            self.carry_out(&ctx, kicks);
            let is_direct = answer & BATON_SELECT_DIRECT != 0 && method == BatonMethod::TaskWakeup;
            if is_valid && is_direct && self.run_there(chosen as usize, message, ctx.slice, kicks) {
                return;
            }
        }
        self.hand_over(method, &task, message.token, kicks);
    }

    /// Commits a task to the CPU that was chosen for it. False if the CPU may get another one.
    fn run_there(&self, cpu: usize, message: &Message, slice: u64, kicks: &mut Kicks) -> bool {
        let Some(_gate) = self.picks.try_enter(cpu) else {
            return false;
        };
        if self.agent().is_pending(cpu) {
            return false;
        }
        self.services.claimed[cpu].store(false, Relaxed);
        self.commit(cpu, message.token, slice, false, kicks);
        true
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.policy.install(Some(self.services.table()));
        let instance = self.instance.take();
        host::enter(&self.services, 0, || drop(instance));
    }
}

/// Binds this thread to a CPU.
pub(crate) fn bind(cpu: usize) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}
