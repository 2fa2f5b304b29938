// SPDX-License-Identifier: GPL-2.0-only
//! The events of a recording.

use baton_abi::{
    Arg, BatonCtx, BatonHint, BatonMethod, BatonTask, BatonWake, BATON_ABORTED, BATON_MAX_KICKS,
};

/// One event of one CPU. Events that other CPUs must wait for have a stamp, a count of clock cycles
/// of the machine. The stamps of all CPUs agree with the order that a lock enforces, which is what
/// the kernel tests (arch/x86/kernel/tsc_sync.c).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A call of the policy begins.
    Call(Call),
    /// The call ends with an answer.
    Return(Return),
    /// The call ends without an answer: the host or the policy ended it.
    Abandoned {
        /// Time of the end, as a stamp.
        stamp: u64,
        /// Number of the fault (`BatonFaultKind`).
        kind: u8,
    },
    /// A lock was taken.
    Lock {
        /// Stamp after the lock was taken.
        stamp: u64,
        /// Identifies the lock.
        id: u64,
    },
    /// The policy tried a lock that was not free.
    Busy {
        /// Identifies the lock.
        id: u64,
    },
    /// The policy asked for the time, ns.
    Now(u64),
    /// A random number was drawn.
    Random(u64),
    /// The policy read a value that other CPUs change without a lock (`baton::Shared`).
    Read(u64),
    /// May the task in this slot run on that CPU?
    MayRun {
        /// Slot of the task.
        slot: u32,
        /// The CPU.
        cpu: i32,
        /// The answer.
        yes: bool,
    },
    /// A question about a CPU.
    Cpu {
        /// The question.
        question: Question,
        /// The CPU.
        cpu: i32,
        /// The answer.
        yes: bool,
    },
    /// Was any CPU idle?
    AnyIdle(bool),
    /// The policy set its timer to this many ns later.
    ArmTimer(u64),
    /// The policy stopped its timer.
    CancelTimer,
    /// The policy asked for memory, and there was none.
    NoMemory {
        /// Number of earlier allocations in this call that succeeded.
        after: u64,
    },
    /// The `Schedulable` with this token was dropped, and its task lost.
    Dropped(u64),
    /// A reply was sent to a task.
    Reply {
        /// Slot of the task.
        slot: u32,
        /// The reply. It names no thread.
        reply: BatonHint,
        /// The result (`BatonReplyAnswer`).
        answer: u8,
    },
    /// The recording of this CPU ends as intended.
    End {
        /// Time of the end, as a stamp.
        stamp: u64,
    },
}

/// Questions about a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Is the CPU online?
    Online,
    /// Is the CPU idle and unclaimed?
    Idle,
    /// Was the CPU idle, and did this call claim it?
    Claim,
}

/// A call, with everything that the policy is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// Stamp of the beginning.
    pub stamp: u64,
    /// Number of the method (`BatonMethod`).
    pub method: u8,
    /// `BatonCtx::now`, ns.
    pub now: u64,
    /// `BatonCtx::cpu`.
    pub cpu: i32,
    /// `BatonCtx::flags`.
    pub flags: u16,
    /// Contents of the context from earlier calls.
    pub carried: Carried,
    /// The arguments of the call.
    pub about: About,
}

/// The arguments of a call. The method determines the variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum About {
    /// A task that needs a CPU.
    Waking(BatonTask, BatonWake),
    /// A task, with its token.
    Given(BatonTask, u64),
    /// A task.
    Task(BatonTask),
    /// A CPU that needs a task, and its running task.
    Pick(i32, Option<BatonTask>),
    /// A CPU.
    Cpu(i32),
    /// A token that was refused, and the reason (`BatonRefusal`).
    Refused(u64, u8),
    /// A hint, and the task that sent it.
    Hint(BatonTask, BatonHint),
}

impl About {
    /// The arguments that a host passes to a method.
    #[inline(always)]
    pub fn of(method: BatonMethod, a: &Arg<'_>, b: &Arg<'_>) -> Self {
        use BatonMethod::{
            PickNextTask, PickRefused, TaskNew, TaskPreempt, TaskRestored, TaskWakeup, TaskYield,
        };
        match (method, a, b) {
            (PickNextTask, Arg::Word(which), b) => About::Pick(
                *which as i32,
                if let Arg::Task(prev) = b {
                    Some(**prev)
                } else {
                    None
                },
            ),
            (PickRefused, Arg::Word(token), Arg::Word(why)) => About::Refused(*token, *why as u8),
            (_, Arg::Word(which), _) => About::Cpu(*which as i32),
            (_, _, Arg::Wake(wake)) => About::Waking(task(a), **wake),
            (_, _, Arg::Hint(hint)) => About::Hint(task(a), **hint),
            (
                TaskNew | TaskWakeup | TaskPreempt | TaskYield | TaskRestored,
                _,
                Arg::Word(token),
            ) => About::Given(task(a), *token),
            _ => About::Task(task(a)),
        }
    }
}

#[inline(always)]
fn task(arg: &Arg<'_>) -> BatonTask {
    match arg {
        Arg::Task(task) => **task,
        _ => BatonTask::default(),
    }
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Return {
    /// Stamp of the end.
    pub stamp: u64,
    /// The method's answer.
    pub answer: u64,
    /// Contents of the context after the call.
    pub carried: Carried,
}

/// The requests that calls leave in their context. Several calls may share a context: the requests
/// of one call are still there when the next begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carried {
    /// `BatonCtx::slice`, ns.
    pub slice: u64,
    /// Number of kicks requested, at most the length of `kicks`.
    pub nr_kicks: u16,
    /// As in `BatonCtx`. Entries beyond `nr_kicks` have no meaning.
    pub kicks: [u16; BATON_MAX_KICKS],
}

impl Carried {
    /// Copies the requests in a context.
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
    /// A call that begins.
    #[inline(always)]
    pub fn call(stamp: u64, method: BatonMethod, ctx: &BatonCtx, about: About) -> Self {
        Event::Call(Call {
            stamp,
            method: method as u8,
            now: ctx.now,
            cpu: ctx.cpu,
            flags: ctx.flags,
            carried: Carried::of(ctx),
            about,
        })
    }

    /// A call that ends with an answer, or was abandoned because of the fault `kind`.
    #[inline(always)]
    pub fn answer(stamp: u64, answer: u64, kind: u8, ctx: &BatonCtx) -> Self {
        match answer {
            BATON_ABORTED => Event::Abandoned { stamp, kind },
            answer => Event::Return(Return {
                stamp,
                answer,
                carried: Carried::of(ctx),
            }),
        }
    }

    /// The stamp of an event that other CPUs must wait for.
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

/// The form of the arguments of a method.
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
    /// The form for the method with this number; `None` if the method is not recorded.
    #[inline(always)]
    pub(crate) fn of(method: u8) -> Option<Self> {
        const SELECT_TASK_RQ: u8 = BatonMethod::SelectTaskRq as u8;
        const TASK_NEW: u8 = BatonMethod::TaskNew as u8;
        const TASK_RESTORED: u8 = BatonMethod::TaskRestored as u8;
        const PICK_NEXT_TASK: u8 = BatonMethod::PickNextTask as u8;
        const NEWLY_IDLE: u8 = BatonMethod::NewlyIdle as u8;
        const PICK_REFUSED: u8 = BatonMethod::PickRefused as u8;
        const BALANCE: u8 = BatonMethod::Balance as u8;
        const TASK_BLOCKED: u8 = BatonMethod::TaskBlocked as u8;
        const TASK_TICK: u8 = BatonMethod::TaskTick as u8;
        const TIMER: u8 = BatonMethod::Timer as u8;
        const EXIT_IDLE: u8 = BatonMethod::ExitIdle as u8;
        const HINT: u8 = BatonMethod::Hint as u8;
        Some(match method {
            SELECT_TASK_RQ => Shape::Waking,
            TASK_NEW..=TASK_RESTORED => Shape::Given,
            PICK_NEXT_TASK => Shape::Pick,
            PICK_REFUSED => Shape::Refused,
            NEWLY_IDLE | BALANCE | TIMER..=EXIT_IDLE => Shape::Cpu,
            TASK_BLOCKED..=TASK_TICK => Shape::Task,
            HINT => Shape::Hint,
            _ => return None,
        })
    }
}
