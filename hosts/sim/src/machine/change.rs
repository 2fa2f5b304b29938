// SPDX-License-Identifier: GPL-2.0-only
//! Changes to tasks and CPUs from outside: changes of attributes (sched_change_begin() and _end()),
//! hotplug, another policy, another version.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use baton_abi::{BatonCtx, BATON_F_RESTORE};
use baton_core::PolicyEntry;
use baton_native::Refused;

use super::{Machine, Place};
use crate::topology::CpuMask;
use crate::trace::{Event, Left};
use crate::world::{Happening, TaskRef};

impl<'m> Machine<'m> {
    pub(super) fn happens_at(&mut self, at: u32) {
        let what = self.happenings[at as usize].clone();
        // The change is made by an administrator's task on the first online CPU.
        let here = self.any_online(0);
        self.change_now(what, here);
    }

    /// Applies a change on CPU `here`.
    pub(super) fn change_now(&mut self, what: Happening, here: u32) {
        let find =
            |machine: &Self, task: TaskRef| machine.by_ref.get(task.0 as usize).copied().flatten();
        match what {
            Happening::Online(cpu, online) if (cpu as usize) < self.cpus.len() => {
                self.set_online(cpu, online)
            }
            Happening::Affinity(task, mask) => {
                if let Some(at) = find(self, task) {
                    let mask = mask.map_or(0, |mask| self.intern(mask));
                    self.set_affinity(at, mask, here);
                }
            }
            Happening::Nice(task, nice) => {
                if let Some(at) = find(self, task) {
                    self.set_nice(at, nice.clamp(-20, 19), here);
                }
            }
            Happening::Assign(task, policy) => {
                if let Some(at) = find(self, task) {
                    let handle = self.tasks[at as usize].handle;
                    let slot = self
                        .core
                        .by_handle(handle)
                        .expect("a task's slot is its own until it exits");
                    self.core.assign_by_rule(slot, self.entry(policy));
                }
            }
            Happening::HigherClass(cpu, ns) if (cpu as usize) < self.cpus.len() => {
                self.higher_begins(cpu, ns)
            }
            Happening::Interrupt(cpu, ns) if (cpu as usize) < self.cpus.len() => {
                self.interrupt(cpu, ns)
            }
            Happening::Upgrade(policy, version) => self.upgrade(policy, version, here),
            Happening::Online(..) | Happening::HigherClass(..) | Happening::Interrupt(..) => {}
        }
    }

    /// The place of a set in `masks`, plus one.
    pub(super) fn intern(&self, mask: Arc<CpuMask>) -> u32 {
        let mut masks = self.host().masks.borrow_mut();
        let found = masks.iter().position(|other| **other == *mask);
        found.unwrap_or_else(|| {
            masks.push(mask);
            masks.len() - 1
        }) as u32
            + 1
    }

    /// set_cpus_allowed(), on CPU `here`.
    pub(super) fn set_mask(&mut self, at: u32, mask: u32, here: u32) {
        let slot = self.tasks[at as usize].slot;
        self.host().facts[slot as usize].mask.set(mask);
        let mut ctx = self.ctx(at, self.rq(at), 0);
        let state = self.enter(here);
        self.core.set_affinity((), state, &mut ctx);
        self.settle(here, &ctx);
    }

    /// Changes attributes of a task. A queued task is taken off its queue for that, a running one
    /// stays where it is.
    fn change(&mut self, at: u32, here: u32, change: impl FnOnce(&mut Self)) {
        if let Place::OnCpu(cpu) = self.tasks[at as usize].place {
            self.account(cpu);
        }
        let is_queued = self.tasks[at as usize].place.waits();
        if is_queued {
            self.dequeue(at);
        }
        change(self);
        if is_queued {
            self.enqueue(at, here, BATON_F_RESTORE);
            // An idle CPU is notified of a restored task only if the task is on its local queue.
            if let Place::Local(cpu) = self.tasks[at as usize].place {
                self.wakeup_preempt(cpu, here);
            }
        }
    }

    fn set_nice(&mut self, at: u32, nice: i32, here: u32) {
        self.change(at, here, |machine| {
            let was = machine.tasks[at as usize].runnable;
            machine.set_runnable(at, false);
            machine.tasks[at as usize].nice = nice;
            machine.set_runnable(at, was);
            let mut ctx = machine.ctx(at, machine.rq(at), 0);
            let state = machine.enter(here);
            machine.core.set_nice((), state, &mut ctx, nice);
            machine.settle(here, &ctx);
        });
    }

    /// sched_setaffinity(), and the stopper's move of a task that must leave its CPU.
    fn set_affinity(&mut self, at: u32, mask: u32, here: u32) {
        // __set_cpus_allowed_ptr(): a change to the same set is not reported to the policy, and a
        // set without an online CPU is refused.
        if self.mask(at) == mask || !self.host().any_active(mask) {
            return;
        }
        self.change(at, here, |machine| machine.set_mask(at, mask, here));
        if self.tasks[at as usize].runnable && !self.allowed(at, self.rq(at)) {
            if let Place::OnCpu(cpu) = self.tasks[at as usize].place {
                self.higher_begins(cpu, self.config.costs.switch);
            }
            self.migrate(at, here);
        }
    }

    /// move_queued_task()
    fn migrate(&mut self, at: u32, here: u32) {
        self.dequeue(at);
        let cpu = self.fallback_rq(at, self.rq(at), here);
        self.set_rq(at, cpu);
        if self.tasks[at as usize].runnable {
            self.enqueue(at, here, 0);
            self.wakeup_preempt(self.rq(at), here);
        }
    }

    /// sched_cpu_activate(), or sched_cpu_deactivate() and balance_push(), by which all tasks leave
    /// the CPU, also those of higher classes. Deviation: it takes no time, where the kernel waits
    /// for an RCU grace period between the two halves.
    fn set_online(&mut self, cpu: u32, online: bool) {
        let others = self
            .cpus
            .iter()
            .enumerate()
            .filter(|(other, state)| *other != cpu as usize && state.online)
            .count();
        if self.cpus[cpu as usize].online == online || (!online && others == 0) {
            return;
        }
        self.account(cpu);
        self.host().active[cpu as usize].set(online);
        let mut ctx = self.cpu_ctx(cpu);
        let here = self.enter(cpu);
        self.core.set_online((), here, &mut ctx, online);
        self.settle(cpu, &ctx);
        self.tell(Event::Online { cpu, online });
        let target = &mut self.cpus[cpu as usize];
        target.online = online;
        self.offline = if online {
            self.offline - 1
        } else {
            self.offline + 1
        };
        if online {
            return self.schedule(cpu, Left::Blocked);
        }
        if std::mem::take(&mut target.higher) {
            target.higher_turn = target.higher_turn.wrapping_add(1);
            self.higher -= 1;
            self.tell(Event::Higher { cpu, begins: false });
        }
        let target = &mut self.cpus[cpu as usize];
        // The rules count the CPU as busy from here on.
        self.idle -= u32::from(std::mem::take(&mut target.told_idle));
        let curr = target.curr;
        if let Some(at) = curr {
            let id = self.tasks[at as usize].id;
            let target = &mut self.cpus[cpu as usize];
            target.curr = None;
            target.turn = target.turn.wrapping_add(1);
            self.set_place(at, Place::Local(cpu));
            self.tell(Event::Switch {
                cpu,
                prev: Some((id, Left::Preempted)),
                next: None,
                migrated: false,
            });
        }
        self.note_siblings(cpu);
        let here = self.any_online(cpu);
        for at in 0..self.tasks.len() as u32 {
            let task = &self.tasks[at as usize];
            if self.by_ref[task.id.0 as usize] == Some(at)
                && task.place != Place::Away
                && self.rq(at) == cpu
            {
                self.migrate(at, here);
            }
        }
    }

    /// The core's entry of a policy, by its place in the configuration.
    pub(super) fn entry(&self, policy: usize) -> Option<&'m PolicyEntry> {
        let index = self
            .host()
            .names
            .borrow()
            .get(policy)
            .map(|(index, _)| *index)?;
        let core = self.core;
        core.policies().get(index as usize)
    }

    /// `hosts/kernel/upgrade.c`. Deviation: the old version is kept to the end of the run, and none
    /// is refused a second time.
    fn upgrade(&mut self, policy: usize, version: usize, here: u32) {
        let Some(entry) = self.entry(policy).filter(|entry| entry.is_running()) else {
            return;
        };
        let Some(new) = self.config.versions.get(version) else {
            return;
        };
        let host = self.host();
        self.enter(here);
        new.install(Some(host.table()));
        let running = entry.version.load(Relaxed) - 1;
        let options = &self.config.policies[policy].options;
        host.making.set(Some(*new));
        let made = new.make_from(
            &host.instances.borrow()[running],
            self.config.topology.cpus(),
            host.facts.len() as u32,
            options,
            |taking_over| host.taking_over.set(taking_over),
        );
        host.making.set(None);
        let done = made.is_ok();
        match made {
            Ok(made) => {
                host.instances.borrow_mut().push(made);
                let version = host.instances.borrow().len();
                self.core.swap(entry, version, new.events());
                self.stats.upgrades += 1;
            }
            Err(Refused { why, half_taken }) => {
                // The tasks of its queues would be lost (undo of take, upgrade.c).
                if half_taken {
                    self.core
                        .hand_anew(entry, false, self.now, (), self.state(here));
                }
                let said = host
                    .take_words()
                    .map_or(why.clone(), |words| format!("{why}: {words}"));
                self.stats.refused.push(said);
            }
        }
        self.settle(here, &BatonCtx::default());
        self.tell(Event::Upgrade {
            policy: policy as u32,
            version: new.ops().version,
            done,
        });
    }
}
