// SPDX-License-Identifier: GPL-2.0-only
//! The events of the machine, as they happen. The hash of a run, trace files and timelines are made
//! from them.

use crate::world::TaskRef;

/// Why a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Left {
    /// It went to sleep.
    Blocked = 0,
    /// Its slice ended, or the CPU was taken from it.
    Preempted = 1,
    /// It yielded.
    Yielded = 2,
    /// It exited.
    Dead = 3,
}

/// An event of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A task was created. [`Sink::task`] was called with its name just before.
    New {
        /// The task.
        task: TaskRef,
    },
    /// A task became runnable on the run queue of `cpu`.
    Wake {
        /// The task.
        task: TaskRef,
        /// The CPU of the run queue.
        cpu: u32,
        /// The CPU of the waker.
        waker: u32,
    },
    /// A CPU switched from one task to another, or from or to idle.
    Switch {
        /// The CPU.
        cpu: u32,
        /// The previous task, and why it left. `None` if the CPU was idle or ran a higher class.
        prev: Option<(TaskRef, Left)>,
        /// The next task. `None` if the CPU goes idle or runs a higher class.
        next: Option<TaskRef>,
        /// Whether the next task last ran on another CPU.
        migrated: bool,
    },
    /// A task of a higher class takes a CPU, or leaves it.
    Higher {
        /// The CPU.
        cpu: u32,
        /// Whether it takes the CPU; otherwise it leaves it.
        begins: bool,
    },
    /// A CPU went online or offline.
    Online {
        /// The CPU.
        cpu: u32,
        /// Whether the CPU is online now.
        online: bool,
    },
    /// The numbers of runnable tasks that wait for a CPU, and of online CPUs that are idle, after
    /// the events so far. Reported when either has changed.
    Load {
        /// Waiting tasks.
        waiting: u32,
        /// Idle CPUs.
        idle: u32,
    },
    /// A policy was stopped by a fault.
    Fault {
        /// The policy's place.
        policy: u32,
    },
    /// An upgrade of a policy to another version was attempted.
    Upgrade {
        /// The policy's place.
        policy: u32,
        /// The version number of the new version.
        version: u32,
        /// Whether the upgrade was done; otherwise it was refused.
        done: bool,
    },
}

/// A receiver of events.
pub trait Sink {
    /// Called when a task is created, with its group and its name.
    fn task(&mut self, task: TaskRef, group: &str, name: &str);
    /// Called just before each [`Event::Wake`], with the task that made the wakeup. `None` if an
    /// interrupt made it, or the start of the workload.
    fn woken_by(&mut self, _: Option<TaskRef>) {}
    /// Called for each event, with its time, ns. Times never decrease.
    fn event(&mut self, now: u64, event: &Event);
}
