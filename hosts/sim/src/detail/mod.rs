// SPDX-License-Identifier: GPL-2.0-only
//! A part of a run in full, for a page: each wakeup, and each time that a task begins or ceases to
//! run on a CPU. What is kept is bounded: where the bound is reached the detail ends, and says up
//! to when it is complete.
//!
//! The events as text:
//!
//! ```text
//! events = *(step / event)                in the order of time
//! step   = "+" time                       ns that pass; the first is counted from `from_ns`
//! event  = "W" task ["." cpu ["." task]]  a task becomes runnable; on which CPU the waker was, and
//!                                         which task that was (none: an interrupt, or what starts
//!                                         the workload); without a CPU: it waited at `from_ns`
//!        / ("R" / "M") cpu "." task       a CPU begins to run a task; M: one that ran elsewhere
//!        / ("B" / "P" / "Y" / "X") cpu    the task of a CPU leaves it: it blocks, is preempted,
//!                                         yields, exits
//!        / ("H" / "L") cpu                a higher class has a CPU from now on; no more
//!        / ("F" / "N") cpu                a CPU is offline from now on; online again
//! time, cpu, task = 1*digit               base 36, digits 0-9 a-z; a task by its place in `tasks`
//! ```
//!
//! What runs and waits at `from_ns` is told by the events of that time.

mod collect;
mod decode;
mod mark;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use collect::Collector;
pub use decode::{Decoded, Span, Wait, Waker};

/// The texts of a detail together, at most, in bytes: of the events, and of the names of tasks and
/// groups. That is some 15,000 times that a task is woken and runs.
pub const LIMIT: usize = 280 << 10;
/// The details of all runs of one file together, at most, in bytes.
pub const LIMIT_OF_ALL: usize = 4 << 20;
/// Tasks of a detail, at most.
pub const TASKS: usize = 4096;
/// Names are cut to so many characters.
const NAME: usize = 40;
/// CPUs of a machine, at most: for a reader.
const CPUS: u32 = 1 << 16;

/// A part of a run in full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// From when on events are kept.
    pub from_ns: u64,
    /// Up to when all of them are.
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
