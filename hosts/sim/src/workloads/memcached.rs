// SPDX-License-Identifier: GPL-2.0-only
//! A key-value cache under an open loop like Facebook's ETC pool (Atikoglu et al., Workload
//! Analysis of a Large-Scale Key-Value Store, SIGMETRICS '12; the load generator mutilate uses the
//! same numbers).
//!
//! As in memcached, each thread has connections of its own and waits for those. A request arrives
//! on any connection; 1 of 31 is a SET. The popularity of keys follows Zipf's law: the popular keys
//! are in the CPU's cache, the others cost a miss. Sizes of values are generalized Pareto (214.476,
//! 0.348238), in bytes, and each 10 bytes cost a nanosecond. The time between arrivals is
//! generalized Pareto of shape 0.154971, scaled to the load. It is shorter by a factor in bursts
//! and longer outside them, so that the mean load is the requested one.
//!
//! Each request is an operation; the response is the time from its due time to its answer.
//!
//! Keys: `threads`, `connections`, `load` (share of `on` CPUs), `keys`, `skew`, `cached` (keys in
//! the CPU's cache), `base` (CPU time of a request without misses and bytes), `miss`, `burst`
//! (factor; 1 is none), `burst-every`, `burst-for`.

use super::open::{gap, pareto, Worker, Zipf};
use super::{Key, Kind, Stage, Workload};
use crate::rng::Rng;
use crate::world::{Item, Object, Source, Spawn};

const US: u64 = 1_000;
const S: u64 = 1_000_000_000;

pub(super) const WORKLOAD: Workload = Workload {
    name: "memcached",
    help: "key-value cache under an open loop with Zipf keys and bursts (Facebook's ETC)",
    keys: &[
        Key {
            name: "threads",
            kind: Kind::Count(1, 4096),
            default: "cpus",
            help: "threads",
        },
        Key {
            name: "connections",
            kind: Kind::Count(1, 100_000),
            default: "256",
            help: "connections, dealt to threads",
        },
        Key {
            name: "load",
            kind: Kind::Number(0.001, 10.0),
            default: "0.5",
            help: "share of the CPUs that is needed",
        },
        Key {
            name: "on",
            kind: Kind::Count(1, 4096),
            default: "cpus",
            help: "CPUs that load is a share of",
        },
        Key {
            name: "keys",
            kind: Kind::Count(1, 1_000_000_000),
            default: "1000000",
            help: "keys",
        },
        Key {
            name: "skew",
            kind: Kind::Number(0.0, 10.0),
            default: "0.99",
            help: "exponent of Zipf's law",
        },
        Key {
            name: "cached",
            kind: Kind::Count(0, 1_000_000_000),
            default: "10000",
            help: "keys in the CPU's cache",
        },
        Key {
            name: "base",
            kind: Kind::Time(1, S),
            default: "4us",
            help: "CPU time of any request",
        },
        Key {
            name: "miss",
            kind: Kind::Time(0, S),
            default: "500ns",
            help: "CPU time of a key not in the cache",
        },
        Key {
            name: "burst",
            kind: Kind::Number(1.0, 1000.0),
            default: "4",
            help: "arrivals in a burst, as a factor",
        },
        Key {
            name: "burst-every",
            kind: Kind::Time(US, 100 * S),
            default: "100ms",
            help: "from burst to burst",
        },
        Key {
            name: "burst-for",
            kind: Kind::Time(0, 100 * S),
            default: "5ms",
            help: "length of a burst",
        },
    ],
    add,
};

const GAP_SHAPE: f64 = 0.154_971;
const VALUE_SCALE: f64 = 214.476;
const VALUE_SHAPE: f64 = 0.348_238;
/// One in 31 requests is a SET. It costs half as much again, because it allocates.
const SETS: u64 = 31;
/// memcached's own limit of a value's size, bytes.
const VALUE_MOST: f64 = (1 << 20) as f64;

struct Requests {
    queues: Vec<Object>,
    connections: u64,
    zipf: Zipf,
    cached: u64,
    base: u64,
    miss: u64,
    /// In ns, with fractions.
    at: f64,
    /// Scales of the time between arrivals in bursts and outside them.
    scales: [f64; 2],
    every: u64,
    length: u64,
}

impl Requests {
    /// The CPU time and tag of a request. The tag is the key, with the lowest bit set for a SET.
    fn request(&self, rng: &mut Rng) -> (u64, u32) {
        let key = self.zipf.sample(rng);
        let set = rng.one_in(SETS);
        let bytes = pareto(rng, VALUE_SCALE, VALUE_SHAPE).min(VALUE_MOST) as u64;
        let miss = if key > self.cached { self.miss } else { 0 };
        let allocate = if set { self.base / 2 } else { 0 };
        (
            self.base + allocate + miss + bytes / 10,
            (key as u32) << 1 | u32::from(set),
        )
    }
}

impl Source for Requests {
    fn next(&mut self, rng: &mut Rng) -> Option<(u64, Object, Item)> {
        let outside = usize::from(self.at as u64 % self.every >= self.length);
        self.at += pareto(rng, self.scales[outside], GAP_SHAPE);
        let due = self.at as u64;
        let thread = rng.below(self.connections) as usize % self.queues.len();
        let (service, tag) = self.request(rng);
        Some((due, self.queues[thread], Item { due, service, tag }))
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let whole = |key| stage.params.whole(key);
    let (threads, on, every, length) = (
        whole("threads"),
        whole("on"),
        whole("burst-every"),
        whole("burst-for"),
    );
    if length > every {
        return Err(format!(
            "{}: burst-for is longer than burst-every",
            stage.name
        ));
    }
    let (connections, cached, base, miss) = (
        whole("connections"),
        whole("cached"),
        whole("base"),
        whole("miss"),
    );
    let zipf = Zipf::new(whole("keys"), stage.params.number("skew"));
    stage.room_for(threads)?;
    let queues: Vec<_> = (0..threads).map(|_| stage.world.queue()).collect();
    let mut requests = Requests {
        queues,
        connections,
        zipf,
        cached,
        base,
        miss,
        at: 0.0,
        scales: [0.0; 2],
        every,
        length,
    };
    // The mean cost is measured, not derived: it depends on how many of the popular keys are in the
    // cache.
    let samples = 20_000;
    let sum: u64 = (0..samples)
        .map(|_| requests.request(&mut stage.rng).0)
        .sum();
    let gap = gap(
        stage.params.number("load"),
        on,
        sum as f64 / f64::from(samples),
    );
    let (burst, share) = (stage.params.number("burst"), length as f64 / every as f64);
    let outside = gap * (1.0 - GAP_SHAPE) * (1.0 - share + share * burst);
    requests.scales = [outside / burst, outside];
    let group = stage.group();
    for (thread, &queue) in requests.queues.iter().enumerate() {
        stage
            .world
            .task(Spawn::new(format!("{}-{thread}", stage.name), Worker::of(queue)).group(group));
    }
    stage.world.source(requests);
    Ok(())
}
