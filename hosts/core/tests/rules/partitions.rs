// SPDX-License-Identifier: GPL-2.0-only
//! Partitions: which policy is asked on which CPU, what happens to tasks when that changes, and
//! which CPUs run tasks without a policy.

use crate::host::{self, TestCore};
use baton_abi::{BatonCtx, BatonMethod, BATON_F_PREV_RUNNABLE, BATON_F_WAKEUP, BATON_PICK_NONE};
use baton_core::{Partition, PolicyEntry, TaskState, Verdict};
use std::sync::{Arc, Mutex};

type Told = Arc<Mutex<Vec<(BatonMethod, u64)>>>;

/// A policy, and the CPU notices that it gets.
fn start(core: &'static TestCore) -> (&'static PolicyEntry, Told) {
    let (entry, told, queue) = (
        host::register(core),
        Told::default(),
        Mutex::new(Vec::new()),
    );
    let own = told.clone();
    let policy = move |call: &mut host::Call<'_>| {
        if matches!(
            call.method,
            BatonMethod::CpuOnline | BatonMethod::CpuOffline
        ) {
            own.lock().unwrap().push((call.method, call.what));
        }
        host::fifo(call, &queue)
    };
    host::start(core, entry, Arc::new(policy));
    (entry, told)
}

fn partition(core: &TestCore, id: u32, cpus: &[i32], policies: &[&PolicyEntry]) {
    let policies = policies
        .iter()
        .fold(0, |bits, policy| bits | 1 << policy.index());
    core.set_partition(
        &Partition {
            id,
            cpus: |cpu| cpus.contains(&cpu),
            policies,
        },
        0,
        0,
        core.cpu(0).unwrap(),
    );
}

/// Wakes a task of a policy on a CPU. Returns its handle and its state.
fn wake(
    core: &TestCore,
    pid: u32,
    entry: Option<&PolicyEntry>,
    cpu: i32,
    mask: u64,
) -> (u64, Verdict) {
    let task = host::new_task(core, pid, 0).unwrap();
    let slot = core.by_handle(task).unwrap();
    host::set_mask(core, slot, mask);
    core.assign(slot, entry);
    let mut ctx = BatonCtx {
        task,
        cpu,
        flags: BATON_F_WAKEUP,
        ..BatonCtx::default()
    };
    (task, core.enqueue(0, core.cpu(0).unwrap(), &mut ctx))
}

fn dispatch(core: &TestCore, cpu: i32, prev: u64) -> (Verdict, u64, u64) {
    let flags = if prev == 0 { 0 } else { BATON_F_PREV_RUNNABLE };
    let mut ctx = BatonCtx {
        task: prev,
        cpu,
        flags,
        ..BatonCtx::default()
    };
    let verdict = core.dispatch(cpu, core.cpu(cpu).unwrap(), &mut ctx);
    let handle = if verdict == Verdict::Run {
        host::slot_of(core, ctx.task).handle()
    } else {
        0
    };
    (verdict, handle, ctx.slice)
}

#[test]
fn a_partitions_cpus_ask_its_policies_and_no_others_do() {
    let core = host::new_core(8, 4, true);
    let ((a, _), (b, _)) = (start(core), start(core));
    partition(core, 1, &[2, 3], &[a]);
    let (of_a, _) = wake(core, 1, Some(a), 0, !0);
    let (of_b, _) = wake(core, 2, Some(b), 3, !0);
    assert!(
        matches!(core.by_handle(of_a).unwrap().cpu(), 2 | 3),
        "woken on CPU 0, to its policy on one of its own"
    );
    assert!(matches!(core.by_handle(of_b).unwrap().cpu(), 0 | 1));
    assert_eq!(dispatch(core, 2, 0).1, of_a);
    assert_eq!(
        dispatch(core, 3, 0),
        (Verdict::Nothing, 0, 0),
        "there is a task of the other's"
    );
    assert_eq!(dispatch(core, 1, 0).1, of_b);
    assert_eq!(dispatch(core, 0, 0), (Verdict::Nothing, 0, 0));
}

#[test]
fn policies_are_told_what_they_gain_and_lose() {
    use BatonMethod::{CpuOffline, CpuOnline};
    let core = host::new_core(8, 4, true);
    let ((a, told_a), (b, told_b)) = (start(core), start(core));
    let check = |of_a: &[(BatonMethod, u64)], of_b: &[(BatonMethod, u64)]| {
        assert_eq!(*std::mem::take(&mut *told_a.lock().unwrap()), *of_a);
        assert_eq!(*std::mem::take(&mut *told_b.lock().unwrap()), *of_b);
    };
    partition(core, 1, &[2, 3], &[a]);
    check(
        &[(CpuOffline, 0), (CpuOffline, 1)],
        &[(CpuOffline, 2), (CpuOffline, 3)],
    );
    partition(core, 1, &[3], &[a]);
    check(&[(CpuOffline, 2)], &[(CpuOnline, 2)]);
    partition(core, 1, &[1, 3], &[a]);
    check(&[(CpuOnline, 1)], &[(CpuOffline, 1)]);
    partition(core, 1, &[1, 3], &[a, b]);
    check(
        &[],
        &[
            (CpuOnline, 1),
            (CpuOnline, 3),
            (CpuOffline, 0),
            (CpuOffline, 2),
        ],
    );
    let mut ctx = BatonCtx {
        cpu: 0,
        ..BatonCtx::default()
    };
    core.set_online(1, core.cpu(1).unwrap(), &mut ctx, false);
    check(&[], &[]);
    partition(core, 1, &[], &[]);
    check(&[(CpuOnline, 2)], &[(CpuOnline, 2)]);
}

#[test]
fn what_is_queued_moves_and_what_runs_leaves() {
    let core = host::new_core(8, 3, true);
    let (a, _) = start(core);
    let (running, _) = wake(core, 1, Some(a), 0, !0);
    assert_eq!(dispatch(core, 0, 0).1, running);
    let (queued, _) = wake(core, 2, Some(a), 0, !0);
    let kicks = core.host().kicks.load(std::sync::atomic::Ordering::SeqCst);
    partition(core, 1, &[2], &[a]);
    assert!(core.host().kicks.load(std::sync::atomic::Ordering::SeqCst) > kicks);
    assert!(host::rescue_all(core).is_empty());
    assert_eq!(core.by_handle(queued).unwrap().cpu(), 2);
    assert_eq!(dispatch(core, 0, running), (Verdict::Nothing, 0, 0));
    assert_eq!(
        core.host()
            .evictions
            .load(std::sync::atomic::Ordering::SeqCst),
        1,
        "it is enqueued, then"
    );
    let mut ctx = BatonCtx {
        task: running,
        cpu: 0,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::None
    );
    assert_eq!(
        ctx.kicks[..ctx.nr_kicks as usize],
        [2],
        "where it is now, nothing else makes the CPU look"
    );
    assert_eq!(
        (dispatch(core, 2, 0).1, dispatch(core, 2, 0).1),
        (queued, running)
    );
}

#[test]
fn tasks_that_cannot_be_in_their_policys_partition_are_without_a_policy() {
    let core = host::new_core(8, 3, true);
    let (a, _) = start(core);
    let (task, verdict) = wake(core, 1, Some(a), 0, 0b001);
    assert_eq!(verdict, Verdict::None);
    partition(core, 1, &[1, 2], &[a]);
    assert_eq!(host::rescue_all(core).len(), 1, "it may run on CPU 0 only");
    let slot = core.by_handle(task).unwrap();
    assert_eq!((slot.state(), slot.policy()), (TaskState::Fallback, 0));
    partition(core, 1, &[0, 2], &[a]);
    let enqueue = |flags: u16| {
        let mut ctx = BatonCtx {
            task,
            cpu: 0,
            flags,
            ..BatonCtx::default()
        };
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx)
    };
    assert_eq!(enqueue(0), Verdict::Local, "it has just been rescued");
    assert_eq!(
        enqueue(BATON_F_WAKEUP),
        Verdict::None,
        "it is its policy's again"
    );
    assert_eq!(slot.policy(), a.id());
}

/// Its migration may be disabled briefly, as it is while a BPF program runs in its context.
#[test]
fn a_picked_task_that_may_run_on_none_of_its_policys_cpus_just_now_is_not_the_policys_to_keep() {
    let core = host::new_core(8, 4, true);
    let (a, queue) = (host::register(core), Mutex::new(Vec::new()));
    let policy = move |call: &mut host::Call<'_>| match call.method {
        BatonMethod::PickNextTask => queue.lock().unwrap().pop().unwrap_or(BATON_PICK_NONE),
        BatonMethod::PickRefused => panic!("it gets a task back that it could put nowhere"),
        _ => host::fifo(call, &queue),
    };
    host::start(core, a, Arc::new(policy));
    partition(core, 1, &[2, 3], &[a]);
    let (task, _) = wake(core, 1, Some(a), 0, !0);
    let slot = core.by_handle(task).unwrap();
    host::set_mask(core, slot, 0b0001);
    assert_eq!(dispatch(core, 2, 0).0, Verdict::Rescue);
    host::set_mask(core, slot, !0);
    assert_eq!(
        host::rescue_all(core).len(),
        1,
        "its policy does not have it, wherever it may run now"
    );
    assert_eq!(slot.state(), TaskState::Fallback);
    assert_eq!(dispatch(core, 2, 0).0, Verdict::Nothing);
    let mut ctx = BatonCtx {
        task,
        cpu: 0,
        ..BatonCtx::default()
    };
    core.enqueue(0, core.cpu(0).unwrap(), &mut ctx);
    let mut ctx = BatonCtx {
        task,
        cpu: 0,
        flags: BATON_F_WAKEUP,
        ..BatonCtx::default()
    };
    assert_eq!(
        core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
        Verdict::None,
        "it is its policy's again"
    );
    assert_eq!(dispatch(core, 2, 0).1, task);
}

#[test]
fn tasks_without_a_policy_keep_off_a_partition_unless_they_must() {
    let core = host::new_core(8, 2, true);
    let (a, _) = start(core);
    partition(core, 1, &[1], &[a]);
    let (free, verdict) = wake(core, 1, None, 1, !0);
    assert_eq!(verdict, Verdict::Fallback);
    assert_eq!(core.by_handle(free).unwrap().cpu(), 0);
    assert_eq!(dispatch(core, 1, 0).0, Verdict::Nothing);
    assert_eq!(
        wake(core, 2, None, 1, 0b10).1,
        Verdict::Local,
        "it may run nowhere else"
    );
    // Its affinity changes while it waits on the fallback queue.
    host::set_mask(core, core.by_handle(free).unwrap(), 0b10);
    core.relieve();
    assert_eq!(dispatch(core, 1, 0).0, Verdict::Fallback);
    host::set_mask(core, core.by_handle(free).unwrap(), !0);
    core.relieve();
    assert_eq!(dispatch(core, 1, 0).0, Verdict::Nothing);
    core.stop(a);
    assert!(host::rescue_all(core).is_empty());
    assert!(
        matches!(dispatch(core, 1, 0).0, Verdict::Fallback | Verdict::Turn),
        "no other task is there"
    );
}
