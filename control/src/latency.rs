// SPDX-License-Identifier: GPL-2.0-only
//! Measures how long tasks wait from their wakeup until they run, and how they change CPUs.
//! `hosts/kernel/latency.bpf.c` measures while a [`Latency`] exists.

use std::path::Path;
use std::time::Duration;

use baton_core::histogram;
use libbpf_rs::{MapCore, MapFlags};

use crate::error::{Error, Result};
use crate::probe::{word, Probe};

/// As in `hosts/kernel/latency.bpf.c`: each power of two has 64 buckets.
const BITS: u32 = 6;
const BUCKETS: usize = 2048;

/// A measurement. It ends when this is dropped.
pub struct Latency(Probe);

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
        Probe::start(object, "leave out the condition, or see `baton doctor`").map(Self)
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
        self.0
            .map("watched")?
            .update(&0u32.to_ne_bytes(), &watch, MapFlags::ANY)
            .map_err(failed)
    }

    /// The waits so far, by bucket, summed over all CPUs.
    pub fn waits(&self) -> Result<Vec<u64>> {
        let mut waits = vec![0; BUCKETS];
        for (key, total) in waits.iter_mut().enumerate() {
            *total = self
                .0
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
        let cpus = self.0.per_cpu("cpus", 0)?;
        let sum = |at| cpus.iter().map(|value| word(value, at)).sum();
        Ok(Changes {
            switches: sum(0),
            migrations: sum(1),
        })
    }
}

/// The wait that this percentage of waits does not exceed, at most a 64th too long. `None` for
/// fewer than 100 waits.
pub fn percentile(waits: &[u64], percent: u64) -> Option<Duration> {
    if waits.iter().sum::<u64>() < 100 {
        return None;
    }
    histogram::percentile(waits, BITS, percent).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_need_a_hundred_waits() {
        let mut waits = vec![0; BUCKETS];
        waits[histogram::class_of(1_000, BITS)] = 99;
        assert_eq!(percentile(&waits, 99), None);
        waits[histogram::class_of(5_000_000, BITS)] = 1;
        let found = percentile(&waits, 99).map(|wait| wait.as_nanos() as u64);
        assert!(
            found.is_some_and(|ns| (1_000..1_016).contains(&ns)),
            "{found:?}"
        );
    }
}
