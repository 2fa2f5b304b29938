// SPDX-License-Identifier: GPL-2.0-only
//! Replays recordings of the simulator, and hand-made ones of situations that it cannot produce.

mod changed;
mod checkpoints;
mod damaged;
mod same;
mod simple;
mod what_if;
mod woven;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

pub use baton_linked::*;
use baton_native::Policy;
use baton_replay::{replay, End, Options, Outcome};
use baton_sim::{world::World, Config, Noise, PolicySpec};
use baton_trace::Recording;

/// A file in memory.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Configuration of a simulation.
pub fn config(policy: Policy, options: &str, topology: &str, ms: u64, seed: u64) -> Config {
    let spec = PolicySpec {
        policy,
        options: options.into(),
    };
    Config {
        policies: vec![spec],
        duration: ms * 1_000_000,
        max_tasks: 1024,
        seed,
        noise: Noise {
            higher_every: 3_000_000,
            higher_for: 100_000,
            interrupt_every: 1_000_000,
            interrupt_for: 3_000,
        },
        ..Config::new(topology.parse().unwrap())
    }
}

/// Runs a simulation, and returns its recording as a file.
pub fn record_with(config: &Config, workload: &str, checkpoint: Option<u64>) -> Vec<u8> {
    let mut world = World::new();
    baton_sim::workloads::build(
        workload,
        config.seed,
        config.topology.cpus().len(),
        &|path| std::fs::read(path).map_err(|why| format!("{path}: {why}")),
        &mut world,
    )
    .unwrap();
    let file = Shared::default();
    baton_sim::record(config, world, None, Box::new(file.clone()), checkpoint).unwrap();
    let bytes = std::mem::take(&mut *file.0.lock().unwrap());
    bytes
}

pub fn record(
    policy: Policy,
    options: &str,
    workload: &str,
    topology: &str,
    ms: u64,
    seed: u64,
) -> Vec<u8> {
    record_with(&config(policy, options, topology, ms, seed), workload, None)
}

pub fn parse(bytes: &[u8]) -> Recording {
    let recording = Recording::parse(bytes).unwrap();
    assert_eq!(recording.damage, []);
    recording
}

pub const THREADS: bool = false;
pub const SINGLE: bool = true;

/// Replays in this mode.
pub fn run(recording: &Recording, policy: Policy, single: bool) -> Outcome {
    replay(
        recording,
        policy,
        &Options {
            single,
            ..Options::default()
        },
    )
    .unwrap()
}

/// Replays the whole recording in this mode.
pub fn is_same(recording: &Recording, policy: Policy, single: bool) -> Outcome {
    let outcome = run(recording, policy, single);
    assert_eq!(outcome.end, End::Whole);
    assert_eq!(outcome.events, outcome.all);
    outcome
}
