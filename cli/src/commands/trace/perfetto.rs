// SPDX-License-Identifier: GPL-2.0-only
//! Converts a recording for ui.perfetto.dev, with the simulator's writer of that format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use baton_sim::perfetto::Perfetto;
use baton_sim::trace::{Event, Left, Sink};
use baton_sim::world::TaskRef;
use baton_trace::{Follow, Item, Recording, Step};

use baton_control::error::{Error, Result};

/// The state of tasks, for the writer.
#[derive(Default)]
struct Tasks {
    /// By slot: process id, and the writer's number of the task.
    numbers: BTreeMap<u32, (u32, TaskRef)>,
    count: u32,
    /// By CPU: the slot of the running task.
    running: BTreeMap<u32, u32>,
    /// Slots of tasks that are queued and not picked yet.
    waiting: BTreeSet<u32>,
}

impl Tasks {
    fn task(&mut self, follow: &Follow, slot: u32, to: &mut dyn Sink) -> TaskRef {
        let pid = follow.tasks.get(&slot).map_or(0, |task| task.pid);
        if let Some((_, number)) = self.numbers.get(&slot).filter(|(known, _)| *known == pid) {
            return *number;
        }
        let number = TaskRef(self.count);
        self.count += 1;
        self.numbers.insert(slot, (pid, number));
        to.task(number, "tasks", &format!("pid {pid}, number"));
        number
    }

    /// The CPU switches to another task or to none.
    fn switch(&mut self, follow: &Follow, cpu: i32, next: Option<u32>, to: &mut dyn Sink) {
        let Ok(cpu) = u32::try_from(cpu) else { return };
        let before = match next {
            Some(slot) => self.running.insert(cpu, slot),
            None => self.running.remove(&cpu),
        };
        let left = |tasks: &Self, slot| {
            if tasks.waiting.contains(&slot) {
                Left::Preempted
            } else {
                Left::Blocked
            }
        };
        let prev = before.map(|slot| (slot, left(self, slot)));
        let prev = prev.map(|(slot, left)| (self.task(follow, slot, to), left));
        let next = next.map(|slot| self.task(follow, slot, to));
        to.event(
            follow.now,
            &Event::Switch {
                cpu,
                prev,
                next,
                migrated: false,
            },
        );
    }

    fn step(&mut self, follow: &Follow, cpus: u32, step: Step, to: &mut dyn Sink) {
        match step {
            Step::Queued { slot, .. } => {
                self.waiting.insert(slot);
                let task = self.task(follow, slot, to);
                let cpu = follow.tasks.get(&slot).map_or(0, |task| task.cpu as u32);
                to.event(
                    follow.now,
                    &Event::Wake {
                        task,
                        cpu,
                        waker: cpu,
                    },
                );
            }
            Step::Taken { slot } => {
                self.waiting.remove(&slot);
            }
            Step::Runs { cpu, slot, .. } => {
                self.waiting.remove(&slot);
                self.switch(follow, cpu, Some(slot), to);
            }
            Step::Idle { cpu } => self.switch(follow, cpu, None, to),
        }
        let idle = cpus.saturating_sub(self.running.len() as u32);
        to.event(
            follow.now,
            &Event::Load {
                waiting: self.waiting.len() as u32,
                idle,
            },
        );
    }
}

pub fn write(recording: &Recording, path: &Path) -> Result<()> {
    let failed = |e: &std::io::Error| Error::file(format!("writing {}", path.display()), e);
    let out = BufWriter::new(File::create(path).map_err(|e| failed(&e))?);
    let cpus = recording.header.nr_cpus();
    let mut perfetto = Perfetto::new(out, cpus);
    let (mut follow, mut tasks) = (Follow::new(recording), Tasks::default());
    for told in recording.merged() {
        if let Item::Event(event) = told.item {
            follow.event(told.cpu, &event, |follow, step| {
                tasks.step(follow, cpus as u32, step, &mut perfetto)
            });
        }
    }
    perfetto.finish(follow.now).map_err(|e| failed(&e))?;
    Ok(())
}
