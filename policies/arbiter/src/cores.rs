// SPDX-License-Identifier: GPL-2.0-only
//! Rules 1 to 3 and 7: which activation has which core. Called with the lock held, except for
//! `leave`, which takes it.

use super::{All, Arbiter, Process, Reply, LEVELS, MAX_ACTIVATIONS, MAX_PROCESSES};
use alloc::vec::Vec;
use baton::{Cpu, Ctx, Kick, Task};
use core::sync::atomic::Ordering::Relaxed;

/// The effect of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// None: the hint is not valid.
    Refused,
    /// None: nothing would change.
    Same,
    Changed,
}

impl Arbiter {
    /// The core of an activation.
    pub(crate) fn core_of(&self, slot: u32) -> Option<Cpu> {
        self.shared
            .tasks
            .slot(slot)
            .core
            .load(Relaxed)
            .checked_sub(1)
            .map(Cpu::new)
    }

    pub(crate) fn is_parked(&self, slot: u32) -> bool {
        self.shared.tasks.slot(slot).is_parked.load(Relaxed)
    }

    /// Makes a thread an activation.
    pub(crate) fn join(&self, all: &mut All, slot: u32, leader: u32) -> Heard {
        let state = self.shared.tasks.slot(slot);
        let at = all
            .processes
            .iter()
            .position(|process| process.leader == leader)
            .unwrap_or(all.processes.len());
        if state.is_member.load(Relaxed) || at == MAX_PROCESSES {
            return Heard::Refused;
        }
        if at == all.processes.len() {
            all.processes.push(Process {
                leader,
                wanted: [0; LEVELS],
                members: Vec::new(),
                able: 0,
                target: 0,
            });
        }
        if all.processes[at].members.len() == MAX_ACTIVATIONS {
            return Heard::Refused;
        }
        all.processes[at].members.push(slot);
        state.is_member.store(true, Relaxed);
        state.is_parked.store(true, Relaxed);
        Heard::Changed
    }

    /// Parks an activation: it gives its core back and waits for another.
    pub(crate) fn park(&self, all: &mut All, slot: u32) -> Heard {
        let state = self.shared.tasks.slot(slot);
        if !state.is_member.load(Relaxed) {
            return Heard::Refused;
        }
        if state.is_parked.load(Relaxed) {
            return Heard::Same;
        }
        self.take(all, slot);
        state.is_parked.store(true, Relaxed);
        Heard::Changed
    }

    /// Takes an activation's core, if it has one.
    fn take(&self, all: &mut All, slot: u32) {
        if let Some(cpu) = self.core_of(slot) {
            self.shared.tasks.slot(slot).core.store(0, Relaxed);
            let core = &mut all.cores[cpu.index()];
            (core.holder, core.due) = (None, 0);
            if let Some(baton) = all.ready.remove(slot) {
                let _ = all.plain.push_back(baton);
            }
        }
    }

    /// Takes an activation's core without notice, and sends it a reply.
    pub(crate) fn evict(&self, ctx: &Ctx<'_>, all: &mut All, slot: u32) {
        if let Some(cpu) = self.core_of(slot) {
            self.take(all, slot);
            self.tell(
                ctx,
                slot,
                Reply::Reclaim {
                    cpu: cpu.number() as u32,
                    within: 0,
                },
            );
        }
    }

    /// Sends a reply to an activation. A reply that is lost is ignored, as the activation sees its
    /// effect.
    fn tell(&self, ctx: &Ctx<'_>, slot: u32, reply: Reply) {
        let _ = ctx.reply::<Self>(slot, &reply);
    }

    /// Removes a task that is dead or has left the policy. Takes the lock.
    pub(crate) fn leave(&self, ctx: &Ctx<'_>, slot: u32) {
        let mut all = self.shared.all.lock();
        let leads = all
            .processes
            .iter()
            .position(|process| process.leader == slot);
        let ended = leads
            .map(|at| all.processes.swap_remove(at).members)
            .unwrap_or_default();
        let is_member = self.shared.tasks.slot(slot).is_member.load(Relaxed);
        if !is_member && leads.is_none() {
            return;
        }
        all.processes
            .iter_mut()
            .for_each(|process| process.members.retain(|&member| member != slot));
        for member in ended.into_iter().chain([slot]) {
            self.take(&mut all, member);
            let state = self.shared.tasks.slot(member);
            state.is_member.store(false, Relaxed);
            state.is_parked.store(false, Relaxed);
        }
        self.settle(ctx, &mut all, None);
    }

    /// Applies rules 2 and 3 after any change that affects them. `here` is a running task, if one
    /// is known, and the CPU on which it runs.
    pub(crate) fn settle(&self, ctx: &Ctx<'_>, all: &mut All, here: Option<&Task>) {
        for cpu in self.topology.cpus() {
            let core = &all.cores[cpu.index()];
            if let Some(holder) = core
                .holder
                .filter(|_| core.due != 0 && core.due <= ctx.now())
            {
                self.take(all, holder);
                // Where there is no room for the kick, the activation's turn ends by itself.
                let _ = ctx.kick(cpu, Kick::Preempt);
            }
        }
        let online = self
            .topology
            .cpus()
            .filter(|&cpu| ctx.is_online(cpu))
            .count();
        let grantable = online - self.reserved.min(online.saturating_sub(1));
        for process in &mut all.processes {
            let late = |slot: u32| self.core_of(slot).is_none() && !self.is_parked(slot);
            process.able = process.members.iter().filter(|&&slot| !late(slot)).count() as u32;
        }
        set_targets(&mut all.processes, grantable as u32);
        for at in 0..all.processes.len() {
            self.reclaim(ctx, all, at);
        }
        for at in 0..all.processes.len() {
            self.grant(ctx, all, at, grantable, here);
        }
        let next = all
            .cores
            .iter()
            .map(|core| core.due)
            .filter(|&due| due != 0)
            .min();
        if let Some(due) = next {
            ctx.arm_timer(due.saturating_sub(ctx.now()));
        }
    }

    /// The number of a process's cores that are not reclaimed.
    fn held(&self, all: &All, at: usize) -> u32 {
        let stays = |slot: &&u32| {
            self.core_of(**slot)
                .is_some_and(|cpu| all.cores[cpu.index()].due == 0)
        };
        all.processes[at].members.iter().filter(stays).count() as u32
    }

    /// Reclaims cores from a process that has too many.
    fn reclaim(&self, ctx: &Ctx<'_>, all: &mut All, at: usize) {
        let mut held = self.held(all, at);
        for cpu in self.topology.cpus() {
            let core = &all.cores[cpu.index()];
            let Some(holder) = core
                .holder
                .filter(|slot| all.processes[at].members.contains(slot))
            else {
                continue;
            };
            if core.due == 0 && held > all.processes[at].target {
                held -= 1;
                all.cores[cpu.index()].due = ctx.now().saturating_add(self.within.max(1));
                self.tell(
                    ctx,
                    holder,
                    Reply::Reclaim {
                        cpu: cpu.number() as u32,
                        within: self.within,
                    },
                );
            }
        }
    }

    /// Grants a process the cores that it is still to have, from those that no activation has. The
    /// task `here` gets the core on which it runs, any other activation the one with the highest
    /// number.
    fn grant(
        &self,
        ctx: &Ctx<'_>,
        all: &mut All,
        at: usize,
        grantable: usize,
        here: Option<&Task>,
    ) {
        let mut held = self.held(all, at);
        for index in 0..all.processes[at].members.len() {
            let slot = all.processes[at].members[index];
            let granted = all
                .cores
                .iter()
                .filter(|core| core.holder.is_some())
                .count();
            if held >= all.processes[at].target || granted >= grantable {
                return;
            }
            let own = here.filter(|task| task.slot == slot).map(|task| task.cpu);
            let last = (0..self.topology.nr_cpus() as u32).rev().map(Cpu::new);
            let is_free = |cpu: &Cpu| {
                let fits = ctx.is_online(*cpu) && ctx.slot_may_run(slot, *cpu);
                fits && all.cores[cpu.index()].holder.is_none()
            };
            let found = own.into_iter().chain(last).find(is_free);
            let Some(cpu) = found.filter(|_| self.is_parked(slot)) else {
                continue;
            };
            let state = self.shared.tasks.slot(slot);
            state.is_parked.store(false, Relaxed);
            state.core.store(cpu.number() as u32 + 1, Relaxed);
            all.cores[cpu.index()].holder = Some(slot);
            held += 1;
            if let Some(baton) = all.plain.remove(slot) {
                let _ = all.ready.push_back(baton);
                let _ = ctx.kick(cpu, Kick::Preempt);
            }
            self.tell(
                ctx,
                slot,
                Reply::Granted {
                    cpu: cpu.number() as u32,
                },
            );
        }
    }
}

/// Sets how many cores the process of a leader or an activation wants at a level.
pub(crate) fn request(processes: &mut [Process], slot: u32, level: u8, cores: u32) -> Heard {
    let process = processes
        .iter_mut()
        .find(|process| process.leader == slot || process.members.contains(&slot));
    match process.and_then(|process| process.wanted.get_mut(usize::from(level))) {
        None => Heard::Refused,
        Some(wanted) if *wanted == cores => Heard::Same,
        Some(wanted) => {
            *wanted = cores;
            Heard::Changed
        }
    }
}

/// Sets how many cores each process is to have (rule 2).
fn set_targets(processes: &mut [Process], mut left: u32) {
    processes.iter_mut().for_each(|process| process.target = 0);
    for level in 0..LEVELS {
        for round in 0.. {
            let before = left;
            for process in &mut *processes {
                if left > 0 && process.wanted[level] > round && process.target < process.able {
                    process.target += 1;
                    left -= 1;
                }
            }
            if left == before {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_request_that_is_repeated_changes_nothing() {
        let process = |leader, members| Process {
            leader,
            wanted: [0; LEVELS],
            members,
            able: 0,
            target: 0,
        };
        let mut processes = [process(1, vec![2, 3]), process(4, vec![4])];
        let mut check = |slot, level, cores, expected| {
            assert_eq!(
                request(&mut processes, slot, level, cores),
                expected,
                "{slot} wants {cores} at {level}"
            );
        };
        check(1, 0, 2, Heard::Changed);
        // Any thread of the process may send it.
        check(3, 0, 2, Heard::Same);
        check(3, 1, 2, Heard::Changed);
        check(4, 0, 2, Heard::Changed);
        check(2, 0, 0, Heard::Changed);
        check(4, LEVELS as u8, 1, Heard::Refused);
        check(5, 0, 1, Heard::Refused);
        assert_eq!(
            processes.map(|process| process.wanted[..2].to_vec()),
            [[0, 2], [2, 0]]
        );
    }
}
