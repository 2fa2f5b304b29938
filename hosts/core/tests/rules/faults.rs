// SPDX-License-Identifier: GPL-2.0-only
//! Policies that fail, in each kind of call, and what happens to their tasks.

use crate::{host, script::check};
use baton_abi::{BatonCtx, BatonFaultKind, BatonMethod, BatonPolicyState, BATON_F_WAKEUP};
use baton_core::{Fault, TaskState, Verdict};
use std::{
    collections::HashSet,
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        Arc, Mutex,
    },
};

/// 1 is queued in `a`; 2 will be.
const QUEUED: &str = "
    start a
    default a
    new 1
    new 2
    wake 1 @0 => a.task_new 1; none; [queued]
";

#[test]
fn in_each_method_that_takes_a_task() {
    let script = |before: &str, method: &str, event: &str| {
        check(&format!(
            "{QUEUED}
             {before}
             answer a {method} abort
             {event} => a.{method} 1; fallback; [fallback]; report: a panic in {method}, 1
             wake 2 @0 => fallback; [fallback]
             counts => 2 tasks, 2 fallback
             rescue => rescued
             pick @0 => fallback"
        ));
    };
    let run = "pick @0 => a.pick_next_task @0; run 1";
    script(run, "task_preempt", "put 1 @0");
    script(&format!("{run}\nyield 1"), "task_yield", "put 1 @0");
    script(run, "task_restored", "restore 1 @0");
    script("", "task_dequeued", "restore 1 @0");
    // The task sleeps at last. `a` is notified of that and fails. It is not entered again for the
    // wakeup.
    script(run, "task_blocked", "wake 1 @0");
}

#[test]
fn a_new_or_woken_task() {
    check(
        "start a
         default a
         new 1
         answer a task_new abort
         wake 1 @0 => a.task_new 1; fallback; [fallback]; report: a panic in task_new, 1
         counts => 1 tasks, 1 fallback",
    );
    check(
        "start a
         default a
         new 1
         wake 1 @0 => a.task_new 1; none; [queued]
         pick @0 => a.pick_next_task @0; run 1
         pick @0 after 1 => a.task_blocked 1; a.pick_next_task @0; a.newly_idle @0; nothing
         answer a task_wakeup abort
         wake 1 @0 => a.task_wakeup 1; fallback; [fallback]; report: a panic in task_wakeup, 1",
    );
}

#[test]
fn in_a_pick() {
    // This may be the only CPU, so it must do the rescue itself.
    check(&format!(
        "{QUEUED}
         answer a pick_next_task abort
         pick @0 => a.pick_next_task @0; rescue; report: a panic in pick_next_task, 0
         rescue => rescued 1
         counts => 2 tasks, 1 fallback"
    ));
    check(&format!(
        "{QUEUED}
         answer a pick_next_task none
         answer a newly_idle abort
         pick @0 => a.pick_next_task @0; a.newly_idle @0; rescue; report: a panic in newly_idle, 0"
    ));
    check(&format!(
        "{QUEUED}
         answer a pick_next_task garbage
         answer a pick_refused abort
         pick @0 => a.pick_next_task @0; a.pick_refused garbage 1; rescue; report: a panic in \
         pick_refused, 0"
    ));
}

#[test]
fn in_select() {
    check(&format!(
        "{QUEUED}
         pick @0 => a.pick_next_task @0; run 1
         pick @0 after 1 => a.task_blocked 1; a.pick_next_task @0; a.newly_idle @0; nothing
         answer a select_task_rq abort
         select 1 @1 => a.select_task_rq 1; none @1; [sleeping]; report: a panic in \
         select_task_rq, 1
         wake 1 @1 => fallback; [fallback]"
    ));
    check(&format!(
        "{QUEUED}
         pick @0 => a.pick_next_task @0; run 1
         answer a task_blocked abort
         select 1 @1 => a.task_blocked 1; none @1; [sleeping]; report: a panic in task_blocked, 1"
    ));
}

#[test]
fn in_what_is_told_of_a_task() {
    let script = |method: &str, event: &str, outcome: &str| {
        check(&format!(
            "{QUEUED}
             answer a {method} abort
             {event} => a.{method} 1; {outcome}; report: a panic in {method}, 1
             counts => 2 tasks, 0 fallback"
        ));
    };
    script("task_departed", "disable 1", "[outside]");
    script("task_prio_changed", "nice 1 3", "[queued]");
    script("task_affinity_changed", "affinity 1", "[queued]");
    script("task_dequeued", "dead 1", "[outside]");
}

#[test]
fn a_lost_task_is_named() {
    check(&format!(
        "{QUEUED}
         answer a task_new drop 1
         wake 2 @0 => a.task_new 2; fallback; [fallback]; report: a lost task in task_new, 1
         rescue => rescued 1"
    ));
    // A stale token may be dropped.
    check(&format!(
        "{QUEUED}
         pick @0 => a.pick_next_task @0; run 1
         answer a select_task_rq drop 1
         select 1 @0 => a.task_blocked 1; a.select_task_rq 1; none @0; [sleeping]"
    ));
}

#[test]
fn a_stall() {
    check(&format!(
        "{QUEUED}
         time 90
         wake 2 @0 => a.task_new 2; none; [queued]
         stall 100 => -
         answer a pick_next_task none
         pick @0 => a.pick_next_task @0; a.newly_idle @0; nothing
         time 102
         stall 100 => 1; a.task_dequeued 1; report: a stall in -, 1
         stall 100 => -
         rescue => rescued 2 1"
    ));
    // On an idle CPU the policy could have run it.
    check(&format!(
        "{QUEUED}
         time 90
         stall 100 => -
         idle 1 => a.enter_idle @1
         time 102
         stall 100 => 1; a.task_dequeued 1; report: a stall in -, 1"
    ));
}

/// The policy is asked for the token. The task is then checked again, as a pick may have been under
/// way.
#[test]
fn a_forgotten_task_is_named() {
    let forgotten = format!(
        "{QUEUED}
         time 90
         stall 100 => -
         idle 1 => a.enter_idle @1
         time 102
         answer a task_dequeued none
         stall 100 => 1; a.task_dequeued 1"
    );
    check(&format!(
        "{forgotten}
         time 103
         stall 100 => 1; report: a lost task in -, 1
         stall 100 => -
         rescue => rescued 1"
    ));
    check(&format!(
        "{forgotten}
         pick @0 => a.pick_next_task @0; run 1
         time 103
         stall 100 => -
         put 1 @0 => a.task_preempt 1; none; [queued]
         time 104
         stall 100 => -"
    ));
    // Any other answer is checked as usual.
    check(&format!(
        "{QUEUED}
         time 90
         stall 100 => -
         idle 1 => a.enter_idle @1
         time 102
         wake 2 @0 => a.task_new 2; none; [queued]
         answer a task_dequeued token 2
         stall 100 => 1; a.task_dequeued 1; report: a lost task in task_dequeued, 2"
    ));
    check(&format!(
        "{QUEUED}
         time 90
         stall 100 => -
         idle 1 => a.enter_idle @1
         time 102
         answer a task_dequeued abort
         stall 100 => 1; a.task_dequeued 1; report: a panic in task_dequeued, 1"
    ));
}

#[test]
fn no_stall_where_a_policy_was_not_asked() {
    check(&format!(
        "{QUEUED}
         time 90
         stall 100 => -
         time 190
         stall 100 => -
         time 290
         stall 100 => -
         pick @0 => a.pick_next_task @0; run 1
         wake 2 @0 => a.task_new 2; none; [queued]
         mask 2 10
         time 390
         stall 100 => -
         answer a pick_next_task none
         pick @0 after 1 => a.task_blocked 1; a.pick_next_task @0; a.newly_idle @0; nothing
         time 490
         stall 100 => -
         answer a pick_next_task none
         pick @1 => a.pick_next_task @1; a.newly_idle @1; nothing
         time 590
         stall 100 => -
         answer a pick_next_task none
         pick @1 => a.pick_next_task @1; a.newly_idle @1; nothing
         time 592
         stall 100 => 2; a.task_dequeued 2; report: a stall in -, 2"
    ));
}

#[test]
fn a_fault_is_reported_once() {
    check(&format!(
        "{QUEUED}
         fault a => report: a deadlock in -, 0
         fault a
         stop a
         fault a
         rescue => rescued 1"
    ));
}

#[test]
fn a_rescue_by_another_cpu_while_the_task_is_taken_back() {
    for (event, method, outcome, in_fallback) in [
        ("restore 1 @0", "task_dequeued", "fallback; [fallback]", 1),
        ("wake 1 @0", "task_dequeued", "fallback; [fallback]", 1),
        ("disable 1", "task_departed", "[outside]", 0),
    ] {
        check(&format!(
            "{QUEUED}
             answer a {method} meanwhile stop a & rescue
             {event} => a.{method} 1; rescued 1; {outcome}
             counts => 2 tasks, {in_fallback} fallback
             rescue => rescued"
        ));
        check(&format!(
            "{QUEUED}
             answer a {method} meanwhile fault a
             {event} => a.{method} 1; report: a deadlock in -, 0; {outcome}
             counts => 2 tasks, {in_fallback} fallback
             rescue => rescued"
        ));
    }
    check(&format!(
        "{QUEUED}
         start b
         answer a task_dequeued meanwhile stop a & rescue & default b
         restore 1 @0 => a.task_dequeued 1; rescued 1; fallback; [fallback]
         counts => 2 tasks, 1 fallback
         put 1 @0 => b.task_new 1; none; [queued]
         counts => 2 tasks, 0 fallback"
    ));
}

/// The rescuing CPU may insert the task into the fallback queue after this, and the insertion may
/// apply to this very enqueue. If the task were a policy's by then, it would wait on a queue where
/// it is not counted.
#[test]
fn a_rescued_task_that_is_enqueued_anew_goes_to_the_fallback_queue_once() {
    check(&format!(
        "{QUEUED}
         start b
         default b
         stop a
         rescue => rescued 1
         restore 1 @0 => fallback; [fallback]
         counts => 2 tasks, 1 fallback
         restore 1 @0 => b.task_new 1; none; [queued]
         counts => 2 tasks, 0 fallback"
    ));
}

#[test]
fn a_pick_by_another_cpu_while_the_task_is_taken_back() {
    check(&format!(
        "{QUEUED}
         answer a task_dequeued meanwhile pick @1
         restore 1 @0 => a.task_dequeued 1; a.pick_next_task @1; run 1; a.task_restored 1; none; \
         [queued]
         answer a task_departed meanwhile pick @1
         disable 1 => a.task_departed 1; a.pick_next_task @1; run 1; [outside]"
    ));
}

#[test]
fn an_enqueue_that_slips_in_behind_a_stop() {
    check(&format!(
        "{QUEUED}
         answer a task_new meanwhile stop a
         wake 2 @0 => a.task_new 2; fallback; [fallback]
         rescue => rescued 1
         counts => 2 tasks, 2 fallback"
    ));
    check(&format!(
        "{QUEUED}
         answer a task_preempt meanwhile stop a
         pick @0 => a.pick_next_task @0; run 1
         put 1 @0 => a.task_preempt 1; fallback; [fallback]"
    ));
}

/// All tasks that a policy has queued come out exactly once, whichever way the policy ends.
fn all_are_rescued(end: impl Fn(&host::TestCore, &baton_core::PolicyEntry)) {
    const TASKS: u32 = 500;
    let core = host::new_core(600, 2, true);
    let entry = host::register(core);
    let queue = Mutex::new(Vec::new());
    host::start(
        core,
        entry,
        Arc::new(move |call: &mut host::Call<'_>| host::fifo(call, &queue)),
    );
    core.set_default(Some(entry));
    for pid in 1..=TASKS {
        let task = host::new_task(core, pid, 0).unwrap();
        let mut ctx = BatonCtx {
            task,
            flags: BATON_F_WAKEUP,
            ..BatonCtx::default()
        };
        assert_eq!(
            core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
            Verdict::None
        );
    }
    end(core, entry);
    assert_eq!(
        core.dispatch(0, core.cpu(0).unwrap(), &mut BatonCtx::default()),
        Verdict::Rescue
    );
    let rescued: Vec<u32> = host::rescue_all(core)
        .iter()
        .map(|slot| slot.pid())
        .collect();
    assert_eq!(rescued.len(), TASKS as usize);
    assert_eq!(rescued.iter().collect::<HashSet<_>>().len(), TASKS as usize);
    assert_eq!(core.fallback_tasks(), TASKS);
    let kicks = || core.host().kicks.load(SeqCst);
    let before = kicks();
    assert!(!core.rescue_stranded());
    assert_eq!(kicks(), before);
    core.set_idle(1, core.cpu(1).unwrap(), &mut BatonCtx::default(), true);
    assert!(!core.rescue_stranded());
    assert_eq!(kicks(), before + 1, "one idles while they wait");
    assert_eq!(
        core.dispatch(0, core.cpu(0).unwrap(), &mut BatonCtx::default()),
        Verdict::Fallback
    );
}

#[test]
fn rescue_after_a_fault_and_after_a_stop() {
    all_are_rescued(|core, entry| {
        let fault = Fault {
            kind: BatonFaultKind::Panic,
            method: BatonMethod::None,
            pid: 0,
            now: 0,
        };
        assert!(core.fault(entry, &fault, None));
        assert_eq!(entry.state(), BatonPolicyState::Faulted);
    });
    all_are_rescued(|core, entry| {
        assert!(core.stop(entry));
        assert_eq!(entry.state(), BatonPolicyState::Registered);
        assert!(!core.stop(entry));
    });
}

#[test]
fn a_stop_does_not_take_the_policy_from_calls_under_way() {
    let core = host::new_core(1, 1, false);
    let (entry, calls) = (host::register(core), Arc::new(AtomicUsize::new(0)));
    let seen = calls.clone();
    let policy = move |call: &mut host::Call<'_>| {
        if seen.fetch_add(1, SeqCst) == 0 {
            // Another CPU stops the policy now. This CPU still needs the policy in the same event,
            // so the host waits.
            assert!(call.core.stop(call.policy));
            assert_ne!(call.policy.version.load(SeqCst), 0);
        }
        0
    };
    host::start(core, entry, Arc::new(policy));
    core.dispatch(0, core.cpu(0).unwrap(), &mut BatonCtx::default());
    assert!(calls.load(SeqCst) > 0);
    assert_eq!(host::count(core, TaskState::Queued), 0);
}
