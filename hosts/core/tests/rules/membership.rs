// SPDX-License-Identifier: GPL-2.0-only
//! Membership of tasks in policies.

use crate::script::check;

#[test]
fn the_default_policy() {
    check(
        "new 1
         wake 1 @0 => fallback; [fallback]
         start a
         put 1 @0 => fallback; [fallback]
         default a
         tick 1 @0 => expire; [fallback]
         put 1 @0 => a.task_new 1; none; [queued]
         counts => 1 tasks, 0 fallback
         default -
         restore 1 @0 => a.task_departed 1; fallback; [fallback]
         counts => 1 tasks, 1 fallback",
    );
}

#[test]
fn assigned_and_unassigned_at_the_next_enqueue() {
    check(
        "start a
         start b
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         assign 1 b
         tick 1 @0 => a.task_tick 1; expire; [running]
         put 1 @0 => a.task_departed 1; b.task_new 1; none; [queued]
         put 1 @0 => b.task_dequeued 1; b.task_restored 1; none; [queued]
         assign 1 -
         restore 1 @0 => b.task_departed 1; a.task_new 1; none; [queued]",
    );
}

#[test]
fn a_task_that_is_to_change_over_is_not_kept() {
    check(
        "start a
         start b
         default a
         new 1
         new 2
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         wake 2 @0 => a.task_new 2; none; [queued]
         assign 1 b
         pick @0 keeping 1 => a.pick_next_task @0; run 2
         put 1 @0 => a.task_departed 1; b.task_new 1; none; [queued]",
    );
}

#[test]
fn inherited_over_fork() {
    check(
        "start a
         start b
         default a
         new 1
         new 2 of 1
         assign 1 b
         new 3 of 1
         put 2 @0 => a.task_new 2; none; [queued]
         put 3 @0 => b.task_new 3; none; [queued]",
    );
}

#[test]
fn several_policies_are_asked_in_their_order() {
    check(
        "start a
         start b
         default a
         new 1
         new 2
         assign 1 b
         wake 1 @0 => b.task_new 1; none; [queued]
         wake 2 @0 => a.task_new 2; none; [queued]
         pick @0 => a.pick_next_task @0; run 2
         pick @0 => a.pick_next_task @0; a.newly_idle @0; b.pick_next_task @0; run 1
         pick @0 => a.pick_next_task @0; a.newly_idle @0; b.pick_next_task @0; b.newly_idle @0; \
         nothing
         pick @0 keeping 1 => a.pick_next_task @0; a.newly_idle @0; b.pick_next_task @0 keeping 1; \
         keep",
    );
}

#[test]
fn assigned_to_a_policy_that_stops() {
    // The task has the default, as if it had not been assigned, also when the default changes
    // later, until its policy is back.
    check(
        "start a
         start b
         default a
         new 1
         assign 1 b
         wake 1 @0 => b.task_new 1; none; [queued]
         fault b => report: b deadlock in -, 0
         restore 1 @0 => a.task_new 1; none; [queued]
         start c
         default c
         restore 1 @0 => a.task_departed 1; c.task_new 1; none; [queued]
         stop b
         start b
         restore 1 @0 => c.task_departed 1; b.task_new 1; none; [queued]",
    );
}

#[test]
fn no_policy_is_left() {
    check(
        "start a
         new 1
         assign 1 a
         wake 1 @0 => a.task_new 1; none; [queued]
         stop a
         restore 1 @0 => fallback; [fallback]
         counts => 1 tasks, 1 fallback
         start a
         put 1 @0 => a.task_new 1; none; [queued]
         counts => 1 tasks, 0 fallback",
    );
}

#[test]
fn a_policy_that_begins_anew_is_told_of_its_tasks_anew() {
    check(
        "start a
         default a
         new 1
         new 2
         wake 2 @0 => a.task_new 2; none; [queued]
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 2
         pick @0 after 2 => a.task_blocked 2; a.pick_next_task @0; run 1
         put 1 @0 => a.task_preempt 1; none; [queued]
         stop a
         start a
         default a
         rescue => rescued 1
         wake 2 @0 => a.task_new 2; none; [queued]
         put 1 @0 => fallback; [fallback]
         put 1 @0 => a.task_new 1; none; [queued]
         counts => 2 tasks, 0 fallback",
    );
}

#[test]
fn the_place_of_a_policy_is_used_again() {
    let mut script = String::from("new 1\n");
    for _ in 0..40 {
        script += "start a\ndefault a\nwake 1 @0 => a.task_new 1; none; [queued]\nstop a\nrescue \
            => rescued 1\n";
        script += "unregister a\npick @0 after 1 => nothing\n";
    }
    check(&script);
}

#[test]
fn slots_run_out() {
    // Tasks without a slot are on the fallback queue, which has its turn however busy a policy is.
    check(
        "start a
         default a
         new 1
         new 2
         new 3
         new 4
         pick @0 => a.pick_next_task @0; a.newly_idle @0; nothing
         new 5 => full
         wake 1 @0 => a.task_new 1; none; [queued]
         wake 2 @0 => a.task_new 2; none; [queued]
         wake 3 @0 => a.task_new 3; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         pick @0 => a.pick_next_task @0; run 2
         time 60000000
         pick @0 => turn
         pick @0 empty => a.pick_next_task @0; run 3
         disable 1 => a.task_departed 1; [outside]
         exit 1
         new 6
         counts => 4 tasks, 0 fallback",
    );
}

#[test]
fn the_fallback_has_its_turn() {
    // Task 1 is in the fallback; task 2 can always be picked. The fallback gets one fourth of the
    // time: 20 of 80 ms.
    let mut script = String::from(
        "time 0\nnew 1\nwake 1 @0 => fallback; [fallback]\nstart a\nnew 2\nassign 2 a\n",
    );
    script += "wake 2 @0 => a.task_new 2; none; [queued]\n";
    for round in 0..3_u64 {
        for ms in [0, 30, 59] {
            script += &format!("time {}\n", (round * 80 + ms) * 1_000_000);
            script += "pick @0 => a.pick_next_task @0; run 2\nput 2 @0 => a.task_preempt 2; none; \
                [queued]\n";
        }
        for ms in [60, 79] {
            script += &format!("time {}\npick @0 => turn\n", (round * 80 + ms) * 1_000_000);
        }
    }
    check(&script);
}
