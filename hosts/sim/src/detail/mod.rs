// SPDX-License-Identifier: GPL-2.0-only
//! A part of a run in full, for the page of `baton report`: each wakeup, and each time that a task
//! begins or ceases to run on a CPU. Its size is limited. When the limit is reached the detail
//! ends, and records until when it is complete.
//!
//! The events as text:
//!
//! ```text
//! events = *(step / event)                in the order of time
//! step   = "+" time                       ns that pass; the first is counted from `from_ns`
//! event  = "W" task ["." cpu ["." task]]  a task becomes runnable; the waker's CPU and the waker
//!                                         (none: an interrupt, or the start of the workload);
//!                                         without a CPU: the task waited at `from_ns`
//!        / ("R" / "M") cpu "." task       a CPU begins to run a task; M: which ran elsewhere
//!        / ("B" / "P" / "Y" / "X") cpu    the task of a CPU leaves it: it blocks, is preempted,
//!                                         yields, exits
//!        / ("H" / "L") cpu                a higher class takes a CPU; leaves it
//!        / ("F" / "N") cpu                a CPU goes offline; online
//! time, cpu, task = 1*digit               base 36, digits 0-9 a-z; a task by its place in `tasks`
//! ```
//!
//! Tasks that run or wait at `from_ns` have events at that time.

mod collect;
mod decode;
mod mark;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use collect::Collector;
pub use decode::{Decoded, Span, Wait, Waker};

/// Limit of the texts of a detail, in bytes: the events, and the names of tasks and groups. It is
/// enough for some 15,000 wakeups, each followed by a run.
pub const LIMIT: usize = 280 << 10;
/// Limit of the details of all runs of one file together, in bytes.
pub const LIMIT_OF_ALL: usize = 4 << 20;
/// Limit of the tasks of a detail.
pub const TASKS: usize = 4096;
/// Names are cut to this number of characters.
const NAME: usize = 40;
/// Limit of the CPUs of a machine that a reader accepts.
const CPUS: u32 = 1 << 16;

/// A part of a run in full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// Start of the detail.
    pub from_ns: u64,
    /// End of the detail. It has all events from `from_ns` until then.
    pub to_ns: u64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Names of groups.
    pub groups: Vec<String>,
    /// The tasks that the events name.
    pub tasks: Vec<TaskName>,
    /// See the grammar at the head of this module's source.
    pub events: String,
}

/// A task: its number in the run, the place of its group in `groups`, and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskName(pub u32, pub u32, pub String);
