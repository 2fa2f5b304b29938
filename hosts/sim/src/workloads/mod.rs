// SPDX-License-Identifier: GPL-2.0-only
//! Workloads. A spec is `NAME`, `NAME:key=value,key=value`, the path of an rt-app file, a recording
//! (`perf:FILE`), or several of these joined with `+`.
//!
//! Each built-in workload has a file here, whose header documents what it models and its source.
//! Every built-in workload is endless and stops with the simulation. The user documentation is
//! docs/workloads.md.

mod forkjoin;
mod hackbench;
mod hogs;
#[cfg(test)]
mod ideal;
mod kbuild;
mod law;
mod memcached;
pub mod npb;
mod oltp;
mod open;
mod pipe;
mod random;
pub(crate) mod recorded;
mod requests;
mod rocksdb;
pub mod rtapp;
mod schbench;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::{Key, Kind};

use baton_abi::BatonHint;

use crate::rng::Rng;
use crate::topology::MAX_CPUS;
use crate::world::{Group, World};
use spec::Params;

/// Upper limit of the tasks of a workload before any of them forks.
pub const MAX_TASKS: usize = 100_000;

/// Reads a file that a spec names. The simulator itself reads no files. The error is a sentence
/// that names the file.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, String>;

/// For specs that name no file.
pub fn no_files(path: &str) -> Result<Vec<u8>, String> {
    Err(format!("{path}: this workload may read no files"))
}

/// Reads a file of text.
fn read_text(read: ReadFile<'_>, path: &str) -> Result<String, String> {
    String::from_utf8(read(path)?).map_err(|_| format!("{path}: it is not text in UTF-8"))
}

/// A built-in workload.
pub struct Workload {
    /// Its name in a spec.
    pub name: &'static str,
    /// One-line description.
    pub help: &'static str,
    /// The keys that a spec may set.
    pub keys: &'static [Key],
    add: fn(&mut Stage<'_>) -> Result<(), String>,
}

/// The world that a part of a workload is added to, and the part's parameters.
struct Stage<'a> {
    world: &'a mut World,
    params: Params,
    read: ReadFile<'a>,
    /// The part's own random numbers, for choices made before the simulation begins.
    rng: Rng,
    cpus: usize,
    /// The name of the part's group: the workload's name, with a number when the mix has several of
    /// the kind.
    name: String,
}

impl Stage<'_> {
    fn group(&mut self) -> Group {
        self.world.group(&self.name)
    }

    /// Refuses too many tasks before any object is created, so that a typing error cannot exhaust
    /// memory.
    fn room_for(&self, tasks: u64) -> Result<(), String> {
        match self.world.tasks() as u64 + tasks {
            all if all > MAX_TASKS as u64 => Err(format!(
                "{}: {all} tasks; a workload begins with at most {MAX_TASKS}",
                self.name
            )),
            _ => Ok(()),
        }
    }
}

static BUILT_IN: [Workload; 12] = [
    pipe::WORKLOAD,
    hackbench::WORKLOAD,
    schbench::WORKLOAD,
    forkjoin::WORKLOAD,
    npb::WORKLOAD,
    rocksdb::WORKLOAD,
    memcached::WORKLOAD,
    requests::WORKLOAD,
    kbuild::WORKLOAD,
    oltp::WORKLOAD,
    hogs::WORKLOAD,
    random::WORKLOAD,
];

/// All built-in workloads.
pub fn list() -> &'static [Workload] {
    &BUILT_IN
}

/// A printable list of all built-in workloads with their keys.
pub fn listing() -> String {
    let mut text = String::new();
    for workload in list() {
        text += &format!("{:<12}{}\n", workload.name, workload.help);
        for key in workload.keys {
            text += &format!(
                "    {:<12}{} ({}; default {})\n",
                key.name, key.help, key.kind, key.default
            );
        }
    }
    text + "perf:FILE   a recording: the text of perf script or trace-cmd report\n"
}

/// Checks the limit for a file, whose tasks are in the world already.
fn few_enough(part: &str, world: &World) -> Result<(), String> {
    match world.tasks() {
        all if all > MAX_TASKS => Err(format!(
            "{part}: {all} tasks; a workload begins with at most {MAX_TASKS}"
        )),
        _ => Ok(()),
    }
}

/// Each distinct hint that the tasks of an rt-app file give, and whether it is about a thread.
pub fn hints(text: &str) -> Result<Vec<(BatonHint, bool)>, String> {
    let hints = rtapp::hints(text)?;
    if hints.is_empty() {
        return Err("none of its tasks gives a hint".into());
    }
    Ok(hints)
}

/// Adds a workload to a world whose machine has `nr_cpus` CPUs. An error describes in one sentence
/// what is wrong with the spec; the world must not be used afterwards.
pub fn build(
    spec: &str,
    seed: u64,
    nr_cpus: usize,
    read: ReadFile<'_>,
    world: &mut World,
) -> Result<(), String> {
    if !(1..=MAX_CPUS).contains(&nr_cpus) {
        return Err(format!("a machine has 1 to {MAX_CPUS} CPUs, not {nr_cpus}"));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (number, part) in spec.split('+').map(str::trim).enumerate() {
        let (name, keys) = part.split_once(':').unwrap_or((part, ""));
        let is_recording = name == "perf";
        // A list of nice values also contains a '/', after the workload's name.
        if !is_recording && ((part.ends_with(".json") && !part.contains('=')) || name.contains('/'))
        {
            let text = read_text(read, part)?;
            rtapp::add(&text, nr_cpus, world).map_err(|why| format!("{part}: {why}"))?;
            few_enough(part, world)?;
            continue;
        }
        let before = seen.iter().filter(|&&other| other == name).count();
        let own = if before == 0 {
            name.to_string()
        } else {
            format!("{name}-{}", before + 1)
        };
        seen.push(name);
        if is_recording {
            if keys.is_empty() {
                return Err(
                    "perf: needs a file, as perf:FILE: the text of `perf script` or \
                    `trace-cmd report`"
                        .into(),
                );
            }
            let bytes = read(keys)?;
            recorded::add(&bytes, &own, world).map_err(|why| format!("{keys}: {why}"))?;
            few_enough(part, world)?;
            continue;
        }
        let Some(workload) = list().iter().find(|workload| workload.name == name) else {
            let names: Vec<_> = list().iter().map(|workload| workload.name).collect();
            return Err(format!(
                "'{name}' is no workload: {}, a recording (perf:FILE), or an rt-app file (.json)",
                names.join(", ")
            ));
        };
        let params = Params::parse(name, workload.keys, keys, nr_cpus)?;
        let rng = Rng::new(seed, number as u64);
        (workload.add)(&mut Stage {
            world,
            params,
            read,
            rng,
            cpus: nr_cpus,
            name: own,
        })?;
    }
    Ok(())
}
