// SPDX-License-Identifier: GPL-2.0-only
//! Refused answers. The number after `pick_refused` is the reason: 1 stale, 2 foreign, 3 not
//! allowed.

use crate::{host, script::check};
use baton_abi::{BatonCtx, BATON_F_WAKEUP};
use baton_core::{TaskState, Verdict};
use std::sync::{Arc, Mutex};

const TWO_POLICIES: &str = "
    start a
    start b
    default a
    new 1
    new 2
    assign 2 b
    wake 1 @0 => a.task_new 1; none; [queued]
    wake 2 @0 => b.task_new 2; none; [queued]
";

#[test]
fn stale() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         answer a pick_next_task token 1
         pick @1 => a.pick_next_task @1; a.pick_refused 1 1; a.pick_next_task @1; a.newly_idle @1; \
         nothing
         put 1 @0 => a.task_preempt 1; none; [queued]
         answer a pick_next_task old 1
         pick @0 => a.pick_next_task @0; a.pick_refused 1 1; a.pick_next_task @0; run 1",
    );
}

#[test]
fn garbage() {
    check(
        "start a
         default a
         answer a pick_next_task garbage
         pick @0 => a.pick_next_task @0; a.pick_refused garbage 1; a.pick_next_task @0; \
         a.newly_idle @0; nothing",
    );
}

#[test]
fn foreign() {
    check(&format!(
        "{TWO_POLICIES}
         answer a pick_next_task token 2
         pick @0 => a.pick_next_task @0; a.pick_refused 2 2; a.pick_next_task @0; run 1
         pick @1 => a.pick_next_task @1; a.newly_idle @1; b.pick_next_task @1; run 2"
    ));
}

#[test]
fn not_allowed() {
    check(
        "start a
         default a
         new 1
         mask 1 10
         wake 1 @1 => a.task_new 1; none; [queued]
         answer a pick_next_task token 1
         pick @0 => a.pick_next_task @0; a.pick_refused 1 3; a.pick_next_task @0; a.newly_idle @0; \
         nothing
         answer a task_preempt meanwhile mask 1 01
         pick @1 => a.pick_next_task @1; run 1
         put 1 @1 => a.task_preempt 1; none; [queued]
         pick @1 => a.pick_next_task @1; a.newly_idle @1; nothing
         pick @0 => a.pick_next_task @0; run 1",
    );
}

#[test]
fn an_answer_of_newly_idle_is_checked_too() {
    check(&format!(
        "{TWO_POLICIES}
         stop b
         rescue => rescued 2
         answer a pick_next_task none
         answer a newly_idle token 2
         pick @0 => a.pick_next_task @0; a.newly_idle @0; a.pick_refused 2 1; a.pick_next_task @0; \
         run 1"
    ));
}

#[test]
fn nothing_to_keep() {
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         answer a pick_next_task keep
         pick @0 => a.pick_next_task @0; a.pick_next_task @0; run 1",
    );
}

#[test]
fn a_task_of_another_policy_is_not_there_to_be_kept() {
    check(&format!(
        "{TWO_POLICIES}
         answer a pick_next_task none
         pick @0 => a.pick_next_task @0; a.newly_idle @0; b.pick_next_task @0; run 2
         answer a pick_next_task keep
         pick @0 keeping 2 => a.pick_next_task @0; a.pick_next_task @0; run 1"
    ));
}

#[test]
fn a_cpu_that_is_not_there_or_not_allowed() {
    let script = |answer: &str, outcome: &str| {
        check(&format!(
            "start a
             default a
             new 1
             wake 1 @0 => a.task_new 1; none; [queued]
             pick @0 => a.pick_next_task @0; run 1
             pick @0 after 1 => a.task_blocked 1; a.pick_next_task @0; a.newly_idle @0; nothing
             mask 1 01
             answer a select_task_rq {answer}
             select 1 @0 => a.select_task_rq 1; {outcome}; [sleeping]"
        ));
    };
    script("cpu 1", "none @0");
    script("run 1", "none @0");
    script("cpu 7", "none @0");
    script("garbage", "none @0");
    script("meanwhile offline 0", "a.cpu_offline @0; none @0");
}

#[test]
fn a_loop_of_refusals_is_a_fault() {
    let mut script =
        String::from("start a\ndefault a\nnew 1\nwake 1 @0 => a.task_new 1; none; [queued]\n");
    script += &"answer a pick_next_task garbage\n".repeat(64);
    script += "pick @0 => ";
    script += &"a.pick_next_task @0; a.pick_refused garbage 1; ".repeat(64);
    script += "rescue; report: a refusal loop in pick_next_task, 0\n";
    script += "rescue => rescued 1\n";
    check(&script);

    let mut script = String::from("start a\n");
    script += &"answer a newly_idle garbage\n".repeat(64);
    script += "pick @0 => ";
    let turn = "a.pick_next_task @0; a.newly_idle @0; a.pick_refused garbage 1; ";
    script += &turn.repeat(64);
    script += "nothing; report: a refusal loop in newly_idle, 0\n";
    check(&script);

    let mut script = String::from("start a\n");
    script += &"answer a pick_next_task keep\n".repeat(64);
    script += "pick @0 => ";
    script += &"a.pick_next_task @0; ".repeat(64);
    // There are no tasks to rescue.
    script += "nothing; report: a refusal loop in pick_next_task, 0\n";
    check(&script);
}

#[test]
fn what_a_policy_gives_back_is_checked() {
    // Its own older token, and none: the task continues.
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         restore 1 @0 => a.task_dequeued 1; a.task_restored 1; none; [queued]
         answer a task_dequeued old 1
         restore 1 @0 => a.task_dequeued 1; a.task_restored 1; none; [queued]
         answer a task_dequeued none
         restore 1 @0 => a.task_dequeued 1; a.task_restored 1; none; [queued]",
    );
    // Another task's token; that task is then lost.
    check(
        "start a
         default a
         new 1
         new 2
         wake 1 @0 => a.task_new 1; none; [queued]
         wake 2 @0 => a.task_new 2; none; [queued]
         answer a task_dequeued token 2
         restore 1 @0 => a.task_dequeued 1; fallback; [fallback]; report: a lost task in \
         task_dequeued, 2
         rescue => rescued 2
         counts => 2 tasks, 2 fallback",
    );
}

/// The host finds the task's migration disabled in its check just before it moves the task.
#[test]
fn a_pick_that_failed_is_rescued() {
    let core = host::new_core(8, 2, true);
    let (a, queue) = (host::register(core), Mutex::new(Vec::new()));
    host::start(core, a, Arc::new(move |call| host::fifo(call, &queue)));
    let task = host::new_task(core, 1, 0).unwrap();
    let slot = core.by_handle(task).unwrap();
    core.assign(slot, Some(a));
    let enqueue = |flags: u16| {
        let mut ctx = BatonCtx {
            task,
            cpu: 0,
            flags,
            ..BatonCtx::default()
        };
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx)
    };
    let pick = || {
        let mut ctx = BatonCtx {
            cpu: 1,
            ..BatonCtx::default()
        };
        (core.dispatch(1, core.cpu(1).unwrap(), &mut ctx), ctx.task)
    };
    assert_eq!(enqueue(BATON_F_WAKEUP), Verdict::None);
    let (verdict, token) = pick();
    assert_eq!(verdict, Verdict::Run);
    core.pick_failed(token);
    assert_eq!(pick().0, Verdict::Rescue);
    assert_eq!(host::rescue_all(core).len(), 1);
    assert_eq!(slot.state(), TaskState::Fallback);
    assert_eq!(enqueue(0), Verdict::Fallback, "it has just been rescued");
    assert_eq!(enqueue(0), Verdict::None, "it is its policy's again");
    // If it has been enqueued meanwhile, its policy has it.
    let (_, token) = pick();
    assert_eq!(enqueue(0), Verdict::None);
    core.pick_failed(token);
    assert!(!core.rescue_pending());
    assert_eq!(pick().0, Verdict::Run);
}
