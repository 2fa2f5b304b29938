// SPDX-License-Identifier: GPL-2.0-only
//! Measures how long tasks wait from their wakeup until they run, and how they change CPUs.
//! `hosts/kernel/latency.bpf.c` measures while a [`Latency`] exists.

use std::path::Path;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};

use crate::error::{Error, Result};

/// As in `hosts/kernel/latency.bpf.c`: below 64 ns each value has a bucket, and above each power of
/// two has 64 buckets.
const BITS: u32 = 6;
const BUCKETS: usize = 2048;

/// A measurement. It ends when this is dropped.
pub struct Latency {
    object: Object,
    _links: Vec<Link>,
}

/// Counts of what CPUs did between tasks of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Switches from one of the tasks to another, or from or to idle.
    pub switches: u64,
    /// Times that one of the tasks ran on another CPU than before.
    pub migrations: u64,
}

impl Latency {
    /// Measures all tasks of Baton.
    pub fn start(object: &Path) -> Result<Self> {
        let this = Self::load(object)?;
        this.watch(0, 0, u64::MAX)?;
        Ok(this)
    }

    /// Measures the threads of this process except its first one, in an interval that
    /// [`Latency::between`] sets later.
    pub fn of_threads(object: &Path) -> Result<Self> {
        let this = Self::load(object)?;
        this.between(u64::MAX, u64::MAX)?;
        Ok(this)
    }

    /// Sets the begin and the end, ns of CLOCK_MONOTONIC.
    pub fn between(&self, begin: u64, end: u64) -> Result<()> {
        self.watch(std::process::id(), begin, end)
    }

    fn load(object: &Path) -> Result<Self> {
        let failed = |e: libbpf_rs::Error| {
            Error::environment(
                format!("the kernel does not load {}: {e}", object.display()),
                "leave out the condition, or see `baton doctor`",
            )
        };
        let object = ObjectBuilder::default()
            .open_file(object)
            .and_then(|open| open.load())
            .map_err(failed)?;
        let links = object
            .progs_mut()
            .map(|prog| prog.attach())
            .collect::<libbpf_rs::Result<Vec<_>>>()
            .map_err(failed)?;
        Ok(Self {
            object,
            _links: links,
        })
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.ok_or_else(|| Error::baton(format!("latency.bpf.o has no {name} in it")))
    }

    /// `struct watch`
    fn watch(&self, tgid: u32, begin: u64, end: u64) -> Result<()> {
        let watch = [
            begin.to_ne_bytes(),
            end.to_ne_bytes(),
            u64::from(tgid).to_le_bytes(),
        ]
        .concat();
        let failed = |e| {
            Error::environment(
                format!("the probe of waits cannot be set: {e}"),
                "try again",
            )
        };
        self.map("watched")?
            .update(&0u32.to_ne_bytes(), &watch, MapFlags::ANY)
            .map_err(failed)
    }

    /// The values of an entry of a map, one for each CPU.
    fn per_cpu(&self, map: &str, key: u32) -> Result<Vec<Vec<u8>>> {
        let failed = |e| Error::environment(format!("the {map} cannot be read: {e}"), "try again");
        let values = self
            .map(map)?
            .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed)?;
        Ok(values.unwrap_or_default())
    }

    /// The waits so far, by bucket, summed over all CPUs.
    pub fn waits(&self) -> Result<Vec<u64>> {
        let mut waits = vec![0; BUCKETS];
        for (key, total) in waits.iter_mut().enumerate() {
            *total = self
                .per_cpu("waits", key as u32)?
                .iter()
                .map(|value| word(value, 0))
                .sum();
        }
        Ok(waits)
    }

    /// The changes so far, summed over all CPUs.
    pub fn changes(&self) -> Result<Changes> {
        // struct changes
        let cpus = self.per_cpu("cpus", 0)?;
        let sum = |at| cpus.iter().map(|value| word(value, at)).sum();
        Ok(Changes {
            switches: sum(0),
            migrations: sum(1),
        })
    }
}

/// A u64 of a structure of the BPF program, by its offset.
fn word(value: &[u8], at: usize) -> u64 {
    value
        .chunks_exact(8)
        .nth(at)
        .and_then(|word| word.try_into().ok())
        .map_or(0, u64::from_ne_bytes)
}

/// The longest wait that a bucket counts.
fn upper(bucket: usize) -> Duration {
    let (next, size) = (bucket as u64 + 1, 1 << BITS);
    Duration::from_nanos(match next {
        next if next <= size => next - 1,
        _ => ((size + next % size) << (next / size - 1)) - 1,
    })
}

/// The wait that this percentage of waits does not exceed, at most a 64th too long. `None` for
/// fewer than 100 waits.
pub fn percentile(waits: &[u64], percent: u64) -> Option<Duration> {
    let count: u64 = waits.iter().sum();
    let mut left = (count >= 100).then(|| (count * percent).div_ceil(100))?;
    let bucket = waits.iter().position(|&waits| {
        left = left.saturating_sub(waits);
        left == 0
    });
    bucket.map(upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bucket as the BPF program computes it.
    fn bucket(ns: u64) -> usize {
        if ns < 1 << BITS {
            return ns as usize;
        }
        let power = ns.ilog2();
        let bucket = ((power - BITS + 1) << BITS) as usize
            + (ns >> (power - BITS) & ((1 << BITS) - 1)) as usize;
        bucket.min(BUCKETS - 1)
    }

    #[test]
    fn buckets_border_on_each_other() {
        for bucket_number in 0..BUCKETS - 1 {
            let longest = upper(bucket_number).as_nanos() as u64;
            assert_eq!(
                (bucket(longest), bucket(longest + 1)),
                (bucket_number, bucket_number + 1),
                "{longest}"
            );
        }
    }

    #[test]
    fn percentiles() {
        let check = |waits: &[(u64, u64)], percent, expected: Option<u64>| {
            let mut counted = vec![0; BUCKETS];
            waits
                .iter()
                .for_each(|(ns, count)| counted[bucket(*ns)] += count);
            let found = percentile(&counted, percent).map(|p| bucket(p.as_nanos() as u64));
            assert_eq!(found, expected.map(bucket), "{waits:?} {percent}");
        };
        check(&[(1_000, 99), (5_000_000, 1)], 99, Some(1_000));
        check(&[(1_000, 98), (5_000_000, 2)], 99, Some(5_000_000));
        check(&[(3, 200)], 50, Some(3));
        check(&[(1_000, 99)], 99, None);
    }
}
