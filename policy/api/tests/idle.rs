// SPDX-License-Identifier: GPL-2.0-only
//! Searches for an idle CPU: their results, the order, and the number of queries.

use std::cell::{Cell, RefCell};
use std::ffi::c_char;
use std::sync::atomic::AtomicU32;

use baton::{Cpu, Ctx, Kicks, Place, Topology, Wake, FAR_CPUS};
use baton_seam::host::{self, Table};

thread_local! {
    static IDLE: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) };
    /// Number of queries to the host.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

fn look() {
    LOOKS.set(LOOKS.get() + 1);
}

extern "C" fn cpu_idle(cpu: i32) -> bool {
    look();
    IDLE.with_borrow(|idle| idle.contains(&cpu))
}

extern "C" fn any_idle() -> bool {
    look();
    IDLE.with_borrow(|idle| !idle.is_empty())
}

extern "C" fn locks(_: *const AtomicU32) -> bool {
    true
}

extern "C" fn dropped(_: u64) -> bool {
    true
}

extern "C" fn panicked(_: *const u8, _: usize, _: u32, _: *const u8, _: usize) {}

extern "C" fn refused(
    _: u32,
    _: *const c_char,
    _: *const c_char,
    _: *const c_char,
    _: u32,
    _: *const c_char,
) {
}

extern "C" fn number() -> u64 {
    0
}

extern "C" fn arms(_: u64) {}

extern "C" fn cancels() {}

extern "C" fn reads(value: u64) -> u64 {
    value
}

extern "C" fn may_run(_: u32, _: i32) -> bool {
    true
}

extern "C" fn of_cpu(_: i32) -> bool {
    true
}

extern "C" fn has_memory() -> bool {
    true
}

extern "C" fn replies(_: u32, _: u32, _: *const [u64; 6]) -> u32 {
    1
}

static HOST: Table = Table {
    lock: locks,
    try_lock: locks,
    unlock: locks,
    token_dropped: dropped,
    panicked,
    now: number,
    random: number,
    arm_timer: arms,
    cancel_timer: cancels,
    read: reads,
    may_run,
    cpu_online: of_cpu,
    cpu_idle,
    any_idle,
    claim_idle: of_cpu,
    has_memory,
    reply: replies,
    refused,
    changed: None,
    atomic: None,
};

/// `nodes` nodes of `llcs` LLCs of `cores` cores of `threads` CPUs. Siblings have adjacent numbers.
fn machine(nodes: u32, llcs: u32, cores: u32, threads: u32) -> Topology {
    let place = |cpu: u32| {
        let core = cpu / threads;
        Place {
            core,
            llc: core / cores,
            node: core / cores / llcs,
        }
    };
    Topology::new((0..nodes * llcs * cores * threads).map(place).collect())
}

/// The CPUs that a search from CPU 0 finds, and the number of queries to its end.
fn found(topology: &Topology, idle: &[i32], fork: Option<bool>) -> (Vec<i32>, u32) {
    host::install(Some(&HOST));
    IDLE.set(idle.to_vec());
    LOOKS.set(0);
    let (count, places) = (Cell::new(0), Default::default());
    let ctx = Ctx::new(Kicks {
        count: &count,
        places: &places,
    });
    let from = Cpu::new(0);
    let cpus: Vec<i32> = match fork {
        None => ctx.idle_near(topology, from).map(Cpu::number).collect(),
        Some(fork) => {
            let wake = Wake {
                prev_cpu: from,
                waker_cpu: from,
                sync: false,
                fork,
            };
            ctx.idle_for(topology, &wake).map(Cpu::number).collect()
        }
    };
    host::install(None);
    (cpus, LOOKS.get())
}

#[test]
fn one_look_where_nothing_is_idle() {
    for topology in [machine(16, 1, 64, 1), machine(8, 4, 16, 2)] {
        for fork in [None, Some(false)] {
            assert_eq!(found(&topology, &[], fork), (vec![], 1));
        }
        // For a new task: one query for the cores of the machine, and one for its CPUs.
        let (cpus, looks) = found(&topology, &[], Some(true));
        assert!(cpus.is_empty() && looks <= 2, "{looks} looks");
    }
}

#[test]
fn idle_cores_come_before_idle_siblings_of_the_same_level() {
    // Two nodes of two LLCs of two cores of two CPUs. Idle are CPU 1, whose sibling 0 is busy, core
    // 2-3, core 6-7 of the other LLC, and core 14-15 of the other node.
    let topology = machine(2, 2, 2, 2);
    let idle = [1, 2, 3, 6, 7, 14, 15];
    assert_eq!(found(&topology, &idle, None).0, [2, 3, 1, 6, 7, 14, 15]);
    assert_eq!(
        found(&topology, &idle, Some(false)).0,
        [2, 3, 1, 6, 7, 14, 15]
    );
    // A new task goes to the far core before the near sibling.
    assert_eq!(
        found(&topology, &idle, Some(true)).0[..7],
        [2, 3, 6, 7, 14, 15, 2]
    );
}

#[test]
fn beyond_the_llc_only_the_nearest_are_looked_at() {
    // 16 nodes of 8 LLCs of 16 CPUs. A distant CPU is idle.
    let topology = machine(16, 8, 16, 1);
    let (cpus, looks) = found(&topology, &[1_000], None);
    assert!(cpus.is_empty());
    assert!(looks <= 3 + 16 + 2 * FAR_CPUS as u32, "{looks} looks");
    // An idle CPU of the same node is found.
    assert_eq!(found(&topology, &[40], None).0, [40]);
}
