// SPDX-License-Identifier: GPL-2.0-only
//! Plain workloads.

use crate::{fifo, machine, run, wfq};
use baton_sim::world::{Cx, Op, Spawn, World};

fn pipe(world: &mut World) {
    let (there, back) = (world.semaphore(0), world.semaphore(0));
    for (mine, other, first) in [(there, back, false), (back, there, true)] {
        let mut step = if first { 1 } else { 0 };
        world.task(Spawn::new("pipe", move |_: &mut Cx<'_>| {
            step += 1;
            match step % 3 {
                1 => Op::Down(mine),
                2 => Op::Run(1_000),
                _ => Op::Up { to: other, sync: true },
            }
        }));
    }
}

#[test]
fn two_tasks_take_turns() {
    for policy in [fifo(), wfq()] {
        for shape in ["1x1x1", "1x4x2"] {
            let mut world = World::new();
            pipe(&mut world);
            let outcome = run(&machine(shape, policy, 100), world);
            println!(
                "{} {shape}: {:?} calls {} refusals {}",
                policy.name(),
                outcome.stats.events,
                outcome.calls,
                outcome.refusals
            );
            println!(
                "   switches {} migrations {:?} hash {:x} p50 {}",
                outcome.stats.switches,
                outcome.stats.migrations,
                outcome.stats.hash.value(),
                outcome.stats.groups[0].wakeups.percentiles().p50
            );
        }
    }
}

#[test]
fn hogs_share() {
    let mut world = World::new();
    for nice in [0, 0, 5, 5, 10, -5] {
        world.task(Spawn::new("hog", |_: &mut Cx<'_>| Op::Run(1_000_000)).nice(nice));
    }
    let outcome = run(&machine("1x2x1", wfq(), 4000), world);
    println!("{:?}", outcome.stats);
}
