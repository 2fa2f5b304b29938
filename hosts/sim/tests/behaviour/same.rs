// SPDX-License-Identifier: GPL-2.0-only
//! The same seed gives the same run: again, in another build, and on another machine.

use std::fmt::Write;

use baton_sim::Noise;

use crate::{machine, run, sound, wfq, workload};

const WORKLOADS: [&str; 10] = [
    "pipe",
    "hackbench",
    "schbench",
    "forkjoin",
    "rocksdb",
    "memcached",
    "requests:arrivals=pareto/1.5,service=lognormal/1",
    "build",
    "hogs:n=12,nice=0/5/-5",
    "random",
];

/// The file has the hashes of the logs. `cli/tests/sim.rs` compares those of the release build with
/// it, too. BATON_BLESS=1 rewrites it.
fn check(name: &str, got: &str) {
    let path = format!(
        "{}/tests/golden/{name}.txt",
        std::env::var("CARGO_MANIFEST_DIR").unwrap()
    );
    if std::env::var_os("BATON_BLESS").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        got, expected,
        "{path} differs; if that is meant: BATON_BLESS=1 cargo test -p baton-sim"
    );
}

#[test]
fn every_policy_under_every_workload() {
    let mut logs = String::new();
    for policy in sound() {
        for text in WORKLOADS {
            let config = machine("2x4x2", policy, 20);
            let hash = |_| run(&config, workload(text, &config)).stats.hash.value();
            let [first, second] = [0, 1].map(hash);
            assert_eq!(first, second, "{} under {text}", policy.name());
            writeln!(
                logs,
                "{} v{} {text} {first:016x}",
                policy.name(),
                policy.ops().version
            )
            .unwrap();
        }
    }
    check("logs", &logs);
}

/// Everything: forks, exits, hotplug, affinity, nice values, higher classes, interrupts.
#[test]
fn a_hundred_random_workloads() {
    let mut logs = String::new();
    for seed in 0..100 {
        let shape = ["1x2x1", "1x4x2", "2x4x1", "2x4x2/2"][seed as usize % 4];
        let mut config = machine(shape, sound()[seed as usize / 4 % sound().len()], 50);
        config.seed = seed;
        config.noise = Noise {
            higher_every: 3_000_000,
            higher_for: 100_000,
            interrupt_every: 1_000_000,
            interrupt_for: 3_000,
        };
        let once = || {
            run(&config, workload("random:tasks=24", &config))
                .stats
                .hash
                .value()
        };
        let first = once();
        assert_eq!(first, once(), "seed {seed}");
        writeln!(logs, "{seed} {shape} {first:016x}").unwrap();
    }
    check("random", &logs);
}

#[test]
fn another_seed_is_another_run() {
    let hash = |seed| {
        let mut config = machine("1x4x1", wfq(), 20);
        config.seed = seed;
        run(&config, workload("random", &config)).stats.hash
    };
    assert_ne!(hash(1), hash(2));
}
