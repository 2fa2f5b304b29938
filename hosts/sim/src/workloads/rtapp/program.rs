// SPDX-License-Identifier: GPL-2.0-only
//! Converts plain structures to what the simulator runs: names become objects, events become steps,
//! and a thread executes the steps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use baton_abi::BatonHint;

use super::event::{Condition, What};
use super::parse::{File, Phase, Task};
use crate::topology::CpuMask;
use crate::world::{Cx, Group, Object, Op, Program, Spawn, TaskRef, World};

/// Cost of a repetition of a phase in which no time passes, ns. In rt-app each repetition costs at
/// least its bookkeeping.
const REPETITION: u64 = 1_000;
/// `runtime` computes in pieces of this length, ns, and reads the clock after each, as in rt-app.
const PIECE: u64 = 32_000;
/// Limit of forks of a task. rt-app ends with an error when it is reached; here the task forks no
/// more children.
const FORKS: u32 = 1024;

#[derive(Clone, Copy)]
enum Timer {
    /// Shared by all threads.
    Shared(usize),
    /// The thread's own; its name begins with `unique`.
    Own(usize),
}

enum Step {
    Run(u64),
    Runtime(u64),
    Sleep(u64),
    Timer {
        timer: Timer,
        period: u64,
    },
    Lock(Object),
    Unlock(Object),
    Wait {
        condition: Object,
        mutex: Object,
        signal: bool,
    },
    /// Takes the mutex before and releases it afterwards: `sync` without the mutex held, and
    /// `suspend`.
    LockedWait {
        condition: Object,
        mutex: Object,
        signal: bool,
    },
    Signal {
        condition: Object,
        all: bool,
    },
    Resume {
        condition: Object,
        mutex: Object,
    },
    Barrier(Object),
    Yield,
    Fork(usize),
    Hint {
        hint: BatonHint,
        thread: Option<TaskRef>,
    },
    Reply,
}

struct Stretch {
    loops: Option<u64>,
    nice: Option<i32>,
    cpus: Option<Arc<CpuMask>>,
    steps: Vec<Step>,
    timed: bool,
}

struct Kind {
    name: String,
    group: Group,
    delay: u64,
    loops: Option<u64>,
    nice: i32,
    cpus: Option<Arc<CpuMask>>,
    stretches: Vec<Stretch>,
    /// Whether each of its own timers is absolute.
    own: Vec<bool>,
    forks: AtomicU32,
}

/// State that all threads of a file share.
struct Shared {
    kinds: Vec<Kind>,
    timers: Vec<Mutex<Option<u64>>>,
    absolute: Vec<bool>,
    end: Option<u64>,
}

impl Shared {
    fn timer(&self, at: usize) -> MutexGuard<'_, Option<u64>> {
        self.timers[at].lock().expect("no task panics with it")
    }
}

/// Maps the names of a file to objects. A mutex and a condition of the same name are two objects,
/// as in rt-app.
struct Names<'a> {
    world: &'a mut World,
    mutexes: BTreeMap<String, Object>,
    conditions: BTreeMap<String, Object>,
    barriers: BTreeMap<String, Object>,
    timers: Vec<(String, bool)>,
    /// Number of the file's first task.
    first: u32,
}

impl Names<'_> {
    fn mutex(&mut self, name: &str) -> Object {
        *self
            .mutexes
            .entry(name.into())
            .or_insert_with(|| self.world.semaphore(1))
    }

    fn condition(&mut self, name: &str) -> Object {
        *self
            .conditions
            .entry(name.into())
            .or_insert_with(|| self.world.condition())
    }

    fn both(&mut self, condition: &str, mutex: &str) -> (Object, Object) {
        (self.condition(condition), self.mutex(mutex))
    }
}

/// The timer of a name. It is absolute if any of its uses is.
fn timer(timers: &mut Vec<(String, bool)>, name: &str, absolute: bool) -> usize {
    let at = timers
        .iter()
        .position(|(other, _)| other == name)
        .unwrap_or_else(|| {
            timers.push((name.into(), false));
            timers.len() - 1
        });
    timers[at].1 |= absolute;
    at
}

fn mask(cpus: &Option<Vec<usize>>) -> Option<Arc<CpuMask>> {
    cpus.as_ref()
        .map(|cpus| Arc::new(CpuMask::of(cpus.iter().copied())))
}

pub(super) fn add(file: File, world: &mut World) -> Result<(), String> {
    let (mutexes, conditions) = (BTreeMap::new(), BTreeMap::new());
    let barriers = barriers(&file, world)?;
    let first = world.tasks() as u32;
    let mut names = Names {
        world,
        mutexes,
        conditions,
        barriers,
        timers: Vec::new(),
        first,
    };
    let mut kinds = Vec::new();
    for task in &file.tasks {
        kinds.push(kind(task, &file, &mut names));
    }
    let timers = names.timers.iter().map(|_| Mutex::new(None)).collect();
    let absolute = names.timers.iter().map(|(_, absolute)| *absolute).collect();
    let shared = Arc::new(Shared {
        kinds,
        timers,
        absolute,
        end: file.global.duration,
    });
    for (kind, task) in file.tasks.iter().enumerate() {
        for instance in 0..task.instances {
            world.task(spawn(
                &shared,
                kind,
                format!("{}-{instance}", task.name),
                None,
            ));
        }
    }
    Ok(())
}

/// Creates the barriers. A barrier counts each event that names it, once per instance of the
/// event's task.
fn barriers(file: &File, world: &mut World) -> Result<BTreeMap<String, Object>, String> {
    let mut users: BTreeMap<&str, u64> = BTreeMap::new();
    for task in &file.tasks {
        for event in task.phases.iter().flat_map(|phase| &phase.events) {
            if let What::Barrier(name) = &event.what {
                *users.entry(name).or_default() += task.instances;
            }
        }
    }
    let made = users.into_iter().map(|(name, of)| {
        let of = u32::try_from(of).map_err(|_| format!("barrier '{name}' is for too many"))?;
        Ok((name.to_string(), world.barrier(of)))
    });
    made.collect()
}

fn kind(task: &Task, file: &File, names: &mut Names<'_>) -> Kind {
    let mut own = Vec::new();
    let mut held = Vec::new();
    let mut stretches = Vec::new();
    for phase in &task.phases {
        stretches.push(stretch(phase, file, names, &mut own, &mut held));
    }
    Kind {
        name: task.name.clone(),
        group: names
            .world
            .group(task.taskgroup.as_deref().unwrap_or(&task.name)),
        delay: task.delay,
        loops: task.loops,
        nice: task.nice,
        cpus: mask(&task.cpus),
        stretches,
        own: own.into_iter().map(|(_, absolute)| absolute).collect(),
        forks: AtomicU32::new(0),
    }
}

fn stretch<'a>(
    phase: &'a Phase,
    file: &File,
    names: &mut Names<'_>,
    own: &mut Vec<(String, bool)>,
    held: &mut Vec<&'a str>,
) -> Stretch {
    let mut steps = Vec::new();
    let mut timed = false;
    for event in &phase.events {
        steps.push(match &event.what {
            What::Run(time) => Step::Run(*time),
            What::Runtime(time) => Step::Runtime(*time),
            What::Sleep(time) => Step::Sleep(*time),
            What::Timer {
                name,
                period,
                absolute,
            } => {
                timed = true;
                let timer = if name.starts_with("unique") {
                    Timer::Own(timer(own, name, *absolute))
                } else {
                    Timer::Shared(timer(&mut names.timers, name, *absolute))
                };
                Step::Timer {
                    timer,
                    period: *period,
                }
            }
            What::Lock(name) => {
                held.push(name);
                Step::Lock(names.mutex(name))
            }
            What::Unlock(name) => {
                held.retain(|other| other != name);
                Step::Unlock(names.mutex(name))
            }
            What::Wait(Condition { name, mutex }) => {
                let (condition, mutex) = names.both(name, mutex);
                Step::Wait {
                    condition,
                    mutex,
                    signal: false,
                }
            }
            // According to the tutorial, sync takes the mutex; the program does not. This works in
            // either case.
            What::Sync(Condition { name, mutex }) => {
                let has = held.contains(&mutex.as_str());
                let (condition, mutex) = names.both(name, mutex);
                if has {
                    Step::Wait {
                        condition,
                        mutex,
                        signal: true,
                    }
                } else {
                    Step::LockedWait {
                        condition,
                        mutex,
                        signal: true,
                    }
                }
            }
            What::Suspend(name) => {
                let (condition, mutex) = names.both(name, name);
                Step::LockedWait {
                    condition,
                    mutex,
                    signal: false,
                }
            }
            What::Resume(name) => {
                let (condition, mutex) = names.both(name, name);
                Step::Resume { condition, mutex }
            }
            What::Signal(name) => Step::Signal {
                condition: names.condition(name),
                all: false,
            },
            What::Broad(name) => Step::Signal {
                condition: names.condition(name),
                all: true,
            },
            What::Barrier(name) => Step::Barrier(names.barriers[name]),
            What::Yield => Step::Yield,
            What::Fork(name) => {
                let whom = file.tasks.iter().position(|task| task.name == *name);
                Step::Fork(whom.expect("checked when the file was read"))
            }
            What::Hint(hint, thread) => {
                let thread = thread.as_ref().map(|name| {
                    let before = file.tasks.iter().take_while(|task| task.name != *name);
                    TaskRef(names.first + before.map(|task| task.instances).sum::<u64>() as u32)
                });
                Step::Hint {
                    hint: *hint,
                    thread,
                }
            }
            What::Reply => Step::Reply,
        });
    }
    Stretch {
        loops: phase.loops,
        nice: phase.nice,
        cpus: mask(&phase.cpus),
        steps,
        timed,
    }
}

fn spawn(
    shared: &Arc<Shared>,
    kind: usize,
    name: String,
    inherited: Option<Arc<CpuMask>>,
) -> Spawn {
    let of = &shared.kinds[kind];
    let cpus = of.cpus.clone().or(inherited);
    let thread = Thread {
        kind,
        usual: cpus.clone(),
        cpus: cpus.clone(),
        nice: of.nice,
        timers: vec![None; of.own.len()],
        shared: shared.clone(),
        todo: VecDeque::new(),
        begun: false,
        entered: false,
        by_timer: false,
        rounds: 0,
        stretch: 0,
        loops: 0,
        step: 0,
        held: 0,
        first: 0,
        round_began: 0,
        active_since: 0,
        until: None,
    };
    Spawn {
        affinity: cpus,
        ..Spawn::new(name, thread).group(of.group).nice(of.nice)
    }
}

struct Thread {
    shared: Arc<Shared>,
    kind: usize,
    /// The CPUs for phases that set none, and the current CPUs.
    usual: Option<Arc<CpuMask>>,
    cpus: Option<Arc<CpuMask>>,
    nice: i32,
    /// Time of the last expiry of each of its own timers, ns.
    timers: Vec<Option<u64>>,
    /// The remaining operations of the step.
    todo: VecDeque<Op>,
    begun: bool,
    /// Whether the phase's attributes are set.
    entered: bool,
    /// Whether the last step was a timer's.
    by_timer: bool,
    /// The position: repetition of all phases, phase, repetition of the phase, and step in it.
    rounds: u64,
    stretch: usize,
    loops: u64,
    step: usize,
    /// Number of mutexes that it holds.
    held: u32,
    /// Start time, after the delay, ns.
    first: u64,
    round_began: u64,
    /// When it was last due to be woken, by a timer or by the beginning of the phase, ns.
    active_since: u64,
    /// The end of a `runtime`, ns.
    until: Option<u64>,
}

impl Program for Thread {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            if let Some(op) = self.todo.pop_front() {
                return op;
            }
            // As in rt-app: a thread that holds a mutex at the end continues until it has released
            // it.
            if self.held == 0 && self.shared.end.is_some_and(|end| cx.now >= end) {
                return Op::Exit;
            }
            self.advance(cx.now);
        }
    }
}

impl Thread {
    fn advance(&mut self, now: u64) {
        let shared = self.shared.clone();
        let kind = &shared.kinds[self.kind];
        if !self.begun {
            self.begun = true;
            self.first = now + kind.delay;
            self.active_since = self.first;
            self.by_timer = true;
            if kind.delay > 0 {
                self.todo.push_back(Op::SleepUntil(self.first));
            }
            return;
        }
        if kind.loops == Some(self.rounds) {
            return self.todo.push_back(Op::Exit);
        }
        let Some(stretch) = kind.stretches.get(self.stretch) else {
            self.rounds += 1;
            self.stretch = 0;
            return;
        };
        if stretch.loops == Some(self.loops) {
            self.stretch += 1;
            self.loops = 0;
            self.entered = false;
            return;
        }
        if !self.entered {
            return self.enter(stretch, now);
        }
        if self.step == 0 && self.until.is_none() {
            self.round_began = now;
        }
        match stretch.steps.get(self.step) {
            Some(step) => self.take(step, now),
            None => {
                self.step = 0;
                self.loops += 1;
                if now == self.round_began {
                    self.todo.push_back(Op::Run(REPETITION));
                }
                if !stretch.timed {
                    self.todo.push_back(Op::Response(now - self.round_began));
                }
                self.todo.push_back(Op::Done(1));
            }
        }
    }

    /// Applies the attributes of a phase. Its CPUs are its own, its task's, or those the thread
    /// began with; its nice value stays after it.
    fn enter(&mut self, stretch: &Stretch, now: u64) {
        self.entered = true;
        if !std::mem::take(&mut self.by_timer) {
            self.active_since = now;
        }
        let cpus = stretch.cpus.clone().or_else(|| self.usual.clone());
        if cpus != self.cpus {
            self.cpus = cpus.clone();
            self.todo.push_back(Op::Affinity(cpus));
        }
        if let Some(nice) = stretch.nice.filter(|nice| *nice != self.nice) {
            self.nice = nice;
            self.todo.push_back(Op::Nice(nice));
        }
    }

    fn take(&mut self, step: &Step, now: u64) {
        self.step += 1;
        self.by_timer = matches!(step, Step::Timer { .. });
        match *step {
            Step::Run(0) => {}
            Step::Run(time) => self.todo.push_back(Op::Run(time)),
            Step::Runtime(time) => match self.until {
                Some(until) if now >= until => self.until = None,
                _ => {
                    self.until.get_or_insert(now + time);
                    self.step -= 1;
                    self.todo.push_back(Op::Run(PIECE));
                }
            },
            Step::Sleep(time) => self.todo.push_back(Op::Sleep(time)),
            Step::Timer { timer, period } => self.timer(timer, period, now),
            Step::Lock(mutex) => {
                self.held += 1;
                self.todo.push_back(Op::Down(mutex));
            }
            Step::Unlock(mutex) => {
                self.held -= 1;
                self.todo.push_back(Op::Up {
                    to: mutex,
                    sync: false,
                });
            }
            Step::Wait {
                condition,
                mutex,
                signal,
            } => self.wait(condition, mutex, signal),
            Step::LockedWait {
                condition,
                mutex,
                signal,
            } => {
                self.todo.push_back(Op::Down(mutex));
                self.wait(condition, mutex, signal);
                self.todo.push_back(Op::Up {
                    to: mutex,
                    sync: false,
                });
            }
            Step::Signal { condition, all } => self.todo.push_back(Op::Signal { condition, all }),
            Step::Resume { condition, mutex } => self.todo.extend([
                Op::Down(mutex),
                Op::Signal {
                    condition,
                    all: true,
                },
                Op::Up {
                    to: mutex,
                    sync: false,
                },
            ]),
            Step::Barrier(barrier) => self.todo.push_back(Op::Barrier(barrier)),
            Step::Yield => self.todo.push_back(Op::Yield),
            Step::Hint { hint, thread } => self.todo.push_back(Op::Hint { hint, thread }),
            Step::Reply => self.todo.push_back(Op::Reply),
            Step::Fork(whom) => {
                let kind = &self.shared.kinds[whom];
                let number = kind.forks.load(Relaxed);
                if number < FORKS {
                    kind.forks.store(number + 1, Relaxed);
                    let child = spawn(
                        &self.shared,
                        whom,
                        format!("{}-fork{number}", kind.name),
                        self.cpus.clone(),
                    );
                    self.todo.push_back(Op::Fork(Box::new(child)));
                }
            }
        }
    }

    fn wait(&mut self, condition: Object, mutex: Object, signal: bool) {
        if signal {
            self.todo.push_back(Op::Signal {
                condition,
                all: false,
            });
        }
        self.todo.push_back(Op::WaitCondition { condition, mutex });
    }

    /// A timer expires one period after its last expiry; the first period counts from the thread's
    /// start. If that time has passed, the thread does not sleep: a relative timer then restarts
    /// now, and an absolute one keeps its schedule.
    fn timer(&mut self, timer: Timer, period: u64, now: u64) {
        let (last, absolute) = match timer {
            Timer::Shared(at) => (*self.shared.timer(at), self.shared.absolute[at]),
            Timer::Own(at) => (self.timers[at], self.shared.kinds[self.kind].own[at]),
        };
        let mut next = last.unwrap_or(self.first) + period;
        self.todo
            .push_back(Op::Response(now.saturating_sub(self.active_since)));
        if now < next {
            self.todo.push_back(Op::SleepUntil(next));
        } else if !absolute {
            next = now;
        }
        self.active_since = next;
        match timer {
            Timer::Shared(at) => *self.shared.timer(at) = Some(next),
            Timer::Own(at) => self.timers[at] = Some(next),
        }
    }
}
