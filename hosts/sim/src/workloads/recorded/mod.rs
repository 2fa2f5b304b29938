// SPDX-License-Identifier: GPL-2.0-only
//! Recordings of a kernel's scheduler as workloads: the text of `perf script` and of
//! `trace-cmd report`.
//!
//! `line` parses events, `history` derives from them what each task did, and `program` makes tasks
//! of the simulation repeat that. An inconsistency is an error that names its line.
//! docs/workloads.md documents which parts of a recording are kept.

mod history;
mod line;
mod program;
#[cfg(test)]
mod tests;

pub(crate) use history::Act;
pub(crate) use program::{spawns, Role};

use crate::world::World;

/// Adds the tasks of a recording to a world, as a group of that name.
pub(super) fn add(bytes: &[u8], group: &str, world: &mut World) -> Result<(), String> {
    if bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP") {
        return Err(
            "that is perf's binary file: `perf script -i FILE` makes the text that is read here"
                .into(),
        );
    }
    if bytes.starts_with(b"\x17\x08\x44tracing") {
        return Err(
            "that is trace-cmd's binary file: `trace-cmd report FILE` makes the text that \
            is read here"
                .into(),
        );
    }
    let text = String::from_utf8_lossy(bytes);
    program::add(&history::tasks(&line::events(&text)?)?, group, world)
}
