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
    /// With no runnable task.
    pub idle_ns: u64,
    /// With one.
    pub busy_ns: u64,
    /// With several, of which all but one wait.
    pub overloaded_ns: u64,
    /// The part of `idle_ns` in which another CPU had several.
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
    /// How long some CPU has had several tasks, until `now`.
    fn overload(&self, now: u64) -> u64 {
        const TIME_BITS: u32 = 48;
        let since = now.wrapping_sub(self.state) & ((1 << TIME_BITS) - 1);
        match self.state >> TIME_BITS {
            // It may have begun after `now` was read.
            1.. if since >> (TIME_BITS - 1) == 0 => self.overload + since,
            _ => self.overload,
        }
    }
}

/// The times of a CPU until `now`, from `struct core_times` of the BPF program.
fn times(core: &[u8], machine: &Machine, now: u64) -> Times {
    let (since, runnable, overload) = (word(core, 0), word(core, 1), word(core, 2));
    let mut times = Times {
        idle_ns: word(core, 3),
        busy_ns: word(core, 4),
        overloaded_ns: word(core, 5),
        wasted_ns: word(core, 6),
    };
    let time = now.saturating_sub(since);
    match runnable {
        0 => {
            times.idle_ns += time;
            times.wasted_ns += machine.overload(now).saturating_sub(overload).min(time);
        }
        1 => times.busy_ns += time,
        _ => times.overloaded_ns += time,
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
            .map(|cpu| Ok(times(&self.probe.entry("cores", cpu)?, &machine, now)))
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

    fn core(words: [u64; 7]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn an_idle_core_wastes_what_the_machine_is_overloaded() {
        // Two CPUs have had several tasks since 1000, after 300 ns of overload before that.
        let machine = Machine {
            state: 2 << 48 | 1000,
            overload: 300,
        };
        // The core has been idle since 900, when the overload was 250.
        let seen = times(&core([900, 0, 250, 10, 20, 30, 5]), &machine, 1100);
        let expected = Times {
            idle_ns: 10 + 200,
            busy_ns: 20,
            overloaded_ns: 30,
            wasted_ns: 5 + 150,
        };
        assert_eq!(seen, expected);
        assert_eq!(seen.all_ns(), 260);
    }

    #[test]
    fn what_began_after_the_time_was_read_does_not_count() {
        let machine = Machine {
            state: 1 << 48 | 1200,
            overload: 300,
        };
        assert_eq!(machine.overload(1100), 300);
        let seen = times(&core([1150, 0, 300, 0, 0, 0, 0]), &machine, 1100);
        assert_eq!(seen, Times::default());
    }

    #[test]
    fn runnable_tasks_decide_what_a_core_is() {
        let machine = Machine {
            state: 0,
            overload: 0,
        };
        let of = |runnable| times(&core([100, runnable, 0, 0, 0, 0, 0]), &machine, 150);
        assert_eq!((of(0).idle_ns, of(0).wasted_ns), (50, 0));
        assert_eq!(of(1).busy_ns, 50);
        assert_eq!(of(7).overloaded_ns, 50);
    }
}
