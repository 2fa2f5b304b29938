// SPDX-License-Identifier: GPL-2.0-only
//! Continues a run from the end of a recording ([`crate::scene`]).

use std::collections::VecDeque;

use baton_core::{PolicyEntry, Resumed, Whereabouts, DEFAULT_SLICE};

use super::{Machine, Place, Task};
use crate::queue::Next;
use crate::rng::Rng;
use crate::scene::There;
use crate::world::{Group, Op, TaskRef, Thing};

impl<'m> Machine<'m> {
    /// Puts tasks and CPUs where they were, before the machine runs. The error names a slot that
    /// cannot be right.
    pub fn resume(
        &mut self,
        tasks: Vec<There>,
        online: &[bool],
        timers: &[Option<u64>],
    ) -> Result<(), String> {
        let entry = self.entry(0).expect("there is one policy");
        for (cpu, _) in online.iter().enumerate().filter(|(_, online)| !**online) {
            self.cpus[cpu].online = false;
            self.offline += 1;
            self.host().active[cpu].set(false);
            self.core.note_online(cpu as i32, false);
        }
        let mut asleep = Vec::new();
        for there in tasks {
            let is_asleep = there.whereabouts == Whereabouts::Asleep;
            let at = self.place(there, entry)?;
            if is_asleep {
                asleep.push(at);
            }
        }
        // All tasks exist now, so the sleepers can wait for each other.
        asleep.into_iter().for_each(|at| self.sleep_on(at));
        let idle = |cpu: &super::Cpu| cpu.curr.is_none() && cpu.online;
        self.core.resumed(
            (0..self.cpus.len())
                .filter(|&cpu| idle(&self.cpus[cpu]))
                .map(|cpu| cpu as i32),
        );
        for cpu in 0..self.cpus.len() as u32 {
            let target = &mut self.cpus[cpu as usize];
            target.told_idle = idle(target);
            self.idle += u32::from(target.told_idle);
            self.note_siblings(cpu);
            self.arm(cpu);
            // A kick may have been under way.
            if self.cpus[cpu as usize].told_idle {
                self.resched(cpu, cpu);
            }
        }
        for (cpu, after) in timers
            .iter()
            .enumerate()
            .filter_map(|(cpu, timer)| Some((cpu, (*timer)?)))
        {
            self.set_timer(cpu as u32, entry.index(), Some(after));
        }
        Ok(())
    }

    fn place(&mut self, there: There, entry: &PolicyEntry) -> Result<u32, String> {
        let There {
            slot,
            pid,
            nice,
            runtime,
            slice,
            cpu,
            mask,
            mut whereabouts,
            spawn,
        } = there;
        let at = self.tasks.len() as u32;
        let is_taken = self.cpus[cpu as usize].curr.is_some() || !self.cpus[cpu as usize].online;
        if whereabouts == Whereabouts::Running && is_taken {
            // The CPU runs another task or is offline, so this record is out of date.
            whereabouts = Whereabouts::Asleep;
        }
        let resumed = Resumed {
            slot,
            opaque: at as usize + 1,
            pid,
            nice,
            runtime,
            cpu: cpu as i32,
            whereabouts,
        };
        let handle = self.core.resume(&resumed, entry, self.now);
        let handle = handle
            .ok_or_else(|| format!("two tasks are in slot {slot}, or there is no such slot"))?;
        let id = TaskRef(self.by_ref.len() as u32);
        self.by_ref.push(Some(at));
        let Group(group) = spawn.group.unwrap_or(Group(0));
        self.tasks.push(Task {
            id,
            pid,
            handle,
            slot,
            place: Place::Away,
            runnable: false,
            slice: if slice == 0 { DEFAULT_SLICE } else { slice },
            immed: false,
            last_cpu: Some(cpu),
            nice,
            runtime,
            ran_before: runtime,
            remaining: 0,
            woken_at: None,
            turn: 0,
            group,
            joined: 0.0,
            due: 0.0,
            resumed: false,
            suspended: false,
            item: None,
            replies: VecDeque::new(),
            awaits_reply: false,
            reply: None,
            child: None,
            rng: Rng::new(self.config.seed, u64::from(id.0)),
            jitter: Rng::new(!self.config.seed, u64::from(id.0)),
            program: Some(spawn.program),
            name: spawn.name,
        });
        let mask = mask.map_or(0, |mask| self.intern(mask));
        self.host().facts[slot as usize].mask.set(mask);
        self.set_rq(at, cpu);
        self.set_runnable(at, whereabouts != Whereabouts::Asleep);
        self.stats.new_task(group);
        self.introduce(at);
        match whereabouts {
            Whereabouts::Asleep => {}
            Whereabouts::Queued(_) => self.set_place(at, Place::Custody),
            Whereabouts::Running => {
                self.set_place(at, Place::OnCpu(cpu));
                let target = &mut self.cpus[cpu as usize];
                target.curr = Some(at);
                target.has_tick = true;
                self.queue.push(self.config.costs.tick, Next::Tick { cpu });
            }
        }
        Ok(at)
    }

    /// Puts a sleeping task to sleep on what its program waits for.
    fn sleep_on(&mut self, at: u32) {
        let turn = self.tasks[at as usize].turn;
        while let Some(op) = self.ask(at) {
            match op {
                Op::Response(_) | Op::Done(_) => continue,
                Op::Sleep(ns) => self
                    .queue
                    .push(self.now.saturating_add(ns), Next::WakeUp { task: at, turn }),
                Op::Take(object) => match &mut self.things[object.0 as usize] {
                    Thing::Queue { waiters, .. } => waiters.push_back(at),
                    _ => panic!("a program takes something else for a queue"),
                },
                Op::Suspend => self.tasks[at as usize].suspended = true,
                // The task was not asleep after all.
                Op::Run(ns) => {
                    self.tasks[at as usize].remaining = ns;
                    self.queue.push(self.now, Next::WakeUp { task: at, turn });
                }
                _ => self.queue.push(self.now, Next::WakeUp { task: at, turn }),
            }
            return;
        }
    }
}
