// SPDX-License-Identifier: GPL-2.0-only
//! A machine whose CPUs share one stream of instructions: QEMU's round robin with `-icount`
//! (accel/tcg/tcg-accel-ops-rr.c), in which time is what all CPUs execute together. One CPU
//! executes until it halts, or until its part of the time to the next timer is over. Then the next
//! CPU that has work executes. The events of other CPUs, interrupts too, wait for their CPU's turn.

use super::Machine;
use crate::queue::Next;

/// The state of the round robin.
#[derive(Default)]
pub(super) struct Stream {
    /// The CPU that executes; `None` if all are halted.
    holder: Option<u32>,
    /// What each CPU may execute in this round, ns: icount_percpu_budget().
    budget: u64,
    /// Counts turns, so that the end of a turn that was given up is ignored.
    turn: u32,
    /// The next timer when the budget was computed, ns.
    timer: u64,
    /// By CPU: events that wait for its turn.
    waiting: Vec<Vec<Next>>,
}

impl Machine<'_> {
    /// Puts an event aside if it must wait for its CPU's turn. Returns whether it was.
    pub(super) fn must_wait(&mut self, next: Next) -> bool {
        let cpu = match next {
            _ if !self.config.one_stream => return false,
            Next::Resched { cpu, .. } | Next::Tick { cpu } | Next::Timer { cpu, .. } => cpu,
            Next::WakeUp { task, .. } => self.any_online(self.rq(task)),
            Next::Arrival { source } => self.any_online(source % self.cpus.len() as u32),
            _ => return false,
        };
        if self.stream.holder == Some(cpu) {
            return false;
        }
        self.stream.waiting.resize_with(self.cpus.len(), Vec::new);
        self.stream.waiting[cpu as usize].push(next);
        if self.stream.holder.is_none() {
            self.pass_on();
        }
        true
    }

    /// Called after each event. The turn passes on if the executing CPU has halted, if none
    /// executes although one could, or if a timer was set that expires before all others
    /// (qemu_timer_notify_cb()).
    pub(super) fn look_at_stream(&mut self) {
        if !self.config.one_stream {
            return;
        }
        if self.stream.holder.is_none_or(|cpu| !self.has_work(cpu)) {
            self.pass_on();
        } else if self.next_timer() < self.stream.timer {
            self.stream.timer = 0;
            self.pass_on();
        }
    }

    pub(super) fn turn_ends(&mut self, turn: u32) {
        if self.stream.turn == turn {
            self.pass_on();
        }
    }

    fn has_work(&self, cpu: u32) -> bool {
        let waits = self
            .stream
            .waiting
            .get(cpu as usize)
            .is_some_and(|waiting| !waiting.is_empty());
        waits || self.cpus[cpu as usize].curr.is_some()
    }

    /// The loop of rr_cpu_thread_fn(): the next CPU of the round, or the first of a new one.
    fn pass_on(&mut self) {
        let before = self.stream.holder.take();
        if let Some(cpu) = before {
            self.account(cpu);
            self.set_executing(cpu, false);
        }
        let nr_cpus = self.cpus.len() as u32;
        let in_round = before
            .map_or(0..0, |cpu| cpu + 1..nr_cpus)
            .find(|&cpu| self.has_work(cpu));
        let limit = self.next_timer().saturating_sub(self.now);
        if in_round.is_none() || self.stream.timer == 0 {
            self.stream.timer = self.now + limit;
            self.stream.budget = (limit / u64::from(nr_cpus)).max(1);
        }
        let Some(cpu) = in_round.or_else(|| (0..nr_cpus).find(|&cpu| self.has_work(cpu))) else {
            return;
        };
        self.stream.holder = Some(cpu);
        self.stream.turn = self.stream.turn.wrapping_add(1);
        let end = self.now + self.stream.budget.min(limit).max(1);
        self.queue.push_first(
            end,
            Next::TurnEnds {
                turn: self.stream.turn,
            },
        );
        self.account(cpu);
        self.set_executing(cpu, true);
        self.arm(cpu);
        let waited = self
            .stream
            .waiting
            .get_mut(cpu as usize)
            .map(std::mem::take);
        waited
            .unwrap_or_default()
            .into_iter()
            .for_each(|next| self.happen(next));
    }

    fn set_executing(&mut self, cpu: u32, executes: bool) {
        let target = &mut self.cpus[cpu as usize];
        target.speed = if executes { 1024 } else { 0 };
        target.turn = target.turn.wrapping_add(1);
    }

    /// When the machine's next timer expires, ns: qemu_clock_deadline_ns_all().
    fn next_timer(&self) -> u64 {
        let is_timer = |next: &Next| match next {
            Next::Tick { cpu } => self.cpus[*cpu as usize].curr.is_some(),
            Next::Timer { .. } | Next::WakeUp { .. } | Next::Arrival { .. } => true,
            _ => false,
        };
        let timers = self
            .queue
            .iter()
            .filter(|(at, next)| *at > self.now && is_timer(next));
        timers
            .map(|(at, _)| at)
            .min()
            .unwrap_or(self.now + i32::MAX as u64)
    }
}
