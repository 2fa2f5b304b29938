// SPDX-License-Identifier: GPL-2.0-only
//! What is found in a body.

use super::values::{Core, Value};

/// A search for threads on all cores.
#[derive(Clone)]
pub struct Sweep {
    /// For which core.
    pub of: Core,
    /// The condition on which it happens.
    pub condition: String,
}

/// A loop over all cores, or all idle ones, that no turn leaves.
#[derive(Clone)]
pub struct Loop {
    pub member: Core,
    /// The variable that says whether a turn for the member comes.
    pub comes: String,
}

/// A path that leaves a loop.
#[derive(Clone)]
pub(super) struct Exit {
    pub condition: String,
    /// It leaves the body.
    pub is_return: bool,
}

/// A thread that is put into a queue.
#[derive(Clone)]
pub struct Move {
    pub condition: String,
    pub queue: usize,
    /// The attribute by which the queue is ordered; 0 if it is not.
    pub key: String,
}

/// An attribute of a thread is changed, and the thread may wait in a queue.
#[derive(Clone)]
pub struct Stir {
    pub condition: String,
    pub index: usize,
    /// It is a parameter of the handler.
    pub is_parameter: bool,
}

/// A thread that is chosen to run, or none.
#[derive(Clone)]
pub struct Run {
    pub condition: String,
    pub thread: Value,
}

/// What `now()` is.
#[derive(Clone)]
pub(super) enum Clock {
    /// Anything.
    Unknown,
    /// At least this: the last read.
    Runs(String),
    Stands(String),
}
