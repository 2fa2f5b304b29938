// SPDX-License-Identifier: GPL-2.0-only
//! All locks of a schedule: the policy's, and those of the kernel that serialize its callbacks. The
//! checker knows which CPU waits for which lock, so it finds a deadlock as it arises, and names it.

use crate::machine::Cpu;
use crate::story::Kind;
use crate::world::World;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The run-queue lock of a CPU (`rq->__lock`).
    Rq(usize),
    /// A task's `pi_lock`, which serializes its wakeups and changes. By pid.
    Pi(u32),
    /// A task's `scx.ops_state` while it is SCX_OPSS_QUEUEING or SCX_OPSS_DISPATCHING; other CPUs
    /// wait until that ends. By pid.
    Ops(u32),
    /// A lock of the policy, by its address.
    Policy(usize),
}

#[derive(Default)]
struct State {
    owner: Option<usize>,
    /// Number of the lock among the policy's, in the order of first acquisition.
    number: usize,
    /// Where it was last taken, if the story is recorded.
    taken_at: Option<String>,
}

#[derive(Default)]
pub struct Locks(RefCell<BTreeMap<Key, State>>);

impl World {
    fn lock_state<R>(&self, key: Key, f: impl FnOnce(&mut State) -> R) -> R {
        let mut locks = self.locks.0.borrow_mut();
        let number = locks
            .keys()
            .filter(|key| matches!(key, Key::Policy(_)))
            .count()
            + 1;
        f(locks.entry(key).or_insert_with(|| State {
            number,
            ..State::default()
        }))
    }

    /// The name of a lock in the story.
    pub fn lock_name(&self, key: Key) -> String {
        match key {
            Key::Rq(cpu) => format!("the run-queue lock of CPU {cpu}"),
            Key::Pi(pid) => format!("the pi_lock of task {pid}"),
            Key::Ops(pid) => format!("the end of what another CPU does to task {pid}"),
            Key::Policy(_) => format!("lock #{}", self.lock_state(key, |lock| lock.number)),
        }
    }

    fn owner(&self, key: Key) -> Option<usize> {
        self.lock_state(key, |lock| lock.owner)
    }

    /// Takes a lock. The error says why it can never be granted.
    pub fn take(&self, key: Key) -> Result<(), String> {
        self.point();
        let me = self.me();
        loop {
            let Some(owner) = self.owner(key) else {
                self.own(key, me);
                return Ok(());
            };
            let name = self.lock_name(key);
            if owner == me.number {
                return Err(format!(
                    "{name} is taken by CPU {owner}, which holds it already{}",
                    self.taken_at(key)
                ));
            }
            if self.alone.get() {
                return Err(format!(
                    "{name} was never released by CPU {owner}{}",
                    self.taken_at(key)
                ));
            }
            me.waits_for.set(Some(key));
            if let Some(cycle) = self.cycle(me) {
                me.waits_for.set(None);
                return Err(cycle);
            }
            self.tell(Kind::Lock, || {
                format!("waits for {name}, which CPU {owner} holds")
            });
            self.switch();
        }
    }

    /// As [`World::take`], for the kernel's own locks, whose order is free of deadlock unless
    /// `kernel` has a bug.
    pub fn take_kernels(&self, key: Key) {
        self.take(key)
            .unwrap_or_else(|why| panic!("the simulated kernel locks itself up: {why}"));
    }

    /// Takes a lock if it is free.
    pub fn try_take(&self, key: Key) -> bool {
        let is_free = self.owner(key).is_none();
        if is_free {
            self.own(key, self.me());
        } else {
            self.give_way();
        }
        is_free
    }

    fn own(&self, key: Key, me: &Cpu) {
        let taken_at = matches!(key, Key::Policy(_)).then(|| self.site()).flatten();
        self.lock_state(key, |lock| {
            lock.owner = Some(me.number);
            lock.taken_at.clone_from(&taken_at);
        });
        if matches!(key, Key::Policy(_)) {
            me.held.borrow_mut().push(key);
            if self.story.borrow().is_some() {
                let at = taken_at.map_or(String::new(), |at| format!(" at {at}"));
                let taken = format!("{}{at}", self.lock_name(key));
                self.tell(Kind::Lock, || format!("takes {taken}"));
                me.last_lock.replace(Some(taken));
            }
        }
    }

    pub fn release(&self, key: Key) {
        self.lock_state(key, |lock| lock.owner = None);
        self.cpus
            .iter()
            .filter(|cpu| cpu.waits_for.get() == Some(key))
            .for_each(|cpu| cpu.waits_for.set(None));
        if matches!(key, Key::Policy(_)) {
            self.tell(Kind::Lock, || format!("releases {}", self.lock_name(key)));
        }
    }

    /// If this CPU waits, directly or through others, for itself, describes the cycle.
    fn cycle(&self, me: &Cpu) -> Option<String> {
        let mut links = Vec::new();
        let mut at = me;
        loop {
            let wanted = at.waits_for.get()?;
            let owner = self.owner(wanted)?;
            links.push(format!(
                "CPU {} waits for {}, which CPU {owner} holds{}",
                at.number,
                self.lock_name(wanted),
                self.taken_at(wanted)
            ));
            at = &self.cpus[owner];
            if at.number == me.number {
                return Some(links.join("; "));
            }
            if links.len() > self.cpus.len() {
                return None;
            }
        }
    }

    fn taken_at(&self, key: Key) -> String {
        self.lock_state(key, |lock| {
            lock.taken_at
                .as_ref()
                .map_or(String::new(), |at| format!(" (taken at {at})"))
        })
    }
}
