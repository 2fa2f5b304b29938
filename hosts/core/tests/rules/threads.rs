// SPDX-License-Identifier: GPL-2.0-only
//! Several CPUs at once, on real threads.

use crate::host::{self, Call, TestCore};
use baton_abi::{BatonCtx, BatonFaultKind, BatonMethod, BatonPolicyState, BATON_F_WAKEUP};
use baton_core::{Fault, PolicyEntry, Verdict};
use std::{
    hint,
    sync::{
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
        Arc, Mutex, MutexGuard, PoisonError,
    },
    thread,
};

/// Threads wait for each other here, spinning, so that they continue at the same moment.
struct Meeting {
    came: AtomicUsize,
    threads: usize,
}

impl Meeting {
    fn new(threads: usize) -> Self {
        Self {
            came: AtomicUsize::new(0),
            threads,
        }
    }

    fn wait(&self) {
        let all = (self.came.fetch_add(1, SeqCst) / self.threads + 1) * self.threads;
        let mut spins = 0;
        while self.came.load(SeqCst) < all {
            spins += 1;
            if spins % 128 == 0 {
                thread::yield_now();
            }
            hint::spin_loop();
        }
    }
}

/// Spins for a few instructions, a different number each round, so that the rounds cover every
/// moment of the other thread.
fn dawdle(round: usize) {
    for spin in 0..round % 211 {
        hint::black_box(spin);
    }
}

/// The machine has few CPUs. One test of this file runs at a time, so that its threads run at once.
static MACHINE: Mutex<()> = Mutex::new(());

fn have_the_machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start_fifo(core: &'static TestCore, entry: &'static PolicyEntry, queue: &Arc<Mutex<Vec<u64>>>) {
    let queue = queue.clone();
    host::start(
        core,
        entry,
        Arc::new(move |call: &mut Call<'_>| host::fifo(call, &queue)),
    );
}

fn fault(core: &TestCore, entry: &PolicyEntry) -> bool {
    let fault = Fault {
        kind: BatonFaultKind::Panic,
        method: BatonMethod::None,
        pid: 0,
        now: 0,
    };
    core.fault(entry, &fault, None)
}

/// The tasks that one CPU ran, and those that it put on the fallback queue.
#[derive(Default)]
struct Found {
    ran: Vec<u32>,
    rescued: Vec<u32>,
}

fn look(core: &TestCore, cpu: i32, found: &mut Found) {
    let mut ctx = BatonCtx {
        cpu,
        ..BatonCtx::default()
    };
    match core.dispatch(cpu, core.cpu(cpu).unwrap(), &mut ctx) {
        Verdict::Run => found.ran.push(host::slot_of(core, ctx.task).pid()),
        Verdict::Rescue => found
            .rescued
            .extend(core.rescue_one().map(|(slot, _)| slot.pid())),
        _ => thread::yield_now(),
    }
}

/// One CPU enqueues, others pick, and the policy fails in between. Each task comes out exactly
/// once, through a pick or a rescue.
#[test]
fn each_token_ends_in_one_run_or_one_rescue() {
    let _machine = have_the_machine();
    const TASKS: u32 = 400;
    const PICKERS: i32 = 3;
    for round in 0..40 {
        let core = host::new_core(TASKS as usize, PICKERS + 1, false);
        let entry = host::register(core);
        let queue = Arc::new(Mutex::new(Vec::new()));
        start_fifo(core, entry, &queue);
        core.set_default(Some(entry));
        let handles: Vec<u64> = (1..=TASKS)
            .map(|pid| host::new_task(core, pid, 0).unwrap())
            .collect();
        let (barrier, done) = (Meeting::new(PICKERS as usize + 1), AtomicBool::new(false));
        let (at_enqueue, found) = thread::scope(|scope| {
            let pickers: Vec<_> = (1..=PICKERS)
                .map(|cpu| {
                    let (barrier, done) = (&barrier, &done);
                    scope.spawn(move || {
                        let mut found = Found::default();
                        barrier.wait();
                        while !done.load(SeqCst) {
                            look(core, cpu, &mut found);
                        }
                        found
                    })
                })
                .collect();
            barrier.wait();
            let mut at_enqueue = Vec::new();
            for (number, &task) in handles.iter().enumerate() {
                if number == (round * 10 + 7) % TASKS as usize {
                    scope.spawn(|| assert!(fault(core, entry)));
                }
                let mut ctx = BatonCtx {
                    task,
                    flags: BATON_F_WAKEUP,
                    ..BatonCtx::default()
                };
                if core.enqueue(0, core.cpu(0).unwrap(), &mut ctx) == Verdict::Fallback {
                    at_enqueue.push(number as u32 + 1);
                }
            }
            while entry.state() == BatonPolicyState::Running {
                thread::yield_now();
            }
            done.store(true, SeqCst);
            (
                at_enqueue,
                pickers
                    .into_iter()
                    .map(|picker| picker.join().unwrap())
                    .collect::<Vec<_>>(),
            )
        });
        core.rescue_stranded();
        let late = host::rescue_all(core)
            .iter()
            .map(|slot| slot.pid())
            .collect::<Vec<_>>();
        let ran: Vec<u32> = found.iter().flat_map(|found| &found.ran).copied().collect();
        let rescued: Vec<u32> = found
            .iter()
            .flat_map(|found| &found.rescued)
            .copied()
            .collect();
        let in_fallback = at_enqueue.len() + rescued.len() + late.len();
        let mut all = [at_enqueue, ran, rescued, late].concat();
        all.sort_unstable();
        assert!(
            all.iter().copied().eq(1..=TASKS),
            "round {round}: not each task once: {all:?}"
        );
        assert_eq!(core.fallback_tasks() as usize, in_fallback);
        assert_eq!(host::count(core, baton_core::TaskState::Queued), 0);
    }
}

/// A policy gives the same token to all CPUs, and sometimes fails while they pick. The task comes
/// out once.
#[test]
fn one_of_many_wins_a_token() {
    let _machine = have_the_machine();
    const ROUNDS: usize = 4000;
    const PICKERS: i32 = 2;
    let core = host::new_core(1, PICKERS + 1, false);
    let entry = host::register(core);
    let latest = Arc::new(AtomicU64::new(0));
    let task = host::new_task(core, 1, 0).unwrap();
    let start = || {
        let latest = latest.clone();
        let policy = move |call: &mut Call<'_>| match call.method {
            BatonMethod::PickNextTask => latest.load(SeqCst),
            BatonMethod::PickRefused => {
                // Otherwise the refusals would be a fault.
                let _ = latest.compare_exchange(call.what, 0, SeqCst, SeqCst);
                0
            }
            _ if call.token != 0 => {
                latest.store(call.token, SeqCst);
                0
            }
            _ => 0,
        };
        host::start(core, entry, Arc::new(policy));
        core.set_default(Some(entry));
    };
    start();
    let (barrier, outcomes) = (Meeting::new(PICKERS as usize + 1), AtomicU32::new(0));
    thread::scope(|scope| {
        for cpu in 1..=PICKERS {
            let (barrier, outcomes) = (&barrier, &outcomes);
            scope.spawn(move || {
                let mut found = Found::default();
                for round in 0..ROUNDS {
                    barrier.wait();
                    dawdle(round * cpu as usize);
                    for _ in 0..3 {
                        look(core, cpu, &mut found);
                    }
                    outcomes.fetch_add((found.ran.len() + found.rescued.len()) as u32, SeqCst);
                    found.ran.clear();
                    found.rescued.clear();
                    barrier.wait();
                }
            });
        }
        for round in 0..ROUNDS {
            let enqueue = || {
                let mut ctx = BatonCtx {
                    task,
                    ..BatonCtx::default()
                };
                core.enqueue(0, core.cpu(0).unwrap(), &mut ctx)
            };
            // A task that was rescued in the previous round goes to the fallback queue first.
            let first = enqueue();
            assert!(
                first == Verdict::None
                    || (first == Verdict::Fallback && enqueue() == Verdict::None)
            );
            barrier.wait();
            let fails = round % 3 == 0;
            if fails {
                dawdle(round / 3);
                assert!(fault(core, entry));
            }
            barrier.wait();
            let late = host::rescue_all(core).len() as u32;
            assert_eq!(outcomes.swap(0, SeqCst) + late, 1, "round {round}");
            if fails {
                core.stop(entry);
                start();
            }
        }
    });
}

/// Two policies stop at the same moment. Neither is entered afterwards.
#[test]
fn policies_that_stop_at_once_are_not_entered_again() {
    let _machine = have_the_machine();
    let core = host::new_core(1, 2, false);
    let entries = [host::register(core), host::register(core)];
    let calls = Arc::new(AtomicU32::new(0));
    let barrier = Meeting::new(2);
    thread::scope(|scope| {
        for (cpu, entry) in entries.into_iter().enumerate() {
            let (barrier, calls) = (&barrier, calls.clone());
            scope.spawn(move || {
                for round in 0..4000 {
                    if cpu == 0 {
                        for entry in entries {
                            let calls = calls.clone();
                            let policy = move |_: &mut Call<'_>| {
                                calls.fetch_add(1, SeqCst);
                                0
                            };
                            host::start(core, entry, Arc::new(policy));
                        }
                        calls.store(0, SeqCst);
                    }
                    barrier.wait();
                    dawdle(if cpu == 0 { round } else { 100 });
                    if round % 3 != cpu {
                        core.stop(entry);
                    } else {
                        assert!(fault(core, entry));
                        core.stop(entry);
                    }
                    barrier.wait();
                    core.dispatch(0, core.cpu(0).unwrap(), &mut BatonCtx::default());
                    assert_eq!(calls.load(SeqCst), 0, "round {round}");
                    barrier.wait();
                }
            });
        }
    });
}

/// A policy fails in its first call, which comes before its start is over. It is not entered again.
#[test]
fn a_policy_that_fails_before_its_start_is_over() {
    let _machine = have_the_machine();
    let core = host::new_core(1, 2, false);
    let entry = host::register(core);
    let task = host::new_task(core, 1, 0).unwrap();
    core.assign(core.by_handle(task).unwrap(), Some(entry));
    let (barrier, started, calls) = (
        Meeting::new(2),
        AtomicBool::new(false),
        Arc::new(AtomicU32::new(0)),
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3000 {
                barrier.wait();
                let seen = calls.clone();
                let policy = move |call: &mut Call<'_>| {
                    seen.fetch_add(1, SeqCst);
                    call.abort(BatonFaultKind::Panic)
                };
                host::start(core, entry, Arc::new(policy));
                started.store(true, SeqCst);
                barrier.wait();
                core.stop(entry);
            }
        });
        for round in 0..3000 {
            barrier.wait();
            // Enqueued repeatedly until the policy has it and has failed.
            while !(started.load(SeqCst) && calls.load(SeqCst) > 0) {
                let mut ctx = BatonCtx {
                    task,
                    flags: BATON_F_WAKEUP,
                    ..BatonCtx::default()
                };
                assert_eq!(
                    core.enqueue(0, core.cpu(0).unwrap(), &mut ctx),
                    Verdict::Fallback
                );
            }
            core.disable_task(
                0,
                core.cpu(0).unwrap(),
                &mut BatonCtx {
                    task,
                    ..BatonCtx::default()
                },
                false,
            );
            core.enable_task(task, 0);
            host::rescue_all(core);
            core.dispatch(
                1,
                core.cpu(1).unwrap(),
                &mut BatonCtx {
                    cpu: 1,
                    ..BatonCtx::default()
                },
            );
            assert_eq!(
                calls.swap(0, SeqCst),
                1,
                "round {round}: entered after its fault"
            );
            started.store(false, SeqCst);
            barrier.wait();
        }
    });
}

/// A task is assigned while it is being enqueued. It changes policy at the next enqueue at the
/// latest.
#[test]
fn an_assignment_is_never_missed() {
    let _machine = have_the_machine();
    let core = host::new_core(1, 1, false);
    let entries = [host::register(core), host::register(core)];
    for entry in entries {
        start_fifo(core, entry, &Arc::default());
    }
    let task = host::new_task(core, 1, 0).unwrap();
    let slot = core.by_handle(task).unwrap();
    let (barrier, cpu) = (Meeting::new(2), core.cpu(0).unwrap());
    let enqueue = || {
        let mut ctx = BatonCtx {
            task,
            ..BatonCtx::default()
        };
        assert_eq!(core.enqueue(0, cpu, &mut ctx), Verdict::None);
    };
    core.assign(slot, Some(entries[0]));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..4000 {
                barrier.wait();
                dawdle(round);
                core.assign(slot, Some(entries[round % 2]));
                barrier.wait();
            }
        });
        for round in 0..4000 {
            // This makes the enqueue check the assignment.
            core.set_default(None);
            barrier.wait();
            dawdle(100);
            enqueue();
            enqueue();
            barrier.wait();
            enqueue();
            assert_eq!(slot.policy(), entries[round % 2].id(), "round {round}");
        }
    });
}
