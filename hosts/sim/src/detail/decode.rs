// SPDX-License-Identifier: GPL-2.0-only
//! Decodes the events of a detail: on which CPU each task ran, when it ran, and when it waited.

use super::mark::{read, Mark, Token};
use super::{Detail, CPUS, TASKS};
use crate::trace::Left;

/// A task ran on a CPU. Times are ns of the run; tasks are places in the detail's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The CPU.
    pub cpu: u32,
    /// The task.
    pub task: u32,
    /// Start.
    pub from: u64,
    /// End.
    pub to: u64,
    /// The task ran on another CPU before.
    pub moved: bool,
    /// Why it ended. `None` if the detail ended first.
    pub left: Option<Left>,
}

/// What woke a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// The CPU of the waker.
    pub cpu: u32,
    /// The waker. `None` for an interrupt, or the start of the workload.
    pub task: Option<u32>,
}

/// A runnable task waited for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The task.
    pub task: u32,
    /// Start.
    pub from: u64,
    /// End.
    pub to: u64,
    /// The waker. `None` if it was preempted, yielded, or has waited since before the detail
    /// begins.
    pub woken: Option<Waker>,
    /// The CPU on which it then ran. `None` if the detail ended first.
    pub ran_on: Option<u32>,
}

/// The contents of a detail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// In the order in which they end.
    pub spans: Vec<Span>,
    /// In the order in which they end.
    pub waits: Vec<Wait>,
}

#[derive(Clone, Copy)]
enum Doing {
    Sleeping,
    Waiting(u64, Option<Waker>),
    Running,
}

struct Reader<'d> {
    detail: &'d Detail,
    now: u64,
    /// By CPU: the current task, its start, and whether it ran on another CPU before.
    cpus: Vec<Option<(u32, u64, bool)>>,
    tasks: Vec<Doing>,
    decoded: Decoded,
}

impl Detail {
    /// Decodes the events. The error describes what is wrong with the detail.
    pub fn decode(&self) -> Result<Decoded, String> {
        let Self {
            from_ns,
            to_ns,
            cpus,
            tasks,
            groups,
            events,
        } = self;
        if from_ns > to_ns || *cpus > CPUS || tasks.len() > TASKS {
            return Err(format!(
                "it is of {from_ns} to {to_ns} ns, {cpus} CPUs, {} tasks; there are at most {CPUS} \
                 CPUs and {TASKS} tasks",
                tasks.len()
            ));
        }
        if let Some(task) = tasks.iter().find(|task| task.1 as usize >= groups.len()) {
            return Err(format!(
                "the task {} is of group {}, of {}",
                task.0,
                task.1,
                groups.len()
            ));
        }
        let mut reader = Reader {
            detail: self,
            now: *from_ns,
            cpus: vec![None; *cpus as usize],
            tasks: vec![Doing::Sleeping; tasks.len()],
            decoded: Decoded::default(),
        };
        for token in read(events) {
            match token? {
                Token::Step(ns) => reader.pass(ns)?,
                Token::Mark(mark) => {
                    let now = reader.now;
                    reader
                        .mark(mark)
                        .ok_or_else(|| format!("at {now} ns there can be no {mark:?}"))?;
                }
            }
        }
        Ok(reader.finish())
    }
}

impl Reader<'_> {
    fn pass(&mut self, ns: u64) -> Result<(), String> {
        let then = self
            .now
            .checked_add(ns)
            .filter(|&then| then <= self.detail.to_ns);
        self.now =
            then.ok_or_else(|| format!("an event is later than {} ns", self.detail.to_ns))?;
        Ok(())
    }

    /// Applies an event. `None` if it cannot happen in this state.
    fn mark(&mut self, mark: Mark) -> Option<()> {
        match mark {
            Mark::Wake { task, waker } => {
                let woken = waker.map(|(cpu, task)| Waker { cpu, task });
                let (cpus, tasks) = (self.cpus.len() as u32, self.tasks.len() as u32);
                let is_there =
                    |woken: Waker| woken.cpu < cpus && woken.task.is_none_or(|task| task < tasks);
                let doing = self.tasks.get_mut(task as usize)?;
                if !matches!(doing, Doing::Sleeping) || !woken.is_none_or(is_there) {
                    return None;
                }
                *doing = Doing::Waiting(self.now, woken);
            }
            Mark::Run { cpu, task, moved } => {
                let doing = self.tasks.get_mut(task as usize)?;
                let place = self
                    .cpus
                    .get_mut(cpu as usize)
                    .filter(|place| place.is_none())?;
                match *doing {
                    Doing::Running => return None,
                    Doing::Sleeping => {}
                    Doing::Waiting(from, woken) => {
                        self.decoded.waits.push(Wait {
                            task,
                            from,
                            to: self.now,
                            woken,
                            ran_on: Some(cpu),
                        });
                    }
                }
                *doing = Doing::Running;
                *place = Some((task, self.now, moved));
            }
            Mark::Leave { cpu, left } => {
                let (task, from, moved) = self.cpus.get_mut(cpu as usize)?.take()?;
                let waits = matches!(left, Left::Preempted | Left::Yielded);
                self.tasks[task as usize] = if waits {
                    Doing::Waiting(self.now, None)
                } else {
                    Doing::Sleeping
                };
                self.decoded.spans.push(Span {
                    cpu,
                    task,
                    from,
                    to: self.now,
                    moved,
                    left: Some(left),
                });
            }
            Mark::Higher { cpu, .. } | Mark::Online { cpu, .. } => {
                self.cpus.get(cpu as usize)?;
            }
        }
        Some(())
    }

    fn finish(self) -> Decoded {
        let Self {
            cpus,
            tasks,
            mut decoded,
            detail,
            ..
        } = self;
        let to = detail.to_ns;
        for (cpu, running) in cpus.into_iter().enumerate() {
            if let Some((task, from, moved)) = running {
                decoded.spans.push(Span {
                    cpu: cpu as u32,
                    task,
                    from,
                    to,
                    moved,
                    left: None,
                });
            }
        }
        for (task, doing) in tasks.into_iter().enumerate() {
            if let Doing::Waiting(from, woken) = doing {
                decoded.waits.push(Wait {
                    task: task as u32,
                    from,
                    to,
                    woken,
                    ran_on: None,
                });
            }
        }
        decoded
    }
}
