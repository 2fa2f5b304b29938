// SPDX-License-Identifier: GPL-2.0-only
//! A dispersive open loop: many requests of 4 us and few of 10 ms, served by a pool of workers. It
//! models RocksDB as in Enoki (EuroSys '24, section 5.4), after ghOSt and Shinjuku: 99.5 % GET,
//! 0.5 % range queries, 50 workers on 5 cores.
//!
//! Requests arrive as a Poisson process in one queue that the workers share. Each is an operation;
//! the response is the time from its due time to its answer.
//!
//! The paper's second experiment is `rocksdb:nice=-20+hogs:nice=19`.
//!
//! Keys: `workers`; `load`, the share of `on` CPUs that the requests need; `short`, `long`, `longs`
//! (per cent of long ones), `only-short` (1: responses are those of short requests), `nice`.

use super::open::{gap, Worker};
use super::{Key, Kind, Stage, Workload};
use crate::rng::Rng;
use crate::world::{Item, Object, Source, Spawn};

const S: u64 = 1_000_000_000;

pub(super) const WORKLOAD: Workload = Workload {
    name: "rocksdb",
    help: "dispersive open loop: 99.5 % of 4 us, 0.5 % of 10 ms (Enoki, section 5.4)",
    keys: &[
        Key {
            name: "workers",
            kind: Kind::Count(1, 100_000),
            default: "50",
            help: "workers",
        },
        Key {
            name: "load",
            kind: Kind::Number(0.001, 10.0),
            default: "0.7",
            help: "share of the CPUs that is needed",
        },
        Key {
            name: "on",
            kind: Kind::Count(1, 4096),
            default: "cpus",
            help: "CPUs that load is a share of",
        },
        Key {
            name: "short",
            kind: Kind::Time(1, S),
            default: "4us",
            help: "CPU time of a short request",
        },
        Key {
            name: "long",
            kind: Kind::Time(1, 10 * S),
            default: "10ms",
            help: "CPU time of a long request",
        },
        Key {
            name: "longs",
            kind: Kind::Number(0.0, 100.0),
            default: "0.5",
            help: "per cent that is long",
        },
        Key {
            name: "only-short",
            kind: Kind::Count(0, 1),
            default: "0",
            help: "1: no response of a long request is noted",
        },
        Key {
            name: "nice",
            kind: Kind::Nices,
            default: "0",
            help: "of the workers, in turn",
        },
    ],
    add,
};

struct Requests {
    queue: Object,
    /// In ns, with fractions, so that the rate is right where thousands of CPUs make gaps short.
    at: f64,
    gap: f64,
    short: u64,
    long: u64,
    longs: f64,
}

impl Source for Requests {
    fn next(&mut self, rng: &mut Rng) -> Option<(u64, Object, Item)> {
        self.at -= libm::log(1.0 - rng.unit()) * self.gap;
        let due = self.at as u64;
        let long = rng.unit() * 100.0 < self.longs;
        let service = if long { self.long } else { self.short };
        Some((
            due,
            self.queue,
            Item {
                due,
                service,
                tag: u32::from(long),
            },
        ))
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let (workers, on) = (stage.params.whole("workers"), stage.params.whole("on"));
    let (short, long, longs) = (
        stage.params.whole("short"),
        stage.params.whole("long"),
        stage.params.number("longs"),
    );
    let only = (stage.params.whole("only-short") == 1).then_some(0);
    stage.room_for(workers)?;
    let mean = (short as f64 * (100.0 - longs) + long as f64 * longs) / 100.0;
    let gap = gap(stage.params.number("load"), on, mean);
    let group = stage.group();
    let queue = stage.world.queue();
    for worker in 0..workers {
        let nices = stage.params.nices("nice");
        let nice = nices[worker as usize % nices.len()];
        let name = format!("{}-{worker}", stage.name);
        stage.world.task(
            Spawn::new(name, Worker::of(queue).noting(only))
                .group(group)
                .nice(nice),
        );
    }
    stage.world.source(Requests {
        queue,
        at: 0.0,
        gap,
        short,
        long,
        longs,
    });
    Ok(())
}
