// SPDX-License-Identifier: GPL-2.0-only
//! A machine with a CPU for every task and no costs, so that only the programs determine what
//! happens. It serves the tests of programs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::rng::Rng;
use crate::world::{Cx, Group, Item, Object, Op, Spawn, TaskRef, Thing, World};

enum Event {
    Ask(u32),
    Arrive(usize, Object, Item),
}

struct Task {
    spawn: Spawn,
    group: Group,
    rng: Rng,
    item: Option<Item>,
    child: Option<TaskRef>,
    resumed: bool,
    suspended: bool,
    alive: bool,
    asked: (u64, u32),
}

/// The activity of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) done: u64,
    pub(super) responses: Vec<u64>,
    /// CPU time, ns.
    pub(super) ran: u64,
    pub(super) tasks: u32,
}

pub(super) struct Ideal {
    world: World,
    tasks: Vec<Task>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: BTreeMap<u64, Event>,
    sequence: u64,
    now: u64,
    pub(super) groups: BTreeMap<String, Seen>,
    /// All operations: time, task and operation.
    pub(super) log: Vec<String>,
    seed: u64,
}

impl Ideal {
    pub(super) fn run(mut world: World, seed: u64, until: u64) -> Self {
        let first = std::mem::take(&mut world.tasks);
        let mut sources = std::mem::take(&mut world.sources);
        let mut ideal = Self {
            world,
            tasks: Vec::new(),
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            sequence: 0,
            now: 0,
            groups: BTreeMap::new(),
            log: Vec::new(),
            seed,
        };
        for spawn in first {
            let at = spawn.at;
            let group = spawn.group.expect("the first tasks have groups");
            ideal.begin(spawn, group, at);
        }
        let mut chances: Vec<Rng> = (0..sources.len())
            .map(|of| Rng::new(!seed, of as u64))
            .collect();
        for (of, source) in sources.iter_mut().enumerate() {
            if let Some((at, queue, item)) = source.next(&mut chances[of]) {
                ideal.later(at, Event::Arrive(of, queue, item));
            }
        }
        while let Some(Reverse((at, number))) =
            ideal.events.pop().filter(|Reverse((at, _))| *at < until)
        {
            assert!(at >= ideal.now, "time goes on");
            ideal.now = at;
            match ideal.what.remove(&number).expect("it was put there") {
                Event::Ask(task) => ideal.ask(task),
                Event::Arrive(of, queue, item) => {
                    ideal.put(queue, item);
                    if let Some((next, queue, item)) = sources[of].next(&mut chances[of]) {
                        assert!(next >= at, "items come in order");
                        ideal.later(next, Event::Arrive(of, queue, item));
                    }
                }
            }
        }
        ideal
    }

    /// A hash of all that was done.
    pub(super) fn hash(&self) -> u64 {
        let bytes = self.log.iter().flat_map(|line| line.bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    pub(super) fn alive(&self) -> usize {
        self.tasks.iter().filter(|task| task.alive).count()
    }

    fn begin(&mut self, spawn: Spawn, group: Group, at: u64) {
        let number = self.tasks.len() as u32;
        let rng = Rng::new(self.seed, u64::from(number));
        let (item, child) = (None, None);
        let task = Task {
            spawn,
            group,
            rng,
            item,
            child,
            resumed: false,
            suspended: false,
            alive: true,
            asked: (u64::MAX, 0),
        };
        self.tasks.push(task);
        self.seen(number).tasks += 1;
        self.later(at, Event::Ask(number));
    }

    fn seen(&mut self, task: u32) -> &mut Seen {
        let name = &self.world.groups[self.tasks[task as usize].group.0 as usize];
        self.groups.entry(name.to_string()).or_default()
    }

    fn later(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence)));
        self.what.insert(self.sequence, event);
    }

    fn thing(&mut self, object: Object) -> &mut Thing {
        &mut self.world.things[object.0 as usize]
    }

    fn up(&mut self, to: Object) {
        let Thing::Semaphore { count, waiters } = self.thing(to) else {
            panic!("{to:?} is no semaphore")
        };
        match waiters.pop_front() {
            Some(waiter) => self.later(self.now, Event::Ask(waiter)),
            None => *count += 1,
        }
    }

    /// Takes from the semaphore. The task is asked for its next operation at once, or when the
    /// semaphore becomes available.
    fn down(&mut self, task: u32, from: Object) {
        let Thing::Semaphore { count, waiters } = self.thing(from) else {
            panic!("{from:?} is no semaphore")
        };
        if *count == 0 {
            return waiters.push_back(task);
        }
        *count -= 1;
        self.later(self.now, Event::Ask(task));
    }

    fn put(&mut self, to: Object, item: Item) {
        let Thing::Queue { items, waiters } = self.thing(to) else {
            panic!("{to:?} is no queue")
        };
        match waiters.pop_front() {
            Some(waiter) => {
                self.tasks[waiter as usize].item = Some(item);
                self.later(self.now, Event::Ask(waiter));
            }
            None => items.push_back(item),
        }
    }

    fn ask(&mut self, number: u32) {
        let now = self.now;
        let task = &mut self.tasks[number as usize];
        assert!(task.alive, "an ended task is not asked");
        task.asked = if task.asked.0 == now {
            (now, task.asked.1 + 1)
        } else {
            (now, 0)
        };
        assert!(
            task.asked.1 < 10_000,
            "task {number} does things for ever in no time"
        );
        let me = TaskRef(number);
        let mut cx = Cx {
            now,
            rng: &mut task.rng,
            me,
            item: task.item,
            reply: None,
            child: task.child.take(),
        };
        let op = task.spawn.program.next(&mut cx);
        self.log
            .push(format!("{now} {}: {}", task.spawn.name, word(&op)));
        let mut next = Some(now);
        match op {
            Op::Run(time) => {
                self.seen(number).ran += time;
                next = Some(now + time);
            }
            Op::Sleep(time) => next = Some(now + time),
            Op::SleepUntil(then) => next = Some(then.max(now)),
            Op::Down(from) => {
                self.down(number, from);
                next = None;
            }
            Op::Up { to, .. } => self.up(to),
            Op::Barrier(at) => {
                let Thing::Barrier { of, waiters } = self.thing(at) else {
                    panic!("{at:?} is no barrier")
                };
                waiters.push(number);
                next = None;
                if waiters.len() as u32 == *of {
                    for waiter in std::mem::take(waiters) {
                        self.later(now, Event::Ask(waiter));
                    }
                }
            }
            Op::Take(from) => {
                let Thing::Queue { items, waiters } = self.thing(from) else {
                    panic!("{from:?} is no queue")
                };
                match items.pop_front() {
                    Some(item) => self.tasks[number as usize].item = Some(item),
                    None => {
                        waiters.push_back(number);
                        next = None;
                    }
                }
            }
            Op::Put { to, item } => self.put(to, item),
            Op::WaitCondition { condition, mutex } => {
                let Thing::Condition { waiters } = self.thing(condition) else {
                    panic!("{condition:?} is none")
                };
                waiters.push_back((number, mutex));
                self.up(mutex);
                next = None;
            }
            Op::Signal { condition, all } => {
                let Thing::Condition { waiters } = self.thing(condition) else {
                    panic!("{condition:?} is none")
                };
                let most = if all {
                    waiters.len()
                } else {
                    waiters.len().min(1)
                };
                let woken: Vec<_> = waiters.drain(..most).collect();
                woken
                    .into_iter()
                    .for_each(|(waiter, mutex)| self.down(waiter, mutex));
            }
            Op::Suspend => {
                let task = &mut self.tasks[number as usize];
                if !std::mem::take(&mut task.resumed) {
                    task.suspended = true;
                    next = None;
                }
            }
            Op::Resume(whom) => {
                let task = &mut self.tasks[whom.0 as usize];
                if std::mem::take(&mut task.suspended) {
                    self.later(now, Event::Ask(whom.0));
                } else {
                    task.resumed = true;
                }
            }
            Op::Fork(spawn) => {
                let (child, group) = (
                    self.tasks.len() as u32,
                    spawn.group.unwrap_or(self.tasks[number as usize].group),
                );
                self.begin(*spawn, group, now);
                self.tasks[number as usize].child = Some(TaskRef(child));
            }
            Op::Nice(nice) => assert!((-20..=19).contains(&nice)),
            Op::Affinity(mask) => assert!(mask.is_none_or(|mask| mask.count() > 0)),
            Op::Response(time) => self.seen(number).responses.push(time),
            Op::Done(many) => self.seen(number).done += many,
            // Each hint has its reply at once.
            Op::Yield | Op::Hint { .. } | Op::Reply => {}
            Op::Exit => {
                self.tasks[number as usize].alive = false;
                next = None;
            }
        }
        if let Some(at) = next {
            self.later(at, Event::Ask(number));
        }
    }
}

/// A short text for an operation.
pub(super) fn word(op: &Op) -> String {
    match op {
        Op::Run(time) => format!("run {time}"),
        Op::Sleep(time) => format!("sleep {time}"),
        Op::SleepUntil(then) => format!("until {then}"),
        Op::Down(from) => format!("down {}", from.0),
        Op::Up { to, sync } => format!("up {}{}", to.0, if *sync { " sync" } else { "" }),
        Op::Barrier(at) => format!("barrier {}", at.0),
        Op::Take(from) => format!("take {}", from.0),
        Op::Put { to, item } => format!("put {} {}", to.0, item.service),
        Op::WaitCondition { condition, mutex } => format!("wait {} {}", condition.0, mutex.0),
        Op::Signal { condition, all } => {
            format!("{} {}", if *all { "broad" } else { "signal" }, condition.0)
        }
        Op::Suspend => "suspend".into(),
        Op::Resume(whom) => format!("resume {}", whom.0),
        Op::Yield => "yield".into(),
        Op::Fork(spawn) => format!("fork {} {:?}", spawn.name, spawn.nice),
        Op::Nice(nice) => format!("nice {nice}"),
        Op::Affinity(None) => "cpus all".into(),
        Op::Affinity(Some(mask)) => format!("cpus {:?}", mask.iter().collect::<Vec<_>>()),
        Op::Response(time) => format!("response {time}"),
        Op::Hint { hint, thread } => format!(
            "hint {} {:?} {:?}",
            hint.tag,
            thread.map(|thread| thread.0),
            hint.words
        ),
        Op::Reply => "reply".into(),
        Op::Done(many) => format!("done {many}"),
        Op::Exit => "exit".into(),
    }
}
