// SPDX-License-Identifier: GPL-2.0-only
//! What happens on the machine, as it happens: for the hash that tells two runs apart, for files,
//! for timelines.

use crate::world::TaskRef;

/// Why a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Left {
    /// It sleeps.
    Blocked = 0,
    /// Its slice was over, or it was sent away.
    Preempted = 1,
    /// It yielded.
    Yielded = 2,
    /// It is dead.
    Dead = 3,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A task has come to be. Its name is that of `Sink::task`, told just before.
    New {
        /// It.
        task: TaskRef,
    },
    /// A task became runnable on the run queue of `cpu`.
    Wake {
        /// It.
        task: TaskRef,
        /// Whose run queue.
        cpu: u32,
        /// Where the waker ran.
        waker: u32,
    },
    /// A CPU went from one task to another, or from or to idle.
    Switch {
        /// Which.
        cpu: u32,
        /// Who left, and why; `None`: it was idle, or of a higher class.
        prev: Option<(TaskRef, Left)>,
        /// Who runs now; `None`: nobody of ours.
        next: Option<TaskRef>,
        /// The task came from another CPU.
        migrated: bool,
    },
    /// A task of a higher class has a CPU from now on, or no more.
    Higher {
        /// Which.
        cpu: u32,
        /// From now on.
        begins: bool,
    },
    /// A CPU went online or offline.
    Online {
        /// Which.
        cpu: u32,
        /// Online.
        online: bool,
    },
    /// The count of runnable tasks that no CPU runs, and of CPUs that are online and idle, after
    /// the events so far. Told when either has changed.
    Load {
        /// Tasks.
        waiting: u32,
        /// CPUs.
        idle: u32,
    },
    /// A policy was stopped by a fault.
    Fault {
        /// Its place.
        policy: u32,
    },
    /// Another version was to take the place of the one that runs.
    Upgrade {
        /// The policy's place.
        policy: u32,
        /// As the new version says it.
        version: u32,
        /// It has taken its place; else it was refused.
        done: bool,
    },
}

/// Who wants to know.
pub trait Sink {
    /// A task that comes to be, its group and its name.
    fn task(&mut self, task: TaskRef, group: &str, name: &str);
    /// The task that does the wakeup which is told next; `None`: an interrupt, or what starts the
    /// workload.
    fn woken_by(&mut self, _: Option<TaskRef>) {}
    /// Something happened, at that time, ns; never earlier than what was told before.
    fn event(&mut self, now: u64, event: &Event);
}
