// SPDX-License-Identifier: GPL-2.0-only
//! The CPU time that each task is due: its share by weight, at every moment, among the tasks that
//! want to run. This is generalized processor sharing (Parekh and Gallager). No task can have more
//! than one CPU; the rest of a heavy task's share goes to the others.

use baton::weight::of_nice;

const LEVELS: usize = 40;

/// The service that a task of each nice value has had since the beginning, ns. The due of a task is
/// the difference between its end and its start.
#[derive(Debug)]
pub struct Demand {
    tasks: [u32; LEVELS],
    /// One bit for each nice value that some task has.
    levels: u64,
    wanting: u32,
    service: [f64; LEVELS],
    /// By nice value: the part of a CPU that a task gets, with `cpus` CPUs. It is computed again
    /// when the tasks or the CPUs have changed.
    rates: [f64; LEVELS],
    cpus: u32,
    is_known: bool,
    /// Whether more tasks than CPUs ever wanted to run.
    pub contended: bool,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            tasks: [0; LEVELS],
            levels: 0,
            wanting: 0,
            service: [0.0; LEVELS],
            rates: [0.0; LEVELS],
            cpus: 0,
            is_known: false,
            contended: false,
        }
    }
}

fn level(nice: i32) -> usize {
    (nice.clamp(-20, 19) + 20) as usize
}

impl Demand {
    /// Advances by `ns`, with this number of CPUs for the tasks.
    pub fn pass(&mut self, ns: u64, cpus: u32) {
        if ns == 0 || self.wanting == 0 {
            return;
        }
        if !self.is_known || self.cpus != cpus {
            self.share(cpus);
        }
        self.contended |= self.wanting > cpus;
        self.each(|demand, level| demand.service[level] += demand.rates[level] * ns as f64);
    }

    /// A task of this nice value wants to run from now on. Returns the value to pass to
    /// [`Self::leave`].
    pub fn join(&mut self, nice: i32) -> f64 {
        let level = level(nice);
        self.tasks[level] += 1;
        self.levels |= 1 << level;
        self.wanting += 1;
        self.is_known = false;
        self.service[level]
    }

    /// The task no longer wants to run. Returns what it was due since it joined, ns.
    pub fn leave(&mut self, nice: i32, joined: f64) -> f64 {
        let level = level(nice);
        self.tasks[level] -= 1;
        if self.tasks[level] == 0 {
            self.levels &= !(1 << level);
        }
        self.wanting -= 1;
        self.is_known = false;
        self.service[level] - joined
    }

    fn each(&mut self, mut what: impl FnMut(&mut Self, usize)) {
        let mut left = self.levels;
        while left != 0 {
            what(self, left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }

    /// Computes the rates, the heaviest tasks first, as their share is limited to one CPU.
    fn share(&mut self, cpus: u32) {
        let weight = |level: usize| f64::from(of_nice(level as i32 - 20));
        let mut weights = 0.0;
        self.each(|demand, level| weights += weight(level) * f64::from(demand.tasks[level]));
        let mut left = f64::from(cpus);
        // The lowest nice value has the largest weight.
        self.each(|demand, level| {
            let tasks = f64::from(demand.tasks[level]);
            let rate = (left * weight(level) / weights).min(1.0);
            demand.rates[level] = rate;
            left -= rate * tasks;
            weights -= weight(level) * tasks;
        });
        (self.cpus, self.is_known) = (cpus, true);
    }
}

/// Compares the CPU time of tasks with their due, over all tasks that were added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    tasks: u64,
    had: f64,
    due: f64,
    squares: f64,
    /// The most that a task is behind its due, ns.
    pub worst: f64,
}

impl Shares {
    /// Adds a task with this CPU time and this due, ns.
    pub fn add(&mut self, had: f64, due: f64) {
        if due < 1.0 {
            return;
        }
        self.tasks += 1;
        self.had += had;
        self.due += due;
        self.squares += had * had / due;
        self.worst = self.worst.max(due - had);
    }

    /// Jain's index of the ratio of CPU time to due, weighted by the due: 1 is fair. `None` with
    /// fewer than two tasks.
    pub fn jain(&self) -> Option<f64> {
        (self.tasks > 1 && self.squares > 0.0)
            .then(|| self.had * self.had / (self.due * self.squares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks what tasks of these nice values get of this number of CPUs in a ns.
    #[track_caller]
    fn check(cpus: u32, nice: &[i32], expected: &[f64]) {
        let mut demand = Demand::default();
        let joined: Vec<f64> = nice.iter().map(|&nice| demand.join(nice)).collect();
        demand.pass(1000, cpus);
        assert_eq!(demand.contended, nice.len() > cpus as usize);
        for ((&nice, joined), expected) in nice.iter().zip(joined).zip(expected) {
            let due = demand.leave(nice, joined) / 1000.0;
            assert!(
                (due - expected).abs() < 1e-3,
                "nice {nice}: {due}, not {expected}"
            );
        }
    }

    #[test]
    fn cpus_are_shared_by_weight() {
        check(1, &[0], &[1.0]);
        check(4, &[0, 0], &[1.0, 1.0]);
        check(2, &[0, 0, 0], &[0.667, 0.667, 0.667]);
        check(1, &[0, 5], &[0.753, 0.247]);
        // A heavy task has one CPU, not more.
        check(2, &[-20, 0, 0], &[1.0, 0.5, 0.5]);
        check(2, &[19, 0, 0], &[0.015, 0.993, 0.993]);
    }

    #[test]
    fn an_index_of_what_tasks_had() {
        let check = |tasks: &[(f64, f64)], expected: Option<f64>| {
            let mut shares = Shares::default();
            tasks.iter().for_each(|&(had, due)| shares.add(had, due));
            let jain = shares.jain().map(|jain| (jain * 1000.0).round() / 1000.0);
            assert_eq!(jain, expected, "{tasks:?}");
        };
        check(&[(5.0, 5.0)], None);
        check(&[(5.0, 5.0), (1.0, 1.0)], Some(1.0));
        check(&[(10.0, 5.0), (0.0, 5.0)], Some(0.5));
        // A task with a small due has most of the CPU time.
        check(&[(3000.0, 50.0), (1000.0, 3950.0)], Some(0.022));
    }
}
