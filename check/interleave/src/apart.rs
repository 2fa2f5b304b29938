// SPDX-License-Identifier: GPL-2.0-only
//! A policy that does what would end the process (uses up its stack, uses memory that is not there,
//! aborts) ends a schedule.
//!
//! Schedules run on a thread of their own. After a crash that thread can do nothing more, as
//! shuttle is in the midst of a step there. So it sleeps for ever, with all its stacks; what it was
//! at is found out by the thread that waits for it, which frees nothing of it.

use crate::story::{Finding, Line};
use crate::world::{self, World};
use crate::{table, Property};
use baton_abi::BatonFaultKind;
use baton_native::{contained, cpu_time_of, end_endless, give_up, Crash};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;
use std::{mem, panic, ptr, thread};

std::thread_local! {
    /// Where on the stack the policy's call that goes on now begins; 0 if none does.
    static CALL: Cell<usize> = const { Cell::new(0) };
    /// Counted by [`beat`], looked at by the thread that waits for this one.
    static BEATS: RefCell<Arc<AtomicU64>> = RefCell::default();
}

/// A call begins, asks its host something, or lets others go on.
fn beat() {
    BEATS.with_borrow(|beats| beats.fetch_add(1, Relaxed));
}

/// How much stack a policy's call may have used when it asks its host something, of the 256 KiB
/// that a CPU has: the rest is for the answer, so that the host itself is never left in the midst
/// of something. It also makes a recursion end at the same question whether the story is wanted or
/// not.
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

/// Lets other CPUs go on, in the midst of a call perhaps.
pub fn out_of_policy(others: impl FnOnce()) {
    let call = CALL.replace(0);
    beat();
    others();
    CALL.set(call);
}

/// Each question of a policy to its host begins so.
pub fn check_stack() {
    beat();
    let mark = 0_u8;
    if CALL.get().saturating_sub(ptr::from_ref(&mark) as usize) > MOST_STACK {
        give_up(Crash::StackOverflow);
    }
}

/// For the handler of a signal: it only looks.
fn is_in_policy() -> bool {
    CALL.get() != 0
}

/// A schedule that a crash has ended.
pub struct Wreck {
    pub crash: Crash,
    world: Rc<World>,
}

/// What a thread gives to the one that waits for it.
struct Handed<T>(T, Option<Wreck>);

// SAFETY: Left-thread. Where there is a wreck, the thread that made it does nothing more, but
// sleep.
unsafe impl<T: Send> Send for Handed<T> {}

/// Runs `f` on a thread of its own, which then gives what `take` finds there. Of what comes with a
/// wreck nothing may be freed. A call of the policy that neither asks its host anything nor lets
/// others go on for `limit`, and had a CPU for half of that, is ended: a busy machine ends none.
/// How many questions a call may ask is `World::has_asked_for_ever`'s to say.
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
    /// What there is to tell of the schedule: as [`world::end`], and its seed and points.
    pub fn tell(self) -> (Rc<World>, Option<Finding>, Option<Vec<Line>>) {
        let Self { crash, world } = self;
        world::enter(world.clone());
        // What is written to is to be a copy, as all else stays as it is.
        let told = world.story.borrow().clone();
        mem::forget(world.story.replace(told));
        match world.outside.get() {
            _ if world.over.get() => {}
            Some(what) => world.fail(
                Property::Panic,
                || format!("it could not be {what}: {crash}"),
                None,
            ),
            None => {
                let kind = match crash {
                    Crash::StackOverflow => BatonFaultKind::StackOverflow,
                    Crash::Endless => BatonFaultKind::Stall,
                    _ => BatonFaultKind::Panic,
                };
                table::end(&world, kind, crash.to_string());
            }
        }
        let (finding, lines) = (world.finding.borrow().clone(), world.story.borrow().clone());
        mem::forget(world::leave());
        (world, finding, lines)
    }
}
