// SPDX-License-Identifier: GPL-2.0-only
//! Each transition in the diagram of `src/slot.rs`.

use crate::script::check;

#[test]
fn a_task_without_a_policy() {
    check(
        "new 1
         wake 1 @0 => fallback; [fallback]
         counts => 1 tasks, 1 fallback
         put 1 @0 => fallback; [fallback]
         counts => 1 tasks, 1 fallback
         pick @0 after 1 => nothing
         counts => 1 tasks, 0 fallback
         wake 1 @0 => fallback; [fallback]
         disable 1 => [outside]
         counts => 1 tasks, 0 fallback
         exit 1
         counts => 0 tasks, 0 fallback",
    );
}

#[test]
fn new_picked_preempted_blocked_woken() {
    check(
        "start a
         default a
         new 1
         put 1 @1 => a.task_new 1; none; [queued]
         pick @1 => a.pick_next_task @1; run 1
         put 1 @1 => a.task_preempt 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         pick @0 after 1 => a.task_blocked 1; a.pick_next_task @0; a.newly_idle @0; nothing
         select 1 @0 => a.select_task_rq 1; none @0; [sleeping]
         wake 1 @0 => a.task_wakeup 1; none; [queued]",
    );
}

#[test]
fn the_policy_to_be_places_a_new_task() {
    check(
        "start a
         default a
         new 1
         answer a select_task_rq cpu 1
         fork 1 @0 => a.select_task_rq 1; none @1; [sleeping]
         put 1 @1 => a.task_new 1; none; [queued]
         new 2
         answer a select_task_rq run 1
         fork 2 @0 => a.select_task_rq 2; none @1; [sleeping]
         new 3
         mask 3 1
         answer a select_task_rq cpu 1
         fork 3 @0 => a.select_task_rq 3; none @0; [sleeping]
         new 4
         select 4 @0 => none @0; [sleeping]
         answer a select_task_rq abort
         fork 4 @0 => a.select_task_rq 4; none @0; [sleeping]; report: a panic in select_task_rq, 4
         put 4 @0 => fallback; [fallback]",
    );
}

#[test]
fn the_slice_is_the_policys() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         answer a pick_next_task slice 5
         pick @0 => a.pick_next_task @0; run 1 for 5
         answer a pick_next_task slice 6
         pick @0 keeping 1 => a.pick_next_task @0 keeping 1; keep for 6",
    );
}

#[test]
fn a_sleep_that_was_missed() {
    // A higher class took the CPU as the task blocked, so no dispatch reported it.
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         wake 1 @0 => a.task_blocked 1; a.task_wakeup 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         select 1 @0 => a.task_blocked 1; a.select_task_rq 1; none @0; [sleeping]",
    );
}

#[test]
fn yields() {
    check(
        "start a
         default a
         new 1
         new 2
         wake 1 @0 => a.task_new 1; none; [queued]
         wake 2 @0 => a.task_new 2; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         yield 1
         pick @0 keeping 1 => a.pick_next_task @0 keeping 1; run 2
         put 1 @0 => a.task_yield 1; none; [queued]
         pick @1 => a.pick_next_task @1; run 1
         put 1 @1 => a.task_preempt 1; none; [queued]",
    );
}

#[test]
fn a_yield_that_was_answered_by_keeping_is_forgotten() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         yield 1
         pick @0 keeping 1 => a.pick_next_task @0 keeping 1; keep
         put 1 @0 => a.task_preempt 1; none; [queued]",
    );
}

#[test]
fn handed_straight_to_a_cpu() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         pick @0 after 1 => a.task_blocked 1; a.pick_next_task @0; a.newly_idle @0; nothing
         answer a select_task_rq run 1
         select 1 @0 => a.select_task_rq 1; run @1; [running]
         put 1 @1 => a.task_preempt 1; none; [queued]
         pick @1 => a.pick_next_task @1; run 1
         pick @1 after 1 => a.task_blocked 1; a.pick_next_task @1; a.newly_idle @1; nothing
         answer a select_task_rq run 0 for 5000
         select 1 @1 => a.select_task_rq 1; run @0 for 5000; [running]",
    );
}

#[test]
fn restored_from_the_queue_and_from_a_cpu() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         restore 1 @1 => a.task_dequeued 1; a.task_restored 1; none; [queued]
         put 1 @1 => a.task_dequeued 1; a.task_restored 1; none; [queued]
         wake 1 @0 => a.task_dequeued 1; a.task_blocked 1; a.task_wakeup 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         restore 1 @0 => a.task_restored 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         pick @0 => a.pick_next_task @0; a.newly_idle @0; nothing",
    );
}

#[test]
fn attributes() {
    check(
        "start a
         default a
         new 1
         nice 1 5 => [sleeping]
         wake 1 @0 => a.task_new 1; none; [queued]
         nice 1 5 => [queued]
         nice 1 6 => a.task_prio_changed 1; [queued]
         affinity 1 => a.task_affinity_changed 1; [queued]
         pick @0 => a.pick_next_task @0; run 1
         nice 1 7 => a.task_prio_changed 1; [running]",
    );
}

#[test]
fn another_class_and_back() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         disable 1 => a.task_departed 1; [outside]
         pick @0 => a.pick_next_task @0; a.newly_idle @0; nothing
         enable 1
         restore 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         disable 1 => a.task_departed 1; [outside]
         enable 1
         wake 1 @0 => a.task_new 1; none; [queued]",
    );
}

#[test]
fn death() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         pick @0 after 1 => a.task_blocked 1; a.pick_next_task @0; a.newly_idle @0; nothing
         dead 1 => a.task_dead 1; [outside]
         exit 1
         counts => 0 tasks, 0 fallback
         new 2
         wake 2 @0 => a.task_new 2; none; [queued]
         dead 2 => a.task_dequeued 2; a.task_dead 2; [outside]",
    );
}

#[test]
fn slots_are_used_again_and_old_handles_are_stale() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         disable 1 => a.task_departed 1; [outside]
         exit 1
         new 2
         wake 1 @0 => fallback
         exit 1
         pick @0 after 1 => a.pick_next_task @0; a.newly_idle @0; fallback
         counts => 1 tasks, 0 fallback
         wake 2 @0 => a.task_new 2; none; [queued]
         answer a pick_next_task token 1
         pick @0 => a.pick_next_task @0; a.pick_refused 2 1; a.pick_next_task @0; run 2",
    );
}

#[test]
fn ticks() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         tick 1 @0 => a.task_tick 1; none; [running]
         timer a @1 => a.timer @1",
    );
    let mut script =
        String::from("start a\ndefault a\nnew 1\nwake 1 @0 => a.task_new 1; none; [queued]\n");
    script += "pick @0 => a.pick_next_task @0; run 1\n";
    script += &"tick 1 @0 => a.task_tick 1; none; [running]\n".repeat(15);
    script += "tick 1 @0 => a.task_tick 1; a.balance @0; none; [running]\n";
    check(&script);
}

#[test]
fn a_policy_is_left_alone_when_it_fails_in_a_tick() {
    let mut script =
        String::from("start a\ndefault a\nnew 1\nwake 1 @0 => a.task_new 1; none; [queued]\n");
    script += "pick @0 => a.pick_next_task @0; run 1\n";
    script += &"tick 1 @0 => a.task_tick 1; none; [running]\n".repeat(15);
    script += "answer a task_tick abort\n";
    script += "tick 1 @0 => a.task_tick 1; expire; [running]; report: a panic in task_tick, 1\n";
    check(&script);
}
