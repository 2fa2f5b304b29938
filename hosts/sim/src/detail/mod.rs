// SPDX-License-Identifier: GPL-2.0-only
//! All scheduling events of one part of a run, for the page of `baton report`: each wakeup, and
//! each time that a task begins or ceases to run on a CPU. Its size is limited. At the limit the
//! detail ends, and records up to which time it is complete.
//!
//! The events as text:
//!
//! ```text
//! events = *(step / event)                in time order
//! step   = "+" time                       ns that pass; the first is counted from `from_ns`
//! event  = "W" task ["." cpu ["." task]]  a task becomes runnable: its number, the waker's CPU,
//!                                         the waker. No waker: an interrupt, or the start of the
//!                                         workload. No CPU: it was waiting at `from_ns`
//!        / ("R" / "M") cpu "." task       a CPU begins to run a task; M: it last ran elsewhere
//!        / ("B" / "P" / "Y" / "X") cpu    the task of a CPU leaves it: it blocks, is preempted,
//!                                         yields, exits
//!        / ("H" / "L") cpu                a higher class takes a CPU; gives it back
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

/// Maximum size of the strings of a detail, in bytes: events, task names and group names. It is
/// enough for some 15,000 wakeups, each followed by a run.
pub const LIMIT: usize = 280 << 10;
/// Maximum size of all details in one file, in bytes.
pub const LIMIT_OF_ALL: usize = 4 << 20;
/// Maximum number of tasks in a detail.
pub const TASKS: usize = 4096;
/// Names are cut to this number of characters.
const NAME: usize = 40;
/// Maximum number of CPUs that the decoder accepts.
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
