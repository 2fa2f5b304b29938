// SPDX-License-Identifier: GPL-2.0-only
//! Collects a detail during a run.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::mark::{self, Mark};
use super::{Detail, TaskName, LIMIT, NAME, TASKS};
use crate::trace::{Event, Left, Sink};
use crate::world::TaskRef;

/// The bytes that a task takes in JSON in addition to its name.
const PER_TASK: usize = 20;

#[derive(Clone, Copy, Default)]
struct Cpu {
    task: Option<TaskRef>,
    higher: bool,
    offline: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Doing {
    #[default]
    Sleeping,
    Waiting,
    Running(u32),
}

#[derive(Default)]
struct Task {
    name: Box<str>,
    group: Box<str>,
    doing: Doing,
    /// Its place in the detail, if an event has named it.
    place: Option<u32>,
}

#[derive(PartialEq)]
enum Stage {
    Before,
    Within,
    Over,
}

/// The contents of the detail before the first event of the time `now`.
#[derive(Default)]
struct Moment {
    now: u64,
    events: usize,
    tasks: usize,
    groups: usize,
}

/// Collects a [`Detail`].
pub struct Collector {
    until: u64,
    limit: usize,
    stage: Stage,
    cpus: Vec<Cpu>,
    tasks: BTreeMap<TaskRef, Task>,
    groups: HashMap<Box<str>, u32>,
    /// The waker of the next wakeup.
    waker: Option<TaskRef>,
    detail: Detail,
    /// Bytes of the names so far.
    names: usize,
    moment: Moment,
    /// The time of the last event.
    written: u64,
}

impl Collector {
    /// A collector for a machine with this number of CPUs, all idle, and for this part of a run.
    /// The limit is in bytes, at most [`LIMIT`].
    pub fn new(cpus: usize, part: Range<u64>, limit: usize) -> Self {
        Self {
            until: part.end,
            limit: limit.min(LIMIT),
            stage: Stage::Before,
            cpus: vec![Cpu::default(); cpus],
            tasks: BTreeMap::new(),
            groups: HashMap::new(),
            waker: None,
            detail: Detail {
                from_ns: part.start,
                to_ns: part.end,
                cpus: cpus as u32,
                ..Detail::default()
            },
            names: 0,
            moment: Moment::default(),
            written: part.start,
        }
    }

    /// Ends the run at this time. `None` if it has nothing of the part, or there was no room.
    pub fn finish(mut self, now: u64) -> Option<Detail> {
        self.reach(now);
        self.detail.to_ns = self.detail.to_ns.min(now);
        (self.detail.from_ns < self.detail.to_ns).then_some(self.detail)
    }

    /// Advances to a time. Returns false if nothing is kept from then on.
    fn reach(&mut self, now: u64) -> bool {
        if self.stage == Stage::Before && now >= self.detail.from_ns {
            self.begin();
        }
        if self.stage == Stage::Within && now >= self.until {
            self.end();
        }
        if self.stage == Stage::Within && now != self.moment.now {
            let Detail {
                events,
                tasks,
                groups,
                ..
            } = &self.detail;
            self.moment = Moment {
                now,
                events: events.len(),
                tasks: tasks.len(),
                groups: groups.len(),
            };
        }
        self.stage != Stage::Over
    }

    /// Records which tasks run and wait when the detail begins.
    fn begin(&mut self) {
        self.stage = Stage::Within;
        self.moment.now = self.detail.from_ns;
        for cpu in 0..self.cpus.len() as u32 {
            let state = self.cpus[cpu as usize];
            if state.offline {
                self.put(Mark::Online { cpu, online: false });
            }
            if state.higher {
                self.put(Mark::Higher { cpu, begins: true });
            }
            if let Some(task) = state.task {
                self.put_of(task, |task| Mark::Run {
                    cpu,
                    task,
                    moved: false,
                });
            }
        }
        let is_waiting =
            |(&task, of): (&TaskRef, &Task)| (of.doing == Doing::Waiting).then_some(task);
        let waiting: Vec<TaskRef> = self.tasks.iter().filter_map(is_waiting).collect();
        for task in waiting {
            self.put_of(task, |task| Mark::Wake { task, waker: None });
        }
    }

    fn end(&mut self) {
        self.stage = Stage::Over;
        // The state that interprets events is no longer needed.
        self.tasks.clear();
    }

    fn put(&mut self, mark: Mark) {
        if self.stage != Stage::Within {
            return;
        }
        let events = &mut self.detail.events;
        mark::step(events, self.moment.now - self.written);
        self.written = self.moment.now;
        mark.write(events);
        self.keep_bound();
    }

    /// Records an event of a task. `mark` makes the event from the task's place.
    fn put_of(&mut self, task: TaskRef, mark: impl FnOnce(u32) -> Mark) {
        if self.stage == Stage::Within {
            let place = self.place(task);
            self.put(mark(place));
        }
    }

    /// Ends the detail if it is too large. The events of the current time are dropped.
    fn keep_bound(&mut self) {
        let Detail {
            events,
            tasks,
            groups,
            to_ns,
            ..
        } = &mut self.detail;
        if events.len() + self.names > self.limit || tasks.len() > TASKS {
            events.truncate(self.moment.events);
            tasks.truncate(self.moment.tasks);
            groups.truncate(self.moment.groups);
            *to_ns = self.moment.now;
            self.end();
        }
    }

    /// The place of a task in the detail.
    fn place(&mut self, task: TaskRef) -> u32 {
        let of = self.tasks.entry(task).or_default();
        if let Some(place) = of.place {
            return place;
        }
        let Detail { tasks, groups, .. } = &mut self.detail;
        let group = *self.groups.entry(of.group.clone()).or_insert_with(|| {
            groups.push(of.group.to_string());
            self.names += of.group.len() + PER_TASK;
            groups.len() as u32 - 1
        });
        let place = tasks.len() as u32;
        tasks.push(TaskName(task.0, group, of.name.to_string()));
        self.names += of.name.len() + PER_TASK;
        of.place = Some(place);
        place
    }

    fn wakes(&mut self, task: TaskRef, cpu: u32) {
        let waker = self.waker.take();
        let of = self.tasks.entry(task).or_default();
        if of.doing != Doing::Sleeping {
            return;
        }
        of.doing = Doing::Waiting;
        if self.stage == Stage::Within {
            let by = waker.map(|waker| self.place(waker));
            self.put_of(task, |task| Mark::Wake {
                task,
                waker: Some((cpu, by)),
            });
        }
    }

    fn leaves(&mut self, cpu: u32, left: Left) {
        let Some(task) = self
            .cpus
            .get_mut(cpu as usize)
            .and_then(|state| state.task.take())
        else {
            return;
        };
        match left {
            Left::Dead => drop(self.tasks.remove(&task)),
            left => {
                let waits = matches!(left, Left::Preempted | Left::Yielded);
                self.tasks.entry(task).or_default().doing = if waits {
                    Doing::Waiting
                } else {
                    Doing::Sleeping
                };
            }
        }
        self.put(Mark::Leave { cpu, left });
    }

    fn runs(&mut self, cpu: u32, task: TaskRef, moved: bool) {
        if cpu as usize >= self.cpus.len() {
            return;
        }
        if let Doing::Running(other) = self.tasks.entry(task).or_default().doing {
            self.leaves(other, Left::Preempted);
        }
        self.cpus[cpu as usize].task = Some(task);
        self.tasks.entry(task).or_default().doing = Doing::Running(cpu);
        self.put_of(task, |task| Mark::Run { cpu, task, moved });
    }
}

impl Sink for Collector {
    fn task(&mut self, task: TaskRef, group: &str, name: &str) {
        if self.stage != Stage::Over {
            let cut = |text: &str| text.chars().take(NAME).collect::<String>().into();
            self.tasks.insert(
                task,
                Task {
                    name: cut(name),
                    group: cut(group),
                    ..Task::default()
                },
            );
        }
    }

    fn woken_by(&mut self, waker: Option<TaskRef>) {
        self.waker = waker;
    }

    fn event(&mut self, now: u64, event: &Event) {
        if !self.reach(now) {
            return;
        }
        match *event {
            Event::Wake { task, waker, .. } => self.wakes(task, waker),
            Event::Switch {
                cpu,
                prev,
                next,
                migrated,
            } => {
                let left = prev.map_or(Left::Preempted, |(_, left)| left);
                self.leaves(cpu, left);
                if let Some(next) = next {
                    self.runs(cpu, next, migrated);
                }
            }
            Event::Higher { cpu, begins } => {
                let state = self
                    .cpus
                    .get_mut(cpu as usize)
                    .filter(|state| state.higher != begins);
                if let Some(state) = state {
                    state.higher = begins;
                    self.put(Mark::Higher { cpu, begins });
                }
            }
            Event::Online { cpu, online } => {
                let state = self
                    .cpus
                    .get_mut(cpu as usize)
                    .filter(|state| state.offline == online);
                if let Some(state) = state {
                    state.offline = !online;
                    self.put(Mark::Online { cpu, online });
                }
            }
            Event::New { .. }
            | Event::Load { .. }
            | Event::Fault { .. }
            | Event::Upgrade { .. } => {}
        }
    }
}
