// SPDX-License-Identifier: GPL-2.0-only
//! Derives what each task of a recording did.
//!
//! ```text
//!   Queued --switch in--> Running --switch out, R--> Queued
//!     ^                      |
//!     |                switch out, S D T Z ...
//!     +------wakeup------ Asleep          (switched in without a wakeup: one that was not seen)
//! ```

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::BTreeSet;

use super::line::{Event, Left, What, Who};

/// An action of a task, with its duration in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    Run(u64),
    Yield,
    /// Woke that task.
    Wake(usize),
    /// Slept until that task woke it; `None` if the waker is not known.
    Sleep(u64, Option<usize>),
    Fork(usize),
    Nice(i32),
    Exit,
    /// Slept to the end of the recording.
    Rest,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Queued,
    Running { cpu: u32, since: u64 },
    Asleep { since: u64 },
}

/// A task of the recording, by its index.
pub(super) struct Past<'a> {
    /// The last name that the task had. A child's is the name that it took, not its parent's.
    pub(super) comm: &'a str,
    /// The first known nice value.
    pub(super) nice: Option<i32>,
    /// Whether the task was ever of a higher class.
    pub(super) higher: bool,
    /// Start time, ns from the first event.
    pub(super) begins: u64,
    pub(super) parent: Option<usize>,
    pub(super) acts: Vec<Act>,
    state: State,
    /// CPU time that is not among the acts yet, ns.
    ran: u64,
    nice_now: Option<i32>,
    exited: bool,
}

impl<'a> Past<'a> {
    fn act(&mut self, act: Act) {
        if self.ran > 0 {
            self.acts.push(Act::Run(std::mem::take(&mut self.ran)));
        }
        self.acts.push(act);
    }

    /// Adds the CPU time until `now`.
    fn ran_until(&mut self, now: u64) {
        if let State::Running { since, .. } = &mut self.state {
            self.ran += now - std::mem::replace(since, now);
        }
    }

    fn is(&mut self, who: &Who<'a>) {
        self.comm = who.comm;
        if who.prio < 100 {
            self.higher = true;
            return;
        }
        let nice = (who.prio - 120) as i32;
        match self.nice_now.replace(nice) {
            None => self.nice = Some(nice),
            Some(before) if before != nice => self.act(Act::Nice(nice)),
            Some(_) => {}
        }
    }
}

#[derive(Default)]
struct History<'a> {
    tasks: Vec<Past<'a>>,
    /// Living tasks, and dead ones whose pid has not been used again.
    by_pid: BTreeMap<i64, usize>,
    /// The pid of each CPU's current task.
    current: BTreeMap<u32, i64>,
    /// The lines of each CPU's first and last switch. perf starts and stops recording one CPU after
    /// the other, and the recording does not show what a CPU does before its first switch and after
    /// its last.
    seen: BTreeMap<u32, (usize, usize)>,
    /// Time since the first event, ns.
    now: u64,
    line: usize,
}

/// All tasks in the order of their first appearance; a child comes after its parent.
pub(super) fn tasks<'a>(events: &[Event<'a>]) -> Result<Vec<Past<'a>>, String> {
    let mut history = History::default();
    let Some(first) = events.first() else {
        return Ok(Vec::new());
    };
    // The previous task of a CPU's first switch has run there from the beginning, unless an earlier
    // event shows it elsewhere.
    let mut elsewhere = BTreeSet::new();
    for event in events {
        match &event.what {
            What::Switch { prev, next, .. } => {
                history
                    .seen
                    .entry(event.cpu)
                    .or_insert((event.line, event.line))
                    .1 = event.line;
                if let Entry::Vacant(current) = history.current.entry(event.cpu) {
                    current.insert(prev.pid);
                    if elsewhere.insert(prev.pid) {
                        history.put_on(event.cpu, prev)?;
                    }
                }
                elsewhere.insert(next.pid);
            }
            What::Wakeup(who) | What::WakeupNew(who) => _ = elsewhere.insert(who.pid),
            What::Fork { pid, .. } => _ = elsewhere.insert(*pid),
            What::Exit => {}
        }
    }
    for event in events {
        (history.now, history.line) = (event.at - first.at, event.line);
        history.event(event)?;
    }
    for task in &mut history.tasks {
        task.ran_until(history.now);
        match task.state {
            _ if task.exited => task.act(Act::Exit),
            State::Asleep { .. } => task.act(Act::Rest),
            _ if task.ran > 0 => task.acts.push(Act::Run(task.ran)),
            _ => {}
        }
    }
    Ok(history.tasks)
}

impl<'a> History<'a> {
    fn event(&mut self, event: &Event<'a>) -> Result<(), String> {
        match &event.what {
            What::Switch { prev, left, next } => self.switch(event.cpu, prev, *left, next),
            What::Wakeup(who) => {
                let waker = if event.interrupt {
                    None
                } else {
                    self.on_cpu(event)
                };
                let at = self.find(who, State::Asleep { since: 0 });
                // A task that has not gone to sleep yet is still awake, and continues.
                if let State::Asleep { .. } = self.tasks[at].state {
                    self.wake(at, waker.filter(|&waker| waker != at));
                }
                self.tasks[at].is(who);
                Ok(())
            }
            What::WakeupNew(who) => {
                let begins = if self.by_pid.contains_key(&who.pid) {
                    0
                } else {
                    self.now
                };
                let at = self.find(who, State::Queued);
                self.tasks[at].begins = self.tasks[at].begins.max(begins);
                self.tasks[at].is(who);
                Ok(())
            }
            What::Fork { comm, pid } => {
                let parent = self.on_cpu(event);
                if self
                    .by_pid
                    .get(pid)
                    .is_some_and(|&old| !self.tasks[old].exited)
                {
                    return Err(
                        self.missing(&format!("{comm} {pid} is forked, and has not ended before"))
                    );
                }
                let child = self.new_task(*pid, comm, State::Queued, self.now);
                self.tasks[child].parent = parent;
                if let Some(parent) = parent {
                    self.tasks[child].nice_now = self.tasks[parent].nice_now;
                    self.tasks[child].nice = self.tasks[parent].nice_now;
                    self.does(parent, Act::Fork(child));
                }
                Ok(())
            }
            What::Exit => {
                if let Some(at) = self.on_cpu(event) {
                    self.tasks[at].exited = true;
                }
                Ok(())
            }
        }
    }

    fn switch(
        &mut self,
        cpu: u32,
        prev: &Who<'a>,
        left: Left,
        next: &Who<'a>,
    ) -> Result<(), String> {
        let now = self.now;
        if let Some(&current) = self
            .current
            .get(&cpu)
            .filter(|&&current| current != prev.pid)
        {
            return Err(self.missing(&format!(
                "CPU {cpu} leaves {} {}, and had {current}",
                prev.comm, prev.pid
            )));
        }
        if prev.pid != 0 {
            let at = self.find(prev, State::Queued);
            let has_it =
                matches!(self.tasks[at].state, State::Running { cpu: its, .. } if its == cpu);
            if !has_it && self.seen[&cpu].0 == self.line {
                self.put_on(cpu, prev)?;
            }
            let task = &mut self.tasks[at];
            task.ran_until(now);
            task.is(prev);
            task.exited |= left == Left::Dead;
            task.state = if left == Left::Runnable {
                State::Queued
            } else {
                State::Asleep { since: now }
            };
        }
        self.current.insert(cpu, next.pid);
        self.put_on(cpu, next)
    }

    /// Puts a task on a CPU.
    fn put_on(&mut self, cpu: u32, who: &Who<'a>) -> Result<(), String> {
        if who.pid == 0 {
            return Ok(());
        }
        let at = self.find(who, State::Queued);
        match self.tasks[at].state {
            State::Running { cpu: other, .. } if !self.is_seen(other) => {
                self.tasks[at].ran_until(self.now)
            }
            State::Running { cpu: other, .. } => {
                return Err(self.missing(&format!(
                    "{} {} comes to CPU {cpu} while CPU {other} has it",
                    who.comm, who.pid
                )));
            }
            State::Asleep { .. } => self.wake(at, None),
            State::Queued => {}
        }
        self.tasks[at].is(who);
        self.tasks[at].state = State::Running {
            cpu,
            since: self.now,
        };
        Ok(())
    }

    /// Whether the recording shows what that CPU does now.
    fn is_seen(&self, cpu: u32) -> bool {
        self.seen
            .get(&cpu)
            .is_some_and(|(first, last)| (first..=last).contains(&&self.line))
    }

    fn wake(&mut self, at: usize, waker: Option<usize>) {
        if let State::Asleep { since } = self.tasks[at].state {
            self.tasks[at].act(Act::Sleep(self.now - since, waker));
            self.tasks[at].state = State::Queued;
            if let Some(waker) = waker {
                self.does(waker, Act::Wake(at));
            }
        }
    }

    fn does(&mut self, at: usize, act: Act) {
        self.tasks[at].ran_until(self.now);
        self.tasks[at].act(act);
    }

    /// The current task of the event's CPU; `None` if the CPU is idle. On a CPU without any switch,
    /// it is the task that the line names.
    fn on_cpu(&mut self, event: &Event<'a>) -> Option<usize> {
        if let Entry::Vacant(current) = self.current.entry(event.cpu) {
            current.insert(event.pid.max(0));
            if event.pid > 0 && !self.by_pid.contains_key(&event.pid) {
                self.new_task(
                    event.pid,
                    event.comm,
                    State::Running {
                        cpu: event.cpu,
                        since: 0,
                    },
                    0,
                );
            }
        }
        self.by_pid.get(&self.current[&event.cpu]).copied()
    }

    /// Finds a task. One that appears for the first time has existed from the beginning, in that
    /// state.
    fn find(&mut self, who: &Who<'a>, state: State) -> usize {
        match self.by_pid.get(&who.pid) {
            Some(&at) => at,
            None => self.new_task(who.pid, who.comm, state, 0),
        }
    }

    fn new_task(&mut self, pid: i64, comm: &'a str, state: State, begins: u64) -> usize {
        let at = self.tasks.len();
        self.tasks.push(Past {
            comm,
            nice: None,
            higher: false,
            begins,
            parent: None,
            acts: Vec::new(),
            state,
            ran: 0,
            nice_now: None,
            exited: false,
        });
        self.by_pid.insert(pid, at);
        at
    }

    fn missing(&self, what: &str) -> String {
        format!(
            "line {}: {what}: events are missing, or the CPUs' clocks differ; record all CPUs \
             (perf sched record -a, trace-cmd record -C \
             mono) and leave out no line",
            self.line
        )
    }
}
