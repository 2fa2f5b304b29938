// SPDX-License-Identifier: GPL-2.0-only
//! Idle states: the deeper a CPU sleeps, the longer it takes to wake up. The tables are those of
//! drivers/idle/intel_idle.c. A CPU's state is chosen as the governors do
//! (drivers/cpuidle/governors), in the simplest form.

/// An idle state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// The table's name for it.
    pub name: &'static str,
    /// From the interrupt to the kernel, ns.
    pub exit_latency: u64,
    /// The shortest sleep that is worth it, ns.
    pub target_residency: u64,
}

const fn state(name: &'static str, exit_us: u64, residency_us: u64) -> IdleState {
    IdleState {
        name,
        exit_latency: exit_us * 1_000,
        target_residency: residency_us * 1_000,
    }
}

/// skl_cstates: desktops, Skylake to Coffee Lake.
const SKL: &[IdleState] = &[
    state("C1", 2, 2),
    state("C1E", 10, 20),
    state("C3", 70, 100),
    state("C6", 85, 200),
    state("C7s", 124, 800),
    state("C8", 200, 800),
    state("C9", 480, 5_000),
    state("C10", 890, 5_000),
];

/// skx_cstates: servers, Skylake and Cascade Lake.
const SKX: &[IdleState] = &[
    state("C1", 2, 2),
    state("C1E", 10, 20),
    state("C6", 133, 600),
];

/// The tables by name. With `none`, leaving idle costs [`crate::cost::Costs::idle_exit`], however
/// long the CPU was idle.
pub const TABLES: &[(&str, &[IdleState])] = &[("none", &[]), ("skl", SKL), ("skx", SKX)];

/// The number of past sleeps that decide, as in the governor `menu` (INTERVALS).
const INTERVALS: usize = 8;

/// The lengths of a CPU's last sleeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    last: [u64; INTERVALS],
    next: usize,
    /// When the current sleep began.
    since: u64,
}

impl History {
    /// The CPU goes to sleep.
    pub(crate) fn enter(&mut self, now: u64) {
        self.since = now;
    }

    /// The CPU is woken. Returns the exit latency.
    ///
    /// The governor `teo` takes the deepest state for which at least half of the last sleeps were
    /// long enough. Deviation: `teo` considers the CPU's next timer, too.
    pub(crate) fn leave(&mut self, now: u64, states: &[IdleState]) -> Option<u64> {
        let was_worth = |state: &&IdleState| {
            self.last
                .iter()
                .filter(|&&slept| slept >= state.target_residency)
                .count()
                * 2
                >= INTERVALS
        };
        // Otherwise the first state; none if the table is empty.
        let state = states.iter().rev().find(was_worth).or(states.first())?;
        self.last[self.next] = now.saturating_sub(self.since);
        self.next = (self.next + 1) % INTERVALS;
        // The CPU may find nothing to do and sleep again.
        self.since = now + state.exit_latency;
        Some(state.exit_latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the exit latency after sleeps of these lengths, us.
    fn check(states: &[IdleState], slept: &[u64], expected: Option<u64>) {
        let mut history = History::default();
        for us in slept {
            history.enter(0);
            history.leave(us * 1_000, states);
        }
        assert_eq!(
            history.leave(0, states),
            expected.map(|us| us * 1_000),
            "{slept:?}"
        );
    }

    #[test]
    fn the_last_sleeps_decide() {
        check(&[], &[1_000; 8], None);
        check(SKX, &[], Some(2));
        check(SKX, &[1_000; 3], Some(2));
        check(SKX, &[1_000; 4], Some(133));
        check(
            SKX,
            &[1_000, 1_000, 1_000, 1_000, 30, 30, 30, 30],
            Some(133),
        );
        check(
            SKX,
            &[1_000, 1_000, 1_000, 1_000, 30, 30, 30, 30, 30],
            Some(10),
        );
        check(
            SKX,
            &[1_000, 1_000, 1_000, 1_000, 1, 1, 1, 1, 1, 1],
            Some(2),
        );
        check(SKL, &[100; 8], Some(70));
        check(SKL, &[799; 8], Some(85));
        check(SKL, &[10_000; 8], Some(890));
    }

    #[test]
    fn tables_are_in_order() {
        for (name, states) in TABLES {
            let sorted =
                states.is_sorted_by_key(|state| (state.target_residency, state.exit_latency));
            assert!(sorted, "{name}");
        }
    }
}
