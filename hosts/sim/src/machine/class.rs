// SPDX-License-Identifier: GPL-2.0-only
//! Higher classes and interrupts, which take a CPU's time without asking a policy.

use super::{Machine, Place};
use crate::queue::Next;
use crate::trace::{Event, Left};

impl Machine<'_> {
    /// A task of a higher class takes a CPU for this long: put_prev_task_scx() and reenq_local().
    pub(super) fn higher_begins(&mut self, cpu: u32, ns: u64) {
        if !self.cpus[cpu as usize].online {
            return;
        }
        self.account(cpu);
        let target = &mut self.cpus[cpu as usize];
        let was_higher = std::mem::replace(&mut target.higher, true);
        // Two tasks of a higher class run one after the other.
        let begin = if was_higher {
            target.higher_until
        } else {
            self.now
        };
        target.higher_until = begin.saturating_add(ns);
        target.higher_turn = target.higher_turn.wrapping_add(1);
        let (end, turn) = (target.higher_until, target.higher_turn);
        self.queue.push(end, Next::HigherEnds { cpu, turn });
        if was_higher {
            return;
        }
        self.higher += 1;
        let curr = target.curr.take();
        target.turn = target.turn.wrapping_add(1);
        if let Some(at) = curr {
            let task = &self.tasks[at as usize];
            let (id, returns) = (task.id, task.slice > 0 && !task.immed);
            self.set_place(at, Place::Away);
            if returns {
                // A task with some of its slice left stays first on the local queue.
                self.cpus[cpu as usize].local.push_front(at);
                self.set_place(at, Place::Local(cpu));
            } else {
                self.enqueue(at, cpu, 0);
            }
            self.stats.switches += 1;
            self.tell(Event::Switch {
                cpu,
                prev: Some((id, Left::Preempted)),
                next: None,
                migrated: false,
            });
        }
        self.tell(Event::Higher { cpu, begins: true });
        self.reenqueue_if_busy(cpu, cpu);
        self.note_idle(cpu);
        self.note_siblings(cpu);
    }

    pub(super) fn higher_ends(&mut self, cpu: u32) {
        self.cpus[cpu as usize].higher = false;
        self.higher -= 1;
        self.tell(Event::Higher { cpu, begins: false });
        debug_assert!(self.cpus[cpu as usize].curr.is_none() && self.cpus[cpu as usize].online);
        self.schedule(cpu, Left::Blocked);
        self.note_siblings(cpu);
    }

    /// An interrupt takes this much time of the running task. Deviation: it counts as the task's
    /// own time, as in kernels without CONFIG_IRQ_TIME_ACCOUNTING, and costs nothing on an idle
    /// CPU.
    pub(super) fn interrupt(&mut self, cpu: u32, ns: u64) {
        self.account(cpu);
        self.steal(cpu, ns);
    }

    /// The eviction of `hosts/kernel/host.c`: another thread takes the CPU. The evicted task has no
    /// slice left, so it is enqueued.
    pub(super) fn evict(&mut self, cpu: u32) {
        self.account(cpu);
        if let Some(at) = self.cpus[cpu as usize].curr {
            self.tasks[at as usize].slice = 0;
            self.higher_begins(cpu, self.config.costs.switch);
        }
    }

    /// Begins the noise on a CPU: interrupts and higher classes of a machine that others use, too.
    pub(super) fn begin_noise(&mut self, cpu: u32) {
        let noise = &self.config.noise;
        for (interrupt, period) in [(false, noise.higher_every), (true, noise.interrupt_every)] {
            if period > 0 {
                let first = self.noise.exponential(period);
                self.queue.push(first, Next::Noise { cpu, interrupt });
            }
        }
    }

    pub(super) fn make_noise(&mut self, cpu: u32, interrupt: bool) {
        let noise = &self.config.noise;
        let (period, length) = if interrupt {
            (noise.interrupt_every, noise.interrupt_for)
        } else {
            (noise.higher_every, noise.higher_for)
        };
        let length = self.noise.exponential(length).max(1);
        let next = self.now + self.noise.exponential(period).max(1);
        self.queue.push(next, Next::Noise { cpu, interrupt });
        if interrupt {
            self.interrupt(cpu, length)
        } else {
            self.higher_begins(cpu, length)
        }
    }
}
