// SPDX-License-Identifier: GPL-2.0-only
//! The core's record of a task.

use crate::PolicyEntry;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use Ordering::Relaxed;

/// The state of a task.
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
/// The kernel event at the arrow makes each transition, under the run-queue lock of the task. Two
/// transitions come from any CPU, by compare-and-swap of state and generation together: `Queued ->
/// Running` (a pick) and `Queued -> Fallback` (a rescue).
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The slot belongs to no task.
    Free = 0,
    /// A task of another scheduling class.
    Outside = 1,
    /// Not runnable, as far as the core has noticed.
    Sleeping = 2,
    /// Its policy holds its token.
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

/// In the word of a running task: the task has asked to yield.
const YIELDED: u64 = 1 << 8;

/// In the word of a running task: the task must leave its CPU ([`crate::Host::evict`]).
const LEAVING: u64 = 1 << 9;

/// In the word of a task in the fallback: the task waits, or runs, on its CPU's local queue, not on
/// the fallback queue.
const BOUND: u64 = 1 << 10;

/// In the word of a task in the fallback: a rescue moved the task there, and it has not been
/// enqueued since.
const RESCUED: u64 = 1 << 11;

/// In the word: the generation.
const GENERATION: u64 = !0xffff_ffff;

/// One task. A slot has 128 bytes, so that neighbours on two CPUs do not share a pair of cache
/// lines.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Slot {
    /// State in the low byte; above it [`YIELDED`], [`LEAVING`], [`BOUND`] and [`RESCUED`];
    /// generation of the newest token in the high half.
    word: AtomicU64,
    /// Time at which it was last queued, ns.
    pub(crate) queued_at: AtomicU64,
    /// The token with which the watch last saw the task queued, and for how much of the wait since
    /// then the policy was asked, ns (`stall.rs`).
    pub(crate) watched: AtomicU64,
    pub(crate) unanswered: AtomicU64,
    /// The token that its policy has given up, although the task is still queued with it
    /// (`rescue.rs`).
    pub(crate) given_up: AtomicU64,
    /// Identifies the task in the notes of calls: thread id in the high half, the policy's place in
    /// the table in the low half.
    tag: AtomicU64,
    /// Id of the policy that has the task and was notified of it; 0 for none. Changed only in the
    /// task's own events.
    policy: AtomicU32,
    /// Id of the policy that the task is assigned to; 0 for the default.
    pub(crate) wanted: AtomicU32,
    /// 1 if `wanted` was last set by a rule of the host, as for a cgroup, and not by name.
    pub(crate) by_rule: AtomicU32,
    /// The core's epoch when `policy` was last found to be running and equal to the wanted one; 0
    /// if the check must be made again.
    pub(crate) epoch: AtomicU32,
    /// The CPU on which it was last queued.
    pub(crate) cpu: AtomicI32,
    pub(crate) pid: AtomicU32,
    pub(crate) nice: AtomicI32,
    /// CPU time used when last sampled, ns.
    pub(crate) runtime: AtomicU64,
    /// The host's identifier of the task; 0 when the slot is free.
    pub(crate) opaque: AtomicUsize,
    /// Distinguishes the tasks that use the slot in turn; part of the handle.
    serial: AtomicU32,
    index: AtomicU32,
    /// 1 while the task's policy may keep its token for any time: the task is an agent, which runs
    /// when there are messages for it.
    pub(crate) in_custody: AtomicU32,
    /// Next free slot, plus one. Guarded by the host's slot lock.
    pub(crate) next_free: AtomicU32,
}

impl Slot {
    /// Its state.
    #[inline]
    pub fn state(&self) -> TaskState {
        TaskState::of(self.word.load(Relaxed))
    }

    /// Id of its policy; 0 for none.
    #[inline]
    pub fn policy(&self) -> u32 {
        self.policy.load(Relaxed)
    }

    /// Id of the policy that it is assigned to; 0 for none.
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

    /// The CPU on which it was last queued.
    pub fn cpu(&self) -> i32 {
        self.cpu.load(Relaxed)
    }

    /// The host's identifier of the task; 0 when the slot is free.
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

    /// The shim's handle of the task.
    pub fn handle(&self) -> u64 {
        u64::from(self.serial()) << 32 | u64::from(self.index().wrapping_add(1))
    }

    /// Allocates the slot to a new task.
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

    /// Releases the slot.
    pub(crate) fn vacate(&self) {
        self.serial
            .store(self.serial().wrapping_add(1).max(1), Relaxed);
        self.opaque.store(0, Relaxed);
        self.set(TaskState::Free);
    }

    /// Changes to a state without a token. Tokens minted before stay stale. A task leaves `Queued`
    /// only by compare-and-swap ([`Slot::claim`], [`Slot::withdraw`]), as a pick or a rescue may be
    /// first.
    #[inline]
    pub(crate) fn set(&self, state: TaskState) {
        debug_assert!(state != TaskState::Queued && self.state() != TaskState::Queued);
        let generation = self.word.load(Relaxed) & GENERATION;
        self.word
            .store(generation | state as u64, Ordering::Release);
    }

    /// Moves a running task to `Sleeping`. False if it is not running.
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

    /// Moves to `Queued` and mints the next token.
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

    /// Marks the task as queued with a token that its policy already holds
    /// ([`crate::Core::resume`]).
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

    /// Takes the task out of `Queued`, if `token` is its newest and no other CPU was first.
    #[inline]
    pub(crate) fn claim(&self, token: u64, to: TaskState) -> bool {
        self.unqueue(token, to as u64)
    }

    /// Reverts the last [`Slot::claim`] of a pick, unless the task has been enqueued since. The
    /// task must not run.
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

    /// Moves the task to the fallback in the same way, on a CPU that will put it on the fallback
    /// queue.
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

    /// Was it rescued and not enqueued since?
    pub(crate) fn is_rescued(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        TaskState::of(word) == TaskState::Fallback && word & RESCUED != 0
    }

    /// As [`Slot::is_rescued`], with this token.
    pub(crate) fn is_rescued_with(&self, token: u64) -> bool {
        self.is_rescued() && (self.word.load(Relaxed) ^ token) & GENERATION == 0
    }

    /// In an event of the task itself: moves a queued task to `Sleeping` and makes its token stale.
    /// A pick or a rescue that was first has made it `Running` or `Fallback`.
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

    /// Has a policy been notified of it?
    #[inline]
    pub(crate) fn joined(&self) -> bool {
        self.policy() != 0
    }

    /// Makes the task a member of this policy.
    pub(crate) fn join(&self, policy: &PolicyEntry) {
        self.in_custody.store(0, Relaxed);
        self.call_of(policy);
        self.policy.store(policy.id(), Relaxed);
    }

    /// Its policy may keep its token for any time, until the task joins a policy again. In a call
    /// of the policy about the task.
    pub fn set_in_custody(&self) {
        self.in_custody.store(1, Relaxed);
    }

    /// Attributes the calls about the task to this policy in fault reports.
    pub(crate) fn call_of(&self, policy: &PolicyEntry) {
        self.tag.store(
            u64::from(self.pid()) << 32 | u64::from(policy.index()),
            Relaxed,
        );
    }

    /// Makes the task a member of no policy.
    pub(crate) fn leave(&self) {
        self.policy.store(0, Relaxed);
        self.epoch.store(0, Relaxed);
    }

    /// The policy with this id starts again, and has not been notified of any task.
    pub(crate) fn forget(&self, policy: u32) {
        // A task's own events make it join running policies only, so the id is not stored again.
        let _ = self.policy.compare_exchange(policy, 0, Relaxed, Relaxed);
    }

    #[inline]
    pub(crate) fn tag(&self) -> u64 {
        self.tag.load(Relaxed)
    }

    /// Notes that the running task asks to yield. Its next change of state clears that.
    pub(crate) fn set_yielded(&self) {
        if self.state() == TaskState::Running {
            self.mark(YIELDED);
        }
    }

    /// Notes that the running task must leave its CPU. Its next change of state clears that.
    pub(crate) fn set_leaving(&self) {
        self.mark(LEAVING);
    }

    /// Must it leave its CPU?
    pub(crate) fn is_leaving(&self) -> bool {
        self.word.load(Relaxed) & LEAVING != 0
    }

    /// Notes that the task, in the fallback, is on its CPU's local queue. Its next change of state
    /// clears that.
    pub(crate) fn set_bound(&self) {
        self.mark(BOUND);
    }

    /// Is it on the fallback queue, or running after it came from there?
    pub(crate) fn waits_in_fallback(&self) -> bool {
        let word = self.word.load(Relaxed);
        TaskState::of(word) == TaskState::Fallback && word & BOUND == 0
    }

    /// Sets a bit in a state without a token, which only the task's own events leave.
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
