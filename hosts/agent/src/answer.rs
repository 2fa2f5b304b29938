// SPDX-License-Identifier: GPL-2.0-only
//! How a runner answers messages: calls of the policy, and transactions.

use std::sync::atomic::Ordering::Relaxed;

use baton_abi::*;

use crate::agent::Message;
use crate::gates::Held;
use crate::inbox::is_about_these;
use crate::runner::{Kicks, Runner};

/// The task that a message is about.
fn task_of(message: &Message) -> BatonTask {
    BatonTask {
        slot: message.slot,
        pid: message.pid,
        cpu: message.cpu,
        nice: message.nice,
        runtime: message.runtime,
    }
}

impl Runner {
    /// A call whose answer is its kicks alone, which are carried out. False if it was abandoned.
    fn tell(
        &self,
        method: BatonMethod,
        cpu: usize,
        pid: u32,
        arguments: (Arg<'_>, Arg<'_>),
        kicks: &mut Kicks,
    ) -> bool {
        let mut ctx = BatonCtx::default();
        let (a, b) = arguments;
        let answer = self.call(&kicks.version, method, cpu, pid, &mut ctx, a, b);
        if answer.is_some() {
            self.carry_out(&ctx, kicks);
        }
        answer.is_some()
    }

    /// A call about a CPU.
    pub(crate) fn tell_cpu(&self, method: BatonMethod, cpu: usize, kicks: &mut Kicks) {
        let which = (Arg::Word(cpu as u64), Arg::Word(0));
        self.tell(method, cpu, 0, which, kicks);
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
        } else if preempt && self.agent().is_online(cpu) {
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
        let mut answer = self.call(&kicks.version, method, cpu, 0, &mut ctx, which, before);
        if answer == Some(BATON_PICK_NONE) && prev.is_none() && kicks.version.steals {
            let (method, none) = (BatonMethod::NewlyIdle, Arg::Word(0));
            answer = self.call(&kicks.version, method, cpu, 0, &mut ctx, which, none);
        }
        let is_free = answer == Some(BATON_PICK_NONE) && prev.is_none();
        self.services.claimed[cpu].store(!is_free, Relaxed);
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
    pub(crate) fn choose(&self, cpu: usize, kicks: &mut Kicks) {
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
    pub(crate) fn give_back(&self, cpu: usize, token: u64, kicks: &mut Kicks) {
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
        let mut task = *task;
        // The kernel left the task where the agent polls.
        if self.agent().polls_on() == Some(task.cpu as usize) {
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
        let about = (Arg::Task(task), Arg::Word(token));
        if self.tell(method, cpu, task.pid, about, kicks) {
            self.look(cpu, false, kicks);
        }
    }

    /// Answers a message.
    pub(crate) fn handle(&self, own: usize, message: &Message, kicks: &mut Kicks) {
        use BatonMethod as M;
        let task = task_of(message);
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
            M::PickRefused if !self.agent().has_token(message) => {}
            method @ M::PickRefused => {
                let why = Arg::Word(u64::from(message.flags));
                let refused = (Arg::Word(message.token), why);
                if self.tell(method, cpu, message.pid, refused, kicks) {
                    self.look(cpu, false, kicks);
                }
            }
            // To the policy, the CPU on which the agent polls is offline.
            M::CpuOnline | M::CpuOffline if self.agent().polls_on() == Some(cpu) => {}
            method @ (M::CpuOnline | M::CpuOffline) => self.plug(method, cpu, kicks),
            method @ (M::Balance | M::EnterIdle | M::ExitIdle) => {
                self.tell_cpu(method, cpu, kicks);
            }
            method => {
                let on = if method == M::TaskTick { cpu } else { own };
                let about = (Arg::Task(&task), Arg::Word(0));
                self.tell(method, on, message.pid, about, kicks);
            }
        }
    }

    /// The policy gets or loses a CPU.
    fn plug(&self, method: BatonMethod, cpu: usize, kicks: &mut Kicks) {
        if let Some(token) = self.agent().withdraw(cpu) {
            self.give_back(cpu, token, kicks);
        }
        let is_offline = method == BatonMethod::CpuOffline;
        self.services.offline[cpu].store(is_offline, Relaxed);
        self.tell_cpu(method, cpu, kicks);
        if !is_offline {
            self.has_new_cpu.store(true, Relaxed);
        }
    }

    /// A task of the enclave sent a hint.
    pub(crate) fn hint(&self, own: usize, message: &Message, hint: &BatonHint, kicks: &mut Kicks) {
        if !is_about_these(self.agent(), message, hint) || kicks.version.policy.ops().hint.is_none()
        {
            return;
        }
        let task = task_of(message);
        let about = (Arg::Task(&task), Arg::Hint(hint));
        self.tell(BatonMethod::Hint, own, message.pid, about, kicks);
    }

    /// A task is new, or woke up: the policy chooses its CPU, and receives it.
    fn arrive(
        &self,
        method: BatonMethod,
        message: &Message,
        mut task: BatonTask,
        kicks: &mut Kicks,
    ) {
        if message.waker >= 0 && kicks.version.policy.ops().select_task_rq.is_some() {
            let wake = BatonWake {
                prev_cpu: task.cpu,
                waker_cpu: message.waker,
                flags: message.flags & (BATON_F_SYNC | BATON_F_FORK),
            };
            let mut ctx = BatonCtx::default();
            let waker = message.waker as usize;
            let (about, wake) = (Arg::Task(&task), Arg::Wake(&wake));
            let select = BatonMethod::SelectTaskRq;
            let Some(answer) = self.call(
                &kicks.version,
                select,
                waker,
                task.pid,
                &mut ctx,
                about,
                wake,
            ) else {
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
        self.commit(cpu, message.token, slice, false, kicks);
        true
    }
}
