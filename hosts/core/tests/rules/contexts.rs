// SPDX-License-Identifier: GPL-2.0-only
//! Writes of a policy into its context. Every script is also run with policies that write there
//! ([`check`]); these tests cover the other effects.

use crate::script::check;

/// The sole policy has no task. While it is asked, another CPU enqueues a task without a policy.
#[test]
fn the_time_of_a_turn_is_not_the_policys() {
    check(
        "start a
         new 1
         assign 1 a
         new 2
         answer a newly_idle meanwhile wake 2 @1
         pick @0 => a.pick_next_task @0; a.newly_idle @0; fallback; [fallback]; fallback
         wake 1 @0 => a.task_new 1; none; [queued]
         time 100000000
         pick @0 => turn",
    );
}

/// A task that goes to the fallback gets the fallback's slice, whatever slice its policy asked for
/// before it failed.
#[test]
fn a_slice_of_a_policy_that_has_failed() {
    for (event, method) in [("wake 1 @0", "task_wakeup"), ("put 1 @0", "task_preempt")] {
        let sleeps = match method {
            "task_wakeup" => {
                "pick @0 after 1 => a.task_blocked 1; a.pick_next_task @0; a.newly_idle @0; nothing"
            }
            _ => "",
        };
        check(&format!(
            "start a
             default a
             new 1
             wake 1 @0 => a.task_new 1; none; [queued]
             pick @0 => a.pick_next_task @0; run 1
             {sleeps}
             answer a {method} abort
             {event} => a.{method} 1; fallback; [fallback]; report: a panic in {method}, 1"
        ));
    }
}

/// A slice that a method without one has written does not count as the answer of the next method.
/// In this test the task slept unnoticed.
#[test]
fn a_slice_of_another_call() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         idle 1 => a.enter_idle @1
         answer a select_task_rq run 1
         select 1 @0 => a.task_blocked 1; a.select_task_rq 1; run @1; [running]",
    );
}
