// SPDX-License-Identifier: GPL-2.0-only
//! Follows each task of a recording: its place until the moment, and its actions from then on.
//!
//! ```text
//!   Woken --given--> Queued --picked--> Running --another runs--> Off --given: preempted--> Queued
//!     ^                                                            |
//!     +------------------- woken: it slept ------------------------+
//! ```
//! A task starts as Unknown, until a call shows where it has been.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use baton_abi::{BatonMethod, BatonTask, BATON_F_FORK};
use baton_core::Whereabouts;
use baton_trace::{About, Call, Event, Follow, Recording, Return, Step};

use super::{Scene, There};
use crate::topology::CpuMask;
use crate::workloads::recorded::{spawns, Act, Role};
use crate::world::{Happening, Spawn, World};

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Unknown,
    Woken,
    Queued(u64),
    Running(usize),
    /// It left its CPU at this time, ns. Whether it sleeps is not known yet.
    Off(u64),
    Gone,
}

/// The state of a task at the moment.
#[derive(Clone, Copy)]
struct Then {
    whereabouts: Whereabouts,
    runtime: u64,
    slice: u64,
    cpu: i32,
    nice: i32,
}

struct Life {
    slot: u32,
    pid: u32,
    nice: i32,
    state: State,
    /// CPU time, ns, up to the time `counted`: the last reported value and the time run since.
    runtime: u64,
    counted: u64,
    slice: u64,
    cpu: i32,
    /// CPUs that the host reported the task may not use, and CPUs that it may use.
    denied: BTreeSet<i32>,
    granted: BTreeSet<i32>,
    /// The CPU of a wakeup for which the policy was not asked to select a CPU.
    bound: Option<i32>,
    /// Its affinity has changed since the moment, so later answers do not describe the moment.
    is_closed: bool,
    /// When it was created, ns after the moment. `None` if it was not created then.
    begins: Option<u64>,
    /// Its state at the moment.
    then: Option<Then>,
    acts: Vec<Act>,
    /// CPU time that is not among the acts yet, ns.
    ran: u64,
}

impl Then {
    fn is_runnable(&self) -> bool {
        !matches!(self.whereabouts, Whereabouts::Asleep)
    }
}

impl Life {
    fn new(task: &BatonTask, state: State, now: u64) -> Self {
        Self {
            slot: task.slot,
            pid: task.pid,
            nice: task.nice,
            state,
            runtime: task.runtime,
            counted: now,
            slice: 0,
            cpu: task.cpu,
            denied: BTreeSet::new(),
            granted: BTreeSet::new(),
            bound: None,
            is_closed: false,
            begins: None,
            then: None,
            acts: Vec::new(),
            ran: 0,
        }
    }

    fn then(&self, whereabouts: Whereabouts) -> Option<Then> {
        let Self {
            runtime,
            slice,
            cpu,
            nice,
            ..
        } = *self;
        Some(Then {
            whereabouts,
            runtime,
            slice,
            cpu,
            nice,
        })
    }

    fn act(&mut self, act: Act) {
        if self.ran > 0 {
            self.acts.push(Act::Run(std::mem::take(&mut self.ran)));
        }
        self.acts.push(act);
    }

    /// Adds the CPU time that a call reports.
    fn note_call(&mut self, task: &BatonTask, now: u64) {
        self.ran = self
            .ran
            .saturating_add(task.runtime.saturating_sub(self.runtime));
        (self.runtime, self.counted, self.cpu) = (task.runtime.max(self.runtime), now, task.cpu);
    }

    /// Adds the CPU time until `now`, if the task runs.
    fn count(&mut self, now: u64) {
        if let State::Running(_) = self.state {
            let ran = now.saturating_sub(self.counted);
            self.ran = self.ran.saturating_add(ran);
            self.runtime = self.runtime.saturating_add(ran);
        }
        self.counted = now;
    }
}

pub(super) struct History {
    number: u64,
    follow: Follow,
    lives: Vec<Life>,
    by_slot: BTreeMap<u32, usize>,
    /// By CPU: the index of the current task in `lives`.
    current: Vec<Option<usize>>,
    online: Vec<bool>,
    /// By CPU: when the policy's timer expires.
    timers: Vec<Option<u64>>,
    clock: u64,
    /// Tasks for which the policy was asked to select a CPU, and which it has not received since.
    selected: BTreeSet<usize>,
    has_selects: bool,
    /// The time of the moment, as ns of `follow.now`, and the state of the machine then.
    begun: Option<(u64, Machine)>,
    happenings: Vec<(u64, Happening)>,
}

struct Machine {
    online: Vec<bool>,
    timers: Vec<Option<u64>>,
    clock: u64,
}

fn is(call: &Call, method: BatonMethod) -> bool {
    call.method == method as u8
}

impl History {
    pub fn new(recording: &Recording, number: u64) -> Self {
        let header = &recording.header;
        let cpus = header.cpus.len();
        Self {
            number,
            follow: Follow::new(recording),
            lives: Vec::new(),
            by_slot: BTreeMap::new(),
            current: vec![None; cpus],
            online: header.cpus.iter().map(|cpu| cpu.3).collect(),
            timers: vec![None; cpus],
            clock: 0,
            selected: BTreeSet::new(),
            has_selects: false,
            begun: None,
            happenings: Vec::new(),
        }
    }

    /// Processes the next event.
    pub fn event(&mut self, number: u64, cpu: u16, event: &Event) {
        if number == self.number {
            self.begin();
        }
        if let (Event::Return(end), Some(call)) = (event, self.follow.call(cpu).copied()) {
            self.answered(&call, end);
        }
        let mut steps = Vec::new();
        self.follow.event(cpu, event, |_, step| steps.push(step));
        steps.into_iter().for_each(|step| self.step(step));
        match event {
            Event::Call(call) => self.call(cpu, call),
            Event::Now(now) => self.clock = self.clock.max(*now),
            Event::ArmTimer(after) => {
                self.set_timer(i32::from(cpu), Some(self.follow.now.saturating_add(*after)))
            }
            Event::CancelTimer => self.set_timer(i32::from(cpu), None),
            Event::MayRun { slot, cpu, yes } => self.may_run(*slot, *cpu, *yes),
            _ => {}
        }
    }

    fn set_timer(&mut self, cpu: i32, at: Option<u64>) {
        if let Some(timer) = self.timers.get_mut(cpu as usize) {
            *timer = at;
        }
    }

    fn may_run(&mut self, slot: u32, cpu: i32, yes: bool) {
        let is_online = self.online.get(cpu as usize).is_some_and(|online| *online);
        let Some(life) = self.by_slot.get(&slot).map(|&at| &mut self.lives[at]) else {
            return;
        };
        match yes {
            _ if life.is_closed => {}
            true => _ = life.granted.insert(cpu),
            // The host reports an offline CPU as not allowed for any task.
            false if is_online => _ = life.denied.insert(cpu),
            false => {}
        }
    }

    /// The moment has come: stores the state of the tasks and the machine.
    fn begin(&mut self) {
        let now = self.follow.now;
        for life in &mut self.lives {
            life.count(now);
            life.ran = 0;
            life.acts.clear();
            let whereabouts = match life.state {
                State::Unknown | State::Gone => continue,
                State::Queued(token) => Whereabouts::Queued(token),
                State::Running(_) => Whereabouts::Running,
                State::Woken | State::Off(_) => {
                    life.state = State::Off(now);
                    Whereabouts::Asleep
                }
            };
            life.then = life.then(whereabouts);
        }
        let (online, timers, clock) = (self.online.clone(), self.timers.clone(), self.clock);
        self.begun = Some((
            now,
            Machine {
                online,
                timers,
                clock,
            },
        ));
    }

    /// Sets the state of a task whose state was not known until now.
    fn was(&mut self, at: usize, whereabouts: Whereabouts, state: State) {
        let life = &mut self.lives[at];
        if life.state == State::Unknown {
            life.state = state;
            if self.begun.is_some() && life.begins.is_none() {
                life.then = life.then(whereabouts);
            }
        }
    }

    /// Stores the slice of the task that a call picked.
    fn answered(&mut self, call: &Call, end: &Return) {
        let is_pick = is(call, BatonMethod::PickNextTask) || is(call, BatonMethod::NewlyIdle);
        let Some(slot) = (end.answer as u32)
            .checked_sub(1)
            .filter(|_| is_pick && end.answer >> 32 != 0)
        else {
            return;
        };
        let at = match self.by_slot.get(&slot) {
            Some(&at) => at,
            None => self.birth(&BatonTask {
                slot,
                ..self.follow.tasks.get(&slot).copied().unwrap_or_default()
            }),
        };
        self.was(
            at,
            Whereabouts::Queued(end.answer),
            State::Queued(end.answer),
        );
        self.lives[at].slice = end.carried.slice;
    }

    fn birth(&mut self, task: &BatonTask) -> usize {
        self.lives
            .push(Life::new(task, State::Unknown, self.follow.now));
        self.by_slot.insert(task.slot, self.lives.len() - 1);
        self.lives.len() - 1
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Runs { cpu, slot, .. } => {
                let Some(&at) = self.by_slot.get(&slot) else {
                    return;
                };
                if self.current.get(cpu as usize).copied().flatten() != Some(at) {
                    self.leave(cpu);
                }
                self.run(at, cpu);
            }
            Step::Idle { cpu } => self.leave(cpu),
            Step::Queued { .. } | Step::Taken { .. } => {}
        }
    }

    fn run(&mut self, at: usize, cpu: i32) {
        let now = self.follow.now;
        let Some(current) = self.current.get_mut(cpu as usize) else {
            return;
        };
        *current = Some(at);
        self.lives[at].count(now);
        self.lives[at].cpu = cpu;
        self.lives[at].state = State::Running(cpu as usize);
    }

    /// The current task leaves the CPU.
    fn leave(&mut self, cpu: i32) {
        let Some(at) = self.current.get_mut(cpu as usize).and_then(Option::take) else {
            return;
        };
        if self.lives[at].state == State::Running(cpu as usize) {
            self.lives[at].count(self.follow.now);
            self.lives[at].state = State::Off(self.follow.now);
        }
    }

    fn call(&mut self, ring: u16, call: &Call) {
        self.clock = self.clock.max(call.now);
        if let About::Cpu(cpu) = call.about {
            return self.call_of_cpu(call, cpu);
        }
        let Some(task) = call.about.task().copied() else {
            return;
        };
        let is_new = is(call, BatonMethod::TaskNew)
            || matches!(call.about, About::Waking(_, wake) if wake.flags & BATON_F_FORK != 0);
        let known = self.by_slot.get(&task.slot).copied();
        let at = known.unwrap_or_else(|| self.birth(&task));
        let now = self.follow.now;
        match (known, &self.begun) {
            // The program of a new task begins here.
            (None, Some((begun, _))) if is_new => {
                self.lives[at].begins = Some(now - begun);
                self.lives[at].state = State::Woken;
            }
            _ => {
                let life = &mut self.lives[at];
                if life.pid == 0 {
                    (life.pid, life.nice, life.cpu) = (task.pid, task.nice, task.cpu);
                    life.runtime = life.runtime.max(task.runtime);
                    if let Some(then) = &mut life.then {
                        (then.runtime, then.nice, then.cpu) = (life.runtime, task.nice, task.cpu);
                    }
                }
                life.note_call(&task, now);
            }
        }
        match call.about {
            About::Waking(..) => {
                self.has_selects = true;
                self.selected.insert(at);
                if !is_new {
                    self.woken(at, ring);
                }
            }
            About::Given(_, token) => self.given(at, call, token, ring),
            About::Pick(cpu, Some(_)) => {
                let is_unknown = self.lives[at].state == State::Unknown;
                self.was(at, Whereabouts::Running, State::Running(cpu as usize));
                if is_unknown {
                    self.run(at, cpu);
                }
            }
            About::Task(_) => self.call_of_task(at, call, &task),
            _ => {}
        }
    }

    fn given(&mut self, at: usize, call: &Call, token: u64, ring: u16) {
        let was_asked = self.selected.remove(&at);
        if is(call, BatonMethod::TaskWakeup) {
            self.woken(at, ring);
            let life = &mut self.lives[at];
            if !was_asked && !life.is_closed {
                life.bound = Some(life.cpu);
            }
        } else {
            // The task was on a CPU, or the policy had it already.
            let cpu = self.lives[at].cpu;
            self.was(at, Whereabouts::Running, State::Running(cpu as usize));
            if is(call, BatonMethod::TaskYield) {
                self.lives[at].act(Act::Yield);
            }
        }
        self.lives[at].state = State::Queued(token);
        self.current
            .iter_mut()
            .filter(|current| **current == Some(at))
            .for_each(|current| *current = None);
    }

    /// A task is woken, on the ring's CPU.
    fn woken(&mut self, at: usize, ring: u16) {
        let now = self.follow.now;
        let begun = self.begun.as_ref().map(|(begun, _)| *begun);
        self.was(at, Whereabouts::Asleep, State::Off(begun.unwrap_or(now)));
        if matches!(self.lives[at].state, State::Woken | State::Queued(_)) {
            return;
        }
        let since = if let State::Off(since) = self.lives[at].state {
            since
        } else {
            now
        };
        let waker = self
            .current
            .get(usize::from(ring))
            .copied()
            .flatten()
            .filter(|&waker| waker != at);
        self.lives[at].act(Act::Sleep(now - since, waker));
        self.lives[at].state = State::Woken;
        if let Some(waker) = waker {
            self.lives[waker].count(now);
            self.lives[waker].act(Act::Wake(at));
        }
    }

    fn call_of_task(&mut self, at: usize, call: &Call, task: &BatonTask) {
        let life = &mut self.lives[at];
        if is(call, BatonMethod::TaskDead) || is(call, BatonMethod::TaskDeparted) {
            life.act(Act::Exit);
            life.state = State::Gone;
            self.by_slot.remove(&task.slot);
            self.current
                .iter_mut()
                .filter(|current| **current == Some(at))
                .for_each(|current| *current = None);
        } else if is(call, BatonMethod::TaskPrioChanged) {
            life.nice = task.nice;
            life.act(Act::Nice(task.nice));
        } else if is(call, BatonMethod::TaskAffinityChanged) {
            life.is_closed = self.begun.is_some();
            if !life.is_closed {
                life.denied.clear();
                life.granted.clear();
                life.bound = None;
            }
        } else if is(call, BatonMethod::TaskTick) {
            self.was(at, Whereabouts::Running, State::Running(task.cpu as usize));
        }
    }

    fn call_of_cpu(&mut self, call: &Call, cpu: i32) {
        let change = is(call, BatonMethod::CpuOnline) || is(call, BatonMethod::CpuOffline);
        if is(call, BatonMethod::Timer) {
            self.set_timer(cpu, None);
        } else if let Some(online) = self.online.get_mut(cpu as usize).filter(|_| change) {
            *online = is(call, BatonMethod::CpuOnline);
            if let Some((begun, _)) = &self.begun {
                self.happenings.push((
                    self.follow.now - begun,
                    Happening::Online(cpu as u32, *online),
                ));
            }
        }
    }

    /// Returns the state at the moment, and what the tasks did afterwards.
    pub fn scene(mut self) -> Result<Scene, String> {
        let Some((begun, then)) = self.begun.take() else {
            return Err(format!(
                "the recording has no event {}, or it comes after a gap",
                self.number
            ));
        };
        let now = self.follow.now;
        let has_choice = self.has_selects;
        for life in &mut self.lives {
            life.count(now);
            match life.state {
                State::Off(_) => life.act(Act::Rest),
                _ if life.ran > 0 => life.acts.push(Act::Run(life.ran)),
                _ => {}
            }
        }
        let (mut world, cpus) = (World::new(), self.current.len());
        let group = world.group("recorded");
        let names: Vec<String> = self
            .lives
            .iter()
            .map(|life| format!("task {}", life.pid))
            .collect();
        let role = |(life, name)| {
            let Life {
                acts,
                then,
                begins,
                nice,
                ..
            }: &Life = life;
            let nice = then.map_or(*nice, |then| then.nice);
            Role {
                name,
                nice: Some(nice),
                acts,
                left_out: then.is_none() && begins.is_none(),
            }
        };
        let roles: Vec<Role<'_>> = self
            .lives
            .iter()
            .zip(names.iter().map(String::as_str))
            .map(role)
            .collect();
        let spawns = spawns(&roles, group, &mut world);
        let mut tasks = Vec::new();
        for (life, spawn) in self.lives.iter().zip(spawns) {
            match (life.then, life.begins) {
                (_, Some(at)) => {
                    _ = world.task(Spawn {
                        at,
                        affinity: mask(life, cpus, has_choice),
                        ..spawn
                    })
                }
                (
                    Some(Then {
                        whereabouts,
                        runtime,
                        slice,
                        cpu,
                        nice,
                    }),
                    None,
                ) => tasks.push(There {
                    slot: life.slot,
                    pid: life.pid,
                    nice,
                    runtime,
                    slice,
                    cpu: (cpu.max(0) as u32).min(cpus as u32 - 1),
                    mask: mask(life, cpus, has_choice),
                    whereabouts,
                    spawn,
                }),
                (None, None) => {}
            }
        }
        self.happenings
            .into_iter()
            .for_each(|(at, what)| world.happens(at, what));
        let left = |due: u64| due.saturating_sub(begun);
        Ok(Scene {
            number: self.number,
            rest: now - begun,
            clock: then.clock,
            tasks,
            online: then.online,
            timers: then
                .timers
                .into_iter()
                .map(|timer| timer.map(left))
                .collect(),
            world,
        })
    }
}

/// The CPUs that a task may use, as far as the recording shows; `None` for all.
fn mask(life: &Life, cpus: usize, has_choice: bool) -> Option<Arc<CpuMask>> {
    let is_cpu = |cpu: &i32| (0..cpus as i32).contains(cpu);
    let bound = life
        .bound
        .filter(is_cpu)
        .filter(|_| has_choice && life.granted.len() < 2);
    let allowed: Vec<usize> = match bound.filter(|&cpu| !is_on_another(life, cpu)) {
        Some(cpu) => vec![cpu as usize],
        None => (0..cpus)
            .filter(|&cpu| is_allowed(life, cpu as i32))
            .collect(),
    };
    (!allowed.is_empty() && allowed.len() < cpus).then(|| Arc::new(CpuMask::of(allowed)))
}

/// Is the task runnable on another CPU than this?
fn is_on_another(life: &Life, cpu: i32) -> bool {
    life.then
        .as_ref()
        .is_some_and(|then| then.is_runnable() && then.cpu != cpu)
}

/// Is the CPU allowed for the task? A runnable task is allowed on its own CPU, even if the host
/// reported earlier that it is not.
fn is_allowed(life: &Life, cpu: i32) -> bool {
    let is_denied = life.denied.contains(&cpu) && !life.granted.contains(&cpu);
    !is_denied
        || life
            .then
            .as_ref()
            .is_some_and(|then| then.is_runnable() && then.cpu == cpu)
}
