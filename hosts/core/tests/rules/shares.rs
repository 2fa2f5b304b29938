// SPDX-License-Identifier: GPL-2.0-only
//! Shares: the CPU time that a later policy is guaranteed, and its limits.

use crate::host::{self, TestCore};
use baton_abi::{BatonCtx, BATON_F_PREV_RUNNABLE, BATON_F_WAKEUP, BATON_KICK_PREEMPT};
use baton_core::{PolicyEntry, Verdict};
use std::sync::{Arc, Mutex};

const TICK: u64 = 4_000_000;

fn start(core: &'static TestCore) -> &'static PolicyEntry {
    let (entry, queue) = (host::register(core), Mutex::new(Vec::new()));
    host::start(
        core,
        entry,
        Arc::new(move |call: &mut host::Call<'_>| host::fifo(call, &queue)),
    );
    entry
}

/// One CPU with tasks that never sleep, the policy of each, and how long each has run.
struct Machine {
    core: &'static TestCore,
    tasks: Vec<(u64, u64)>,
    current: Option<usize>,
}

impl Machine {
    fn new(core: &'static TestCore) -> Self {
        Self {
            core,
            tasks: Vec::new(),
            current: None,
        }
    }

    fn ctx(&self, at: usize, flags: u16) -> BatonCtx {
        let (task, runtime) = self.tasks[at];
        BatonCtx {
            task,
            runtime,
            flags,
            ..BatonCtx::default()
        }
    }

    /// Adds a task and returns the kicks of its wakeup.
    fn add(&mut self, entry: &PolicyEntry) -> Vec<u16> {
        let handle = host::new_task(self.core, self.tasks.len() as u32 + 1, 0).unwrap();
        self.core
            .assign(self.core.by_handle(handle).unwrap(), Some(entry));
        self.tasks.push((handle, 0));
        let mut ctx = self.ctx(self.tasks.len() - 1, BATON_F_WAKEUP);
        assert_eq!(
            self.core.enqueue(0, self.core.cpu(0).unwrap(), &mut ctx),
            Verdict::None
        );
        ctx.kicks[..ctx.nr_kicks as usize].to_vec()
    }

    fn schedule(&mut self) {
        let prev = self.current;
        let mut ctx = prev.map_or(BatonCtx::default(), |at| {
            self.ctx(at, BATON_F_PREV_RUNNABLE)
        });
        match self.core.dispatch(0, self.core.cpu(0).unwrap(), &mut ctx) {
            Verdict::Run => {
                let slot = host::slot_of(self.core, ctx.task);
                self.current = self
                    .tasks
                    .iter()
                    .position(|(handle, _)| *handle == slot.handle());
            }
            Verdict::Keep => return,
            other => panic!("{other:?}"),
        }
        if let Some(at) = prev.filter(|_| prev != self.current) {
            let mut ctx = self.ctx(at, 0);
            self.core.enqueue(0, self.core.cpu(0).unwrap(), &mut ctx);
        }
    }

    /// Runs for this many ticks. The current task continues until a tick ends its slice.
    fn run(&mut self, ticks: u32) {
        for _ in 0..ticks {
            let at = self.current.expect("a task runs");
            self.tasks[at].1 += TICK;
            let mut ctx = self.ctx(at, 0);
            if self.core.tick(0, self.core.cpu(0).unwrap(), &mut ctx) == Verdict::Expire {
                self.schedule();
            }
        }
    }

    fn percent(&self, at: usize) -> u64 {
        self.tasks[at].1 * 100 / self.tasks.iter().map(|(_, ran)| ran).sum::<u64>()
    }
}

#[test]
fn a_later_policy_has_its_share_and_no_more() {
    let check = |share: u32| {
        let core = host::new_core(8, 1, true);
        let (first, second) = (start(core), start(core));
        assert!(core.set_share(second, share));
        let mut machine = Machine::new(core);
        machine.add(first);
        machine.schedule();
        machine.add(second);
        machine.run(10_000);
        assert!(
            machine.percent(1).abs_diff(share.into()) <= 1,
            "{share} %: {} %",
            machine.percent(1)
        );
    };
    [0, 1, 10, 25, 50, 90].into_iter().for_each(check);
}

#[test]
fn three_policies_with_shares_and_one_that_is_first() {
    let core = host::new_core(8, 1, true);
    let policies = [start(core), start(core), start(core)];
    assert!(core.set_share(policies[1], 20) && core.set_share(policies[2], 30));
    let mut machine = Machine::new(core);
    for policy in policies {
        machine.add(policy);
    }
    machine.schedule();
    machine.run(10_000);
    for (at, share) in [50, 20, 30].into_iter().enumerate() {
        assert!(
            machine.percent(at).abs_diff(share) <= 1,
            "policy {at}: {} %",
            machine.percent(at)
        );
    }
}

#[test]
fn what_runs_by_right_is_not_preempted_until_it_had_its_share() {
    let core = host::new_core(8, 1, true);
    let (first, second) = (start(core), start(core));
    assert!(core.set_share(second, 20));
    let mut machine = Machine::new(core);
    machine.add(first);
    machine.schedule();
    machine.add(second);
    machine.run(6);
    assert_eq!(machine.current, Some(1), "behind by a fifth of 24 ms");
    assert_eq!(machine.add(first), [], "it runs by right");
    machine.run(2);
    assert_eq!(machine.current, Some(0), "it had 8 ms of 32");
    let mut alone = Machine::new(host::new_core(8, 1, true));
    let (first, second) = (start(alone.core), start(alone.core));
    assert!(alone.core.set_share(second, 20));
    alone.add(second);
    alone.schedule();
    alone.run(100);
    assert_eq!(
        alone.add(first),
        [BATON_KICK_PREEMPT],
        "it runs because no other task wants to"
    );
}

#[test]
fn shares_are_a_hundred_percent_at_most_and_end_with_their_policy() {
    let core = host::new_core(8, 1, true);
    let (a, b) = (host::register(core), host::register(core));
    assert!(core.set_share(a, 60) && core.set_share(b, 40));
    assert!(!core.set_share(a, 61) && !core.set_share(b, 101) && !core.set_share(b, u32::MAX));
    assert!(core.set_share(a, 10) && core.set_share(b, 90));
    core.unregister(b);
    assert!(core.set_share(a, 100));
}
