// SPDX-License-Identifier: GPL-2.0-only
//! A policy that is interpreted does, call by call, what the compiled one does: runs of the
//! simulator have the same log.

use baton_lang::hir;
use baton_native::Policy;
use baton_programs::PROGRAMS;
use baton_sim::{Config, Outcome, PolicySpec, topology::Topology, world::World};

const INTERPRETED: Policy = Policy::linked(baton_native::module!(baton_interpreter::BatonPolicy));

/// Runs a policy under a workload, for this time, ms.
fn run(policy: Policy, shape: &str, workload: &str, seed: u64, ms: u64) -> Outcome {
    let topology: Topology = shape.parse().unwrap();
    let spec = PolicySpec {
        policy,
        options: String::new(),
    };
    let config = Config {
        policies: vec![spec],
        duration: ms * 1_000_000,
        max_tasks: 512,
        seed,
        ..Config::new(topology)
    };
    let mut world = World::new();
    let no_file = |path: &str| Err(format!("{path}: no workload reads a file"));
    let cpus = config.topology.cpus().len();
    baton_sim::workloads::build(workload, seed, cpus, &no_file, &mut world).unwrap();
    baton_sim::run(&config, world, None).unwrap()
}

/// What must be the same: the log, and what each fault says up to the place in the policy's source.
fn summary(outcome: &Outcome) -> (u64, Vec<String>) {
    let said = outcome.faults.iter().map(|fault| {
        let text = String::from_utf8_lossy(&fault.message);
        text.trim_end_matches('\0').to_owned()
    });
    (outcome.stats.hash.value(), said.collect())
}

/// Fails if the two differ. Returns the run.
fn compare(
    text: &hir::Policy,
    compiled: Policy,
    shape: &str,
    workload: &str,
    seed: u64,
) -> Outcome {
    let expected = run(compiled, shape, workload, seed, 15);
    let found = baton_interpreter::with(text, || run(INTERPRETED, shape, workload, seed, 15));
    let what = format!("{} under {workload} on {shape}, seed {seed}", text.name);
    assert_eq!(summary(&found), summary(&expected), "{what}");
    expected
}

#[test]
fn policies_of_the_tree() {
    let policies = baton_linked::POLICIES.iter();
    let policies = policies.filter_map(|policy| Some((policy, policy.source?)));
    assert!(policies.clone().count() > 4);
    for (policy, source) in policies {
        let (name, compiled) = (policy.name, (policy.policy)());
        let text = baton_lang::compile(source).unwrap();
        for workload in ["hackbench", "forkjoin", "build", "random"] {
            let outcome = compare(&text, compiled, "2x4x2", workload, 1);
            assert!(outcome.faults.is_empty(), "{name} fails");
        }
    }
}

#[test]
fn random_programs() {
    let mut failed = 0;
    let mut calls = 0;
    for program in PROGRAMS {
        let text = baton_lang::compile(program.text).unwrap();
        let shape = ["1x2x1", "1x3x1", "1x2x2", "2x2x1"][program.seed as usize % 4];
        let seed = program.seed;
        let outcome = compare(&text, program.compiled, shape, "random:tasks=10", seed);
        failed += u64::from(!outcome.faults.is_empty());
        calls += outcome.calls;
    }
    let all = PROGRAMS.len() as u64;
    println!("{all} programs answered {calls} calls alike; {failed} of them ended with a fault");
    assert!(failed * 2 < all, "{failed} of {all} programs fail");
}
