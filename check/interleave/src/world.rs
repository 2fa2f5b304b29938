// SPDX-License-Identifier: GPL-2.0-only
//! The state of one schedule: the simulated machine, the policy under the rules, and the findings.
//!
//! All of it is used by one thread of the operating system. CPUs switch at [`World::point`] only,
//! so plain cells suffice, and `here` holds the CPU that runs.

use crate::agent::Side;
use crate::apart::{in_policy, out_of_policy};
use crate::arena::Arena;
use crate::coverage::Trail;
use crate::hint::Said;
use crate::host::Checker;
use crate::locks::Locks;
use crate::machine::{Cpu, Task};
use crate::random::Random;
use crate::seed::Seed;
use crate::story::{Finding, Kind, Line, Report};
use crate::{Options, Property};
use baton_core::{Core, CpuState, Slot};
use baton_native::Instance;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Task slots: for the six initial tasks, and those that they fork.
pub const SLOTS: usize = 8;

/// Limit of the scheduling points of a schedule; beyond it, some call does not return.
const MOST_POINTS: u64 = 200_000;

/// Limit of the questions of a call to its host; beyond it, the call does not return.
const MOST_QUESTIONS: u64 = 100_000;

pub struct World {
    pub seed: Seed,
    /// The CPU that runs now.
    pub here: Cell<Option<usize>>,
    /// No other CPU runs: the beginning and the end of a schedule are sequential.
    pub alone: Cell<bool>,
    /// What is done to the policy outside its methods, such as "made"; it may not act meanwhile.
    pub outside: Cell<Option<&'static str>>,
    /// The clock, ns.
    pub now: Cell<u64>,
    pub points: Cell<u64>,
    pub said: RefCell<Said>,
    pub random: Random,
    pub cpus: Vec<Cpu>,
    pub tasks: RefCell<Vec<Rc<Task>>>,
    pub locks: Locks,
    pub instances: RefCell<Vec<Rc<Instance>>>,
    pub options: Arc<Options>,
    pub trail: Trail,
    pub finding: RefCell<Option<Finding>>,
    /// The policy was stopped, or something was found; nothing new is begun.
    pub over: Cell<bool>,
    /// The lines of the story, if it is recorded.
    pub story: RefCell<Option<Vec<Line>>>,
    /// A CPU is offline, or going offline (`cpu_hotplug_lock`).
    pub hotplug: Cell<bool>,
    pub upgraded: Cell<bool>,
    gives_way: Cell<bool>,
    /// The agent, if one is checked in the place of a policy.
    pub agent: RefCell<Option<Rc<Side>>>,
    /// CPUs that have events to come.
    pub running: Cell<usize>,
    // Borrows from the next two fields, so it must be dropped before them.
    pub core: Core<'static, Checker>,
    _slots: Arena<Slot>,
    _states: Arena<CpuState>,
}

std::thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
    static SEED: RefCell<Option<Seed>> = const { RefCell::new(None) };
}

/// The current schedule.
pub fn world() -> Rc<World> {
    WORLD
        .with_borrow(|world| world.clone())
        .expect("a policy is called inside a schedule only")
}

/// The current schedule, if there is one.
pub fn try_world() -> Option<Rc<World>> {
    WORLD.with_borrow(|world| world.clone())
}

pub fn set_seed(seed: Seed) {
    SEED.set(Some(seed));
}

/// Begins the schedule of the seed that was set last.
pub fn begin(options: Arc<Options>, tell: bool) -> Rc<World> {
    let seed = SEED.take().expect("the chooser has set it");
    let (slots, states) = (Arena::new(SLOTS), Arena::new(seed.cpus));
    let core = Core::new(Checker, slots.get(), states.get());
    let world = Rc::new(World {
        here: Cell::new(None),
        alone: Cell::new(true),
        outside: Cell::new(Some("made")),
        now: Cell::new(1_000_000_000),
        points: Cell::new(0),
        said: RefCell::default(),
        random: Random::new(seed.number ^ 0xbead),
        cpus: (0..seed.cpus).map(|cpu| Cpu::new(&seed, cpu)).collect(),
        tasks: RefCell::default(),
        locks: Locks::default(),
        instances: RefCell::default(),
        options,
        trail: Trail::default(),
        finding: RefCell::default(),
        over: Cell::new(false),
        story: RefCell::new(tell.then(Vec::new)),
        hotplug: Cell::new(false),
        upgraded: Cell::new(false),
        gives_way: Cell::new(false),
        agent: RefCell::default(),
        running: Cell::new(0),
        core,
        _slots: slots,
        _states: states,
        seed,
    });
    WORLD.set(Some(world.clone()));
    world
}

/// Ends the current schedule. Tasks that the policy still holds do not count as lost.
pub fn end(world: Rc<World>) -> (Option<Finding>, Option<Vec<Line>>) {
    world.outside.set(Some("given up"));
    world.here.set(Some(0));
    in_policy(|| world.drop_agent());
    WORLD.set(None);
    (world.finding.take(), world.story.take())
}

/// Detaches the current schedule from this thread, and leaves its state as it is.
pub fn leave() -> Rc<World> {
    WORLD.take().expect("a schedule runs")
}

/// Attaches a schedule that another thread has left.
pub fn enter(world: Rc<World>) {
    WORLD.set(Some(world));
}

/// Threads whose CPU waits for a lock, one bit each; the thread of CPU 0 has number 1.
pub fn waiting_threads() -> u8 {
    let waiting = |world: &Rc<World>| {
        let waits = |cpu: &&Cpu| cpu.waits_for.get().is_some();
        world
            .cpus
            .iter()
            .filter(waits)
            .fold(0, |set, cpu| set | 2 << cpu.number)
    };
    try_world().as_ref().map_or(0, waiting)
}

/// Whether the CPU that runs spins and must let another go on.
pub fn take_gives_way() -> bool {
    try_world().is_some_and(|world| world.gives_way.replace(false))
}

impl World {
    /// The CPU that runs now.
    pub fn me(&self) -> &Cpu {
        &self.cpus[self.here.get().expect("a CPU runs")]
    }

    /// The number of CPUs that run tasks. The last one may be an agent's.
    pub fn nr_cpus(&self) -> usize {
        self.cpus.iter().filter(|cpu| !cpu.polls.get()).count()
    }

    /// The rules' state of a CPU.
    pub fn state(&self, cpu: usize) -> &'static CpuState {
        self.core.cpu(cpu as i32).expect("the machine has this CPU")
    }

    /// A scheduling point: another CPU may go on here.
    pub fn point(&self) {
        let Some(here) = self.here.get().filter(|_| !self.alone.get()) else {
            return;
        };
        // Does nothing while a call is being unwound, because the standard library counts panics by
        // thread, and all CPUs share one thread.
        if self.cpus[here].abandoning.get() {
            return;
        }
        self.points.set(self.points.get() + 1);
        self.now.set(self.now.get() + 200);
        self.switch();
    }

    /// As [`World::point`], for a CPU that can do nothing until another one has run.
    pub fn give_way(&self) {
        self.gives_way.set(true);
        self.point();
    }

    pub fn switch(&self) {
        let here = self.here.get();
        out_of_policy(shuttle::thread::yield_now);
        self.here.set(here);
    }

    /// Whether the schedule is so long that some call must be in a loop.
    pub fn is_endless(&self) -> bool {
        self.points.get() > MOST_POINTS
    }

    /// Counts a question of the current call to its host. True if the call has asked too many.
    pub fn has_asked_for_ever(&self) -> bool {
        let questions = &self.me().questions;
        questions.set(questions.get() + 1);
        // A call that waits for a lock ends by an answer instead, which is better than a crash.
        questions.get() > MOST_QUESTIONS || self.points.get() > 2 * MOST_POINTS
    }

    /// Whether this property is not checked. A policy that never balances its queues does not do so
    /// soon, so `IdleBeside` is left out with `WorkConservation`.
    pub fn is_left_out(&self, property: Property) -> bool {
        let without = &self.options.without;
        let weaker = (property == Property::IdleBeside).then_some(Property::WorkConservation);
        without.contains(&property) || weaker.is_some_and(|weaker| without.contains(&weaker))
    }

    /// Adds a line to the story.
    pub fn tell(&self, kind: Kind, text: impl FnOnce() -> String) {
        if self.over.get() && kind != Kind::End {
            return;
        }
        if let Some(story) = self.story.borrow_mut().as_mut() {
            story.push(Line {
                cpu: self.here.get(),
                kind,
                text: text(),
            });
        }
    }

    /// Notes a finding, if it is the first, and ends the schedule.
    pub fn fail(&self, property: Property, what: impl FnOnce() -> String, report: Option<Report>) {
        if self.over.replace(true) || self.is_left_out(property) {
            return;
        }
        let what = what();
        self.tell(Kind::End, || what.clone());
        *self.finding.borrow_mut() = Some(Finding {
            property,
            what,
            report,
            holder: None,
        });
    }

    /// As [`World::fail`], for a task that waits: the finding also names the holder of the task.
    pub fn fail_waiting(&self, property: Property, task: &Task, what: impl FnOnce() -> String) {
        self.fail(property, what, None);
        if let Some(finding) = self.finding.borrow_mut().as_mut() {
            finding.holder.clone_from(&task.given.borrow());
        }
    }

    /// The task in a slot, if the slot is in use.
    pub fn task_in(&self, slot: u32) -> Option<Rc<Task>> {
        self.tasks
            .borrow()
            .iter()
            .find(|task| task.is_alive() && task.slot() == slot)
            .cloned()
    }

    /// The task that a token names.
    pub fn task_of(&self, token: u64) -> Option<Rc<Task>> {
        self.task_in((token as u32).wrapping_sub(1))
    }
}
