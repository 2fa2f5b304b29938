// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's side of the comparison: runs the workloads as threads of this machine (usually the
//! guest) under each policy, and measures them with the BPF probe.

use std::path::Path;

use baton_sim::threads::{self, GroupRan, Plan, Speed};
use baton_sim::world::World;

use super::{costs, Load, Measured, Numbers, LOADS};
use crate::Arguments;
use baton_control::error::{Error, Result};
use baton_control::latency::{self, Latency};
use baton_control::modules::{Search, LATENCY};

/// The period of the tick at HZ=250, ns. A run begins at a tick, as in the simulator.
const TICK: u64 = 4_000_000;

/// Runs workloads on this machine.
pub struct Machine<'a> {
    probe: &'a Path,
    speed: Speed,
}

/// Measures all subjects on this machine.
pub fn measure(search: &Search, args: &Arguments) -> Result<Vec<Measured>> {
    baton_control::kernel::require_root("putting a scheduler in charge")?;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let probe = search.find(LATENCY)?;
    let machine = Machine {
        probe: &probe,
        speed: Speed::calibrate(),
    };
    let subject = |subject: &crate::subject::Subject| {
        subject.measure(search, || {
            let costs = costs::measure(&machine)?;
            let run = |load: &Load, seed| {
                let (numbers, _) = machine.run(
                    load.world(cpus, seed)?,
                    seed,
                    load.duration(),
                    load.counts_from(),
                )?;
                eprintln!(
                    "baton: {}, {}: {}",
                    subject.name(),
                    load.spec,
                    numbers.words()
                );
                Ok(numbers)
            };
            let runs = LOADS.iter().map(|load| {
                (0..args.runs() as usize)
                    .map(|nr| run(load, super::seed(nr)))
                    .collect()
            });
            Ok(Measured {
                subject: subject.name(),
                cpus,
                costs,
                runs: runs.collect::<Result<_>>()?,
            })
        })
    };
    args.subjects().iter().map(subject).collect()
}

impl Machine<'_> {
    /// Runs a workload for `duration`, ns, and counts events from `counts_from` on.
    pub fn run(
        &self,
        world: World,
        seed: u64,
        duration: u64,
        counts_from: u64,
    ) -> Result<(Numbers, Vec<GroupRan>)> {
        let latency = Latency::of_threads(self.probe)?;
        let plan = Plan {
            seed,
            duration,
            speed: self.speed,
            align: TICK,
        };
        let mut watched = Ok(());
        let begins = |begin| watched = latency.between(begin + counts_from, begin + duration);
        let groups = threads::run(world, plan, begins).map_err(|why| {
            Error::environment(
                format!("the workload cannot run on this machine: {why}"),
                "measure in a guest (without --here)",
            )
        })?;
        watched?;
        let (changes, waits) = (latency.changes()?, latency.waits()?);
        let at =
            |percent| latency::percentile(&waits, percent).map_or(0, |time| time.as_nanos() as u64);
        let numbers = Numbers {
            switches: changes.switches,
            migrations: changes.migrations,
            wakeups: waits.iter().sum(),
            p50: at(50),
            p99: at(99),
        };
        Ok((numbers, groups))
    }
}
