// SPDX-License-Identifier: GPL-2.0-only
//! A policy that does what would end the process (overflows its stack, accesses invalid memory,
//! aborts) ends the schedule instead.
//!
//! Schedules run on a thread of their own. After a crash that thread cannot go on, because shuttle
//! was interrupted in the middle of a step. It therefore parks for good and keeps all its stacks.
//! The waiting thread examines the state that the crash left, and frees nothing of it.

use crate::story::{Finding, Line};
use crate::world::{self, World};
use crate::{table, Property};
use baton_abi::BatonFaultKind;
use baton_native::{contained, cpu_time_of, end_endless, give_up, place_of_crash, Crash};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;
use std::{mem, panic, ptr, thread};

std::thread_local! {
    /// Stack address at which the current call of the policy begins; 0 outside of calls.
    static CALL: Cell<usize> = const { Cell::new(0) };
    /// Incremented by [`beat`] and read by the thread that waits for this one.
    static BEATS: RefCell<Arc<AtomicU64>> = RefCell::default();
}

/// Notes that a call begins, asks its host something, or lets other CPUs run.
fn beat() {
    BEATS.with_borrow(|beats| beats.fetch_add(1, Relaxed));
}

/// Limit, in bytes, of the stack that a call of the policy may have used when it asks its host
/// something. A CPU has 256 KiB. The rest is reserved for the host's answer, so that the host is
/// never interrupted midway. The limit also ends a recursion at the same question whether or not
/// the story is recorded.
const MOST_STACK: usize = 128 << 10;

/// Calls a policy.
pub fn in_policy<R>(call: impl FnOnce() -> R) -> R {
    let mark = 0_u8;
    let outer = CALL.replace(ptr::from_ref(&mark) as usize);
    beat();
    let result = call();
    CALL.set(outer);
    result
}

/// Lets other CPUs run, possibly in the middle of a call.
pub fn out_of_policy(others: impl FnOnce()) {
    let call = CALL.replace(0);
    beat();
    others();
    CALL.set(call);
}

/// The host answers a question of the policy, until this is dropped. The watching thread does not
/// end the call meanwhile: the host may hold a lock of the process (of the allocator, or of the
/// standard library for backtraces), and the thread would keep it for good.
pub struct InHost(usize);

impl InHost {
    pub fn begin() -> Self {
        Self(CALL.replace(0))
    }
}

impl Drop for InHost {
    fn drop(&mut self) {
        // The time was the host's: the policy's begins anew.
        beat();
        CALL.set(self.0);
    }
}

/// Checks the stack limit; every question of a policy to its host begins with this.
pub fn check_stack() {
    beat();
    let mark = 0_u8;
    if CALL.get().saturating_sub(ptr::from_ref(&mark) as usize) > MOST_STACK {
        give_up(Crash::StackOverflow);
    }
}

/// Called from a signal handler, so it only reads.
fn is_in_policy() -> bool {
    CALL.get() != 0
}

/// A schedule that was ended by a crash.
pub struct Wreck {
    pub crash: Crash,
    /// Its source line, if it is known.
    place: Option<(String, u32)>,
    world: Rc<World>,
}

/// What a thread passes to the one that waits for it.
struct Handed<T>(T, Option<Wreck>);

// SAFETY: Left-thread. If there is a wreck, the thread that made it only sleeps from then on.
unsafe impl<T: Send> Send for Handed<T> {}

/// Runs `f` on a thread of its own and returns what `take` finds there. Nothing that comes with a
/// wreck may be freed. A call of the policy is ended if, for `limit`, it neither asks its host
/// anything nor lets other CPUs run, and had a CPU for at least half of that time; a busy machine
/// therefore ends no call. `World::has_asked_for_ever` limits the number of questions of a call.
pub fn apart<T: Send + 'static>(
    limit: Duration,
    f: impl FnOnce() + Send + 'static,
    take: fn() -> T,
) -> (T, Option<Wreck>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    let beats = Arc::new(AtomicU64::new(0));
    let beats_there = beats.clone();
    let thread = thread::spawn(move || {
        BEATS.set(beats_there);
        let crash = contained(is_in_policy, f).err();
        let wreck = crash.map(|crash| Wreck {
            crash,
            place: place_of_crash(),
            world: world::leave(),
        });
        let _ = sender.send(Handed(take(), wreck));
        while crash.is_some() {
            thread::park();
        }
    });
    let mut seen = (beats.load(Relaxed), Duration::ZERO);
    loop {
        match receiver.recv_timeout(limit) {
            Ok(Handed(taken, wreck)) => return (taken, wreck),
            Err(RecvTimeoutError::Timeout) => {
                let now = (beats.load(Relaxed), cpu_time_of(&thread));
                if seen.0 != now.0 {
                    seen = now;
                } else if now.1.saturating_sub(seen.1) >= limit / 2 {
                    end_endless(&thread);
                }
            }
            Err(RecvTimeoutError::Disconnected) => panic::resume_unwind(
                thread
                    .join()
                    .expect_err("a thread that gives nothing has panicked"),
            ),
        }
    }
}

impl Wreck {
    /// The world of the schedule, and the finding and story as from [`world::end`].
    pub fn tell(self) -> (Rc<World>, Option<Finding>, Option<Vec<Line>>) {
        let Self {
            crash,
            place,
            world,
        } = self;
        world::enter(world.clone());
        // The story is written to, so it is replaced with a copy; everything else stays as it is.
        let told = world.story.borrow().clone();
        mem::forget(world.story.replace(told));
        match world.outside.get() {
            _ if world.over.get() => {}
            Some(what) => world.fail(
                Property::Panic,
                || format!("it could not be {what}: {crash}"),
                None,
            ),
            None if world
                .here
                .get()
                .is_some_and(|cpu| world.cpus[cpu].polls.get()) =>
            {
                world.fail(
                    Property::Panic,
                    || format!("the agent's policy: {crash}"),
                    None,
                )
            }
            None => {
                let kind = match crash {
                    Crash::StackOverflow => BatonFaultKind::StackOverflow,
                    Crash::Endless => BatonFaultKind::EndlessLoop,
                    _ => BatonFaultKind::Panic,
                };
                table::end_at(&world, kind, crash.to_string(), place);
            }
        }
        let (finding, lines) = (world.finding.borrow().clone(), world.story.borrow().clone());
        mem::forget(world::leave());
        (world, finding, lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// A host that answers slowly, as one that reads debug information for a backtrace.
    #[test]
    fn the_time_of_the_host_ends_no_call() {
        const LIMIT: Duration = Duration::from_millis(20);
        let answer = || {
            in_policy(|| {
                let _host = InHost::begin();
                let begin = cpu_time();
                while cpu_time() < begin + 10 * LIMIT {
                    black_box(());
                }
            });
        };
        let ((), wreck) = apart(LIMIT, answer, || ());
        assert!(wreck.is_none());
    }

    /// CPU time of this thread.
    fn cpu_time() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}
