// SPDX-License-Identifier: GPL-2.0-only
//! `witness`: notes which calls it gets about one task, and reports them by a panic. For the
//! conformance of hosts (`policy/conformance`).
//!
//! 1. Each CPU has a first-in first-out queue, and takes tasks only from its own. A task that must
//!    leave its CPU is therefore not taken away before the host moves it.
//! 2. When the nice value of a task becomes 1, the policy begins to note the calls about this task:
//!    a letter for each call, except for picks and preemptions.
//! 3. When the task's nice value becomes 19, the policy panics with the letters as its message.
//! 4. It panics as well if a host makes two calls about a task, or two picks for a CPU, at once.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::string::String;
use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Kick, Lock, PerCpu, PerTask, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Topology, Wake,
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The most letters that are kept.
const MAX_NOTES: usize = 100;

/// The calls about one task.
#[derive(Default)]
struct Notes {
    slot: Option<u32>,
    letters: String,
}

/// A call that must be the only one of its kind until this is dropped.
struct Alone<'a>(&'a AtomicBool);

impl<'a> Alone<'a> {
    fn new(is_called: &'a AtomicBool, what: &str) -> Self {
        assert!(!is_called.swap(true, Relaxed), "two {what} at once");
        Self(is_called)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// The policy.
pub struct Witness {
    queues: PerCpu<Lock<Fifo>>,
    notes: Lock<Notes>,
    topology: Topology,
    /// Whether a call about the task is under way.
    called: PerTask<AtomicBool>,
    /// Whether a pick for the CPU is under way.
    picking: PerCpu<AtomicBool>,
}

impl Witness {
    fn alone(&self, task: &Task) -> Alone<'_> {
        Alone::new(self.called.of(task), "calls about a task")
    }

    fn note(&self, task: &Task, letter: char) {
        let mut notes = self.notes.lock();
        if notes.slot == Some(task.slot) && notes.letters.len() < MAX_NOTES {
            notes.letters.push(letter);
        }
    }

    fn enqueue(&self, ctx: &Ctx<'_>, cpu: Cpu, baton: Schedulable) {
        let _ = self.queues[cpu].lock().push_back(baton);
        let _ = ctx.kick(cpu, Kick::Idle);
    }

    fn remove(&self, task: &Task) -> Option<Schedulable> {
        self.queues
            .iter()
            .find_map(|queue| queue.lock().remove(task.slot))
    }
}

impl Scheduler for Witness {
    const NAME: &'static str = "witness";
    const EVENTS: Events = Events::BLOCKED;

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        env.known_options(&[])?;
        let notes = Notes {
            letters: String::with_capacity(MAX_NOTES),
            ..Notes::default()
        };
        Ok(Self {
            queues: env.per_cpu(|_| Lock::new(env.fifo())),
            notes: Lock::new(notes),
            topology: env.topology().clone(),
            called: env.per_task(),
            picking: env.per_cpu(|_| AtomicBool::new(false)),
        })
    }

    fn select_task_rq(&self, _: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let _alone = self.alone(task);
        self.note(task, 's');
        Placement::Queue(wake.prev_cpu)
    }

    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let _alone = self.alone(task);
        self.note(task, 'n');
        self.enqueue(ctx, task.cpu, baton);
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let _alone = self.alone(task);
        self.note(task, 'w');
        self.enqueue(ctx, task.cpu, baton);
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let _alone = self.alone(task);
        self.enqueue(ctx, task.cpu, baton);
    }

    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let _alone = self.alone(task);
        self.note(task, 'y');
        self.enqueue(ctx, task.cpu, baton);
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        let _alone = self.alone(task);
        self.note(task, 'r');
        self.enqueue(ctx, task.cpu, baton);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let _alone = Alone::new(&self.picking[cpu], "picks for a CPU");
        match self.queues[cpu]
            .lock()
            .pop_where(|slot| ctx.slot_may_run(slot, cpu))
        {
            Some(task) => Pick::Run {
                task,
                slice: baton::DEFAULT_SLICE,
            },
            None if prev.is_some() => Pick::Keep {
                slice: baton::DEFAULT_SLICE,
            },
            None => Pick::Nothing,
        }
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        let fits = self
            .topology
            .cpus()
            .find(|&cpu| ctx.baton_may_run(&baton, cpu));
        if let (Some(cpu), false) = (fits, matches!(why, Refusal::Stale | Refusal::Foreign)) {
            self.enqueue(ctx, cpu, baton);
        }
    }

    fn task_blocked(&self, _: &Ctx<'_>, task: &Task) {
        let _alone = self.alone(task);
        self.note(task, 'b');
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let _alone = self.alone(task);
        self.note(task, 'd');
        self.remove(task)
    }

    fn task_departed(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let _alone = self.alone(task);
        self.note(task, 'l');
        self.remove(task)
    }

    fn task_affinity_changed(&self, _: &Ctx<'_>, task: &Task) {
        let _alone = self.alone(task);
        self.note(task, 'a');
    }

    fn task_prio_changed(&self, _: &Ctx<'_>, task: &Task) {
        let _alone = self.alone(task);
        let mut notes = self.notes.lock();
        match task.nice {
            1 => {
                *notes = Notes {
                    slot: Some(task.slot),
                    letters: core::mem::take(&mut notes.letters),
                }
            }
            19 if notes.slot == Some(task.slot) => panic!("calls: {}", notes.letters),
            _ => {
                drop(notes);
                return self.note(task, 'i');
            }
        }
        notes.letters.clear();
    }
}

baton::policy!(Witness);
