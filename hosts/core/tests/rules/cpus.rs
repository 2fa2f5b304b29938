// SPDX-License-Identifier: GPL-2.0-only
//! CPUs: idle, claimed, online.

use crate::{host, script::check};
use baton_abi::BatonCtx;
use std::{
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        Barrier,
    },
    thread,
};

#[test]
fn idle_is_claimed_once() {
    check(
        "claim 1 => no
         idle 1
         claim 1 => yes
         claim 1 => no
         busy 1
         claim 1 => no
         idle 1
         busy 1
         claim 1 => no",
    );
}

#[test]
fn a_claim_that_came_to_nothing() {
    // The kernel gives no notice of a CPU that stays idle.
    check(
        "start a
         idle 1 => a.enter_idle @1
         claim 1 => yes
         pick @1 => a.pick_next_task @1; a.newly_idle @1; nothing
         claim 1 => yes
         busy 1 => a.exit_idle @1
         pick @1 => a.pick_next_task @1; a.newly_idle @1; nothing
         claim 1 => no",
    );
}

#[test]
fn an_idle_cpu_for_a_task_without_a_policy() {
    check(
        "new 1
         idle 0
         idle 1
         select 1 @0 => none @0; [sleeping]
         select 1 @0 => none @1; [sleeping]
         select 1 @0 => none @0; [sleeping]
         idle 1
         mask 1 01
         select 1 @0 => none @0; [sleeping]
         mask 1 11
         select 1 @0 => none @1; [sleeping]",
    );
}

#[test]
fn a_cpu_that_goes_offline_is_not_claimed() {
    check(
        "start a
         offline 1 => a.cpu_offline @1
         idle 1 => a.enter_idle @1
         claim 1 => no
         online 1 => a.cpu_online @1
         claim 1 => no
         idle 1 => a.enter_idle @1
         claim 1 => yes",
    );
}

#[test]
fn one_of_many_wins_a_claim() {
    const THREADS: usize = 4;
    let core = host::new_core(1, 1, false);
    let cpu = core.cpu(0).unwrap();
    let (barrier, won) = (Barrier::new(THREADS), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, won) = (&barrier, &won);
            scope.spawn(move || {
                for _ in 0..2000 {
                    if barrier.wait().is_leader() {
                        core.set_idle(0, cpu, &mut BatonCtx::default(), true);
                    }
                    barrier.wait();
                    won.fetch_add(usize::from(core.claim_idle(0)), SeqCst);
                    barrier.wait();
                    if thread == 0 {
                        assert_eq!(won.swap(0, SeqCst), 1);
                    }
                }
            });
        }
    });
}
