// SPDX-License-Identifier: GPL-2.0-only
//! `arbiter`: processes ask for cores, and schedule their own user-level threads on them. After
//! Arachne's core arbiter (Qin et al., OSDI '18), as in Enoki (sections 4.2.4 and 5.6).
//!
//! 1. A process has *activations*: threads that each run on a core of their own, or sleep until
//!    they get one. The process names them, and says how many cores it wants at each of eight
//!    levels (`Hint`).
//! 2. Cores are granted level by level, level 0 first. Within a level they are granted one at a
//!    time to each process in turn, so that all get equally many, up to what each wants and has
//!    activations for. An activation that is granted a core is notified (`Reply`), and wakes up on
//!    its CPU.
//! 3. When a process holds more cores than rule 2 gives it, the surplus is reclaimed with notice:
//!    the activation is notified, and is to give its core back (to park) within `within` (10 ms).
//!    If it does not, the core is taken, and the activation is a plain task until it parks.
//! 4. All other tasks are plain tasks. They wait in one queue, first in, first out, and each runs
//!    for a slice (`slice`, 20 ms). They use the CPUs that no process wants, and `shared` (1) CPUs
//!    that are never granted. At least one CPU can always be granted.
//! 5. A core whose activation sleeps is lent to plain tasks until the activation wakes up.
//! 6. A plain task that can run only on cores takes turns of `turn` (4 ms) with the activation
//!    there, so that it does not starve. During its turn the activation may run on a CPU with
//!    nothing to run.
//! 7. A core is given back when its activation ends, leaves the policy or may no longer use its
//!    CPU, and when its CPU goes offline. When its leader ends or leaves the policy, a process has
//!    no activations any more.
//!
//! All CPUs take one lock, and a wakeup that finds no idle CPU looks at the state of every CPU. The
//! policy is for machines of some dozens of CPUs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod cores;
mod messages;

use alloc::{sync::Arc, vec::Vec};
use baton::{
    runqueue::Fifo, Cpu, Ctx, Env, Events, Hints, Kick, Lock, PerTask, Pick, Placement, Refusal,
    Schedulable, Scheduler, Task, Topology, Upgrade, Wake, DEFAULT_SLICE,
};
use core::sync::atomic::{AtomicBool, AtomicU32};
use cores::Heard;

pub use messages::{Hint, Reply};

/// The number of levels of requests.
pub const LEVELS: usize = 8;
/// The most processes at a time. A [`Hint::Join`] of one more is refused.
pub const MAX_PROCESSES: usize = 64;
/// The most activations of a process. A [`Hint::Join`] of one more is refused.
pub const MAX_ACTIVATIONS: usize = 64;

/// A CPU.
struct Core {
    /// The activation that the core is granted to.
    holder: Option<u32>,
    /// When the core is taken, ns; 0 if it is not being reclaimed.
    due: u64,
    /// The CPU had nothing to run when it was last asked, and has not been kicked or given a task
    /// since.
    free: bool,
    /// Rule 6: a plain task has its turn.
    turned: bool,
}

/// A process.
struct Process {
    leader: u32,
    wanted: [u32; LEVELS],
    /// Slots of its activations.
    members: Vec<u32>,
    /// How many of them have a core or wait for one.
    able: u32,
    /// How many cores it is to have (rule 2).
    target: u32,
}

/// The state that the lock guards.
struct All {
    plain: Fifo,
    /// Runnable activations, which wait for their cores.
    ready: Fifo,
    cores: Vec<Core>,
    processes: Vec<Process>,
}

/// A task. Written with the lock held.
#[derive(Default)]
struct TaskState {
    is_member: AtomicBool,
    /// The core of an activation plus one; 0 if it has none.
    core: AtomicU32,
    /// The task is an activation that waits for a core.
    is_parked: AtomicBool,
}

/// The state that one version passes to the next.
#[derive(Clone)]
pub struct Kept {
    all: Arc<Lock<All>>,
    tasks: PerTask<TaskState>,
}

baton::state!(Core, version 1 { holder, due, free, turned });
baton::state!(Process, version 1 { leader, wanted, members, able, target });
baton::state!(All, version 1 { plain, ready, cores, processes });
baton::state!(TaskState, version 1 { is_member, core, is_parked });
baton::state!(Kept, version 1 { all, tasks });

/// The policy.
pub struct Arbiter {
    shared: Kept,
    topology: Topology,
    /// CPUs that are never granted.
    reserved: usize,
    within: u64,
    turn: u64,
    slice: u64,
}

impl Arbiter {
    /// Queues a runnable task, and makes a CPU look for it. After a wakeup (`woken`), the task's
    /// own CPU asks by itself if it is free. In all other cases that CPU is picking its next task.
    fn put(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable, woken: bool) {
        let mut all = self.shared.all.lock();
        let core = self.core_of(task.slot);
        let own = core.filter(|&cpu| ctx.may_run(task, cpu) && ctx.is_online(cpu));
        let cpu = match own {
            Some(_) => {
                let _ = all.ready.push_back(baton);
                match own.filter(|&cpu| woken || cpu != task.cpu) {
                    None => self.room(ctx, &all, task, false),
                    own => own,
                }
            }
            None => {
                let _ = all.plain.push_back(baton);
                self.room(ctx, &all, task, woken)
            }
        };
        if let Some(cpu) = cpu {
            let was_free = core::mem::replace(&mut all.cores[cpu.index()].free, false);
            if !(was_free && woken && cpu == task.cpu) {
                // This is the first kick of the call, so there is room.
                let _ = ctx.kick(cpu, Kick::Preempt);
            }
        }
        if core != own {
            self.evict(ctx, &mut all, task.slot);
            self.settle(ctx, &mut all, None);
        }
    }

    /// The CPU that is to look for a plain task: one with nothing to run, or else, if the task just
    /// woke up and can run only on cores, one where no plain task has its turn (rule 6).
    fn room(&self, ctx: &Ctx<'_>, all: &All, task: &Task, woken: bool) -> Option<Cpu> {
        let near = || {
            self.topology
                .near(task.cpu)
                .iter()
                .copied()
                .filter(|&cpu| ctx.may_run(task, cpu))
        };
        let free = |granted: bool| {
            near().find(|cpu| {
                all.cores[cpu.index()].free && all.cores[cpu.index()].holder.is_some() == granted
            })
        };
        let turn = || near().find(|cpu| !all.cores[cpu.index()].turned);
        let bound = || turn().filter(|_| woken && !self.has_shared(ctx, all, task.slot));
        free(false).or_else(|| free(true)).or_else(bound)
    }

    /// May the task run on a CPU that is granted to no activation?
    fn has_shared(&self, ctx: &Ctx<'_>, all: &All, slot: u32) -> bool {
        let is_shared = |cpu: Cpu| all.cores[cpu.index()].holder.is_none() && ctx.is_online(cpu);
        self.topology
            .cpus()
            .any(|cpu| is_shared(cpu) && ctx.slot_may_run(slot, cpu))
    }

    /// Takes, for a CPU with nothing to run, an activation that waits while a plain task has its
    /// turn on its core (rule 6).
    fn displaced(
        &self,
        ctx: &Ctx<'_>,
        all: &mut All,
        cpu: Cpu,
        prev: Option<&Task>,
    ) -> Option<Schedulable> {
        let waits = |slot: u32| {
            self.core_of(slot)
                .is_none_or(|core| all.cores[core.index()].turned)
        };
        let found = all
            .ready
            .iter()
            .find(|&slot| prev.is_none() && ctx.slot_may_run(slot, cpu) && waits(slot));
        found.and_then(|slot| all.ready.remove(slot))
    }

    /// Rules 4 to 6: picks the next task for a CPU.
    fn next(&self, ctx: &Ctx<'_>, all: &mut All, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let fits = |slot: u32| ctx.slot_may_run(slot, cpu);
        let Some(holder) = all.cores[cpu.index()].holder else {
            return match all
                .plain
                .pop_where(fits)
                .or_else(|| self.displaced(ctx, all, cpu, prev))
            {
                Some(task) => Pick::Run {
                    task,
                    slice: self.slice,
                },
                None if prev.is_some() => Pick::Keep { slice: self.slice },
                None => Pick::Nothing,
            };
        };
        let slice = self.turn;
        if !all.cores[cpu.index()].turned {
            let bound = all
                .plain
                .iter()
                .find(|&slot| fits(slot) && !self.has_shared(ctx, all, slot));
            if let Some(task) = bound.and_then(|slot| all.plain.remove(slot)) {
                all.cores[cpu.index()].turned = true;
                return Pick::Run { task, slice };
            }
        }
        all.cores[cpu.index()].turned = false;
        if prev.is_some_and(|prev| prev.slot == holder) {
            return Pick::Keep { slice };
        }
        match all
            .ready
            .remove(holder)
            .or_else(|| all.plain.pop_where(fits))
            .or_else(|| self.displaced(ctx, all, cpu, prev))
        {
            Some(task) => Pick::Run { task, slice },
            None if prev.is_some() => Pick::Keep { slice },
            None => Pick::Nothing,
        }
    }
}

impl Hints for Arbiter {
    type Hint = Hint;
    type Reply = Reply;

    fn hint(&self, ctx: &Ctx<'_>, from: &Task, hint: Hint) {
        let mut all = self.shared.all.lock();
        let (heard, tag) = match hint {
            Hint::Join { leader } => (self.join(&mut all, from.slot, leader.slot()), 1),
            Hint::Request { level, cores } => (
                cores::request(&mut all.processes, from.slot, level, cores),
                2,
            ),
            Hint::Park {} => (self.park(&mut all, from.slot), 3),
        };
        match heard {
            Heard::Changed => self.settle(ctx, &mut all, Some(from)),
            // The other CPUs wait for the lock meanwhile, so a repeated hint must cost little.
            Heard::Same => {}
            // The host reports lost replies to a sender that does not read them.
            Heard::Refused => drop(ctx.reply::<Self>(from.slot, &Reply::Refused { tag })),
        }
    }
}

impl Upgrade for Arbiter {
    type State = Kept;
    type Older = Kept;

    fn reregister_prepare(&self) -> Kept {
        self.shared.clone()
    }

    fn reregister_init(env: &Env<'_>, shared: Kept) -> Result<Self, baton::Error> {
        env.known_options(&["shared", "within", "turn", "slice"])?;
        let reserved = env.number("shared", 1)? as usize;
        let (within, turn) = (
            env.duration("within", 10_000_000)?,
            env.duration("turn", 4_000_000)?,
        );
        let slice = env.duration("slice", DEFAULT_SLICE)?;
        Ok(Self {
            shared,
            topology: env.topology().clone(),
            reserved,
            within,
            turn,
            slice,
        })
    }
}

impl Scheduler for Arbiter {
    const NAME: &'static str = "arbiter";
    const EVENTS: Events = Events::NONE;

    fn new(env: &Env<'_>) -> Result<Self, baton::Error> {
        let cores = env
            .topology()
            .cpus()
            .map(|_| Core {
                holder: None,
                due: 0,
                free: true,
                turned: false,
            })
            .collect();
        let all = All {
            plain: env.fifo(),
            ready: env.fifo(),
            cores,
            processes: Vec::new(),
        };
        Self::reregister_init(
            env,
            Kept {
                all: Arc::new(Lock::new(all)),
                tasks: env.per_task(),
            },
        )
    }

    fn select_task_rq(&self, ctx: &Ctx<'_>, task: &Task, wake: &Wake) -> Placement {
        let mut all = self.shared.all.lock();
        let core = self
            .core_of(task.slot)
            .filter(|&cpu| ctx.may_run(task, cpu));
        let claimed = if let Some(cpu) = core {
            core.filter(|_| ctx.claim_idle(cpu))
        } else {
            let idle = |granted: bool| {
                let mut idle = ctx
                    .idle_for(&self.topology, wake)
                    .filter(|&cpu| ctx.may_run(task, cpu));
                idle.find(|&cpu| {
                    all.cores[cpu.index()].holder.is_some() == granted && ctx.claim_idle(cpu)
                })
            };
            idle(false).or_else(|| idle(true))
        };
        match claimed {
            // `task_new` queues the task.
            Some(cpu) if wake.fork => Placement::Queue(cpu),
            Some(cpu) => {
                all.cores[cpu.index()].free = false;
                Placement::run(cpu)
            }
            None => Placement::Queue(core.unwrap_or(wake.prev_cpu)),
        }
    }

    fn task_new(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, true);
    }

    fn task_wakeup(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, true);
    }

    fn task_preempt(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, false);
    }

    fn task_yield(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, false);
    }

    fn task_restored(&self, ctx: &Ctx<'_>, task: &Task, baton: Schedulable) {
        self.put(ctx, task, baton, false);
    }

    fn pick_next_task(&self, ctx: &Ctx<'_>, cpu: Cpu, prev: Option<&Task>) -> Pick {
        let mut all = self.shared.all.lock();
        let due = all.cores[cpu.index()].due;
        if due != 0 && due <= ctx.now() {
            self.settle(ctx, &mut all, None);
        }
        let pick = self.next(ctx, &mut all, cpu, prev);
        all.cores[cpu.index()].free = matches!(pick, Pick::Nothing);
        pick
    }

    fn pick_refused(&self, _: &Ctx<'_>, baton: Schedulable, why: Refusal) {
        if !matches!(why, Refusal::Stale | Refusal::Foreign) {
            // The task's affinity has just changed. It does not fit this CPU when the host asks
            // again.
            let _ = self.shared.all.lock().plain.push_front(baton);
        }
    }

    fn task_dequeued(&self, _: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let mut all = self.shared.all.lock();
        all.ready
            .remove(task.slot)
            .or_else(|| all.plain.remove(task.slot))
    }

    fn task_departed(&self, ctx: &Ctx<'_>, task: &Task) -> Option<Schedulable> {
        let baton = self.task_dequeued(ctx, task);
        self.leave(ctx, task.slot);
        baton
    }

    fn task_dead(&self, ctx: &Ctx<'_>, task: &Task) {
        self.leave(ctx, task.slot);
    }

    fn task_affinity_changed(&self, ctx: &Ctx<'_>, task: &Task) {
        let mut all = self.shared.all.lock();
        let is_wrong = self
            .core_of(task.slot)
            .is_some_and(|cpu| !ctx.may_run(task, cpu));
        if is_wrong {
            self.evict(ctx, &mut all, task.slot);
        }
        // A parked activation may now use other cores.
        if is_wrong || self.is_parked(task.slot) {
            self.settle(ctx, &mut all, None);
        }
    }

    fn timer(&self, ctx: &Ctx<'_>, _: Cpu) {
        self.settle(ctx, &mut self.shared.all.lock(), None);
    }

    fn cpu_online(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let mut all = self.shared.all.lock();
        all.cores[cpu.index()].free = true;
        let _ = ctx.kick(cpu, Kick::Idle);
        self.settle(ctx, &mut all, None);
    }

    fn cpu_offline(&self, ctx: &Ctx<'_>, cpu: Cpu) {
        let mut all = self.shared.all.lock();
        all.cores[cpu.index()].free = false;
        if let Some(holder) = all.cores[cpu.index()].holder {
            self.evict(ctx, &mut all, holder);
        }
        self.settle(ctx, &mut all, None);
    }
}

baton::policy!(Arbiter, upgrade, hints);
