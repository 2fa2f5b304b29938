// SPDX-License-Identifier: GPL-2.0-only
//! The parts of the simulated machine.

use crate::locks::Key;
use crate::random::Random;
use crate::seed::Seed;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Where the kernel has a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not runnable, or in transition.
    Away,
    /// Held by the rules: `enqueue` took it (SCX_OPSS_QUEUED).
    Custody,
    /// On the local queue of a CPU.
    Local(usize),
    OnCpu(usize),
}

pub struct Task {
    pub pid: u32,
    pub handle: u64,
    pub place: Cell<Place>,
    pub runnable: Cell<bool>,
    /// Whether it is of Baton's class.
    pub ours: Cell<bool>,
    pub alive: Cell<bool>,
    /// It exits, and nothing wakes it from now on.
    pub dying: Cell<bool>,
    /// The CPU whose run queue it is on, or was on last.
    pub rq: Cell<usize>,
    /// Its affinity, one bit for each CPU (`cpus_ptr`).
    pub mask: Cell<u32>,
    pub nice: Cell<i32>,
    /// CPU time, ns.
    pub runtime: Cell<u64>,
    /// The rest of its slice, ns.
    pub slice: Cell<u64>,
    /// If it cannot run at once, it is enqueued again (SCX_TASK_IMMED).
    pub immed: Cell<bool>,
    /// The token with which a pick last answered it.
    pub answered: Cell<u64>,
    /// Counts its enqueues (the QSEQ of `scx.ops_state`).
    pub enqueues: Cell<u64>,
    /// The CPU that is moving it from another run queue (`scx.holding_cpu`).
    pub holding: Cell<Option<usize>>,
    /// Between two run queues (TASK_ON_RQ_MIGRATING).
    pub migrating: Cell<bool>,
    /// It runs outside its affinity, and the stopper has to migrate it.
    pub to_move: Cell<bool>,
    /// The call that gave its `Schedulable` to the policy, and the lock under which it was stored,
    /// if the story is recorded.
    pub given: RefCell<Option<String>>,
    /// At the end of the schedule: it sleeps briefly after each run.
    pub naps: Cell<bool>,
    /// At the end of the schedule: number of ticks for which it has waited.
    pub waited: Cell<u64>,
}

impl Task {
    pub fn new(pid: u32, handle: u64, rq: usize, nice: i32) -> Self {
        Self {
            pid,
            handle,
            place: Cell::new(Place::Away),
            runnable: Cell::new(false),
            ours: Cell::new(true),
            alive: Cell::new(true),
            dying: Cell::new(false),
            rq: Cell::new(rq),
            mask: Cell::new(!0),
            nice: Cell::new(nice),
            runtime: Cell::new(0),
            slice: Cell::new(0),
            immed: Cell::new(false),
            answered: Cell::new(0),
            enqueues: Cell::new(0),
            holding: Cell::new(None),
            migrating: Cell::new(false),
            to_move: Cell::new(false),
            given: RefCell::default(),
            naps: Cell::new(false),
            waited: Cell::new(0),
        }
    }

    pub fn is_alive(&self) -> bool {
        self.alive.get()
    }

    pub fn slot(&self) -> u32 {
        (self.handle as u32).wrapping_sub(1)
    }

    pub fn may_use(&self, cpu: usize) -> bool {
        self.mask.get() & 1 << cpu != 0
    }

    /// Whether the task is runnable but does not run.
    pub fn waits(&self) -> bool {
        self.is_alive()
            && self.ours.get()
            && self.runnable.get()
            && !matches!(self.place.get(), Place::OnCpu(_))
    }
}

/// The kinds of events that a CPU has in one schedule beside running tasks. Each kind is in half of
/// the schedules, so that every combination occurs.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    pub yields: bool,
    pub exits: bool,
    pub forks: bool,
    pub affinity: bool,
    pub nice: bool,
    pub class: bool,
    pub hotplug: bool,
    pub upgrade: bool,
    pub ticks: bool,
}

impl Kinds {
    pub fn new(seed: &Seed) -> Self {
        let random = Random::new(seed.number ^ 0xca5e);
        let half = || random.once_in(2);
        Self {
            yields: half(),
            exits: half(),
            forks: half(),
            affinity: half(),
            nice: half(),
            class: half(),
            hotplug: half(),
            upgrade: half(),
            ticks: half(),
        }
    }
}

pub struct Cpu {
    pub number: usize,
    pub random: Random,
    pub local: RefCell<VecDeque<u32>>,
    /// The current task, by pid.
    pub current: Cell<Option<u32>>,
    /// The idle task runs (`is_idle_task(rq->curr)`).
    pub idle: Cell<bool>,
    /// How often it has become idle.
    pub idled: Cell<u64>,
    /// TIF_NEED_RESCHED.
    pub resched: Cell<bool>,
    /// SCX_RQ_IN_BALANCE.
    pub in_balance: Cell<bool>,
    /// cpu_active().
    pub active: Cell<bool>,
    /// It is offline, and does nothing.
    pub off: Cell<bool>,
    /// An agent polls on it. It runs no tasks, as if it were offline.
    pub polls: Cell<bool>,
    /// A thread of a higher class runs.
    pub higher: Cell<bool>,
    /// When the policy's timer expires.
    pub timer: Cell<Option<u64>>,
    /// Requested kicks, in the rules' encoding.
    pub kicks: RefCell<Vec<u16>>,
    pub waits_for: Cell<Option<Key>>,
    /// The policy's locks that it holds, in the order of acquisition.
    pub held: RefCell<Vec<Key>>,
    /// The lock that it took last in the current call, and where.
    pub last_lock: RefCell<Option<String>>,
    /// Number of questions that the current call has asked its host.
    pub questions: Cell<u64>,
    /// A call of the policy is being unwound.
    pub abandoning: Cell<bool>,
    /// It is in the rules.
    pub inside: Cell<bool>,
    /// Another CPU was in the rules, too, since this was last unset.
    pub overlapped: Cell<bool>,
    /// File, line and message of a panic or another failure.
    pub words: RefCell<(String, u32, String)>,
}

impl Cpu {
    /// Whether it is idle and was not asked to reschedule.
    pub fn idles(&self) -> bool {
        !self.off.get() && self.current.get().is_none() && !self.resched.get()
    }

    pub fn new(seed: &Seed, number: usize) -> Self {
        Self {
            number,
            random: Random::new(seed.number.wrapping_mul(5).wrapping_add(number as u64)),
            local: RefCell::default(),
            current: Cell::new(None),
            idle: Cell::new(false),
            idled: Cell::new(0),
            resched: Cell::new(false),
            in_balance: Cell::new(false),
            active: Cell::new(true),
            off: Cell::new(false),
            polls: Cell::new(false),
            higher: Cell::new(false),
            timer: Cell::new(None),
            kicks: RefCell::default(),
            waits_for: Cell::new(None),
            held: RefCell::default(),
            last_lock: RefCell::default(),
            questions: Cell::new(0),
            abandoning: Cell::new(false),
            inside: Cell::new(false),
            overlapped: Cell::new(false),
            words: RefCell::default(),
        }
    }
}
