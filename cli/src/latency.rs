// SPDX-License-Identifier: GPL-2.0-only
//! How long tasks of Baton's wait from their wakeup until they run, measured by `hosts/kernel/latency.bpf.c` while this lives.

use std::path::Path;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};

use crate::error::{Error, Result};

/// As in `hosts/kernel/latency.bpf.c`: below 8 ns one bucket for each, above 8 for each power of two.
const BUCKETS: usize = 256;

/// Measures until it is dropped.
pub struct Latency {
    object: Object,
    _links: Vec<Link>,
}

impl Latency {
    pub fn start(object: &Path) -> Result<Self> {
        let failed = |e: libbpf_rs::Error| {
            Error::environment(
                format!("the kernel does not load {}: {e}", object.display()),
                "leave the condition away, or see `baton doctor`",
            )
        };
        let object = ObjectBuilder::default().open_file(object).and_then(|open| open.load()).map_err(failed)?;
        let links =
            object.progs_mut().map(|prog| prog.attach()).collect::<libbpf_rs::Result<Vec<_>>>().map_err(failed)?;
        Ok(Self { object, _links: links })
    }

    /// Waits so far, by bucket, of all CPUs.
    pub fn waits(&self) -> Result<Vec<u64>> {
        let failed = |e| Error::environment(format!("the waits cannot be read: {e}"), "try again");
        let map = self.object.maps().find(|map| map.name() == "waits");
        let map = map.ok_or_else(|| Error::baton("latency.bpf.o has no waits in it"))?;
        let mut waits = vec![0; BUCKETS];
        for (key, total) in waits.iter_mut().enumerate() {
            let per_cpu = map.lookup_percpu(&(key as u32).to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
            let counts = per_cpu.into_iter().flatten().filter_map(|cpu| cpu.try_into().ok().map(u64::from_ne_bytes));
            *total = counts.sum();
        }
        Ok(waits)
    }
}

/// The longest wait that counts into a bucket.
fn upper(bucket: usize) -> Duration {
    let next = bucket as u64 + 1;
    Duration::from_nanos(match next {
        0..=8 => next - 1,
        _ => ((8 + next % 8) << (next / 8 - 1)) - 1,
    })
}

/// The wait that so many percent of them are not longer than, at most an eighth too long; `None` when there are fewer than 100.
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

    /// As the BPF program computes it.
    fn bucket(ns: u64) -> usize {
        match ns {
            0..8 => ns as usize,
            _ => {
                let power = ns.ilog2() as usize;
                ((power - 2) * 8 + (ns as usize >> (power - 3) & 7)).min(BUCKETS - 1)
            }
        }
    }

    #[test]
    fn buckets_border_on_each_other() {
        for bucket_number in 0..BUCKETS - 1 {
            let longest = upper(bucket_number).as_nanos() as u64;
            assert_eq!((bucket(longest), bucket(longest + 1)), (bucket_number, bucket_number + 1), "{longest}");
        }
    }

    #[test]
    fn percentiles() {
        let check = |waits: &[(u64, u64)], percent, expected: Option<u64>| {
            let mut counted = vec![0; BUCKETS];
            waits.iter().for_each(|(ns, count)| counted[bucket(*ns)] += count);
            let found = percentile(&counted, percent).map(|p| bucket(p.as_nanos() as u64));
            assert_eq!(found, expected.map(bucket), "{waits:?} {percent}");
        };
        check(&[(1_000, 99), (5_000_000, 1)], 99, Some(1_000));
        check(&[(1_000, 98), (5_000_000, 2)], 99, Some(5_000_000));
        check(&[(3, 200)], 50, Some(3));
        check(&[(1_000, 99)], 99, None);
    }
}
