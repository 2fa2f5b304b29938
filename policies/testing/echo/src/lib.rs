// SPDX-License-Identifier: GPL-2.0-only
//! `echo`: for tests of hints, and as an example of a policy that receives them.
//!
//! 1. One queue for each CPU. A task waits at the end of the queue of the CPU where it last ran.
//! 2. A task for which a hint requests it waits at the front.
//! 3. Each hint is answered.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::sync::Arc;
use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Hints, Kick, Lock, PerCpu, PerTask, Pick, Placement,
    Refusal, Schedulable, Scheduler, Shared, Task, Thread, Topology, Upgrade, Wake, DEFAULT_SLICE,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

baton::message! {
    /// A message from an application.
    pub enum Hint, version 1 {
        /// Asks for this many replies with the same number.
        Ping {
            /// Any number.
            number: u64,
            /// The number of replies.
            times: u8,
        } = 1,
        /// From now on, that thread goes before the others, or no longer does.
        First {
            /// The thread.
            thread: Thread,
            /// Whether it goes before the others.
            yes: bool,
        } = 2,
    }
}

baton::message! {
    /// A message from the policy.
    pub enum Reply, version 1 {
        /// The reply to a ping.
        Pong {
            /// The number of the ping.
            number: u64,
            /// The number of hints so far, of all tasks, with this one.
            heard: u64,
        } = 1,
        /// The reply to a hint that a thread goes first.
        Noted {
            /// The thread's slot.
            slot: u32,
        } = 2,
    }
}

/// The state that one version passes to the next.
#[derive(Clone)]
pub struct State {
    queues: PerCpu<Lock<Fifo>>,
    tasks: PerTask<TaskState>,
    heard: Arc<Lock<u64>>,
}

/// The state of a task.
#[derive(Default)]
struct TaskState {
    /// The CPU in whose queue it was last put.
    home: AtomicU32,
    is_first: Shared<bool>,
}

baton::state!(TaskState, version 1 { home, is_first });
baton::state!(State, version 1 { queues, tasks, heard });

/// The policy.
pub struct Echo {
    state: State,
    topology: Topology,
}

impl Echo {
    fn put(&self, cpu: Cpu, baton: Schedulable) {
        let task = self.state.tasks.slot(baton.slot());
        task.home.store(cpu.number() as u32, Relaxed);
        let is_first = task.is_first.get();
        let mut queue = self.state.queues[cpu].lock();
        if is_first {
            let _ = queue.push_front(baton);
        } else {
            let _ = queue.push_back(baton);
        }
    }

    fn rehome(&self, ctx: &Ctx<'_>, baton: Schedulable, from: Cpu) {
        let cpu = self
            .topology
            .near(from)
            .iter()
            .copied()
            .find(|&cpu| ctx.baton_may_run(&baton, cpu))
            .unwrap_or(from);
        self.put(cpu, baton);
        let _ = ctx.kick(cpu, Kick::Idle);
    }
}

impl Hints for Echo {
    type Hint = Hint;
    type Reply = Reply;

    fn hint(&self, ctx: &Ctx<'_>, from: &Task, hint: Hint) {
        let heard = {
            let mut heard = self.state.heard.lock();
            *heard += 1;
            *heard
        };
        match hint {
            Hint::Ping { number, times } => {
                for _ in 0..times {
                    // The host reports lost replies to a sender that does not read them.
                    let _ = ctx.reply::<Self>(from.slot, &Reply::Pong { number, heard });
                }
            }
            Hint::First { thread, yes } => {
                self.state.tasks.slot(thread.slot()).is_first.set(yes);
                let _ = ctx.reply::<Self>(
                    from.slot,
                    &Reply::Noted {
                        slot: thread.slot(),
                    },
                );
            }
        }
    }
}

impl Upgrade for Echo {
    type State = State;
    type Older = State;

    fn reregister_prepare(&self) -> State {
        self.state.clone()
    }

    fn reregister_init(env: &Env<'_>, state: State) -> Result<Self, baton::Error> {
        Ok(Self {
            state,
            topology: env.topology().clone(),
        })
    }
}

impl Scheduler for Echo {
    const NAME: &'static str = "echo";
    const EVENTS: Events = Events::NONE;

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        env.known_options(&[])?;
        let state = State {
            queues: env.per_cpu(|_| Lock::new(env.fifo())),
            tasks: env.per_task(),
            heard: Arc::new(Lock::new(0)),
        };
        Ok(Self {
            state,
            topology: env.topology().clone(),
        })
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        ctx.claim_idle_for(&self.topology, task, wake)
            .map_or(Placement::Queue(wake.prev_cpu), Placement::run)
    }

    fn task_new(&self, _: &Ctx<'_>, task: &Task, baton: Schedulable) {
        // The slot may have belonged to another task.
        self.state.tasks.of(task).is_first.set(false);
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
        match self.state.queues[cpu].lock().pop_front() {
            Some(task) => Pick::Run {
                task,
                slice: DEFAULT_SLICE,
            },
            None if prev.is_some() => Pick::Keep {
                slice: DEFAULT_SLICE,
            },
            None => Pick::Nothing,
        }
    }

    fn pick_refused(&self, ctx: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if matches!(why, Refusal::Stale | Refusal::Foreign) {
            return;
        }
        let home = Cpu::new(self.state.tasks.slot(baton.slot()).home.load(Relaxed));
        self.rehome(ctx, baton, home);
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let home = Cpu::new(self.state.tasks.of(task).home.load(Relaxed));
        let baton = self.state.queues[home].lock().remove(task.slot);
        baton.or_else(|| {
            self.state
                .queues
                .iter()
                .find_map(|queue| queue.lock().remove(task.slot))
        })
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let waiting = self.state.queues[cpu].lock().len();
        for _ in 0..waiting {
            let first = self.state.queues[cpu].lock().pop_front();
            let Some(baton) = first else { return };
            self.rehome(ctx, baton, cpu);
        }
    }
}

baton::policy!(Echo, upgrade, hints);
