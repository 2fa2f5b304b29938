// SPDX-License-Identifier: GPL-2.0-only
//! What a recording is made of.

use baton_abi::{BatonCtx, BatonHint, BatonTask, BatonWake, BATON_MAX_KICKS};

/// One event of one CPU. Events that other CPUs must wait for have a stamp: a count of the
/// machine's clock cycles, which all CPUs agree on as far as a lock orders them (the kernel tests
/// just that: arch/x86/kernel/tsc_sync.c).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A call of the policy begins.
    Call(Call),
    /// It ends with an answer.
    Return(Return),
    /// It ends without one: the host or the policy ended it. The fault's number (`BatonFaultKind`).
    Abandoned {
        /// When.
        stamp: u64,
        /// The fault's number.
        kind: u8,
    },
    /// A lock was taken.
    Lock {
        /// After it was taken.
        stamp: u64,
        /// Which: the same number, the same lock.
        id: u64,
    },
    /// A lock was asked for, and was not free.
    Busy {
        /// Which.
        id: u64,
    },
    /// The time was asked for, ns.
    Now(u64),
    /// A random number was drawn.
    Random(u64),
    /// A value was read that others change without a lock (`baton::Shared`).
    Read(u64),
    /// May the task in this slot run on that CPU?
    MayRun {
        /// Of the task.
        slot: u32,
        /// Which CPU.
        cpu: i32,
        /// The answer.
        yes: bool,
    },
    /// A question about a CPU.
    Cpu {
        /// Which question.
        question: Question,
        /// Which CPU.
        cpu: i32,
        /// The answer.
        yes: bool,
    },
    /// Was any CPU idle?
    AnyIdle(bool),
    /// The policy set its timer, ns from then.
    ArmTimer(u64),
    /// The policy stopped its timer.
    CancelTimer,
    /// Memory was asked for, and there was none.
    NoMemory {
        /// So often was some given in this call before.
        after: u64,
    },
    /// A `Schedulable` was dropped, and with it this task lost.
    Dropped(u64),
    /// A reply was sent to a task.
    Reply {
        /// Of the task.
        slot: u32,
        /// What it says; it names no thread.
        reply: BatonHint,
        /// What became of it (`BatonReplyAnswer`).
        answer: u8,
    },
    /// The recording of this CPU ends, on purpose.
    End {
        /// When.
        stamp: u64,
    },
}

/// Questions about a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Is it online?
    Online,
    /// Is it idle, and claimed by nobody?
    Idle,
    /// Is it idle, and claimed by nobody but this call?
    Claim,
}

/// A call, with all that the policy is given. Methods by number: `BatonMethod`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// When it began.
    pub stamp: u64,
    /// Number of the method.
    pub method: u8,
    /// `BatonCtx::now`, ns.
    pub now: u64,
    /// `BatonCtx::cpu`.
    pub cpu: i32,
    /// `BatonCtx::flags`.
    pub flags: u16,
    /// What the context has from calls before.
    pub carried: Carried,
    /// What it is about.
    pub about: About,
}

/// What a call is about; which of these follows from the method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum About {
    /// A task that needs a CPU.
    Waking(BatonTask, BatonWake),
    /// A task, with its token.
    Given(BatonTask, u64),
    /// A task.
    Task(BatonTask),
    /// A CPU that needs a task, and the one that it has.
    Pick(i32, Option<BatonTask>),
    /// A CPU.
    Cpu(i32),
    /// A token that was refused, and why (`BatonRefusal`).
    Refused(u64, u8),
    /// A hint, and the task that it is of.
    Hint(BatonTask, BatonHint),
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Return {
    /// When it ended.
    pub stamp: u64,
    /// The method's answer.
    pub answer: u64,
    /// What the context has then.
    pub carried: Carried,
}

/// What calls leave in their context. Several calls may share one: what one has asked for is there
/// as the next begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carried {
    /// `BatonCtx::slice`, ns.
    pub slice: u64,
    /// Kicks that were asked for: at most as many as there are places.
    pub nr_kicks: u16,
    /// As in `BatonCtx`; those beyond `nr_kicks` mean nothing.
    pub kicks: [u16; BATON_MAX_KICKS],
}

impl Carried {
    /// What this context has.
    #[inline(always)]
    pub fn of(ctx: &BatonCtx) -> Self {
        Self {
            slice: ctx.slice,
            nr_kicks: ctx.nr_kicks,
            kicks: ctx.kicks,
        }
    }
}

impl Event {
    /// When it was, for events that others must wait for.
    pub fn stamp(&self) -> Option<u64> {
        match *self {
            Event::Call(Call { stamp, .. }) | Event::Return(Return { stamp, .. }) => Some(stamp),
            Event::Abandoned { stamp, .. } | Event::Lock { stamp, .. } | Event::End { stamp } => {
                Some(stamp)
            }
            _ => None,
        }
    }
}

/// What calls of a method are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Waking,
    Given,
    Task,
    Pick,
    Cpu,
    Refused,
    Hint,
}

impl Shape {
    /// That of the method with this number; `None` for one that is not recorded.
    #[inline(always)]
    pub(crate) fn of(method: u8) -> Option<Self> {
        // As `BatonMethod` numbers them.
        Some(match method {
            3 => Shape::Waking,
            4..=8 => Shape::Given,
            9 => Shape::Pick,
            11 => Shape::Refused,
            10 | 12 | 20..=24 => Shape::Cpu,
            13..=19 => Shape::Task,
            25 => Shape::Hint,
            _ => return None,
        })
    }
}
