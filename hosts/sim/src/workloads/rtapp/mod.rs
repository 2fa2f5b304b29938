// SPDX-License-Identifier: GPL-2.0-only
//! Workload files of rt-app (github.com/scheduler-tools/rt-app), read as documented in its
//! doc/tutorial.txt. An event that cannot be modelled is an error with the task, the phase, the key
//! and the reason; nothing is skipped. docs/workloads.md has the table.

mod check;
mod event;
mod json;
mod parse;
mod program;
#[cfg(test)]
mod tests;

use baton_abi::BatonHint;

use crate::topology::MAX_CPUS;
use crate::world::World;

/// Adds the tasks of an rt-app file to a world whose machine has `nr_cpus` CPUs.
pub fn add(text: &str, nr_cpus: usize, world: &mut World) -> Result<(), String> {
    let file = parse::file(&json::parse(text)?, nr_cpus)?;
    check::tasks(&file)?;
    program::add(file, world)
}

/// Each distinct hint that tasks of a file give, and whether it is about a thread, in the order of
/// the file.
pub fn hints(text: &str) -> Result<Vec<(BatonHint, bool)>, String> {
    let file = parse::file(&json::parse(text)?, MAX_CPUS)?;
    check::tasks(&file)?;
    let mut hints = Vec::new();
    for event in file
        .tasks
        .iter()
        .flat_map(|task| &task.phases)
        .flat_map(|phase| &phase.events)
    {
        if let event::What::Hint(hint, thread) = &event.what {
            let hint = (*hint, thread.is_some());
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
    }
    Ok(hints)
}
