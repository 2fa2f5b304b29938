// SPDX-License-Identifier: GPL-2.0-only
//! The functions by which a policy calls its host. They find the lane in a thread-local variable
//! that `run.rs` sets.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::AtomicU32;

use baton_abi::{BatonFaultKind, BatonHint};
use baton_native::{Change, NativeHost, Panic, Table};
use baton_trace::{Event, Question};

use crate::lane::{Lane, LastWords};
use crate::Did;

pub(crate) static TABLE: Table = Table::of::<Replay>();

thread_local! {
    static LANE: Cell<*const Lane<'static>> = const { Cell::new(ptr::null()) };
    /// The message of a policy that failed outside of calls.
    static LAST_WORDS: Cell<Option<LastWords>> = const { Cell::new(None) };
}

/// Makes a lane the current one of this thread, until this is dropped.
pub(crate) struct Current(*const Lane<'static>);

impl Current {
    /// # Safety
    /// On-stack: the lane outlives the result.
    pub unsafe fn new(lane: &Lane<'_>) -> Self {
        Self(LANE.replace(ptr::from_ref(lane).cast()))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        LANE.set(self.0);
    }
}

/// The message of a policy that panicked while it was made.
pub(crate) fn take_words() -> Option<LastWords> {
    LAST_WORDS.take()
}

/// The lane of the current call; `None` while the policy is made or destroyed.
#[inline(always)]
fn lane<'a>() -> Option<&'a Lane<'a>> {
    // SAFETY: On-stack. It is set only while the lane makes its calls, and the reference does not
    // outlive the function that asks.
    unsafe { LANE.get().cast::<Lane<'a>>().as_ref() }.filter(|lane| lane.is_in_call())
}

/// Has the lane answer, or gives `otherwise` while the policy is made or destroyed.
#[inline(always)]
fn in_lane<R>(otherwise: R, answer: impl FnOnce(&Lane<'_>) -> R) -> R {
    match lane() {
        Some(lane) => lane.inside(|| answer(lane)),
        None => otherwise,
    }
}

/// What the policy asks for, and what it gets where nothing is recorded.
#[inline(always)]
fn ask<R: Copy>(
    otherwise: R,
    fits: impl FnOnce(&Event) -> Option<R>,
    event: impl FnOnce() -> Event,
) -> R {
    in_lane(otherwise, |lane| {
        lane.ask(otherwise, fits, || Did::Asked(event()))
    })
}

#[inline(always)]
fn about_cpu(question: Question, cpu: i32) -> bool {
    let fits = |event: &Event| match event {
        Event::Cpu {
            question: q,
            cpu: c,
            yes,
        } if (*q, *c) == (question, cpu) => Some(*yes),
        _ => None,
    };
    ask(false, fits, || Event::Cpu {
        question,
        cpu,
        yes: false,
    })
}

/// A replay as a host.
struct Replay;

impl NativeHost for Replay {
    const SEES_CHANGES: bool = true;

    fn lock(word: &AtomicU32) -> bool {
        match lane() {
            Some(lane) => lane.inside(|| lane.lock(ptr::from_ref(word) as usize)),
            None => {
                let message =
                    "a lock was taken while the policy was being made; use Lock::get_mut there"
                        .into();
                LAST_WORDS.set(Some(LastWords {
                    message,
                    place: None,
                }));
                false
            }
        }
    }

    fn try_lock(word: &AtomicU32) -> bool {
        in_lane(false, |lane| lane.try_lock(ptr::from_ref(word) as usize))
    }

    fn unlock(word: &AtomicU32) -> bool {
        in_lane(true, |lane| lane.unlock(ptr::from_ref(word) as usize))
    }

    fn token_dropped(token: u64) -> bool {
        in_lane(true, |lane| lane.dropped(token))
    }

    fn panicked(panic: Panic) {
        let is_memory = panic.is_out_of_memory();
        let Panic {
            file,
            line,
            message,
        } = panic;
        let place = (!is_memory && !file.is_empty()).then(|| format!("{file}:{line}"));
        let words = LastWords { message, place };
        match lane() {
            Some(lane) => {
                let kind = if is_memory {
                    BatonFaultKind::OutOfMemory
                } else {
                    BatonFaultKind::Panic
                };
                lane.inside(|| lane.panicked(words, kind));
            }
            None => LAST_WORDS.set(Some(words)),
        }
    }

    fn now() -> u64 {
        ask(
            0,
            |event| {
                if let Event::Now(now) = event {
                    Some(*now)
                } else {
                    None
                }
            },
            || Event::Now(0),
        )
    }

    fn random() -> u64 {
        ask(
            0,
            |event| {
                if let Event::Random(number) = event {
                    Some(*number)
                } else {
                    None
                }
            },
            || Event::Random(0),
        )
    }

    fn read(value: u64) -> u64 {
        ask(
            value,
            |event| {
                if let Event::Read(value) = event {
                    Some(*value)
                } else {
                    None
                }
            },
            || Event::Read(0),
        )
    }

    fn arm_timer(after_ns: u64) {
        ask(
            (),
            |event| (*event == Event::ArmTimer(after_ns)).then_some(()),
            || Event::ArmTimer(after_ns),
        );
    }

    fn cancel_timer() {
        ask(
            (),
            |event| (*event == Event::CancelTimer).then_some(()),
            || Event::CancelTimer,
        );
    }

    fn may_run(slot: u32, cpu: i32) -> bool {
        let fits = |event: &Event| match event {
            Event::MayRun {
                slot: s,
                cpu: c,
                yes,
            } if (*s, *c) == (slot, cpu) => Some(*yes),
            _ => None,
        };
        ask(false, fits, || Event::MayRun {
            slot,
            cpu,
            yes: false,
        })
    }

    fn cpu_online(cpu: i32) -> bool {
        about_cpu(Question::Online, cpu)
    }

    fn cpu_idle(cpu: i32) -> bool {
        about_cpu(Question::Idle, cpu)
    }

    fn any_idle() -> bool {
        ask(
            false,
            |event| {
                if let Event::AnyIdle(yes) = event {
                    Some(*yes)
                } else {
                    None
                }
            },
            || Event::AnyIdle(false),
        )
    }

    fn claim_idle(cpu: i32) -> bool {
        about_cpu(Question::Claim, cpu)
    }

    fn changed(change: Change) {
        in_lane((), |lane| lane.changed(change));
    }

    fn has_memory() -> bool {
        in_lane(true, |lane| lane.has_memory())
    }

    fn reply(slot: u32, tag: u32, words: [u64; 6]) -> u32 {
        let reply = BatonHint {
            tag,
            thread: 0,
            words,
        };
        let fits = |event: &Event| match event {
            Event::Reply {
                slot: s,
                reply: r,
                answer,
            } if (*s, r) == (slot, &reply) => Some(u32::from(*answer)),
            _ => None,
        };
        ask(0, fits, || Event::Reply {
            slot,
            reply,
            answer: 0,
        })
    }
}
