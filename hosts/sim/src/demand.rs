// SPDX-License-Identifier: GPL-2.0-only
//! What each task would have had of the CPUs if these were shared by weight at every moment, among
//! the tasks that wanted them then: generalized processor sharing (Parekh and Gallager). No task
//! can have more than one CPU; what is left of a heavy one's share is the others'.

use baton::weight::of_nice;

const LEVELS: usize = 40;

/// The service that a task of each nice value has had since the beginning, ns: what a task gets
/// meanwhile is a difference of two.
#[derive(Debug)]
pub struct Demand {
    tasks: [u32; LEVELS],
    /// One bit for each nice value that some task has.
    levels: u64,
    wanting: u32,
    service: [f64; LEVELS],
    /// What a task gets, as a part of a CPU, for `cpus` CPUs; to be looked up anew when the tasks
    /// have changed.
    rates: [f64; LEVELS],
    cpus: u32,
    is_known: bool,
    /// There were more tasks than CPUs at some time.
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
    /// So many ns pass, with so many CPUs for the tasks.
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

    /// A task of this nice value wants to run from now on. What it is to say when it does not any
    /// more.
    pub fn join(&mut self, nice: i32) -> f64 {
        let level = level(nice);
        self.tasks[level] += 1;
        self.levels |= 1 << level;
        self.wanting += 1;
        self.is_known = false;
        self.service[level]
    }

    /// It wants to no more: how much it would have had, ns.
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

    /// Looks up the rates: the heaviest first, as long as their share is a CPU or more.
    fn share(&mut self, cpus: u32) {
        let weight = |level: usize| f64::from(of_nice(level as i32 - 20));
        let mut weights = 0.0;
        self.each(|demand, level| weights += weight(level) * f64::from(demand.tasks[level]));
        let mut left = f64::from(cpus);
        // The lowest nice value weighs most.
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

/// How what tasks had compares with what they would have had, of all that are over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    tasks: u64,
    had: f64,
    due: f64,
    squares: f64,
    /// By how much the worst off is behind, ns.
    pub worst: f64,
}

impl Shares {
    /// A task has had so much CPU time, and was due so much, ns.
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

    /// Jain's index of what tasks had by what they were due, each counted by that: 1 is fair.
    /// Nothing with fewer than two tasks.
    pub fn jain(&self) -> Option<f64> {
        (self.tasks > 1 && self.squares > 0.0)
            .then(|| self.had * self.had / (self.due * self.squares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tasks of these nice values get of so many CPUs in a ns.
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
        // A heavy one has a CPU, and no more.
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
        // Those that are due next to nothing have most of it.
        check(&[(3000.0, 50.0), (1000.0, 3950.0)], Some(0.022));
    }
}
