// SPDX-License-Identifier: GPL-2.0-only
//! A policy that is interpreted does, call by call, what the compiled one does: runs of the
//! simulator have the same log.

use baton_abi::BatonHint;
use baton_lang::hir;
use baton_native::Policy;
use baton_programs::{PROGRAMS, TIMER};
use baton_sim::world::{Cx, Op, Spawn, World};
use baton_sim::{Config, Outcome, PolicySpec, topology::Topology};

const INTERPRETED: Policy = Policy::linked(baton_native::module!(baton_interpreter::BatonPolicy));

/// Runs a policy under a workload, for this time, ms. With `sends`, there are also tasks that send
/// hints.
fn run(policy: Policy, (shape, workload): (&str, &str), seed: u64, sends: bool) -> Outcome {
    const MS: u64 = 15;
    let topology: Topology = shape.parse().unwrap();
    let spec = PolicySpec {
        policy,
        options: String::new(),
    };
    let config = Config {
        policies: vec![spec],
        duration: MS * 1_000_000,
        max_tasks: 512,
        seed,
        ..Config::new(topology)
    };
    let mut world = World::new();
    let no_file = |path: &str| Err(format!("{path}: no workload reads a file"));
    let cpus = config.topology.cpus().len();
    baton_sim::workloads::build(workload, seed, cpus, &no_file, &mut world).unwrap();
    if sends {
        add_senders(seed, &mut world);
    }
    baton_sim::run(&config, world, None).unwrap()
}

/// What must be the same: the log, the numbers of hints and of refused ones, and what each fault
/// says up to the place in the policy's source.
fn summary(outcome: &Outcome) -> (u64, [u64; 2], Vec<String>) {
    let said = outcome.faults.iter().map(|fault| {
        let text = String::from_utf8_lossy(&fault.message);
        text.trim_end_matches('\0').to_owned()
    });
    let stats = &outcome.stats;
    (
        stats.hash.value(),
        [stats.hints, stats.hints_refused],
        said.collect(),
    )
}

/// Fails if the two differ. Returns the run.
fn compare(
    text: &hir::Policy,
    compiled: Policy,
    shape: &str,
    workload: &str,
    seed: u64,
) -> Outcome {
    let run = |policy| run(policy, (shape, workload), seed, !text.hints.is_empty());
    let expected = run(compiled);
    let found = baton_interpreter::with(text, || run(INTERPRETED));
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

/// Tasks that send hints of which some are refused, and others cannot be read.
fn add_senders(seed: u64, world: &mut World) {
    for task in 0..3_u64 {
        let mut number = seed * 1_000 + task * 7;
        world.task(Spawn::new("sender", move |cx: &mut Cx<'_>| {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let part = |shift: u32, most: u64| (number >> shift) % most;
            if part(20, 3) > 0 {
                return match part(24, 2) {
                    0 => Op::Run(100_000 * (1 + part(30, 9))),
                    _ => Op::Sleep(100_000 * (1 + part(30, 9))),
                };
            }
            let value = part(34, 12).wrapping_sub(1);
            Op::Hint {
                hint: BatonHint {
                    tag: part(40, 5) as u32,
                    words: [value, part(44, 3), part(48, 3), part(52, 8) / 7, 0, 0],
                    ..BatonHint::default()
                },
                thread: (part(56, 9) > 0).then_some(cx.me),
            }
        }));
    }
}

/// Two tasks that always run have turns of 1, 2, 4, 8 ms.
#[test]
fn turns_end_by_a_timer() {
    let text = baton_lang::compile(TIMER.text).unwrap();
    let outcome = compare(&text, TIMER.compiled, "1x1x1", "hogs:n=2", 1);
    let ran = &outcome.stats.groups[0].ran;
    let mut ms: Vec<u64> = ran.iter().map(|ns| (ns + 500_000) / 1_000_000).collect();
    ms.sort_unstable();
    // Of 15 ms.
    assert_eq!(ms, [5, 10]);
    // Many cores idle at once, so that balancing owes kicks, for which it needs the same timer.
    for seed in 1..=20 {
        let outcome = compare(&text, TIMER.compiled, "2x8x1", "random:tasks=40", seed);
        assert!(outcome.faults.is_empty());
    }
}

#[test]
fn random_programs() {
    let mut failed = 0;
    let (mut calls, mut hints, mut refused) = (0, 0, 0);
    for program in PROGRAMS {
        let text = baton_lang::compile(program.text).unwrap();
        let shape = ["1x2x1", "1x3x1", "1x2x2", "2x2x1"][program.seed as usize % 4];
        let seed = program.seed;
        let outcome = compare(&text, program.compiled, shape, "random:tasks=10", seed);
        failed += u64::from(!outcome.faults.is_empty());
        calls += outcome.calls;
        hints += outcome.stats.hints;
        refused += outcome.stats.hints_refused;
    }
    let all = PROGRAMS.len() as u64;
    println!(
        "{all} programs answered {calls} calls and {hints} hints alike; {failed} of them ended with a \
         fault"
    );
    assert!(hints > refused && refused > all, "{refused} of {hints}");
    assert!(failed * 2 < all, "{failed} of {all} programs fail");
}
