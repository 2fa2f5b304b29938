// SPDX-License-Identifier: GPL-2.0-only
//! Stalls: tasks that a policy has queued and does not pick. A policy is at fault only for the time
//! in which it was asked and did not answer. That is the time in which some CPU that the task may
//! use asked the policy for a task, ran another of its tasks, or idled. A CPU that runs other
//! policies' tasks does not count.
//!
//! A policy that has lost the task's token does not pick it either. So the watch asks for the token
//! before it stops the policy.

use crate::{Core, CpuState, Fault, Host, PolicyEntry, Slot, TaskState, NO_SOLE};
use baton_abi::{BatonCtx, BatonFaultKind, BatonMethod, BATON_ABORTED, BATON_MAX_POLICIES};
use core::sync::atomic::Ordering::Relaxed;

/// Interval at which each policy is asked on each CPU at least, ns, whatever earlier policies have.
/// Otherwise a policy that always has a task to run would starve the later ones, and the kernel
/// ends a scheduler when a task has not run for 30 s. The more of the limit a task has waited, the
/// shorter the interval: see [`hurry`].
const ASK_EVERY: u64 = 1_000_000_000;

/// The shortest interval is `ASK_EVERY >> MOST_HURRY`. With the default slice it leaves the earlier
/// policies three quarters of the CPU.
const MOST_HURRY: u32 = 4;

/// How often the interval is halved for a policy with a task that has waited for `unanswered` ns:
/// once for each eighth of the limit. A policy may have so many tasks on a CPU that one in a second
/// is not enough.
fn hurry(unanswered: u64, limit: u64) -> u32 {
    let eighths = unanswered / (limit / 8).max(1);
    eighths.min(u64::from(MOST_HURRY)) as u32
}

/// In a slot's `unanswered`: the policy was asked for the token and did not have it.
const MISSING: u64 = u64::MAX;

impl CpuState {
    /// Notes that a policy is asked for a task here, or that one of its tasks runs here.
    #[inline]
    pub(crate) fn note_asked(&self, policy: &PolicyEntry, now: u64) {
        self.asked[policy.index() as usize % BATON_MAX_POLICIES].store(now, Relaxed);
    }

    /// Notes which policies were asked here since `since`. `sole` is the place of the only running
    /// policy, if there is one.
    fn look(&self, since: u64, sole: u32) {
        let mut asked = 0;
        for (place, at) in self.asked.iter().enumerate() {
            if at.load(Relaxed) >= since {
                asked |= 1 << place;
            }
        }
        let quick = self.dispatches.get().wrapping_sub(self.slow.get());
        if self.seen_quick.swap(quick, Relaxed) != quick && sole != NO_SOLE {
            asked |= 1 << sole;
        }
        if self.is_asleep() {
            asked = u32::MAX;
        }
        self.seen_asked.store(asked, Relaxed);
    }
}

impl<'a, H: Host> Core<'a, H> {
    /// A policy that this CPU has not asked for its interval. It must be asked first.
    pub(crate) fn neglected(&self, cpu: &CpuState, now: u64) -> Option<&PolicyEntry> {
        let asked = |policy: &PolicyEntry| {
            cpu.asked[policy.index() as usize % BATON_MAX_POLICIES].load(Relaxed)
        };
        let is_late = |policy: &&PolicyEntry| {
            now.saturating_sub(asked(policy)) >= ASK_EVERY >> policy.hurry.load(Relaxed)
        };
        self.running()
            .filter(|policy| self.serves(policy, cpu))
            .find(is_late)
    }

    /// Finds a stall: the queued task with the longest time in which its running policy was asked
    /// and did not pick it, if that time exceeds `limit` ns. Called by the watch alone,
    /// periodically. The interval between two calls counts in full or not at all.
    pub fn find_stall(&self, now: u64, limit: u64) -> Option<&'a Slot> {
        let since = self.watched_at.swap(now, Relaxed);
        let sole = self.sole.load(Relaxed);
        // Looks back to the previous call, and at least by `ASK_EVERY` or a quarter of the limit,
        // whichever is shorter.
        let lately = since.min(now.saturating_sub(ASK_EVERY.min(limit / 4)));
        self.cpus.iter().for_each(|cpu| cpu.look(lately, sole));
        let mut longest = None;
        let mut most = limit;
        let mut most_of = [0; BATON_MAX_POLICIES];
        for slot in self
            .used()
            .iter()
            .filter(|slot| slot.state() == TaskState::Queued)
            .filter(|slot| slot.in_custody.load(Relaxed) == 0)
        {
            let waited = now.saturating_sub(slot.queued_at.load(Relaxed));
            let interval = now.saturating_sub(since);
            if waited > interval {
                let Some(policy) = self.by_id(slot.policy()).filter(|p| p.is_running()) else {
                    continue;
                };
                let unanswered = self.unanswered(slot, policy, waited, interval);
                let of_policy = &mut most_of[policy.index() as usize % BATON_MAX_POLICIES];
                *of_policy = unanswered.max(*of_policy);
                if unanswered > most {
                    (longest, most) = (Some(slot), unanswered);
                }
            }
        }
        for policy in self.running() {
            let unanswered = most_of[policy.index() as usize % BATON_MAX_POLICIES];
            policy.hurry.store(hurry(unanswered, limit), Relaxed);
        }
        longest
    }

    /// The part of the task's wait in which its policy was asked, ns. `interval` ns of the wait are
    /// new.
    fn unanswered(&self, slot: &Slot, policy: &PolicyEntry, waited: u64, interval: u64) -> u64 {
        let Some(token) = slot.token() else {
            return 0;
        };
        let is_new = slot.watched.swap(token, Relaxed) != token;
        let before = if is_new {
            0
        } else {
            slot.unanswered.load(Relaxed)
        };
        let more = if is_new { waited } else { interval };
        let unanswered = if self.was_asked(slot, policy) {
            before.saturating_add(more)
        } else {
            before
        };
        slot.unanswered.store(unanswered, Relaxed);
        unanswered
    }

    /// Was the policy asked recently on a CPU that the task may use?
    fn was_asked(&self, slot: &Slot, policy: &PolicyEntry) -> bool {
        self.cpus.iter().any(|cpu| {
            cpu.seen_asked.load(Relaxed) & 1 << policy.index() != 0
                && cpu.is_online()
                && self.serves(policy, cpu)
                && self.host.may_run(slot, cpu.number())
        })
    }

    /// Judges the policy in whose queue `slot` has waited for too long. If the policy returns the
    /// token, it has stalled. If it does not, and the task still waits at the watch's next look, it
    /// has lost the task; until then a pick on another CPU may still return the token. `cpu` is
    /// this CPU. No run-queue lock is held, interrupts are off.
    pub fn judge_stall(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, slot: &Slot) {
        let waiting = slot.token().zip(
            self.by_id(slot.policy())
                .filter(|policy| policy.is_running()),
        );
        let Some((token, policy)) = waiting else {
            return;
        };
        let is_missing =
            slot.watched.load(Relaxed) == token && slot.unanswered.load(Relaxed) == MISSING;
        let kind = if is_missing {
            BatonFaultKind::LostTask
        } else {
            let answer = self.take_back(frame, cpu, ctx, slot, policy, BatonMethod::TaskDequeued);
            if answer == BATON_ABORTED {
                return;
            }
            if answer != token {
                slot.unanswered.store(MISSING, Relaxed);
                return;
            }
            BatonFaultKind::Stall
        };
        let fault = Fault {
            kind,
            method: BatonMethod::None,
            pid: slot.pid(),
            now: ctx.now,
        };
        self.fault(policy, &fault, self.cpu(slot.cpu()));
    }

    /// For a host that ends: asks for the token of each task that has been queued for more than
    /// `waited` ns. A policy that does not have a token is stopped for the lost task. The queues
    /// are not restored afterwards. No call is under way on any CPU.
    pub fn judge_all(&self, frame: H::Frame, cpu: &CpuState, ctx: &mut BatonCtx, waited: u64) {
        let now = ctx.now;
        for slot in self
            .used()
            .iter()
            .filter(|slot| now.saturating_sub(slot.queued_at.load(Relaxed)) > waited)
        {
            let waiting = slot.token().zip(
                self.by_id(slot.policy())
                    .filter(|policy| policy.is_running()),
            );
            let Some((token, policy)) = waiting else {
                continue;
            };
            let answer = self.take_back(frame, cpu, ctx, slot, policy, BatonMethod::TaskDequeued);
            if answer != BATON_ABORTED && answer != token {
                let (kind, method) = (BatonFaultKind::LostTask, BatonMethod::None);
                self.fault(
                    policy,
                    &Fault {
                        kind,
                        method,
                        pid: slot.pid(),
                        now,
                    },
                    self.cpu(slot.cpu()),
                );
            }
        }
    }
}
