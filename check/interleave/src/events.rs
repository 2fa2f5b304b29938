// SPDX-License-Identifier: GPL-2.0-only
//! The events of a schedule: the machine is set up, then each CPU goes through a number of random
//! events, which the tasks on it cause.

use crate::apart::in_policy;
use crate::kernel::{Turn, TICK};
use crate::machine::{Cpu, Kinds, Place, Task};
use crate::story::Kind;
use crate::world::{World, SLOTS};
use crate::Subject;
use baton_abi::{BATON_F_FORK, BATON_F_SYNC};
use baton_core::{Init, PolicyEntry, TaskFacts};
use baton_native::Policy;
use std::rc::Rc;

impl World {
    pub fn policy(&self) -> &PolicyEntry {
        self.core
            .policies()
            .iter()
            .find(|entry| entry.id() != 0)
            .expect("the policy was registered")
    }

    /// Makes the policy and the initial tasks. The error says why there is no policy.
    pub fn set_up(&self, subject: &Subject, options: &str) -> Result<(), String> {
        let (instance, events) = match subject {
            Subject::Policy(policy) => {
                let machine = self.options.machine(self.cpus.len());
                let made = in_policy(|| policy.make(&machine, SLOTS as u32, options));
                (made?, policy.events())
            }
            Subject::Agent(spec) => self.make_agent(spec)?,
        };
        self.instances.borrow_mut().push(Rc::new(instance));
        self.outside.set(None);
        self.cpus
            .iter()
            .filter(|cpu| !cpu.polls.get())
            .for_each(|cpu| self.core.note_online(cpu.number as i32, true));
        let entry = self
            .core
            .register(events)
            .ok_or("the table of policies is full")?;
        self.here.set(Some(0));
        self.core
            .start(entry, 1)
            .map_err(|why| format!("the policy cannot be started: {why:?}"))?;
        self.core.set_default(Some(entry));
        self.tell(Kind::Part, || {
            format!("CPUs: {}; tasks: {}", self.nr_cpus(), self.seed.tasks)
        });
        for number in 0..self.seed.tasks {
            self.here.set(Some(number % self.nr_cpus()));
            self.fork(0);
        }
        for cpu in 0..self.nr_cpus() {
            self.here.set(Some(cpu));
            self.schedule(Turn::Asked);
        }
        self.settle_agent();
        Ok(())
    }

    /// copy_process() and wake_up_new_task()
    pub fn fork(&self, parent: u64) {
        let me = self.me();
        let pid = self.tasks.borrow().len() as u32 + 1;
        let facts = TaskFacts {
            opaque: pid as usize,
            pid,
            parent,
        };
        let Init::Handle(handle) = self.core.init_task(&facts) else {
            return;
        };
        let nice = if Kinds::new(&self.seed).nice {
            [0, 0, 5, 19, -10][me.random.below(5)]
        } else {
            0
        };
        self.core.enable_task(handle, nice);
        self.tasks
            .borrow_mut()
            .push(Rc::new(Task::new(pid, handle, me.number, nice)));
        self.wake(pid, BATON_F_FORK);
    }

    /// One CPU, from its first event to its last.
    pub fn run(&self, cpu: usize, next: Option<Policy>) {
        self.here.set(Some(cpu));
        let me = self.me();
        let kinds = Kinds::new(&self.seed);
        for _ in 0..self.seed.events {
            self.point();
            self.serve();
            if self.over.get() {
                return;
            }
            if me.off.get() {
                if me.random.once_in(2) {
                    self.go_online();
                    self.hotplug.set(false);
                }
            } else if let Some(at) = me.timer.get().filter(|_| me.random.once_in(3)) {
                self.now.set(self.now.get().max(at));
                self.expire_timer();
            } else if let Some(pid) = me.current.get() {
                self.event(me, pid, kinds, next);
            } else if kinds.hotplug && me.random.once_in(6) {
                self.try_offline();
            } else {
                // An interrupt.
                self.wake_any(me, 0);
            }
        }
        self.serve();
    }

    /// Handles what must precede anything else on this CPU: the stopper and a pending reschedule.
    pub fn serve(&self) {
        for _ in 0..8 {
            if self.over.get() || self.me().off.get() {
                return;
            }
            if !self.stop() {
                if !self.me().resched.get() {
                    return;
                }
                self.schedule(Turn::Asked);
            }
        }
    }

    /// A random event that the running task causes or undergoes.
    fn event(&self, me: &Cpu, pid: u32, kinds: Kinds, next: Option<Policy>) {
        // For policies without hints, no random number is drawn, so their schedules stay the same.
        if self.hears() && me.random.once_in(5) {
            return self.hint(pid);
        }
        match me.random.below(20) {
            0..=3 => self.schedule(Turn::Blocks),
            4..=6 => self.schedule(Turn::Expires),
            7..=9 => self.wake_any(me, 0),
            10 => {
                self.wake_any(me, BATON_F_SYNC);
                self.schedule(Turn::Blocks);
            }
            11 if kinds.ticks => {
                for _ in 0..[1, 1, 16][me.random.below(3)] {
                    self.now.set(self.now.get() + TICK);
                    self.tick();
                }
            }
            12 | 13 if kinds.yields => self.schedule(Turn::Yields),
            14 if kinds.exits => self.schedule(Turn::Dies),
            15 if kinds.forks => {
                let alive = self
                    .tasks
                    .borrow()
                    .iter()
                    .filter(|task| task.is_alive())
                    .count();
                if alive < SLOTS {
                    self.fork(self.task(pid).handle);
                }
            }
            16 | 17 if kinds.affinity => {
                let all = (1 << self.nr_cpus()) - 1;
                let mask = 1 + me.random.below(all) as u32;
                self.about_any(me, |pid| self.set_affinity(pid, mask));
            }
            17 | 18 if kinds.nice => {
                let nice = [-10, 0, 5, 19][me.random.below(4)];
                self.about_any(me, |pid| self.set_nice(pid, nice));
            }
            18 if kinds.class => {
                self.about_any(me, |pid| self.set_class(pid, !self.task(pid).ours.get()));
            }
            19 if kinds.hotplug && me.random.once_in(2) => self.try_offline(),
            19 if kinds.upgrade => self.upgrade(next),
            _ => self.wake_any(me, 0),
        }
    }

    fn about_any(&self, me: &Cpu, what: impl FnOnce(u32)) {
        let pids: Vec<u32> = self
            .tasks
            .borrow()
            .iter()
            .filter(|task| task.is_alive())
            .map(|task| task.pid)
            .collect();
        if !pids.is_empty() {
            what(pids[me.random.below(pids.len())]);
        }
    }

    fn wake_any(&self, me: &Cpu, flags: u16) {
        let sleeps = |task: &&Rc<Task>| {
            !task.dying.get()
                && task.ours.get()
                && !task.runnable.get()
                && task.place.get() == Place::Away
        };
        let asleep: Vec<u32> = self
            .tasks
            .borrow()
            .iter()
            .filter(sleeps)
            .map(|task| task.pid)
            .collect();
        if !asleep.is_empty() {
            self.wake(asleep[me.random.below(asleep.len())], flags);
        }
    }

    fn try_offline(&self) {
        if self.nr_cpus() > 1 && !self.hotplug.replace(true) {
            self.go_offline();
        }
    }

    /// baton_upgrade(), hosts/kernel/upgrade.c: the new version is made while the old one goes on,
    /// and one store puts it in its place. If its state has another type, the new version takes the
    /// state over while all CPUs are held; this happens only if no CPU is in the rules at this
    /// moment.
    fn upgrade(&self, next: Option<Policy>) {
        let Some(old) = self.instances.borrow().last().cloned() else {
            return;
        };
        let new = next.unwrap_or(old.policy());
        let (from, to) = (old.policy().ops(), new.ops());
        let is_quiet = self.cpus.iter().all(|cpu| !cpu.inside.get());
        if to.reregister_init.is_none()
            || (from.state != to.state && !is_quiet)
            || self.upgraded.replace(true)
        {
            return;
        }
        self.outside
            .set(Some("put in the place of another version"));
        let machine = self.options.machine(self.cpus.len());
        let made = in_policy(|| new.make_from(&old, &machine, SLOTS as u32, "", |_| ()));
        self.outside.set(None);
        match made {
            Ok(made) => {
                self.instances.borrow_mut().push(Rc::new(made));
                let version = self.instances.borrow().len();
                self.tell(Kind::Event, || {
                    format!(
                        "version {version} of the policy takes the place of version {}",
                        version - 1
                    )
                });
                self.core.swap(self.policy(), version, new.events());
            }
            Err(refused) => self.tell(Kind::Event, || {
                format!("an upgrade is refused: {}", refused.why)
            }),
        }
    }
}
