// SPDX-License-Identifier: GPL-2.0-only
//! Costs of the kernel's operations on this machine, under the policy in charge. They are measured
//! with workloads that are not among those compared.
//!
//! | cost | from |
//! | --- | --- |
//! | `syscall` | a task that posts to its own semaphore and takes it: half the time of a round |
//! | `wakeup` | three tasks wake each other in a ring, without work: median wait less `syscall` |
//! | `switch` | the same ring: the time of a hop, less that wait |
//! | `tick_work` | a task that computes in equal pieces: the total time, less the number of pieces times the median piece, divided by the number of ticks |
//! | `idle_exit` | a task that does nothing but sleep: its median wait |

use std::sync::{Arc, Mutex};

use baton_sim::cost::Costs;
use baton_sim::world::{Cx, Op, Spawn, World};
use serde::{Deserialize, Serialize};

use super::guest::Machine;
use baton_control::error::{Error, Result};

const MS: u64 = 1_000_000;
const DURATION: u64 = 100 * MS;
const TICK: u64 = 4 * MS;

/// Measured costs, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    pub syscall: u64,
    pub wakeup: u64,
    pub switch: u64,
    pub tick_work: u64,
    pub idle_exit: u64,
}

impl Measured {
    /// The costs for the simulator. Counted instructions have no caches to refill.
    pub fn costs(&self) -> Costs {
        let &Self {
            syscall,
            wakeup,
            switch,
            tick_work,
            idle_exit,
        } = self;
        Costs {
            syscall,
            wakeup,
            switch,
            tick_work,
            idle_exit,
            refill: [0; 4],
            ..Costs::default()
        }
    }

    /// Describes the costs, for the progress on standard error.
    fn words(&self) -> String {
        let Self {
            syscall,
            wakeup,
            switch,
            tick_work,
            idle_exit,
        } = self;
        format!(
            "costs: system call {syscall} ns, wakeup {wakeup} ns, switch {switch} ns, \
             tick {tick_work} ns, end of idle {idle_exit} ns"
        )
    }
}

pub fn measure(machine: &Machine<'_>) -> Result<Measured> {
    let (_, rounds) = done(machine, alone())?;
    let syscall = DURATION / (2 * rounds);
    let (ring_wait, hops) = done(machine, ring(3))?;
    let hop = DURATION / hops;
    let (idle_exit, _) = done(machine, sleeper())?;
    let tick_work = tick_work(machine)?;
    let measured = Measured {
        syscall,
        wakeup: ring_wait.saturating_sub(syscall),
        switch: hop.saturating_sub(ring_wait),
        tick_work,
        idle_exit,
    };
    eprintln!("baton: {}", measured.words());
    Ok(measured)
}

/// Returns the median wait, and the number of operations, which is at least 1.
fn done(machine: &Machine<'_>, world: World) -> Result<(u64, u64)> {
    let (numbers, groups) = machine.run(world, super::seed(0), DURATION, 0)?;
    match groups.iter().map(|group| group.done).sum() {
        0 => Err(Error::environment(
            "a task did nothing in its time, so there is nothing to measure",
            "try again",
        )),
        done => Ok((numbers.p50, done)),
    }
}

/// Repeats the steps in turn.
fn program(steps: Vec<fn() -> Op>) -> impl FnMut(&mut Cx<'_>) -> Op + Send {
    let mut at = 0;
    move |_| {
        at += 1;
        steps[(at - 1) % steps.len()]()
    }
}

fn alone() -> World {
    let mut world = World::new();
    let own = world.semaphore(0);
    let mut at = 0;
    world.task(Spawn::new("alone", move |_: &mut Cx<'_>| {
        at += 1;
        match at % 3 {
            1 => Op::Up {
                to: own,
                sync: false,
            },
            2 => Op::Down(own),
            _ => Op::Done(1),
        }
    }));
    world
}

/// Threads that wake each other in turn.
pub fn ring(threads: usize) -> World {
    let mut world = World::new();
    let turns: Vec<_> = (0..threads)
        .map(|place| world.semaphore(u64::from(place == 0)))
        .collect();
    for place in 0..turns.len() {
        let (own, next, mut at) = (turns[place], turns[(place + 1) % turns.len()], 0);
        world.task(Spawn::new(
            format!("ring-{place}"),
            move |_: &mut Cx<'_>| {
                at += 1;
                match at % 3 {
                    1 => Op::Down(own),
                    2 => Op::Up {
                        to: next,
                        sync: true,
                    },
                    _ => Op::Done(1),
                }
            },
        ));
    }
    world
}

fn sleeper() -> World {
    let mut world = World::new();
    world.task(Spawn::new(
        "sleeper",
        program(vec![|| Op::Sleep(MS / 5), || Op::Done(1)]),
    ));
    world
}

/// The length of a piece, ns.
const PIECE: u64 = 50_000;

fn tick_work(machine: &Machine<'_>) -> Result<u64> {
    let pieces = Arc::new(Mutex::new(Vec::with_capacity(
        (4 * DURATION / PIECE) as usize,
    )));
    let (noted, mut last) = (pieces.clone(), None);
    let mut world = World::new();
    world.task(Spawn::new("hog", move |cx: &mut Cx<'_>| {
        if let (Some(last), Ok(mut pieces)) = (last, noted.lock()) {
            pieces.push(cx.now - last);
        }
        last = Some(cx.now);
        Op::Run(PIECE)
    }));
    machine.run(world, super::seed(0), 4 * DURATION, 0)?;
    let mut pieces = pieces
        .lock()
        .map_err(|_| Error::baton("a task panicked"))?
        .clone();
    let all: u64 = pieces.iter().sum();
    pieces.sort_unstable();
    let usual = pieces.get(pieces.len() / 2).copied().unwrap_or_default();
    Ok(all.saturating_sub(usual * pieces.len() as u64) / (all / TICK).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_in_words() {
        let costs = Measured {
            syscall: 1,
            wakeup: 2,
            switch: 3,
            tick_work: 4,
            idle_exit: 5,
        };
        let expected =
            "costs: system call 1 ns, wakeup 2 ns, switch 3 ns, tick 4 ns, end of idle 5 ns";
        assert_eq!(costs.words(), expected);
    }
}
