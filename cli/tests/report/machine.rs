// SPDX-License-Identifier: GPL-2.0-only
//! A small machine for the tests. Tasks run for random times in the order of one queue, and wake
//! each other. At times a CPU is taken by a higher class, or is offline.

use std::collections::VecDeque;

use baton_sim::detail;
use baton_sim::report::Run;
use baton_sim::rng::Rng;
use baton_sim::timeline;
use baton_sim::trace::{Event, Left, Sink};
use baton_sim::world::TaskRef;

use crate::runs::{run, Shape};

pub const END: u64 = 20_000_000;
const TASKS: u32 = 14;

struct Machine {
    rng: Rng,
    now: u64,
    /// By CPU: the task that it runs, and the end of that run. By task: the CPU on which it ran
    /// last.
    cpus: Vec<Option<(u32, u64)>>,
    last: Vec<Option<u32>>,
    /// By CPU that is taken: the time at which it is free again.
    taken: Vec<Option<(u64, bool)>>,
    queue: VecDeque<u32>,
    asleep: Vec<u32>,
    timeline: timeline::Collector,
    detail: detail::Collector,
}

impl Machine {
    fn tell(&mut self, event: Event) {
        self.timeline.event(self.now, &event);
        self.detail.event(self.now, &event);
    }

    fn load(&mut self) {
        let idle = self
            .cpus
            .iter()
            .zip(&self.taken)
            .filter(|(task, taken)| task.is_none() && taken.is_none());
        let event = Event::Load {
            waiting: self.queue.len() as u32,
            idle: idle.count() as u32,
        };
        self.tell(event);
    }

    /// A task or an interrupt wakes a sleeping task on that CPU.
    fn wake(&mut self, cpu: u32, by: Option<u32>) {
        if self.asleep.is_empty() {
            return;
        }
        let at = self.rng.below(self.asleep.len() as u64) as usize;
        let task = self.asleep.swap_remove(at);
        self.queue.push_back(task);
        self.detail.woken_by(by.map(TaskRef));
        self.tell(Event::Wake {
            task: TaskRef(task),
            cpu,
            waker: cpu,
        });
    }

    /// A CPU begins to run the first waiting task, if there is one.
    fn switch(&mut self, cpu: u32, left: Option<Left>) {
        let prev = self.cpus[cpu as usize].take().map(|(task, _)| task);
        if let Some((task, left)) = prev.zip(left) {
            if left == Left::Blocked {
                self.asleep.push(task);
            } else {
                self.queue.push_back(task);
            }
        }
        let next = if self.taken[cpu as usize].is_none() {
            self.queue.pop_front()
        } else {
            None
        };
        let migrated =
            next.is_some_and(|task| self.last[task as usize].is_some_and(|last| last != cpu));
        if let Some(task) = next {
            let length = 20_000 + self.rng.exponential(120_000);
            self.cpus[cpu as usize] = Some((task, self.now + length));
            self.last[task as usize] = Some(cpu);
        }
        if prev.is_some() || next.is_some() {
            let prev = prev.zip(left).map(|(task, left)| (TaskRef(task), left));
            self.tell(Event::Switch {
                cpu,
                prev,
                next: next.map(TaskRef),
                migrated,
            });
        }
    }

    fn step(&mut self, cpu: u32) {
        match self.taken[cpu as usize] {
            Some((until, higher)) if until <= self.now => {
                self.taken[cpu as usize] = None;
                self.tell(if higher {
                    Event::Higher { cpu, begins: false }
                } else {
                    Event::Online { cpu, online: true }
                });
            }
            Some(_) => return,
            None => {}
        }
        let running = self.cpus[cpu as usize];
        match running {
            Some((task, until)) if until <= self.now => {
                (0..self.rng.below(5) / 4).for_each(|_| self.wake(cpu, Some(task)));
                let left = [Left::Blocked, Left::Blocked, Left::Preempted, Left::Yielded]
                    [self.rng.below(4) as usize];
                if self.rng.below(40) == 0 {
                    let higher = self.rng.below(2) == 0;
                    self.taken[cpu as usize] = Some((self.now + 300_000, higher));
                    self.switch(cpu, Some(left));
                    self.tell(if higher {
                        Event::Higher { cpu, begins: true }
                    } else {
                        Event::Online { cpu, online: false }
                    });
                } else {
                    self.switch(cpu, Some(left));
                }
            }
            Some(_) => {}
            None => self.switch(cpu, None),
        }
    }
}

/// A run of four CPUs of which this part is kept in detail.
pub fn watched(policy: &str, seed: u64, part: std::ops::Range<u64>) -> Run {
    let mut machine = Machine {
        rng: Rng::new(seed, 1),
        now: 0,
        cpus: vec![None; 4],
        last: vec![None; TASKS as usize],
        taken: vec![None; 4],
        queue: VecDeque::new(),
        asleep: (0..TASKS).collect(),
        timeline: timeline::Collector::new(4, END),
        detail: detail::Collector::new(4, part, detail::LIMIT),
    };
    for task in 0..TASKS {
        let group = if task < 10 { "workers" } else { "a <b> & c" };
        machine.detail.task(
            TaskRef(task),
            group,
            if task < 10 { "worker" } else { "<i>" },
        );
    }
    while machine.now < END {
        // The load alternates between more than the CPUs can do, and less.
        if (machine.now / 250_000).is_multiple_of(2) && machine.rng.below(14) == 0 {
            machine.wake(0, None);
        }
        (0..4).for_each(|cpu| machine.step(cpu));
        machine.load();
        machine.now += 2_000 + machine.rng.below(3_000);
    }
    let mut run = run(policy, Shape::Spread, 1, 4, seed);
    run.duration_ns = END;
    run.timeline = Some(machine.timeline.finish(END).0);
    run.detail = machine.detail.finish(END);
    run
}
