// SPDX-License-Identifier: GPL-2.0-only
//! A task, as the core knows it.

use crate::PolicyEntry;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use Ordering::Relaxed;

/// Where a task stands.
///
/// ```text
///             init            enable                 enqueue (mints a token)
///   Free ----------> Outside ---------> Sleeping ------------------------------> Queued
///    ^                  ^                 |  ^  ^                                |  |  ^
///    |      exit        |    disable      |  |  |    dispatch: it blocked        |  |  | enqueue: preempted, yielded,
///    +------------------+-----------------+  |  +---------------- Running <------+  |  | restored (mints the next token)
///                       (from any state)     |                    |   ^    pick,    |  |
///                                            |                    |   |    select   |  |
///                                            |                    |   |             |  |
///                                            +------ Fallback <---+---|-------------+  |
///                                                    |      enqueue without a policy;  |
///                                                    |      rescue of a stopped one's  |
///                                                    +---------------------------------+
/// ```
///
/// Who moves it: the kernel event named, under the run-queue lock of the task; but
/// `Queued -> Running` (a pick) and `Queued -> Fallback` (a rescue) come from any CPU, by
/// compare-and-swap of state and generation together.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The slot is no task's.
    Free = 0,
    /// A task of another scheduling class.
    Outside = 1,
    /// Not runnable, as far as is known.
    Sleeping = 2,
    /// Its token is with its policy.
    Queued = 3,
    /// Picked: on a CPU, or on its way there. No token exists.
    Running = 4,
    /// Runnable or running without a policy. No token exists.
    Fallback = 5,
}

impl TaskState {
    #[inline]
    fn of(word: u64) -> Self {
        match word as u8 {
            1 => Self::Outside,
            2 => Self::Sleeping,
            3 => Self::Queued,
            4 => Self::Running,
            5 => Self::Fallback,
            _ => Self::Free,
        }
    }
}

/// In the word of a running task: it asked to yield.
const YIELDED: u64 = 1 << 8;

/// In the word of a task that runs: it is to leave its CPU ([`crate::Host::evict`]).
const LEAVING: u64 = 1 << 9;

/// In the word of a task in the fallback: it waits, or runs, on its own CPU's queue, not on the
/// fallback's.
const BOUND: u64 = 1 << 10;

/// In the word of a task in the fallback: a rescue has it there, and it has not been enqueued
/// since.
const RESCUED: u64 = 1 << 11;

/// In the word: the generation.
const GENERATION: u64 = !0xffff_ffff;

/// One task. 128 bytes, so that neighbours on two CPUs do not share a pair of cache lines.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Slot {
    /// State in the low byte, above it [`YIELDED`], [`LEAVING`], [`BOUND`] and [`RESCUED`];
    /// generation of the newest token in the high half.
    word: AtomicU64,
    /// When it was last queued, ns.
    pub(crate) queued_at: AtomicU64,
    /// The token that the watch saw it queued with, and for how much of the wait since then its
    /// policy was asked, ns (`stall.rs`).
    pub(crate) watched: AtomicU64,
    pub(crate) unanswered: AtomicU64,
    /// The token that its policy has given up, while the task is queued with it still
    /// (`rescue.rs`).
    pub(crate) given_up: AtomicU64,
    /// What identifies the task in the notes of calls: thread id in the high half, the policy's
    /// place in the table.
    tag: AtomicU64,
    /// Id of the policy that it belongs to and that has been told of it; 0 for none. Changed only
    /// in the task's own events.
    policy: AtomicU32,
    /// Id of the policy that it was assigned to; 0 for the default.
    pub(crate) wanted: AtomicU32,
    /// 1 when `wanted` is, or was last, by a rule of the host's, as for a cgroup, and not by name.
    pub(crate) by_rule: AtomicU32,
    /// The core's epoch when `policy` was last found to be running and the one wanted; 0 when it
    /// must be looked at again.
    pub(crate) epoch: AtomicU32,
    /// The CPU that it was queued on last.
    pub(crate) cpu: AtomicI32,
    pub(crate) pid: AtomicU32,
    pub(crate) nice: AtomicI32,
    /// CPU time used when last seen, ns.
    pub(crate) runtime: AtomicU64,
    /// What the host knows the task by; 0 when the slot is free.
    pub(crate) opaque: AtomicUsize,
    /// Which task's the slot is; part of the handle.
    serial: AtomicU32,
    index: AtomicU32,
    /// Next free slot, plus one. Guarded by the host's slot lock.
    pub(crate) next_free: AtomicU32,
}

impl Slot {
    /// Its state.
    #[inline]
    pub fn state(&self) -> TaskState {
        TaskState::of(self.word.load(Relaxed))
    }

    /// Id of its policy, 0 for none.
    #[inline]
    pub fn policy(&self) -> u32 {
        self.policy.load(Relaxed)
    }

    /// Id of the policy that it was assigned to; 0 for none.
    pub fn wanted(&self) -> u32 {
        self.wanted.load(Relaxed)
    }

    /// Thread id.
    pub fn pid(&self) -> u32 {
        self.pid.load(Relaxed)
    }

    /// Nice value.
    pub fn nice(&self) -> i32 {
        self.nice.load(Relaxed)
    }

    /// The CPU that it was queued on last.
    pub fn cpu(&self) -> i32 {
        self.cpu.load(Relaxed)
    }

    /// What the host knows the task by; 0 when the slot is free.
    #[inline]
    pub fn opaque(&self) -> usize {
        self.opaque.load(Relaxed)
    }

    /// Number of the slot.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index.load(Relaxed)
    }

    #[inline]
    pub(crate) fn serial(&self) -> u32 {
        self.serial.load(Relaxed)
    }

    /// What the shim knows the task by.
    pub fn handle(&self) -> u64 {
        u64::from(self.serial()) << 32 | u64::from(self.index().wrapping_add(1))
    }

    /// Makes the slot a new task's.
    pub(crate) fn occupy(&self, index: u32, opaque: usize, pid: u32) {
        self.index.store(index, Relaxed);
        self.serial
            .store(self.serial().wrapping_add(1).max(1), Relaxed);
        self.policy.store(0, Relaxed);
        self.wanted.store(0, Relaxed);
        self.by_rule.store(0, Relaxed);
        self.epoch.store(0, Relaxed);
        self.nice.store(0, Relaxed);
        self.cpu.store(0, Relaxed);
        self.pid.store(pid, Relaxed);
        self.opaque.store(opaque, Ordering::Release);
        self.set(TaskState::Outside);
    }

    /// Ends the task's use of the slot.
    pub(crate) fn vacate(&self) {
        self.serial
            .store(self.serial().wrapping_add(1).max(1), Relaxed);
        self.opaque.store(0, Relaxed);
        self.set(TaskState::Free);
    }

    /// Moves between states without a token; tokens made before stay stale for ever. Out of
    /// `Queued` lead only the ways by compare-and-swap ([`Slot::claim`], [`Slot::withdraw`]), as a
    /// pick or a rescue may be first.
    #[inline]
    pub(crate) fn set(&self, state: TaskState) {
        debug_assert!(state != TaskState::Queued && self.state() != TaskState::Queued);
        let generation = self.word.load(Relaxed) & GENERATION;
        self.word
            .store(generation | state as u64, Ordering::Release);
    }

    /// Moves a running task to `Sleeping`; false when it is not running.
    #[inline]
    pub(crate) fn block(&self) -> bool {
        let word = self.word.load(Relaxed);
        let is_running = TaskState::of(word) == TaskState::Running;
        if is_running {
            self.word.store(
                (word & GENERATION) | TaskState::Sleeping as u64,
                Ordering::Release,
            );
        }
        is_running
    }

    /// Moves to `Queued` and makes the next token.
    #[inline]
    pub(crate) fn mint(&self, now: u64) -> u64 {
        debug_assert!(!matches!(
            self.state(),
            TaskState::Free | TaskState::Outside | TaskState::Queued
        ));
        // Generation 0 is no token: skip it when the count wraps.
        let generation = ((self.word.load(Relaxed) >> 32) as u32)
            .wrapping_add(1)
            .max(1);
        self.queued_at.store(now, Relaxed);
        self.word.store(
            u64::from(generation) << 32 | TaskState::Queued as u64,
            Ordering::Release,
        );
        u64::from(generation) << 32 | u64::from(self.index().wrapping_add(1))
    }

    /// A policy has it already, with this token ([`crate::Core::resume`]).
    pub(crate) fn set_queued(&self, token: u64) {
        self.word.store(
            (token & GENERATION) | TaskState::Queued as u64,
            Ordering::Release,
        );
    }

    /// Is this the newest token of a queued task?
    #[inline]
    pub(crate) fn is_fresh(&self, token: u64) -> bool {
        self.word.load(Ordering::Acquire) == (token & GENERATION) | TaskState::Queued as u64
    }

    /// Takes the task out of `Queued`, if `token` is its newest and nobody was first.
    #[inline]
    pub(crate) fn claim(&self, token: u64, to: TaskState) -> bool {
        self.unqueue(token, to as u64)
    }

    /// Takes back the last [`Slot::claim`] of a pick, unless the task has been enqueued since. It
    /// must not run.
    pub(crate) fn unpick(&self, token: u64) -> bool {
        let generation = token & GENERATION;
        let (picked, queued) = (
            generation | TaskState::Running as u64,
            generation | TaskState::Queued as u64,
        );
        self.word
            .compare_exchange(picked, queued, Ordering::AcqRel, Relaxed)
            .is_ok()
    }

    /// Takes it to the fallback in the same way, by a CPU that is to put it there.
    pub(crate) fn rescue(&self, token: u64) -> bool {
        self.unqueue(token, TaskState::Fallback as u64 | RESCUED)
    }

    #[inline]
    fn unqueue(&self, token: u64, to: u64) -> bool {
        let generation = token & GENERATION;
        let queued = generation | TaskState::Queued as u64;
        self.word
            .compare_exchange(queued, generation | to, Ordering::AcqRel, Relaxed)
            .is_ok()
    }

    /// Was it rescued, and has not been enqueued since?
    pub(crate) fn is_rescued(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        TaskState::of(word) == TaskState::Fallback && word & RESCUED != 0
    }

    /// The same, and from who held this token.
    pub(crate) fn is_rescued_with(&self, token: u64) -> bool {
        self.is_rescued() && (self.word.load(Relaxed) ^ token) & GENERATION == 0
    }

    /// In an event of the task itself: if it is queued it is `Sleeping` from now on, and its token
    /// is worthless. A pick or a rescue that was first has made it `Running` or `Fallback`.
    pub(crate) fn withdraw(&self) {
        if let Some(token) = self.token() {
            self.claim(token, TaskState::Sleeping);
        }
    }

    /// The token of a queued task.
    pub(crate) fn token(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (TaskState::of(word) == TaskState::Queued)
            .then(|| (word & GENERATION) | u64::from(self.index().wrapping_add(1)))
    }

    /// Has a policy been told of it?
    #[inline]
    pub(crate) fn joined(&self) -> bool {
        self.policy() != 0
    }

    /// The task is this policy's from now on.
    pub(crate) fn join(&self, policy: &PolicyEntry) {
        self.call_of(policy);
        self.policy.store(policy.id(), Relaxed);
    }

    /// The calls about the task are this policy's from now on, as far as reports of faults go.
    pub(crate) fn call_of(&self, policy: &PolicyEntry) {
        self.tag.store(
            u64::from(self.pid()) << 32 | u64::from(policy.index()),
            Relaxed,
        );
    }

    /// The task is no policy's from now on.
    pub(crate) fn leave(&self) {
        self.policy.store(0, Relaxed);
        self.epoch.store(0, Relaxed);
    }

    /// The policy with this id begins anew, and has been told of no task yet.
    pub(crate) fn forget(&self, policy: u32) {
        // A task's own events make it join running policies only, so the id does not come back.
        let _ = self.policy.compare_exchange(policy, 0, Relaxed, Relaxed);
    }

    #[inline]
    pub(crate) fn tag(&self) -> u64 {
        self.tag.load(Relaxed)
    }

    /// The task, which is running, asks to yield. Its next change of state forgets that.
    pub(crate) fn set_yielded(&self) {
        if self.state() == TaskState::Running {
            self.mark(YIELDED);
        }
    }

    /// The task, which runs, is not to stay on its CPU. Its next change of state forgets that.
    pub(crate) fn set_leaving(&self) {
        self.mark(LEAVING);
    }

    /// Was it told to leave its CPU?
    pub(crate) fn is_leaving(&self) -> bool {
        self.word.load(Relaxed) & LEAVING != 0
    }

    /// The task, in the fallback, is on its own CPU's queue. Its next change of state forgets that.
    pub(crate) fn set_bound(&self) {
        self.mark(BOUND);
    }

    /// Is it on the fallback queue, or come from there?
    pub(crate) fn waits_in_fallback(&self) -> bool {
        let word = self.word.load(Relaxed);
        TaskState::of(word) == TaskState::Fallback && word & BOUND == 0
    }

    /// For a state without a token, which only the task's own events leave.
    fn mark(&self, bit: u64) {
        let word = self.word.load(Relaxed);
        if matches!(
            TaskState::of(word),
            TaskState::Running | TaskState::Fallback
        ) {
            self.word.store(word | bit, Relaxed);
        }
    }

    /// Has the running task asked to yield?
    #[inline]
    pub(crate) fn has_yielded(&self) -> bool {
        self.word.load(Relaxed) & YIELDED != 0
    }
}
