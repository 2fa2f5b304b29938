// SPDX-License-Identifier: GPL-2.0-only
//! A replayed policy does the same as in its recording.

use baton_abi::BatonCpu;
use baton_trace::{About, Event, Item, Recording, BLOCK_SIZE};

use crate::{
    arbiter, echo, faulty, fifo, is_same, locality, parse, record, sound, wfq, SINGLE, THREADS,
};
use crate::{damaged, woven};

const WORKLOADS: [&str; 4] = [
    "pipe:pairs=6",
    "hackbench:groups=2,fds=4",
    "schbench",
    "random:tasks=32",
];

#[test]
fn every_policy_under_every_workload() {
    for policy in sound() {
        for workload in WORKLOADS {
            let recording = parse(&record(policy, "", workload, "2x4x1", 30, 1));
            let single = is_same(&recording, policy, SINGLE);
            let threads = is_same(&recording, policy, THREADS);
            assert_eq!(
                (single.events, single.calls),
                (threads.events, threads.calls)
            );
            assert!(
                single.calls > 100,
                "{} under {workload}: {} calls",
                policy.name(),
                single.calls
            );
        }
    }
}

/// Number of hints in a recording, and of replies that were sent.
fn said(recording: &Recording) -> (usize, usize) {
    let is_hint = |item| matches!(item, Item::Event(Event::Call(call)) if matches!(call.about, About::Hint(..)));
    let is_reply = |item| matches!(item, Item::Event(Event::Reply { answer: 0, .. }));
    let count = |is: &dyn Fn(Item) -> bool| recording.merged().filter(|told| is(told.item)).count();
    (count(&is_hint), count(&is_reply))
}

/// For each policy that takes hints: hints are fed as recorded, and replies are compared with those
/// that were sent.
#[test]
fn hints_and_replies() {
    const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
    let example = |name: &str, more: &str| format!("{EXAMPLES}/{name}{more}");
    let recorded = |policy, workload: &str, topology, expected| {
        let recording = parse(&record(policy, "", workload, topology, 100, 1));
        assert_eq!(
            said(&recording),
            expected,
            "{} under {workload}",
            policy.name()
        );
        let single = is_same(&recording, policy, SINGLE);
        let threads = is_same(&recording, policy, THREADS);
        assert_eq!(
            (single.events, single.calls),
            (threads.events, threads.calls)
        );
        recording
    };
    let recording = recorded(echo(), &example("hints.json", "+pipe"), "1x2x1", (1, 1));
    // A policy that gives another answer: here, one that takes no hints.
    let other = crate::run(&recording, fifo(), SINGLE);
    assert!(
        matches!(other.end, baton_replay::End::Diverged(_)),
        "{:?}",
        other.end
    );
    // A message thread declares that it and its three workers form a group.
    recorded(locality(), "schbench:workers=3,hints=1", "1x4x1", (4, 4));
    // An activation joins, asks for a core, and is notified of its grant.
    recorded(
        arbiter(),
        &example("arbiter.json", "+hackbench"),
        "1x4x1",
        (2, 1),
    );
}

/// All events: forks, exits, hotplug, affinity, nice values, higher classes.
#[test]
fn random_workloads_with_everything_that_happens_to_tasks_and_cpus() {
    let mut methods = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let policy = sound()[seed as usize % sound().len()];
        let shape = ["1x4x1", "1x4x2", "2x4x1", "2x4x2/2"][seed as usize / 4 % 4];
        let recording = parse(&record(
            policy,
            "",
            "random:tasks=24,happenings=2000",
            shape,
            60,
            seed,
        ));
        is_same(&recording, policy, SINGLE);
        is_same(&recording, policy, THREADS);
        for told in recording.merged() {
            if let baton_trace::Item::Event(baton_trace::Event::Call(call)) = told.item {
                methods.insert(baton_trace::method_name(call.method));
            }
        }
    }
    for method in [
        "cpu_offline",
        "cpu_online",
        "task_affinity_changed",
        "task_prio_changed",
        "task_dead",
        "task_yield",
    ] {
        assert!(methods.contains(method), "{method} is not in {methods:?}");
    }
}

#[test]
fn ten_times_over_in_either_way() {
    let recording = parse(&record(wfq(), "", "random:tasks=32", "1x4x2", 100, 7));
    for _ in 0..10 {
        is_same(&recording, wfq(), SINGLE);
        is_same(&recording, wfq(), THREADS);
    }
}

/// Options, random numbers, timers.
#[test]
fn options_are_those_of_the_recording() {
    let recording = parse(&record(
        wfq(),
        "period=2ms,light_slice=100us",
        "hogs:n=16,nice=0/5/19",
        "1x4x1",
        200,
        3,
    ));
    let timers = recording.merged().filter(|told| {
        matches!(
            told.item,
            baton_trace::Item::Event(baton_trace::Event::ArmTimer(_))
        )
    });
    assert!(timers.count() > 10);
    is_same(&recording, wfq(), SINGLE);
}

#[test]
fn a_panic_is_replayed_to_its_line() {
    let source = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../policies/testing/faulty/src/wrong.rs"
    ));
    let line = source
        .unwrap()
        .lines()
        .position(|line| line.contains("three["))
        .unwrap()
        + 1;
    let recording = parse(&record(
        faulty(),
        "fault=index,after=500",
        "hackbench:groups=2",
        "1x4x1",
        1000,
        1,
    ));
    for single in [SINGLE, THREADS] {
        let outcome = is_same(&recording, faulty(), single);
        let [fault] = &outcome.faults[..] else {
            panic!("{:?}", outcome.faults)
        };
        assert_eq!(fault.kind, "panic");
        assert_eq!(
            fault.message,
            "index out of bounds: the len is 3 but the index is 5"
        );
        assert!(
            fault
                .place
                .as_ref()
                .unwrap()
                .ends_with(&format!("wrong.rs:{line}")),
            "{:?}",
            fault.place
        );
        assert!(outcome.calls > 500);
    }
}

/// Each kind of fault that ends a call.
#[test]
fn other_faults_are_replayed() {
    for (fault, kind) in [
        ("deadlock", "deadlock"),
        ("dropped", "lost task"),
        ("unwrap", "panic"),
        ("overflow", "panic"),
    ] {
        let options = format!("fault={fault},after=10");
        let recording = parse(&record(
            faulty(),
            &options,
            "random:tasks=32",
            "1x4x1",
            1000,
            1,
        ));
        for single in [SINGLE, THREADS] {
            let outcome = is_same(&recording, faulty(), single);
            let kinds: Vec<_> = outcome.faults.iter().map(|fault| fault.kind).collect();
            assert_eq!(kinds, [kind], "{fault}");
        }
    }
}

/// The state that a new instance saves.
fn new_state(cpus: usize, max_tasks: u32) -> Vec<u8> {
    // Saved without a host, so that it uses its own locks.
    let save = move || {
        let cpus: Vec<BatonCpu> = (0..cpus as u32)
            .map(|core| BatonCpu {
                core,
                online: 1,
                ..BatonCpu::default()
            })
            .collect();
        wfq().make(&cpus, max_tasks, "").unwrap().save().unwrap()
    };
    std::thread::spawn(save).join().unwrap()
}

#[test]
fn a_recording_that_begins_with_a_state_is_replayed_from_it() {
    let recording = parse(&record(wfq(), "", "hackbench:groups=2", "1x4x1", 20, 1));
    let mut header = recording.header.clone();
    header.state = Some(("Kept".into(), 2, 0));
    let state = new_state(header.cpus.len(), header.max_tasks);
    assert!(!state.is_empty());
    let recording = parse(&woven::file_from(
        &header,
        Some(&state),
        &[],
        &damaged::streams(&recording),
        BLOCK_SIZE,
    ));
    for single in [SINGLE, THREADS] {
        is_same(&recording, wfq(), single);
    }
}
