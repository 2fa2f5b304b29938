// SPDX-License-Identifier: GPL-2.0-only
//! What runs on the machine: tasks with programs, what they wait for, and what arrives from
//! outside.
//!
//! A program is a state machine that is asked what its task does next. It has no clock and no
//! chance of its own: both come with the question, so that a seed decides everything.

use std::collections::VecDeque;
use std::sync::Arc;

use baton_abi::BatonHint;

use crate::rng::Rng;
use crate::topology::CpuMask;

/// What tasks wait for: a number given by [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object(pub(crate) u32);

/// A set of tasks that reports count together: a number given by [`World::group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(pub(crate) u32);

/// A task, as programs know it: a number given by [`World::task`] or [`Op::Fork`], never used
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskRef(pub u32);

/// A request of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// When it was meant to come, ns: responses are counted from here, however late it was taken
    /// (no coordinated omission).
    pub due: u64,
    /// What it is to cost, ns of CPU time.
    pub service: u64,
    /// The producer's own: a kind, a key.
    pub tag: u32,
}

/// What a task does next.
pub enum Op {
    /// Uses the CPU for so long, ns at full speed.
    Run(u64),
    /// Sleeps for so long, ns.
    Sleep(u64),
    /// Sleeps until then, ns of simulated time; not at all when that is past.
    SleepUntil(u64),
    /// Takes one from a semaphore, or sleeps until there is one. First come, first served.
    Down(Object),
    /// Gives one to a semaphore: the first who waits is woken. With `sync` the kernel is told that
    /// the giver is about to sleep.
    Up {
        /// The semaphore.
        to: Object,
        /// WF_SYNC.
        sync: bool,
    },
    /// Waits until as many as the barrier is for have come; the last wakes the others.
    Barrier(Object),
    /// Takes an item from a queue, or sleeps until there is one; it is in [`Cx::item`] at the next
    /// question.
    Take(Object),
    /// Puts an item into a queue: the first who waits is woken.
    Put {
        /// The queue.
        to: Object,
        /// The item.
        item: Item,
    },
    /// Gives a semaphore back and waits for a condition in one step; when woken, takes the
    /// semaphore again.
    WaitCondition {
        /// The condition.
        condition: Object,
        /// The semaphore, which the task has.
        mutex: Object,
    },
    /// Wakes one task that waits for a condition, if any; or all.
    Signal {
        /// The condition.
        condition: Object,
        /// All, not one.
        all: bool,
    },
    /// Sleeps until another task resumes it; not at all if one has since it was last suspended.
    Suspend,
    /// Ends another task's [`Op::Suspend`].
    Resume(TaskRef),
    /// Gives the task's policy a hint, at once (`BATON_HINTS_IOC_SEND`). The task has a queue from
    /// its first one on.
    Hint {
        /// What it says; its `thread` is not looked at.
        hint: BatonHint,
        /// The thread that it names.
        thread: Option<TaskRef>,
    },
    /// Takes a reply of the policy's, or sleeps until there is one; it is in [`Cx::reply`] at the
    /// next question.
    Reply,
    /// sched_yield().
    Yield,
    /// Makes a child, which inherits policy, nice value, CPUs and group unless it says otherwise.
    /// Its number is in [`Cx::child`] at the next question.
    Fork(Box<Spawn>),
    /// Changes its nice value, -20 to 19.
    Nice(i32),
    /// Changes the CPUs that it may use; `None` for all. A set without a CPU that is online is
    /// refused, as by the kernel.
    Affinity(Option<Arc<CpuMask>>),
    /// Notes a time that the program measured, ns, as a response of its group.
    Response(u64),
    /// Notes that so much of what the group is for was done: operations, loops.
    Done(u64),
    /// Ends.
    Exit,
}

/// What comes with the question.
pub struct Cx<'a> {
    /// Now, ns of simulated time.
    pub now: u64,
    /// The task's own chance: not influenced by what other tasks do.
    pub rng: &'a mut Rng,
    /// The task that is asked.
    pub me: TaskRef,
    /// What the last [`Op::Take`] took.
    pub item: Option<Item>,
    /// What the last [`Op::Reply`] took.
    pub reply: Option<BatonHint>,
    /// Whom the last [`Op::Fork`] made.
    pub child: Option<TaskRef>,
}

/// What a task does.
pub trait Program: Send {
    /// What it does next; asked again when that is over. After [`Op::Exit`] it is not asked again.
    fn next(&mut self, cx: &mut Cx<'_>) -> Op;
}

impl<F: FnMut(&mut Cx<'_>) -> Op + Send> Program for F {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self(cx)
    }
}

/// A task to be made.
pub struct Spawn {
    /// Name, for people.
    pub name: Arc<str>,
    /// Whom it is counted with; `None` for its parent's.
    pub group: Option<Group>,
    /// Nice value; `None` for its parent's, or 0.
    pub nice: Option<i32>,
    /// The CPUs that it may use; `None` for its parent's, or all.
    pub affinity: Option<Arc<CpuMask>>,
    /// When it comes, ns. Of children: at once.
    pub at: u64,
    /// What it does.
    pub program: Box<dyn Program>,
}

impl Spawn {
    /// A task of a group that comes at once.
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

    /// In this group.
    pub fn group(self, group: Group) -> Self {
        Self {
            group: Some(group),
            ..self
        }
    }

    /// With this nice value.
    pub fn nice(self, nice: i32) -> Self {
        Self {
            nice: Some(nice),
            ..self
        }
    }
}

/// What arrives from outside, whether or not anybody is ready for it: an open loop.
pub trait Source: Send {
    /// The next item, when it comes (not before the last), and the queue that it goes into; `None`
    /// when that was all. `rng` is the source's own.
    fn next(&mut self, rng: &mut Rng) -> Option<(u64, Object, Item)>;
}

/// Something that happens to the machine or to a task from outside.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A CPU goes offline, or comes back. The last one that is online stays.
    Online(u32, bool),
    /// Someone changes a task's CPUs.
    Affinity(TaskRef, Option<Arc<CpuMask>>),
    /// Someone changes a task's nice value.
    Nice(TaskRef, i32),
    /// A task is given to another of the policies, by place: it was moved to that one's cgroup.
    Assign(TaskRef, usize),
    /// A task of a higher class (RT, deadline, stop) takes a CPU for so long, ns.
    HigherClass(u32, u64),
    /// An interrupt takes so much of a CPU's time, ns.
    Interrupt(u32, u64),
    /// A policy, by place, is replaced by another version of it: the number of that in
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

/// A workload, as it is before it begins.
#[derive(Default)]
pub struct World {
    pub(crate) things: Vec<Thing>,
    pub(crate) groups: Vec<Arc<str>>,
    pub(crate) tasks: Vec<Spawn>,
    pub(crate) sources: Vec<Box<dyn Source>>,
    pub(crate) happenings: Vec<(u64, Happening)>,
}

impl World {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn thing(&mut self, thing: Thing) -> Object {
        self.things.push(thing);
        Object(self.things.len() as u32 - 1)
    }

    /// A semaphore with so many. With 1 it is a mutex.
    pub fn semaphore(&mut self, count: u64) -> Object {
        self.thing(Thing::Semaphore {
            count,
            waiters: VecDeque::new(),
        })
    }

    /// A barrier for so many tasks; at least 1.
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

    /// A group, by name; the same for the same name.
    pub fn group(&mut self, name: &str) -> Group {
        let found = self.groups.iter().position(|other| &**other == name);
        Group(found.unwrap_or_else(|| {
            self.groups.push(name.into());
            self.groups.len() - 1
        }) as u32)
    }

    /// Adds a task. Tasks are numbered from 0 as they are added; children of [`Op::Fork`] come
    /// after them.
    pub fn task(&mut self, task: Spawn) -> TaskRef {
        self.tasks.push(task);
        TaskRef(self.tasks.len() as u32 - 1)
    }

    /// Adds a source.
    pub fn source(&mut self, source: impl Source + 'static) {
        self.sources.push(Box::new(source));
    }

    /// Adds something that happens then, ns.
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

    /// Tasks so far.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }
}
