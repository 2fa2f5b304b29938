// SPDX-License-Identifier: GPL-2.0-only
//! A policy with an error that only its own atomics show. Wakeups take tickets from a lock-free
//! list. Its head may be removed and inserted again between the read and the exchange (ABA), so
//! that two wakeups get one ticket.
#![no_std]
#![forbid(unsafe_code)]

use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Lock, PerCpu, Pick, Placement, Refusal, Schedulable, Scheduler, Task, Topology, Wake,
    DEFAULT_SLICE,
};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

const TICKETS: usize = 8;

/// No ticket.
const NONE: u32 = u32::MAX;

struct Tickets {
    first: AtomicU32,
    next: [AtomicU32; TICKETS],
    is_taken: [AtomicBool; TICKETS],
}

impl Tickets {
    fn new() -> Self {
        let next = core::array::from_fn(|at| AtomicU32::new(if at + 1 < TICKETS { at as u32 + 1 } else { NONE }));
        Self { first: AtomicU32::new(0), next, is_taken: [const { AtomicBool::new(false) }; TICKETS] }
    }

    fn take(&self) -> Option<usize> {
        loop {
            let first = self.first.load(SeqCst);
            let next = self.next.get(first as usize)?.load(SeqCst);
            if self.first.compare_exchange(first, next, SeqCst, SeqCst).is_ok() {
                assert!(!self.is_taken[first as usize].swap(true, SeqCst), "ticket {first} was \
                    taken twice");
                return Some(first as usize);
            }
        }
    }

    fn give_back(&self, ticket: usize) {
        self.is_taken[ticket].store(false, SeqCst);
        loop {
            let first = self.first.load(SeqCst);
            self.next[ticket].store(first, SeqCst);
            if self.first.compare_exchange(first, ticket as u32, SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }
}

pub struct Aba {
    queues: PerCpu<Lock<Fifo>>,
    topology: Topology,
    tickets: Tickets,
}

impl Aba {
    fn put(&self, cpu: Cpu, baton: Schedulable) {
        let _ = self.queues[cpu].lock().push_back(baton);
    }
}

impl Scheduler for Aba {
    const NAME: &'static str = "aba";

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        let queues = env.per_cpu(|_| Lock::new(env.fifo()));
        Ok(Self { queues, topology: env.topology().clone(), tickets: Tickets::new() })
    }

    fn select_task_rq(&self, _: &Ctx<'_>, _: &Task, wake: &Wake) -> Placement {
        let taken = [self.tickets.take(), self.tickets.take()];
        taken.into_iter().flatten().for_each(|ticket| self.tickets.give_back(ticket));
        Placement::Queue(wake.prev_cpu)
    }
    fn task_new(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task.cpu, baton);
    }
    fn task_wakeup(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task.cpu, baton);
    }
    fn task_preempt(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task.cpu, baton);
    }
    fn task_yield(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task.cpu, baton);
    }
    fn task_restored(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(task.cpu, baton);
    }
    fn pick_next_task(&self, _: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        match self.queues[cpu].lock().pop_front() {
            Some(task) => Pick::Run { task, slice: DEFAULT_SLICE },
            None if prev.is_some() => Pick::Keep { slice: DEFAULT_SLICE },
            None => Pick::Nothing,
        }
    }
    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            let allowed = self.topology.cpus().find(|&cpu| ctx.baton_may_run(&baton, cpu));
            self.put(allowed.unwrap_or(Cpu::new(0)), baton);
        }
    }
    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        self.queues.iter().find_map(|queue| queue.lock().remove(task.slot))
    }
}

baton::policy!(Aba);
