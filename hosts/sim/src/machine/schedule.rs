// SPDX-License-Identifier: GPL-2.0-only
//! Which task a CPU runs: __schedule(), balance_one(), scx_dispatch_sched(), and the time that
//! passes while a task runs.

use baton_abi::{BatonCtx, BATON_F_PREV_RUNNABLE};
use baton_core::{Verdict, DEFAULT_SLICE, TURN_WAS_EMPTY};

use super::{Machine, Place};
use crate::queue::Next;
use crate::trace::{Event, Left};

/// Attempts of one dispatch, as in the shim.
const MAX_TRIES: u32 = 16;

impl Machine<'_> {
    /// update_curr_scx(), and the progress of the task's work.
    pub(super) fn account(&mut self, cpu: u32) {
        let target = &mut self.cpus[cpu as usize];
        let Some(at) = target.curr else { return };
        let task = &mut self.tasks[at as usize];
        let delta = self.now - target.since;
        task.runtime += delta;
        task.slice = task.slice.saturating_sub(delta);
        target.since = self.now;
        if self.now > target.work_from {
            let done = (u128::from(self.now - target.work_from) * u128::from(target.speed)) >> 10;
            task.remaining = task.remaining.saturating_sub(done as u64);
            target.work_from = self.now;
        }
    }

    /// Queues the event for when the running task will have done its work. If that proves too
    /// early, the event is queued again.
    pub(super) fn arm(&mut self, cpu: u32) {
        let target = &self.cpus[cpu as usize];
        let Some(at) = target.curr.filter(|_| target.speed > 0) else {
            return;
        };
        let need = (u128::from(self.tasks[at as usize].remaining) << 10)
            .div_ceil(u128::from(target.speed));
        let need = u64::try_from(need).unwrap_or(u64::MAX);
        self.queue.push(
            target.work_from.max(self.now).saturating_add(need),
            Next::Done {
                cpu,
                turn: target.turn,
            },
        );
    }

    pub(super) fn done(&mut self, cpu: u32) {
        self.account(cpu);
        let Some(at) = self.cpus[cpu as usize].curr else {
            return;
        };
        match self.tasks[at as usize].remaining {
            0 => self.step(cpu, at),
            _ => self.arm(cpu),
        }
    }

    /// __schedule(). `left` is why the running task leaves, if it does. Its time is already
    /// accounted for.
    pub(super) fn schedule(&mut self, cpu: u32, left: Left) {
        let prev = self.cpus[cpu as usize].curr;
        let goes_on = matches!(left, Left::Preempted | Left::Yielded);
        if let Some(at) = prev {
            self.set_runnable(at, goes_on);
            // balance_one(): a task with some of its slice left has priority.
            if goes_on && self.tasks[at as usize].slice > 0 {
                return;
            }
        }
        // This serves all requests to reschedule until now. Later ones come after it.
        let target = &mut self.cpus[cpu as usize];
        target.resched = false;
        target.preempt = false;
        target.resched_turn = target.resched_turn.wrapping_add(1);
        target.deaf_until = self.now + self.config.costs.switch;
        let next = match self.cpus[cpu as usize].local.front().copied() {
            Some(first) => Some(first),
            None => self.dispatch(cpu, prev.map(|at| (at, goes_on))),
        };
        if let Some(at) = next.filter(|_| next != prev) {
            self.cpus[cpu as usize].local.retain(|&other| other != at);
        }
        // There is nothing else: the kernel keeps a task that can go on (pick_task_scx()).
        let next = next.or(prev.filter(|_| goes_on));
        if next == prev {
            if let Some(at) = next.filter(|&at| self.tasks[at as usize].slice == 0) {
                self.tasks[at as usize].slice = DEFAULT_SLICE;
            }
            self.note_idle(cpu);
            return;
        }
        self.switch(cpu, prev.map(|at| (at, left)), next);
        if let Some(at) = prev.filter(|_| left == Left::Dead) {
            self.exit(at, cpu);
        }
    }

    /// put_prev_task() and set_next_task()
    pub(super) fn switch(&mut self, cpu: u32, prev: Option<(u32, Left)>, next: Option<u32>) {
        let target = &mut self.cpus[cpu as usize];
        target.turn = target.turn.wrapping_add(1);
        target.curr = next;
        let prev_id = prev.map(|(at, left)| (self.tasks[at as usize].id, left));
        let next_id = next.map(|at| self.tasks[at as usize].id);
        if let Some((at, left)) = prev {
            self.set_place(at, Place::Away);
            if matches!(left, Left::Preempted | Left::Yielded) {
                self.enqueue(at, cpu, 0);
            }
        }
        if prev.is_some() {
            self.last_ran = self.now;
        }
        let mut migrated = false;
        if let Some(at) = next {
            migrated = self.put_on(at, cpu);
        }
        self.stats.switches += 1;
        self.tell(Event::Switch {
            cpu,
            prev: prev_id,
            next: next_id,
            migrated,
        });
        self.note_idle(cpu);
        self.note_siblings(cpu);
        self.arm(cpu);
    }

    /// A task begins to run on a CPU. Returns whether it ran on another CPU before.
    fn put_on(&mut self, at: u32, cpu: u32) -> bool {
        self.set_place(at, Place::OnCpu(cpu));
        let costs = &self.config.costs;
        let task = &mut self.tasks[at as usize];
        let from = task.last_cpu.replace(cpu);
        let distance = from.map(|from| self.config.topology.distance(from as usize, cpu as usize));
        let refill = distance.map_or(0, |distance| costs.refill(distance));
        if let Some(woken) = task.woken_at.take() {
            self.stats.wakeup(task.group, self.now - woken);
        }
        let target = &mut self.cpus[cpu as usize];
        target.since = self.now;
        target.work_from = self.now;
        if self.config.one_stream {
            // The kernel's work for the task, too, is done only in its CPU's turns.
            task.remaining = task.remaining.saturating_add(costs.switch + refill);
        } else {
            target.work_from += costs.switch + refill;
        }
        if !target.has_tick {
            target.has_tick = true;
            // Ticks of all CPUs come at the same time, as without skew_tick.
            self.queue
                .push((self.now / costs.tick + 1) * costs.tick, Next::Tick { cpu });
        }
        let migrated = from.is_some_and(|from| from != cpu);
        if let Some(distance) = distance.filter(|_| migrated) {
            self.stats.migration(distance);
        }
        migrated
    }

    /// Reports a change of idle to the rules (update_idle()), and counts idle CPUs.
    pub(super) fn note_idle(&mut self, cpu: u32) {
        let target = &mut self.cpus[cpu as usize];
        let idle = target.curr.is_none() && !target.higher && target.online;
        if idle == target.told_idle {
            return;
        }
        target.told_idle = idle;
        if idle {
            target.idles.enter(self.now);
        }
        let mut ctx = self.cpu_ctx(cpu);
        let here = self.enter(cpu);
        self.core.set_idle((), here, &mut ctx, idle);
        self.settle(cpu, &ctx);
        self.idle = if idle { self.idle + 1 } else { self.idle - 1 };
    }

    /// Updates the speed of a core's threads when one of them becomes busy or idle.
    pub(super) fn note_siblings(&mut self, cpu: u32) {
        if self.cpus[cpu as usize].siblings.is_empty() {
            return;
        }
        let siblings = self.cpus[cpu as usize].siblings.clone();
        for &other in siblings.iter().chain([&cpu]) {
            let target = &self.cpus[other as usize];
            let is_busy =
                |cpu: u32| self.cpus[cpu as usize].curr.is_some() || self.cpus[cpu as usize].higher;
            let shared = target.siblings.iter().any(|&sibling| is_busy(sibling));
            let speed = if shared { self.config.costs.smt } else { 1024 };
            if speed == target.speed {
                continue;
            }
            self.account(other);
            let target = &mut self.cpus[other as usize];
            target.speed = speed;
            if target.curr.is_some() && other != cpu {
                target.turn = target.turn.wrapping_add(1);
                self.arm(other);
            }
        }
    }

    /// scx_dispatch_sched() and the shim's ops.dispatch. Returns the task to run, if there is one.
    /// `prev` is the task that ran there, and whether it can go on.
    fn dispatch(&mut self, cpu: u32, prev: Option<(u32, bool)>) -> Option<u32> {
        let mut was_empty = false;
        for attempt in 0..MAX_TRIES {
            let mut ctx = BatonCtx {
                now: self.now,
                cpu: cpu as i32,
                ..BatonCtx::default()
            };
            if let Some((at, goes_on)) = prev {
                ctx = self.ctx(at, cpu, if goes_on { BATON_F_PREV_RUNNABLE } else { 0 });
            }
            ctx.flags |= if was_empty { TURN_WAS_EMPTY } else { 0 };
            let here = self.enter(cpu);
            let verdict = self.core.dispatch((), here, &mut ctx);
            let found = match verdict {
                Verdict::Run => {
                    let slot = self.core.slots()[(ctx.task as u32) as usize - 1].opaque();
                    let at = slot as u32 - 1;
                    debug_assert_eq!(self.tasks[at as usize].place, Place::Custody);
                    self.insert_local(at, cpu, true);
                    self.tasks[at as usize].slice = ctx.slice;
                    Some(at)
                }
                Verdict::Keep => {
                    let (at, _) = prev.expect("a task to keep");
                    self.tasks[at as usize].slice = ctx.slice;
                    Some(at)
                }
                Verdict::Rescue if attempt + 1 < MAX_TRIES => {
                    self.rescue(cpu);
                    self.settle(cpu, &ctx);
                    continue;
                }
                Verdict::Fallback | Verdict::Turn | Verdict::Rescue => {
                    let found = self.take_fallback(cpu);
                    if found.is_none() && verdict == Verdict::Turn {
                        was_empty = true;
                        self.settle(cpu, &ctx);
                        continue;
                    }
                    found
                }
                _ => None,
            };
            self.settle(cpu, &ctx);
            return found;
        }
        // The shim kicks its own CPU.
        self.resched(cpu, cpu);
        None
    }

    /// consume_dispatch_q()
    fn take_fallback(&mut self, cpu: u32) -> Option<u32> {
        let first = self
            .fallback
            .iter()
            .copied()
            .find(|&at| self.allowed(at, cpu))?;
        self.dequeue(first);
        self.insert_local(first, cpu, false);
        Some(first)
    }

    /// Moves a task that a stopped policy had queued to the fallback queue.
    fn rescue(&mut self, cpu: u32) {
        let Some((slot, _)) = self.core.rescue_one() else {
            return;
        };
        let at = slot.opaque() as u32 - 1;
        if self.tasks[at as usize].place == Place::Custody {
            self.fallback.push_back(at);
            self.set_place(at, Place::Fallback);
            self.tasks[at as usize].slice = self.core.fallback_slice();
            let home = self.core.rescued_home(slot, self.rq(at) as i32);
            self.kick(home as u32, cpu, false);
        }
    }

    /// sched_ext_dead(), after the last switch.
    fn exit(&mut self, at: u32, cpu: u32) {
        self.end_of(at, false);
        let mut ctx = self.ctx(at, cpu, 0);
        let here = self.enter(cpu);
        self.core.disable_task((), here, &mut ctx, true);
        self.settle(cpu, &ctx);
        let task = &mut self.tasks[at as usize];
        task.program = None;
        task.turn = task.turn.wrapping_add(1);
        let (handle, id) = (task.handle, task.id);
        self.by_ref[id.0 as usize] = None;
        self.core.exit_task(handle);
        self.free.push(at);
    }

    /// Records a task that exits, or is alive at the end of the run, for the reports.
    pub(super) fn end_of(&mut self, at: u32, alive: bool) {
        if self.by_ref[self.tasks[at as usize].id.0 as usize] == Some(at) {
            self.set_runnable(at, false);
            let task = &self.tasks[at as usize];
            let had = task.runtime - task.ran_before;
            self.shares.add(had as f64, task.due);
            self.stats.end_of(task.group, self.now, had, alive);
        }
    }
}
