// SPDX-License-Identifier: GPL-2.0-only
//! The rules hold for any sequence of kernel events and any answers of policies.

use crate::{
    host::{self, Call, TestCore},
    kernel::{Kernel, Place, Race, Task, Turn, CPUS},
};
use baton_abi::{
    BatonCtx, BatonFaultKind, BatonMethod as M, BATON_ABORTED, BATON_PICK_KEEP, BATON_SELECT_DIRECT,
};
use baton_core::{Fault, Partition, PolicyEntry, TaskState, FREE};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
};

const SLOTS: usize = 7;
const POLICIES: usize = 3;

/// The tokens that policies have been given, and their answers.
#[derive(Default)]
struct Ledger {
    /// Every token, and the newest one by slot.
    tokens: Vec<u64>,
    newest: BTreeMap<u32, u64>,
    /// The tokens with which a task was run.
    used: HashSet<u64>,
    /// The policy that answered the last pick.
    answered: u32,
    random: u64,
}

impl Ledger {
    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as usize % below.max(1)
    }

    /// A token that may be fresh, or any earlier one.
    fn any_token(&mut self) -> u64 {
        let (is_new, at) = (self.draw(2) == 0, self.draw(self.tokens.len()));
        let newest = self.newest.values().nth(at % self.newest.len().max(1));
        newest
            .filter(|_| is_new)
            .or(self.tokens.get(at))
            .copied()
            .unwrap_or(2)
    }
}

/// First come, first served, but one answer in `mischief` is wrong (0: none is).
fn answer(
    call: &mut Call<'_>,
    queue: &Mutex<Vec<u64>>,
    ledger: &Mutex<Ledger>,
    mischief: usize,
) -> u64 {
    let mut book = ledger.lock().unwrap();
    let minted = matches!(
        call.method,
        M::TaskNew | M::TaskWakeup | M::TaskPreempt | M::TaskYield | M::TaskRestored
    );
    if minted {
        let (slot, token) = (call.task.unwrap().slot, call.token);
        assert!(!book.tokens.contains(&token), "a token is made once");
        book.tokens.push(token);
        book.newest.insert(slot, token);
    }
    if matches!(call.method, M::PickNextTask | M::NewlyIdle) {
        book.answered = call.policy.id();
    }
    if mischief == 0 || book.draw(mischief) != 0 {
        drop(book);
        return host::fifo(call, queue);
    }
    let (choice, any) = (book.draw(8), book.any_token());
    let garbage = book.random;
    drop(book);
    match (call.method, choice) {
        (_, 0) => call.abort(BatonFaultKind::Panic),
        (_, 1) => call.drop_token(any),
        (M::SelectTaskRq, 2) => (garbage % 5) | BATON_SELECT_DIRECT,
        (M::PickNextTask | M::NewlyIdle | M::TaskDequeued | M::TaskDeparted, 2) => any,
        (M::PickNextTask, 3) => BATON_PICK_KEEP,
        (M::PickNextTask, 4) => BATON_ABORTED,
        (M::PickNextTask | M::TaskDequeued | M::SelectTaskRq, 5) => garbage,
        // A token that is stored and forgotten.
        (_, 6) => 0,
        _ => host::fifo(call, queue),
    }
}

struct Trial {
    kernel: Kernel,
    policies: Vec<&'static PolicyEntry>,
    ledger: Arc<Mutex<Ledger>>,
    mischief: usize,
}

impl Trial {
    fn new(seed: u64, mischief: usize) -> Self {
        let core: &'static TestCore = host::new_core(SLOTS, CPUS, true);
        let ledger = Arc::new(Mutex::new(Ledger {
            random: seed | 1,
            ..Ledger::default()
        }));
        let mut kernel = Kernel::new(core);
        let book = ledger.clone();
        kernel.on_run = Box::new(move |task, token, cpu| {
            let mut book = book.lock().unwrap();
            let slot = host::slot_of(core, token);
            assert_eq!(
                book.newest.get(&slot.index()),
                Some(&token),
                "a token that is not the newest was taken"
            );
            assert!(book.used.insert(token), "a token was taken twice");
            assert_eq!(slot.policy(), book.answered, "a foreign token was taken");
            assert!(core
                .policies()
                .iter()
                .any(|entry| entry.id() == slot.policy() && entry.is_running()));
            assert!(task.mask & (1 << cpu) != 0, "a CPU that is not allowed");
            let policy = core
                .policies()
                .iter()
                .find(|entry| entry.id() == slot.policy())
                .unwrap();
            assert_eq!(
                policy.partition(),
                core.cpu(cpu).unwrap().partition(),
                "a CPU of another partition"
            );
            assert_eq!(slot.state(), TaskState::Running);
        });
        if mischief == 0 {
            kernel.on_idle = Box::new(|kernel, cpu| {
                let serves = |task: &Task| {
                    let policy = kernel
                        .core
                        .by_handle(task.handle)
                        .map_or(0, |slot| slot.policy());
                    let policy = kernel
                        .core
                        .policies()
                        .iter()
                        .find(|entry| entry.id() == policy && policy != 0);
                    policy.is_some_and(|policy| {
                        policy.partition() == kernel.core.cpu(cpu).unwrap().partition()
                    })
                };
                let is_free = kernel.core.cpu(cpu).unwrap().partition() == FREE;
                let waits = |task: &&Task| match task.place {
                    Place::Custody => serves(task),
                    Place::Fallback => is_free,
                    _ => false,
                };
                for task in kernel.tasks.iter().filter(waits) {
                    assert!(
                        task.mask & (1 << cpu) == 0,
                        "CPU {cpu} idles while task {} waits",
                        task.pid
                    );
                }
            });
        }
        let policies = (0..POLICIES).map(|_| host::register(core)).collect();
        Self {
            kernel,
            policies,
            ledger,
            mischief,
        }
    }

    fn start(&self, at: usize) {
        let (ledger, mischief, queue) =
            (self.ledger.clone(), self.mischief, Mutex::new(Vec::new()));
        let policy = move |call: &mut Call<'_>| answer(call, &queue, &ledger, mischief);
        if self.policies[at].state() == baton_abi::BatonPolicyState::Registered {
            host::start(self.kernel.core, self.policies[at], Arc::new(policy));
        }
    }

    fn step(&mut self, (what, who, more): (u8, u8, u8)) {
        let (core, cpu) = (self.kernel.core, i32::from(who) % CPUS);
        let here = core.cpu(cpu).unwrap();
        let policy = self.policies[usize::from(who) % POLICIES];
        let task = usize::from(who).checked_rem(self.kernel.tasks.len());
        let running = self.kernel.current(cpu);
        let race = match more % 16 {
            0 => Race::Before,
            1 => Race::Across,
            _ => Race::None,
        };
        let mut ctx = BatonCtx {
            cpu,
            ..BatonCtx::default()
        };
        match (what % 44, task) {
            (0..=2, _) => self.kernel.fork(task),
            (3..=9, Some(at)) => self.kernel.wake(at, i32::from(more) % CPUS),
            (10..=14, _) => self.kernel.schedule(cpu, Turn::Blocks, race),
            (15..=19, _) => self.kernel.schedule(cpu, Turn::Expires, race),
            (20, _) => self.kernel.schedule(cpu, Turn::Dies, Race::None),
            (21, _) => self.kernel.higher_class(cpu, more % 2 == 0),
            (22, Some(at)) => self.kernel.set_affinity(at, cpu, u64::from(more % 7) + 1),
            (23, Some(at)) => self.kernel.change(at, cpu, |_| {}),
            (24, Some(at)) => self.kernel.set_class(at, cpu, more % 2 == 0),
            (25, Some(at)) if self.kernel.tasks[at].ours => {
                ctx.task = self.kernel.tasks[at].handle;
                core.set_nice(cpu, here, &mut ctx, i32::from(more % 4));
            }
            (26, _) => self.kernel.reenqueue_local(cpu),
            (27, _) => self.kernel.bypass(),
            (28, _) => self.kernel.set_online(cpu, more % 4 != 0),
            (29, Some(at)) => core.assign(self.kernel.slot(at), (more % 4 != 0).then_some(policy)),
            (30, _) => core.set_default((more % 4 != 0).then_some(policy)),
            (31 | 32, _) => self.start(usize::from(who) % POLICIES),
            (33, _) if more % 2 == 0 => {
                core.stop(policy);
            }
            (33, _) => {
                core.fault(
                    policy,
                    &Fault {
                        kind: BatonFaultKind::Stall,
                        method: M::None,
                        pid: 0,
                        now: 0,
                    },
                    None,
                );
            }
            (34, _) => core.timer(cpu, here, &mut ctx, policy.index() as usize),
            (35, _) => drop(core.rescue_stranded()),
            (36 | 37, _) => {
                if let Some(at) = running {
                    ctx.task = self.kernel.tasks[at].handle;
                    let verdict = core.tick(cpu, here, &mut ctx);
                    if verdict == baton_core::Verdict::Expire {
                        self.kernel.schedule(cpu, Turn::Expires, Race::None);
                    }
                }
            }
            (38, _) => {
                if let Some(at) = running {
                    core.yield_task(self.kernel.tasks[at].handle);
                    self.kernel.schedule(cpu, Turn::Expires, Race::None);
                }
            }
            (39, _) => drop(core.claim_idle(cpu)),
            (40, _) => self.partition(u32::from(who % 2) + 1, more),
            (41, _) => core.set_partition(
                &Partition {
                    id: u32::from(who % 2) + 1,
                    cpus: |_| false,
                    policies: 0,
                },
                0,
                cpu,
                here,
            ),
            (42, _) => core.relieve(),
            _ => drop(core.set_share(policy, u32::from(more % 60))),
        }
    }

    /// A change that the control device permits: nothing is in two partitions, and a CPU that is
    /// online is in none.
    fn partition(&self, id: u32, wish: u8) {
        let core = self.kernel.core;
        let of = |cpu: i32| core.cpu(cpu).unwrap().partition();
        let cpus = move |cpu: i32| wish & 1 << cpu != 0;
        let is_free = |partition: u32| partition == FREE || partition == id;
        let taken = (0..CPUS).any(|cpu| cpus(cpu) && !is_free(of(cpu)));
        let left =
            (0..CPUS).any(|cpu| self.kernel.is_online(cpu) && !cpus(cpu) && is_free(of(cpu)));
        let wanted = |at: usize| wish & 8 << at != 0 && is_free(self.policies[at].partition());
        let policies = (0..POLICIES)
            .filter(|&at| wanted(at))
            .fold(0, |bits, at| bits | 1 << self.policies[at].index());
        if !taken && left && policies != 0 && (0..CPUS).any(cpus) {
            core.set_partition(
                &Partition { id, cpus, policies },
                0,
                0,
                core.cpu(0).unwrap(),
            );
        }
    }

    /// Checks the invariants at rest.
    fn look(&self) {
        let core = self.kernel.core;
        assert_eq!(
            core.tasks() as usize,
            self.kernel.tasks.len(),
            "slots in use"
        );
        assert_eq!(
            core.fallback_tasks() as usize,
            host::count(core, TaskState::Fallback),
            "tasks in the fallback"
        );
        for (at, task) in self.kernel.tasks.iter().enumerate() {
            let slot = self.kernel.slot(at);
            let in_running = core
                .policies()
                .iter()
                .any(|entry| entry.id() == slot.policy() && entry.is_running());
            let state = slot.state();
            assert_eq!(slot.pid(), task.pid);
            assert_eq!(state == TaskState::Outside, !task.ours);
            match task.place {
                Place::Custody => {
                    assert_eq!(
                        state,
                        TaskState::Queued,
                        "task {} is with the rules",
                        task.pid
                    );
                    assert!(
                        in_running || core.rescue_pending(),
                        "task {} is stranded",
                        task.pid
                    );
                }
                Place::Fallback => assert_eq!(state, TaskState::Fallback),
                Place::Away => assert!(!task.runnable || !task.ours, "task {} is lost", task.pid),
                Place::Local(cpu) | Place::OnCpu(cpu) => assert!(self.kernel.is_online(cpu)),
            }
        }
    }

    /// Runs every task that can run until it sleeps. A policy that gives wrong answers may keep its
    /// tasks, so in that case the policies are stopped first.
    fn drain(&mut self) {
        if self.mischief != 0 {
            for policy in &self.policies {
                self.kernel.core.stop(policy);
            }
        }
        for _ in 0..4 * SLOTS {
            (0..CPUS).for_each(|cpu| self.kernel.schedule(cpu, Turn::Blocks, Race::None));
            self.kernel.core.rescue_stranded();
            self.kernel.core.relieve();
            self.look();
        }
        for task in self.kernel.tasks.iter().filter(|task| task.ours) {
            assert!(
                !task.runnable,
                "task {} never runs: {:?}",
                task.pid, task.place
            );
        }
    }
}

fn trial(seed: u64, mischief: usize, steps: &[(u8, u8, u8)]) {
    let mut trial = Trial::new(seed, mischief);
    trial.start(0);
    trial.kernel.core.set_default(Some(trial.policies[0]));
    for &step in steps {
        trial.step(step);
        trial.look();
    }
    trial.drain();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn policies_that_are_right(seed: u64, steps in prop::collection::vec(any::<(u8, u8, u8)>(), 1..300)) {
        trial(seed, 0, &steps);
    }

    #[test]
    fn policies_that_are_often_wrong(
        seed: u64,
        mischief in 2..40usize,
        steps in prop::collection::vec(any::<(u8, u8, u8)>(), 1..300),
    ) {
        trial(seed, mischief, &steps);
    }
}
