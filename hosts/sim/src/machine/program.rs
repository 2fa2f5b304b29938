// SPDX-License-Identifier: GPL-2.0-only
//! Performs the operations of the tasks' programs.

use super::{Machine, Task};
use crate::queue::Next;
use crate::trace::Left;
use crate::world::{Cx, Happening, Item, Object, Op, TaskRef, Thing};

/// The limit of consecutive operations that take no time. A program that exceeds it is in a loop,
/// and one of its operations is made to take time.
const AT_ONCE: u32 = 1_000;

impl Machine<'_> {
    /// The task that runs on a CPU has done its work: performs the next operations of its program.
    pub(super) fn step(&mut self, cpu: u32, at: u32) {
        let turn = self.cpus[cpu as usize].turn;
        for count in 0.. {
            let Some(op) = self.ask(at) else { return };
            self.acting = Some(self.tasks[at as usize].id);
            self.perform(cpu, at, op);
            self.acting = None;
            // The task sleeps, or was preempted.
            if self.cpus[cpu as usize].turn != turn || self.cpus[cpu as usize].curr != Some(at) {
                return;
            }
            let task = &mut self.tasks[at as usize];
            if count == AT_ONCE {
                task.remaining = task.remaining.max(1);
            }
            if task.remaining > 0 {
                return self.arm(cpu);
            }
        }
    }

    pub(super) fn ask(&mut self, at: u32) -> Option<Op> {
        let now = self.now;
        let task = &mut self.tasks[at as usize];
        let mut program = task.program.take()?;
        let mut cx = Cx {
            now,
            rng: &mut task.rng,
            me: task.id,
            item: task.item.take(),
            child: task.child.take(),
            reply: task.reply.take(),
        };
        let op = program.next(&mut cx);
        task.program = Some(program);
        Some(op)
    }

    fn perform(&mut self, cpu: u32, at: u32, op: Op) {
        let syscall = self.config.costs.syscall;
        match op {
            Op::Run(work) => {
                let work = self.jittered(at, work);
                self.steal(cpu, work);
            }
            Op::Response(ns) => self.stats.response(self.tasks[at as usize].group, ns),
            Op::Done(count) => self.stats.done(self.tasks[at as usize].group, count),
            Op::Sleep(ns) => self.sleep(cpu, at, self.now.saturating_add(ns.max(1))),
            Op::SleepUntil(then) if then > self.now => self.sleep(cpu, at, then),
            Op::SleepUntil(_) => self.steal(cpu, syscall),
            Op::Down(object) => match self.semaphore(object) {
                (count, _) if *count > 0 => {
                    *count -= 1;
                    self.steal(cpu, syscall);
                }
                (_, waiters) => {
                    waiters.push_back(at);
                    self.block(cpu);
                }
            },
            Op::Up { to, sync } => {
                self.steal(cpu, syscall);
                self.up(to, cpu, sync);
            }
            Op::Barrier(object) => self.barrier(object, cpu, at),
            Op::Take(object) => {
                let (items, waiters) = self.items(object);
                match items.pop_front() {
                    Some(item) => {
                        self.tasks[at as usize].item = Some(item);
                        self.steal(cpu, syscall);
                    }
                    None => {
                        waiters.push_back(at);
                        self.block(cpu);
                    }
                }
            }
            Op::Put { to, item } => {
                self.steal(cpu, syscall);
                self.put(to, item, cpu);
            }
            Op::WaitCondition { condition, mutex } => {
                let Thing::Condition { waiters } = &mut self.things[condition.0 as usize] else {
                    return;
                };
                waiters.push_back((at, mutex));
                self.up(mutex, cpu, true);
                self.block(cpu);
            }
            Op::Signal { condition, all } => {
                self.steal(cpu, syscall);
                self.signal(condition, all, cpu);
            }
            Op::Suspend => {
                let task = &mut self.tasks[at as usize];
                if std::mem::take(&mut task.resumed) {
                    return self.steal(cpu, syscall);
                }
                task.suspended = true;
                self.block(cpu);
            }
            Op::Resume(other) => {
                self.steal(cpu, syscall);
                let Some(other) = self.by_ref.get(other.0 as usize).copied().flatten() else {
                    return;
                };
                if std::mem::take(&mut self.tasks[other as usize].suspended) {
                    self.wake(other, cpu, false)
                } else {
                    self.tasks[other as usize].resumed = true
                }
            }
            Op::Hint { hint, thread } => {
                self.steal(cpu, syscall);
                self.hint(cpu, at, hint, thread);
            }
            Op::Reply => match self.tasks[at as usize].replies.pop_front() {
                Some(reply) => {
                    self.read_reply(at, reply);
                    self.steal(cpu, syscall);
                }
                None => {
                    self.tasks[at as usize].awaits_reply = true;
                    self.block(cpu);
                }
            },
            Op::Yield => {
                self.steal(cpu, syscall);
                let handle = self.tasks[at as usize].handle;
                self.enter(cpu);
                self.core.yield_task(handle);
                self.tasks[at as usize].slice = 0;
                self.schedule(cpu, Left::Yielded);
            }
            Op::Fork(spawn) => {
                self.steal(cpu, self.config.costs.fork);
                let child: Option<TaskRef> = self.fork(at, *spawn, cpu);
                self.tasks[at as usize].child = child;
            }
            Op::Nice(nice) => {
                self.steal(cpu, syscall);
                self.change_now(Happening::Nice(self.tasks[at as usize].id, nice), cpu);
            }
            Op::Affinity(mask) => {
                self.steal(cpu, syscall);
                self.change_now(Happening::Affinity(self.tasks[at as usize].id, mask), cpu);
            }
            Op::Exit => self.schedule(cpu, Left::Dead),
        }
    }

    /// Varies a computing time, as caches, memory and frequencies do.
    fn jittered(&mut self, at: u32, work: u64) -> u64 {
        const WHOLE: u64 = 1_000_000;
        match u64::from(self.config.jitter) {
            0 => work,
            jitter => {
                let parts = self.tasks[at as usize]
                    .jitter
                    .between(WHOLE - jitter, WHOLE + jitter);
                (u128::from(work) * u128::from(parts) / u128::from(WHOLE)) as u64
            }
        }
    }

    fn block(&mut self, cpu: u32) {
        self.schedule(cpu, Left::Blocked);
    }

    fn sleep(&mut self, cpu: u32, at: u32, until: u64) {
        let turn = self.tasks[at as usize].turn;
        self.queue.push(until, Next::WakeUp { task: at, turn });
        self.block(cpu);
    }

    fn semaphore(&mut self, object: Object) -> (&mut u64, &mut std::collections::VecDeque<u32>) {
        match &mut self.things[object.0 as usize] {
            Thing::Semaphore { count, waiters } => (count, waiters),
            _ => panic!("a program takes something else for a semaphore"),
        }
    }

    fn items(
        &mut self,
        object: Object,
    ) -> (
        &mut std::collections::VecDeque<Item>,
        &mut std::collections::VecDeque<u32>,
    ) {
        match &mut self.things[object.0 as usize] {
            Thing::Queue { items, waiters } => (items, waiters),
            _ => panic!("a program takes something else for a queue"),
        }
    }

    /// Increments a semaphore, or wakes the first waiter instead.
    fn up(&mut self, object: Object, here: u32, sync: bool) {
        let (count, waiters) = self.semaphore(object);
        match waiters.pop_front() {
            Some(first) => self.wake(first, here, sync),
            None => *count += 1,
        }
    }

    fn put(&mut self, object: Object, item: Item, here: u32) {
        let (items, waiters) = self.items(object);
        match waiters.pop_front() {
            Some(first) => {
                self.tasks[first as usize].item = Some(item);
                self.wake(first, here, false);
            }
            None => items.push_back(item),
        }
    }

    fn barrier(&mut self, object: Object, cpu: u32, at: u32) {
        let Thing::Barrier { of, waiters } = &mut self.things[object.0 as usize] else {
            panic!("a program takes something else for a barrier")
        };
        if waiters.len() as u32 + 1 < *of {
            waiters.push(at);
            return self.block(cpu);
        }
        let others = std::mem::take(waiters);
        self.steal(cpu, self.config.costs.syscall);
        others
            .into_iter()
            .for_each(|other| self.wake(other, cpu, false));
    }

    fn signal(&mut self, condition: Object, all: bool, here: u32) {
        loop {
            let Thing::Condition { waiters } = &mut self.things[condition.0 as usize] else {
                panic!("a program takes something else for a condition")
            };
            let Some((first, mutex)) = waiters.pop_front() else {
                return;
            };
            // As with futex requeueing, the task sleeps on, now for the mutex, if the mutex is
            // taken.
            match self.semaphore(mutex) {
                (count, _) if *count > 0 => {
                    *count -= 1;
                    self.wake(first, here, false);
                }
                (_, waiters) => waiters.push_back(first),
            }
            if !all {
                return;
            }
        }
    }

    /// Do all tasks sleep, with no coming event that could wake one?
    pub(super) fn is_stuck(&self) -> bool {
        let tasks: Vec<&Task> = self
            .by_ref
            .iter()
            .flatten()
            .map(|&at| &self.tasks[at as usize])
            .collect();
        let wakes = |next: Next| match next {
            Next::WakeUp { task, turn } => self.tasks[task as usize].turn == turn,
            Next::Start { .. } | Next::Arrival { .. } => true,
            _ => false,
        };
        // A policy may reply at any time.
        let sleeps = |task: &&Task| !task.runnable && !task.awaits_reply;
        !tasks.is_empty()
            && tasks.iter().all(sleeps)
            && !self.queue.iter().any(|(_, next)| wakes(next))
    }

    /// Queues the arrival of a source's next item.
    pub(super) fn next_arrival(&mut self, at: u32) {
        let (source, rng) = &mut self.sources[at as usize];
        if let Some((time, to, item)) = source.next(rng) {
            self.arrivals[at as usize] = Some((to, item));
            self.queue
                .push(time.max(self.now), Next::Arrival { source: at });
        }
    }

    /// A network card's interrupt: each source has its own CPU.
    pub(super) fn arrive(&mut self, at: u32) {
        if let Some((to, item)) = self.arrivals[at as usize].take() {
            let here = self.any_online(at % self.cpus.len() as u32);
            self.put(to, item, here);
        }
        self.next_arrival(at);
    }
}
