// SPDX-License-Identifier: GPL-2.0-only
//! Measures how CPUs spend their time: idle, busy, overloaded, or idle beside an overloaded one.
//! `hosts/kernel/cores.bpf.c` measures while [`Cores`] exists.

use std::path::Path;

use rustix::time::{clock_gettime, ClockId};
use serde::Serialize;

use crate::error::Result;
use crate::probe::{word, Probe};

/// A measurement. It ends when this is dropped.
pub struct Cores {
    probe: Probe,
    nr_cpus: u32,
    last: Vec<Times>,
}

/// How a CPU spent an interval. Times in ns.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Without a task.
    pub idle_ns: u64,
    /// With a task, and none that waited for the CPU.
    pub busy_ns: u64,
    /// With a task, while others waited for the CPU.
    pub overloaded_ns: u64,
    /// The part of `idle_ns` in which a task waited for this CPU or another.
    pub wasted_ns: u64,
}

impl Times {
    /// The time in all.
    pub fn all_ns(&self) -> u64 {
        self.idle_ns + self.busy_ns + self.overloaded_ns
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            idle_ns: self.idle_ns.saturating_sub(before.idle_ns),
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
            overloaded_ns: self.overloaded_ns.saturating_sub(before.overloaded_ns),
            wasted_ns: self.wasted_ns.saturating_sub(before.wasted_ns),
        }
    }
}

/// `struct machine` of the BPF program.
struct Machine {
    state: u64,
    overload: u64,
}

impl Machine {
    /// How long tasks have waited for some CPU, until `now`, ns.
    fn overload(&self, now: u64) -> u64 {
        const TIME_BITS: u32 = 48;
        const UNIT_BITS: u32 = 6;
        let since = (now >> UNIT_BITS).wrapping_sub(self.state) & ((1 << TIME_BITS) - 1);
        let units = match self.state >> TIME_BITS {
            // It may have begun after `now` was read.
            1.. if since >> (TIME_BITS - 1) == 0 => self.overload + since,
            _ => self.overload,
        };
        units << UNIT_BITS
    }
}

/// The times of a CPU until `now`, from `struct core_times` of the BPF program.
fn times(core: &[u8], machine: &Machine, now: u64) -> Times {
    let (since, flags, overload) = (word(core, 0), word(core, 1), word(core, 2));
    let (idles, waits) = (flags as u32 != 0, flags >> 32 != 0);
    let mut times = Times {
        idle_ns: word(core, 3),
        busy_ns: word(core, 4),
        overloaded_ns: word(core, 5),
        wasted_ns: word(core, 6),
    };
    let time = match since {
        0 => 0,
        since => now.saturating_sub(since),
    };
    match (idles, waits) {
        (true, _) => {
            times.idle_ns += time;
            times.wasted_ns += machine.overload(now).saturating_sub(overload).min(time);
        }
        (false, false) => times.busy_ns += time,
        (false, true) => times.overloaded_ns += time,
    }
    times
}

impl Cores {
    /// Begins to measure the first `nr_cpus` CPUs with this object.
    pub fn start(object: &Path, nr_cpus: u32) -> Result<Self> {
        let help = "see `baton doctor`; the kernel needs BPF and its own types (BTF)";
        let mut cores = Self {
            probe: Probe::start(object, help)?,
            nr_cpus,
            last: Vec::new(),
        };
        cores.read()?;
        Ok(cores)
    }

    /// The entry of a CPU, read again if it changed meanwhile.
    fn core(&self, cpu: u32) -> Result<Vec<u8>> {
        const TRIES: usize = 4;
        let mut entry = self.probe.entry("cores", cpu)?;
        for _ in 0..TRIES {
            let again = self.probe.entry("cores", cpu)?;
            if again == entry {
                break;
            }
            entry = again;
        }
        Ok(entry)
    }

    /// How each CPU has spent the time since the last call, by number.
    pub fn read(&mut self) -> Result<Vec<Times>> {
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let machine = self.probe.entry("machines", 0)?;
        let machine = Machine {
            state: word(&machine, 0),
            overload: word(&machine, 1),
        };
        let all = (0..self.nr_cpus)
            .map(|cpu| Ok(times(&self.core(cpu)?, &machine, now)))
            .collect::<Result<Vec<_>>>()?;
        let before = |cpu: usize| self.last.get(cpu).copied().unwrap_or_default();
        let passed = all.iter().enumerate();
        let passed = passed
            .map(|(cpu, times)| times.since(&before(cpu)))
            .collect();
        self.last = all;
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct core_times`, with its two flags as one word.
    fn core(words: [u64; 7]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    const IDLES: u64 = 1;
    const WAITS: u64 = 1 << 32;

    #[test]
    fn an_idle_core_wastes_what_the_machine_is_overloaded() {
        // Tasks have waited for two CPUs since 64,000 ns, and for 6,400 ns before that.
        let machine = Machine {
            state: 2 << 48 | 1000,
            overload: 100,
        };
        // The core has been idle since 60,800 ns, when the overload was 3,200 ns.
        let seen = times(
            &core([60_800, IDLES, 3_200, 10, 20, 30, 5]),
            &machine,
            70_400,
        );
        let expected = Times {
            idle_ns: 10 + 9_600,
            busy_ns: 20,
            overloaded_ns: 30,
            wasted_ns: 5 + 9_600,
        };
        assert_eq!(seen, expected);
        assert_eq!(seen.all_ns(), 9_660);
        // For two months.
        let now = 64_000 + 5_000_000_000_000_000;
        assert_eq!(machine.overload(now), 6_400 + 5_000_000_000_000_000);
    }

    #[test]
    fn what_began_after_the_time_was_read_does_not_count() {
        let machine = Machine {
            state: 1 << 48 | 1200,
            overload: 100,
        };
        assert_eq!(machine.overload(64_000), 6_400);
        let seen = times(&core([76_800, IDLES, 6_400, 0, 0, 0, 0]), &machine, 64_000);
        assert_eq!(seen, Times::default());
    }

    #[test]
    fn what_runs_and_waits_decides_what_a_core_is() {
        let machine = Machine {
            state: 0,
            overload: 0,
        };
        let of = |flags| times(&core([100, flags, 0, 0, 0, 0, 0]), &machine, 150);
        assert_eq!((of(IDLES).idle_ns, of(IDLES).wasted_ns), (50, 0));
        assert_eq!(of(0).busy_ns, 50);
        assert_eq!(of(WAITS).overloaded_ns, 50);
        // A CPU that has not begun.
        let not_begun = times(&core([0, IDLES, 0, 0, 0, 0, 0]), &machine, 150);
        assert_eq!(not_begun, Times::default());
    }
}
