// SPDX-License-Identifier: GPL-2.0-only
//! The end of a schedule, which is one run of the checker. It checks the properties that show only
//! after some time. There are no more random events, and the CPUs take turns, one tick each.
//!
//! 1. No task wakes or sleeps. After [`CALM`] ticks, no CPU idles while a task waits that it could
//!    run, and no idle CPU is still claimed (`claim_idle`) without having got a task.
//! 2. Some tasks go to sleep each time they have run for a tick, and wake up when their CPU has
//!    picked the next task. Every task runs within the time that [`limit`] gives.
//! 3. Each task that runs goes to sleep. In the end no task waits.

use crate::kernel::{Turn, TICK};
use crate::machine::{Cpu, Task};
use crate::story::Kind;
use crate::world::World;
use crate::Property;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Number of ticks without wakeups after which a work-conserving policy must use all CPUs. The
/// policy's method `balance` is called eight times for each busy CPU in that time.
const CALM: u64 = 128;

/// Number of ticks of each part that appear in the story.
const TOLD: u64 = 3;

/// Limit of the wait of a task of the largest weight, in ticks. It is one second, several
/// rounds in which each task runs for a slice.
const PATIENCE: u64 = 250;

/// Minimum number of ticks of the second part.
const BUSTLE: u64 = 32;

/// Limit of the rounds in which all CPUs ask for tasks.
const ASKS: usize = 64;

/// Ticks for which a CPU has been idle while tasks waited. The key is the number of the CPU, and
/// how often it has begun to idle.
type Beside = BTreeMap<(usize, u64), u64>;

/// Limit of the wait of a task, in ticks. In the kernel's table, each nice level reduces the weight
/// by a factor of about 1.25. A task that is lighter than the heaviest task may wait longer by the
/// ratio of the two weights. Beyond seven nice levels the limit stays the same, so the limit grows
/// by a factor of less than five.
fn limit(tasks: &[Rc<Task>], nice: i32) -> u64 {
    let heaviest = tasks
        .iter()
        .filter(|task| task.is_alive())
        .map(|task| task.nice.get())
        .min()
        .unwrap_or(nice);
    PATIENCE * 5_u64.pow((nice - heaviest).clamp(0, 7) as u32)
        / 4_u64.pow((nice - heaviest).clamp(0, 7) as u32)
}

impl World {
    /// Runs the end of the schedule.
    pub fn drain(&self) {
        self.alone.set(true);
        self.settle();
        self.stay_calm();
        self.bustle();
        self.empty();
    }

    fn on_each(&self, what: impl Fn(&Cpu)) {
        for cpu in &self.cpus {
            if self.over.get() {
                return;
            }
            self.here.set(Some(cpu.number));
            if !cpu.off.get() {
                what(cpu);
            }
        }
    }

    fn all(&self) -> Vec<Rc<Task>> {
        self.tasks.borrow().clone()
    }

    /// Completes what is still under way, and wakes some of the tasks that sleep. An offline CPU
    /// comes back online in half of the schedules.
    fn settle(&self) {
        self.tell(Kind::Part, || "no more events come".into());
        self.on_each(|_| self.serve());
        for cpu in &self.cpus {
            self.here.set(Some(cpu.number));
            if cpu.off.get() && !cpu.polls.get() && cpu.random.once_in(2) && !self.over.get() {
                self.go_online();
            }
        }
        let first = self
            .cpus
            .iter()
            .find(|cpu| cpu.active.get())
            .map(|cpu| cpu.number);
        for task in self.all() {
            self.here.set(first);
            if !self.over.get() && !task.ours.get() {
                self.set_class(task.pid, true);
            }
            if !self.over.get() && self.cpus[0].random.once_in(2) {
                self.wake(task.pid, 0);
            }
        }
        self.on_each(|_| self.serve());
        self.settle_agent();
    }

    /// One tick on each CPU.
    fn tick_all(&self, number: u64) {
        let told = self.story.borrow().as_ref().map_or(0, Vec::len);
        self.now.set(self.now.get() + TICK);
        self.on_each(|cpu| {
            if cpu.timer.get().is_some_and(|at| at <= self.now.get()) {
                self.expire_timer();
            }
            if cpu.current.get().is_some() {
                self.tick();
            }
            // A CPU that is kicked may react before the CPU that kicked it continues.
            if cpu.random.once_in(2) {
                self.on_each(|other| {
                    if other.number != cpu.number {
                        self.serve();
                    }
                });
                self.here.set(Some(cpu.number));
            }
            self.serve();
            self.nap(cpu);
        });
        self.on_each(|_| self.serve());
        self.settle_agent();
        if let Some(story) = self
            .story
            .borrow_mut()
            .as_mut()
            .filter(|_| number >= TOLD && !self.over.get())
        {
            story.truncate(told);
        }
    }

    /// In the second part, a task that naps goes to sleep after its tick. It is woken when its CPU
    /// has picked the next task.
    fn nap(&self, cpu: &Cpu) {
        let Some(task) = cpu
            .current
            .get()
            .map(|pid| self.task(pid))
            .filter(|task| task.naps.get())
        else {
            return;
        };
        if !self.over.get() {
            self.schedule(Turn::Blocks);
            self.wake(task.pid, 0);
            self.serve();
        }
    }

    fn stay_calm(&self) {
        if self.over.get() {
            return;
        }
        self.tell(Kind::Part, || {
            format!("no task wakes or sleeps for {CALM} ticks")
        });
        let mut beside = Beside::default();
        for number in 0..CALM {
            if self.over.get() {
                return;
            }
            self.tick_all(number);
            self.look_for_idle(&mut beside);
            // The remaining ticks would be the same.
            if number >= 4 && self.all().iter().all(|task| !task.waits()) {
                break;
            }
        }
        for cpu in self.cpus.iter().filter(|cpu| cpu.idles()) {
            self.here.set(Some(cpu.number));
            let waiting = self
                .all()
                .into_iter()
                .find(|task| task.waits() && task.may_use(cpu.number));
            if self.is_claimed(cpu) {
                let while_what = waiting.map_or(String::new(), |task| {
                    format!(", while task {} waits", task.pid)
                });
                let what = || {
                    format!(
                        "CPU {} was claimed, got nothing to do, and can be claimed no \
                        more{while_what}",
                        cpu.number
                    )
                };
                return self.fail(Property::ClaimedIdle, what, None);
            }
            if let Some(task) = waiting.filter(|_| !self.is_left_out(Property::WorkConservation)) {
                let (idle, rq) = (cpu.number, task.rq.get());
                if !self.is_lost(&task) {
                    let what = || {
                        format!(
                            "CPU {idle} idles for {CALM} ticks, while task {} waits on CPU {rq} \
                             and could run there",
                            task.pid
                        )
                    };
                    self.fail_waiting(Property::WorkConservation, &task, what);
                }
                return;
            }
        }
    }

    /// Whether the CPU is asleep and claimed, but has received no task.
    fn is_claimed(&self, cpu: &Cpu) -> bool {
        let state = self.state(cpu.number);
        state.is_asleep() && !state.is_idle()
    }

    /// Called after each tick: counts the ticks for which a CPU idles while a task waits that it
    /// could run.
    fn look_for_idle(&self, beside: &mut Beside) {
        if self.over.get() || self.is_left_out(Property::IdleBeside) {
            return;
        }
        let mut now = Beside::default();
        for cpu in self
            .cpus
            .iter()
            .filter(|cpu| cpu.idles() && !self.is_claimed(cpu))
        {
            let waits = |task: &Rc<Task>| task.waits() && task.may_use(cpu.number);
            let Some(task) = self.all().into_iter().find(waits) else {
                continue;
            };
            let key = (cpu.number, cpu.idled.get());
            let ticks = 1 + beside.get(&key).unwrap_or(&0);
            now.insert(key, ticks);
            if ticks > self.options.idle_ticks {
                self.here.set(Some(cpu.number));
                let (cpu, pid, rq) = (cpu.number, task.pid, task.rq.get());
                if !self.is_lost(&task) {
                    let what = || {
                        format!(
                            "CPU {cpu} idles for {ticks} ticks of 4 ms, while tasks wait that \
                             could run there, now task {pid} on CPU {rq}"
                        )
                    };
                    self.fail_waiting(Property::IdleBeside, &task, what);
                }
                return;
            }
        }
        *beside = now;
    }

    fn bustle(&self) {
        if self.over.get() {
            return;
        }
        let random = &self.cpus[0].random;
        let tasks = self.all();
        if tasks.iter().filter(|task| task.is_alive()).count() > 2 {
            tasks
                .iter()
                .for_each(|task| task.naps.set(random.once_in(2)));
        }
        let napping: Vec<String> = tasks
            .iter()
            .filter(|t| t.is_alive() && t.naps.get())
            .map(|t| t.pid.to_string())
            .collect();
        self.tell(Kind::Part, || {
            if napping.is_empty() {
                "everybody wants to run".into()
            } else {
                format!(
                    "everybody wants to run; these sleep for a moment each time they have run: {}",
                    napping.join(", ")
                )
            }
        });
        // From tick `BUSTLE` on, the tasks that wait are watched until they have run.
        let mut watched = Vec::new();
        let mut beside = Beside::default();
        for number in 0.. {
            self.tick_all(number);
            self.look_for_idle(&mut beside);
            if self.over.get() {
                return;
            }
            tasks
                .iter()
                .filter(|task| task.waits())
                .for_each(|task| task.waited.set(task.waited.get() + 1));
            if number == BUSTLE {
                watched.clone_from(&tasks);
            }
            watched.retain(|task| task.waits() && task.waited.get() > number - BUSTLE);
            if let Some(task) = watched
                .iter()
                .find(|task| task.waited.get() > limit(&tasks, task.nice.get()))
            {
                return self.waited_too_long(task);
            }
            if number >= BUSTLE && watched.is_empty() {
                return;
            }
        }
    }

    /// Whether no CPU picks the task when all CPUs ask for tasks. If so, the lost task is the
    /// finding. If not, the lines about the asking are removed from the story.
    fn is_lost(&self, task: &Task) -> bool {
        let told = self.story.borrow().as_ref().map_or(0, Vec::len);
        self.tell(Kind::Part, || {
            "the running tasks sleep, and all CPUs ask for tasks".into()
        });
        self.ask_all();
        if task.waits() && !self.over.get() {
            let what = || {
                format!(
                    "task {} can run, and no CPU picks it, though all ask",
                    task.pid
                )
            };
            self.fail_waiting(Property::LostTask, task, what);
        }
        if let Some(story) = self
            .story
            .borrow_mut()
            .as_mut()
            .filter(|_| !self.over.get())
        {
            story.truncate(told);
        }
        self.over.get()
    }

    fn waited_too_long(&self, task: &Task) {
        let (pid, rq, ticks) = (task.pid, task.rq.get(), task.waited.get());
        let runs = |cpu: &Cpu| {
            cpu.current
                .get()
                .map(|pid| format!("task {pid} on CPU {}", cpu.number))
        };
        let running: Vec<String> = self.cpus.iter().filter_map(runs).collect();
        if self.is_lost(task) {
            return;
        }
        let what = || {
            let nice = task.nice.get();
            format!(
                "task {pid} (nice {nice}) waits on CPU {rq} for {ticks} ticks of 4 ms; others run \
                 ({})",
                running.join(", ")
            )
        };
        self.fail_waiting(Property::BoundedWait, task, what);
    }

    /// All CPUs ask for tasks until none of them gets one twice: a CPU that found nothing may have
    /// made another one give it a task. Each task that runs goes to sleep.
    fn ask_all(&self) {
        let mut vain = 0;
        for _ in 0..ASKS {
            let ran = Cell::new(false);
            self.on_each(|cpu| {
                self.stop();
                self.schedule(if cpu.current.get().is_some() {
                    Turn::Blocks
                } else {
                    Turn::Asked
                });
                ran.set(ran.get() || cpu.current.get().is_some());
            });
            self.settle_agent();
            let is_vain = !ran.get() && self.cpus.iter().all(|cpu| cpu.current.get().is_none());
            vain = if is_vain { vain + 1 } else { 0 };
            if vain == 2 {
                return;
            }
        }
    }

    fn empty(&self) {
        if self.over.get() {
            return;
        }
        self.ask_all();
        if let Some(task) = self.all().into_iter().find(|task| task.waits()) {
            self.is_lost(&task);
        }
    }
}
