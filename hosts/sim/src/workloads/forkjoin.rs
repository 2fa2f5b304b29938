// SPDX-License-Identifier: GPL-2.0-only
//! Threads that each compute a share and meet at a barrier, repeatedly: the pattern of the NAS
//! parallel benchmarks. Ipanema (EuroSys '20, section 6) and Enoki (section 5.3) use them to show
//! the cost of an idle CPU beside a crowded one: the slowest thread determines the speed of all.
//!
//! The barrier sleeps (OMP_WAIT_POLICY=passive). One operation is one iteration of all threads; the
//! response is its duration.
//!
//! Keys: `threads`, `work` (of a thread in an iteration), `imbalance` (the most by which that
//! differs, per cent, drawn anew for each iteration).

use super::{Key, Kind, Stage, Workload};
use crate::world::{Cx, Object, Op, Program, Spawn};

/// The number of threads that meet at a barrier.
pub(super) const THREADS: Key = Key {
    name: "threads",
    kind: Kind::Count(1, 100_000),
    default: "cpus",
    help: "threads",
};

pub(super) const WORKLOAD: Workload = Workload {
    name: "forkjoin",
    help: "threads that compute and meet at a barrier (NAS parallel benchmarks)",
    keys: &[
        THREADS,
        Key {
            name: "work",
            kind: Kind::Time(1, 100_000_000_000),
            default: "1ms",
            help: "CPU time of an iteration",
        },
        Key {
            name: "imbalance",
            kind: Kind::Count(0, 100),
            default: "5",
            help: "per cent by which that differs",
        },
    ],
    add,
};

struct Thread {
    barrier: Object,
    work: u64,
    spread: u64,
    first: bool,
    step: u8,
    began: u64,
}

impl Program for Thread {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let step = self.step;
        self.step = (step + 1) % if self.first { 4 } else { 2 };
        match step {
            0 => {
                self.began = cx.now;
                let least = self.work - self.spread;
                Op::Run(cx.rng.between(least.max(1), self.work + self.spread))
            }
            1 => Op::Barrier(self.barrier),
            2 => Op::Response(cx.now - self.began),
            _ => Op::Done(1),
        }
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let whole = |key| stage.params.whole(key);
    let (threads, work, imbalance) = (whole("threads"), whole("work"), whole("imbalance"));
    stage.room_for(threads)?;
    let group = stage.group();
    let barrier = stage.world.barrier(threads as u32);
    for thread in 0..threads {
        let spread = work / 100 * imbalance + work % 100 * imbalance / 100;
        let program = Thread {
            barrier,
            work,
            spread,
            first: thread == 0,
            step: 0,
            began: 0,
        };
        stage
            .world
            .task(Spawn::new(format!("{}-{thread}", stage.name), program).group(group));
    }
    Ok(())
}
