// SPDX-License-Identifier: GPL-2.0-only
//! The contents of the machine: tasks with programs, the objects that they wait for, and the events
//! that arrive from outside.
//!
//! A program is a state machine that is asked what its task does next. It has no clock and no
//! source of randomness of its own. Both are passed with the question, so the seed determines
//! everything.

use std::collections::VecDeque;
use std::sync::Arc;

use baton_abi::BatonHint;

use crate::rng::Rng;
use crate::topology::CpuMask;

/// An object that tasks wait for. [`World`] gives the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object(pub(crate) u32);

/// A set of tasks that reports count together. [`World::group`] gives the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(pub(crate) u32);

/// A task, as programs know it. [`World::task`] or [`Op::Fork`] gives the number, which is never
/// reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskRef(pub u32);

/// A request of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// When it was meant to arrive, ns. Response times are counted from here, however late the item
    /// was taken (no coordinated omission).
    pub due: u64,
    /// CPU time that it costs, ns.
    pub service: u64,
    /// For the producer's own use: a kind, a key.
    pub tag: u32,
}

/// What a task does next.
pub enum Op {
    /// Uses the CPU for this long, ns at full speed.
    Run(u64),
    /// Sleeps for this long, ns.
    Sleep(u64),
    /// Sleeps until this time, ns of simulated time. Does not sleep if the time is past.
    SleepUntil(u64),
    /// Decrements a semaphore, or sleeps until that is possible. First come, first served.
    Down(Object),
    /// Increments a semaphore, which wakes the first waiter. With `sync` the kernel is informed
    /// that the waker will sleep soon.
    Up {
        /// The semaphore.
        to: Object,
        /// WF_SYNC.
        sync: bool,
    },
    /// Waits until the barrier's number of tasks have arrived. The last one wakes the others.
    Barrier(Object),
    /// Takes an item from a queue, or sleeps until there is one. [`Cx::item`] has it at the next
    /// question.
    Take(Object),
    /// Puts an item into a queue, which wakes the first waiter.
    Put {
        /// The queue.
        to: Object,
        /// The item.
        item: Item,
    },
    /// Releases a semaphore and waits for a condition in one step. The woken task takes the
    /// semaphore again.
    WaitCondition {
        /// The condition.
        condition: Object,
        /// The semaphore, which the task holds.
        mutex: Object,
    },
    /// Wakes one task that waits for a condition, if there is one, or all of them.
    Signal {
        /// The condition.
        condition: Object,
        /// Wakes all waiters, not one.
        all: bool,
    },
    /// Sleeps until another task resumes it. Does not sleep if one has done so since the last
    /// suspension.
    Suspend,
    /// Ends another task's [`Op::Suspend`].
    Resume(TaskRef),
    /// Sends the task's policy a hint, at once (`BATON_HINTS_IOC_SEND`). The task has a hint queue
    /// from its first hint on.
    Hint {
        /// The hint. Its field `thread` is ignored.
        hint: BatonHint,
        /// The thread that the hint names.
        thread: Option<TaskRef>,
    },
    /// Takes a reply of the policy, or sleeps until there is one. [`Cx::reply`] has it at the next
    /// question.
    Reply,
    /// sched_yield().
    Yield,
    /// Makes a child, which inherits policy, nice value, CPUs and group unless [`Spawn`] sets them.
    /// [`Cx::child`] has its number at the next question.
    Fork(Box<Spawn>),
    /// Changes the task's nice value, -20 to 19.
    Nice(i32),
    /// Changes the task's affinity; `None` allows all CPUs. A set without an online CPU is refused,
    /// as by the kernel.
    Affinity(Option<Arc<CpuMask>>),
    /// Records a time that the program measured, ns, as a response of the task's group.
    Response(u64),
    /// Records units of work of the task's group as done: operations, loops.
    Done(u64),
    /// Exits.
    Exit,
}

/// The context of a question to a program.
pub struct Cx<'a> {
    /// The current time, ns of simulated time.
    pub now: u64,
    /// The task's own random numbers, which do not depend on what other tasks do.
    pub rng: &'a mut Rng,
    /// The task that the question is about.
    pub me: TaskRef,
    /// The item that the last [`Op::Take`] took.
    pub item: Option<Item>,
    /// The reply that the last [`Op::Reply`] took.
    pub reply: Option<BatonHint>,
    /// The task that the last [`Op::Fork`] made.
    pub child: Option<TaskRef>,
}

/// The behaviour of a task.
pub trait Program: Send {
    /// Returns what the task does next. It is called again when that is done, and not after
    /// [`Op::Exit`].
    fn next(&mut self, cx: &mut Cx<'_>) -> Op;
}

impl<F: FnMut(&mut Cx<'_>) -> Op + Send> Program for F {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self(cx)
    }
}

/// A task to be made.
pub struct Spawn {
    /// Name, for reports.
    pub name: Arc<str>,
    /// The group that counts it; `None` for its parent's.
    pub group: Option<Group>,
    /// Nice value; `None` for its parent's, or 0.
    pub nice: Option<i32>,
    /// The CPUs that it may use; `None` for its parent's, or all.
    pub affinity: Option<Arc<CpuMask>>,
    /// When it starts, ns. A child starts at once.
    pub at: u64,
    /// Its behaviour.
    pub program: Box<dyn Program>,
}

impl Spawn {
    /// A task that starts at once.
    pub fn new(name: impl Into<Arc<str>>, program: impl Program + 'static) -> Self {
        Self {
            name: name.into(),
            group: None,
            nice: None,
            affinity: None,
            at: 0,
            program: Box::new(program),
        }
    }

    /// Sets the group.
    pub fn group(self, group: Group) -> Self {
        Self {
            group: Some(group),
            ..self
        }
    }

    /// Sets the nice value.
    pub fn nice(self, nice: i32) -> Self {
        Self {
            nice: Some(nice),
            ..self
        }
    }
}

/// Items that arrive from outside, whether or not a task is ready for them: an open loop.
pub trait Source: Send {
    /// The next item, when it arrives (not before the last one), and the queue that it goes into.
    /// `None` when there are no more. `rng` is the source's own.
    fn next(&mut self, rng: &mut Rng) -> Option<(u64, Object, Item)>;
}

/// Something that happens to the machine or to a task from outside.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A CPU goes offline, or comes back. The last online CPU stays online.
    Online(u32, bool),
    /// A task's affinity is changed.
    Affinity(TaskRef, Option<Arc<CpuMask>>),
    /// A task's nice value is changed.
    Nice(TaskRef, i32),
    /// A task is assigned to another policy, by place: it was moved to that policy's cgroup.
    Assign(TaskRef, usize),
    /// A task of a higher class (RT, deadline, stop) takes a CPU for this long, ns.
    HigherClass(u32, u64),
    /// An interrupt takes this much of a CPU's time, ns.
    Interrupt(u32, u64),
    /// A policy, by place, is replaced by another version, by its place in
    /// [`crate::Config::versions`].
    Upgrade(usize, usize),
}

pub(crate) enum Thing {
    Semaphore {
        count: u64,
        waiters: VecDeque<u32>,
    },
    Barrier {
        of: u32,
        waiters: Vec<u32>,
    },
    Queue {
        items: VecDeque<Item>,
        waiters: VecDeque<u32>,
    },
    Condition {
        waiters: VecDeque<(u32, Object)>,
    },
}

/// A workload before it begins.
#[derive(Default)]
pub struct World {
    pub(crate) things: Vec<Thing>,
    pub(crate) groups: Vec<Arc<str>>,
    pub(crate) tasks: Vec<Spawn>,
    pub(crate) sources: Vec<Box<dyn Source>>,
    pub(crate) happenings: Vec<(u64, Happening)>,
}

impl World {
    /// An empty workload.
    pub fn new() -> Self {
        Self::default()
    }

    fn thing(&mut self, thing: Thing) -> Object {
        self.things.push(thing);
        Object(self.things.len() as u32 - 1)
    }

    /// A semaphore with this count. With 1 it is a mutex.
    pub fn semaphore(&mut self, count: u64) -> Object {
        self.thing(Thing::Semaphore {
            count,
            waiters: VecDeque::new(),
        })
    }

    /// A barrier for this many tasks, at least 1.
    pub fn barrier(&mut self, of: u32) -> Object {
        self.thing(Thing::Barrier {
            of: of.max(1),
            waiters: Vec::new(),
        })
    }

    /// A queue of items, without a limit.
    pub fn queue(&mut self) -> Object {
        self.thing(Thing::Queue {
            items: VecDeque::new(),
            waiters: VecDeque::new(),
        })
    }

    /// A condition.
    pub fn condition(&mut self) -> Object {
        self.thing(Thing::Condition {
            waiters: VecDeque::new(),
        })
    }

    /// The group of this name. The same name always gives the same group.
    pub fn group(&mut self, name: &str) -> Group {
        let found = self.groups.iter().position(|other| &**other == name);
        Group(found.unwrap_or_else(|| {
            self.groups.push(name.into());
            self.groups.len() - 1
        }) as u32)
    }

    /// Adds a task. Tasks are numbered from 0 in the order in which they are added. Children of
    /// [`Op::Fork`] are numbered after them.
    pub fn task(&mut self, task: Spawn) -> TaskRef {
        self.tasks.push(task);
        TaskRef(self.tasks.len() as u32 - 1)
    }

    /// Adds a source.
    pub fn source(&mut self, source: impl Source + 'static) {
        self.sources.push(Box::new(source));
    }

    /// Adds something that happens at this time, ns.
    pub fn happens(&mut self, at: u64, what: Happening) {
        self.happenings.push((at, what));
    }

    /// Is there a group of that name?
    pub fn has_group(&self, name: &str) -> bool {
        self.groups.iter().any(|group| &**group == name)
    }

    /// Names of the groups.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| &**group)
    }

    /// The number of tasks so far.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }
}
