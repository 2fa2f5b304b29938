// SPDX-License-Identifier: GPL-2.0-only
//! An agent in the place of a policy. The kernel half of its enclave (`baton_enclave`) is the
//! policy under the rules, and each of its accesses to memory that others see is a scheduling
//! point. The agent is a thread of its own, on the last CPU. It reads one message at a time, and
//! any number of events may come between two of them, or between a decision and its commit.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use baton_abi::{
    BatonAgentCommit, BatonFaultKind, BatonHint, BatonMethod, BatonReplyAnswer, BATON_FAULT_NAMES,
    BATON_KICK_PREEMPT, BATON_PICK_KEEP,
};
use baton_agent::{Failure, Polling};
use baton_enclave::{AgentSpec, Enclave, Kernel, Wrong};
use baton_native::Instance;

use crate::apart::in_policy;
use crate::story::{Kind, Report};
use crate::world::{try_world, world, World, SLOTS};
use crate::Property;

/// Messages that a ring has where they are to find no room.
const FEW: u32 = 4;

/// Limit of the messages that the agent reads before the CPUs go on, at the end of a schedule.
const TURNS: usize = 256;

/// The agent of a schedule.
pub struct Side {
    // Dropped first: it uses the enclave's memory.
    polling: RefCell<Box<dyn Polling>>,
    enclave: Arc<Enclave>,
    /// The CPU on which it polls.
    cpu: usize,
    /// Messages that were lost when its turn began.
    lost: Cell<u64>,
}

/// The simulated kernel, as the kernel half sees it.
pub struct Simulated;

impl Kernel for Simulated {
    fn cpu(&self) -> u32 {
        world().me().number as u32
    }

    fn may_run(&self, slot: u32, cpu: i32) -> bool {
        world().may_run(slot, cpu)
    }

    fn copy_mask(&self, slot: u32, mask: &mut [u64]) {
        mask.fill(0);
        if let Some(task) = world().task_in(slot) {
            mask[0] = u64::from(task.mask.get());
        }
    }

    fn kick(&self, cpu: u32, preempt: bool) {
        let world = world();
        let flags = if preempt { BATON_KICK_PREEMPT } else { 0 };
        world.me().kicks.borrow_mut().push(cpu as u16 | flags);
        world.send_kicks();
    }

    fn fail(&self, failure: &Failure) {
        if failure.kind == BatonFaultKind::None {
            return;
        }
        let world = world();
        let report = Report {
            kind: BATON_FAULT_NAMES[failure.kind as usize],
            method: failure.method.name(),
            task: failure.pid,
            cpu: None,
            file: failure.file.clone(),
            line: failure.line,
            message: failure.message.clone(),
        };
        let (kind, method) = (report.kind, report.method);
        let what = || format!("{kind} in {method} of the agent: {}", failure.message);
        world.fail(Property::Panic, what, Some(report));
    }

    fn reply(&self, slot: u32, reply: &BatonHint) -> BatonReplyAnswer {
        world().reply(slot, reply.tag)
    }

    fn now(&self) -> u64 {
        world().now.get()
    }

    fn commits(&self, enclave: &Enclave, commits: &[BatonAgentCommit]) {
        let world = world();
        for commit in commits {
            world.judge(enclave, commit);
        }
    }

    fn point(&self) {
        if let Some(world) = try_world() {
            world.point();
        }
    }
}

impl World {
    /// Makes the agent, and the instance that the rules call.
    pub fn make_agent(&self, spec: &AgentSpec) -> Result<(Instance, u32), String> {
        if self.cpus.len() < 2 {
            return Err("an agent has a CPU for itself, and its tasks need another one".into());
        }
        let machine = self.options.machine(self.cpus.len());
        let cpu = self.cpus.len() - 1;
        // In half of the schedules messages find no room.
        let is_small = spec.resyncs && self.random.once_in(2);
        let entries = if is_small { FEW } else { spec.entries };
        let (enclave, instance, events) =
            Enclave::new(&machine, SLOTS as u32, entries, spec.events)?;
        let polling = in_policy(|| (spec.make)(enclave.agent(&machine), cpu))?;
        self.cpus[cpu].polls.set(true);
        self.cpus[cpu].off.set(true);
        self.cpus[cpu].active.set(false);
        self.agent.replace(Some(Rc::new(Side {
            polling: RefCell::new(polling),
            enclave,
            cpu,
            lost: Cell::new(0),
        })));
        Ok((instance, events))
    }

    /// Drops the agent, and then the enclave's instance.
    pub fn drop_agent(&self) {
        let side = self.agent.take();
        self.instances.borrow_mut().clear();
        drop(side);
    }

    /// The thread of the agent, which polls until all CPUs have ended.
    pub fn poll(&self) {
        while !self.over.get() && self.running.get() > 0 {
            self.point();
            if !self.turn() {
                self.give_way();
            }
        }
    }

    /// A turn of the agent, with one message at most. True if there was one.
    fn turn(&self) -> bool {
        let Some(side) = self.agent.borrow().clone() else {
            return false;
        };
        self.here.set(Some(side.cpu));
        side.lost.set(side.enclave.lost());
        let read = |cpu: usize| side.enclave.read(cpu as u32);
        let before: Vec<u32> = (0..self.cpus.len()).map(read).collect();
        let has_read = in_policy(|| side.polling.borrow_mut().turn(1));
        if self.story.borrow().is_some() {
            let read = (0..self.cpus.len()).find(|cpu| read(*cpu) != before[*cpu]);
            if let Some(cpu) = read.filter(|_| has_read) {
                let message = side.enclave.message(cpu as u32, before[cpu]);
                let method = BatonMethod::of(u32::from(message.method)).name();
                let about = match message.pid {
                    0 => format!("CPU {}", message.cpu),
                    pid => format!("task {pid}"),
                };
                self.tell(Kind::Event, || format!("the agent reads {method}({about})"));
            }
        }
        has_read
    }

    /// Lets the agent and the CPUs act until nothing is left to do, one after the other.
    pub fn settle_agent(&self) {
        if self.agent.borrow().is_none() {
            return;
        }
        for _ in 0..TURNS {
            let has_read = self.turn();
            for cpu in self.cpus.iter().filter(|cpu| !cpu.off.get()) {
                self.here.set(Some(cpu.number));
                self.serve();
            }
            if !has_read || self.over.get() {
                return;
            }
        }
    }

    /// The agent is about to make a commit. It may be outdated by what the agent has not read yet.
    fn judge(&self, enclave: &Enclave, commit: &BatonAgentCommit) {
        let is_known = self.agent.borrow().as_ref().is_some_and(|side| {
            let nothing_happens = self.cpus.iter().all(|cpu| !cpu.inside.get());
            nothing_happens && side.lost.get() == enclave.lost()
        });
        let cpu = commit.cpu & !BATON_KICK_PREEMPT;
        let what = match self.task_of(commit.token) {
            _ if commit.token == BATON_PICK_KEEP => "the task that runs".into(),
            Some(task) => format!("task {}", task.pid),
            None => "a task that is gone".into(),
        };
        self.tell(Kind::Event, || {
            format!("the agent commits {what} to CPU {cpu}")
        });
        match enclave.judge(commit).filter(|_| is_known) {
            None => {}
            Some(Wrong::Known) => self.fail(
                Property::Discipline,
                || {
                    format!(
                        "the agent commits {what} to CPU {cpu} by a token that is not valid, as \
                         messages that it has read say"
                    )
                },
                None,
            ),
            Some(Wrong::Twice) => self.fail(
                Property::OnePlace,
                || format!("the agent commits {what} to CPU {cpu}, and to another CPU as well"),
                None,
            ),
        }
    }
}
