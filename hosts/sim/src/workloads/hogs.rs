// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that always want a CPU: `stress-ng --cpu`, batch work. They show best how fairly a policy
//! divides CPUs, and the effect of a nice value.
//!
//! One operation is one piece of work.
//!
//! Keys: `n`; `nice`, values that tasks take in turn; `work`, the CPU time of a piece.

use super::{Key, Kind, Stage, Workload};
use crate::world::{Cx, Op, Spawn};

pub(super) const WORKLOAD: Workload = Workload {
    name: "hogs",
    help: "tasks that always want a CPU",
    keys: &[
        Key {
            name: "n",
            kind: Kind::Count(1, 100_000),
            default: "cpus",
            help: "tasks",
        },
        Key {
            name: "nice",
            kind: Kind::Nices,
            default: "0",
            help: "of the tasks, in turn",
        },
        Key {
            name: "work",
            kind: Kind::Time(1_000, 100_000_000_000),
            default: "10ms",
            help: "CPU time of an operation",
        },
    ],
    add,
};

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let (n, work) = (stage.params.whole("n"), stage.params.whole("work"));
    stage.room_for(n)?;
    let group = stage.group();
    for hog in 0..n {
        let nices = stage.params.nices("nice");
        let nice = nices[hog as usize % nices.len()];
        let mut worked = false;
        let program = move |_: &mut Cx<'_>| {
            worked = !worked;
            if worked {
                Op::Run(work)
            } else {
                Op::Done(1)
            }
        };
        stage.world.task(
            Spawn::new(format!("{}-{hog}", stage.name), program)
                .group(group)
                .nice(nice),
        );
    }
    Ok(())
}
