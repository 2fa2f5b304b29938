// SPDX-License-Identifier: GPL-2.0-only
//! Feeds a recording to the policy that it is of, or to another: it is asked what was asked, gets
//! the answers that were given, and takes locks in the order in which they were taken. What it does
//! is compared with what was done; the first difference is told.
//!
//! Each recorded CPU is a lane (`lane.rs`), a thread or a coroutine of one thread. Events with
//! stamps come in the order of the stamps over all lanes (`order.rs`); between them lanes run
//! freely. The policy's requests come in by `table.rs`.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod ahead;
mod lane;
mod order;
mod run;
mod table;

use std::sync::atomic::AtomicU64;
use std::sync::Arc;
use std::time::Duration;

use baton_native::{Instance, Policy};
use baton_trace::{Event, Item, Mark, Recording, Return, Stream, Words};

/// How to replay.
#[derive(Clone, Default)]
pub struct Options {
    /// The CPUs as coroutines of one thread, and not each as a thread.
    pub single: bool,
    /// Options of the policy, in the place of the recorded ones.
    pub policy_options: Option<String>,
    /// The checkpoint to begin at, in the place of the beginning.
    pub from: Option<Mark>,
    /// Where to stop.
    pub until: Option<Until>,
    /// Before the event with this number, where it is a call, [`baton_replay_stop`] is called.
    pub stop_at: Option<u64>,
    /// Events so far, for a thread that watches.
    pub progress: Arc<AtomicU64>,
}

/// Here a debugger stops: just before the call that is event `number`.
#[no_mangle]
#[inline(never)]
pub extern "C" fn baton_replay_stop(number: u64) {
    std::hint::black_box(number);
}

/// Where to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Before the event with this number, or the next that has a stamp.
    Event(u64),
    /// Before the first call that is so much later than the first of all, ns.
    Time(u64),
}

/// Why a replay ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// All of it is done.
    Whole,
    /// Where it was to stop.
    Until,
    /// Events are missing, or cannot be read.
    Gap {
        /// Of which CPU.
        cpu: u16,
        /// What is missing.
        what: String,
    },
    /// The policy did something else.
    Diverged(Box<Divergence>),
}

/// The first thing that the policy did otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// Number of the event.
    pub number: u64,
    /// Number of the call that it is in.
    pub call: u64,
    /// Time of that, ns.
    pub now: u64,
    /// Which CPU.
    pub cpu: u16,
    /// The method.
    pub method: &'static str,
    /// The task that the call is about: its process id.
    pub task: Option<u32>,
    /// What was recorded.
    pub expected: String,
    /// What the policy did.
    pub got: String,
    /// The same, before it is put into words.
    pub(crate) did: Did,
    /// The events before.
    pub before: Vec<String>,
    /// What is to blame.
    pub cause: Cause,
}

/// What a policy does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Did {
    /// It ends its call with this.
    Answered(Return),
    /// It asks for this, with whatever answer.
    Asked(Event),
    /// Something else.
    Else(String),
}

/// Why a policy does something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Each time it is fed the same it does the same, but not what was recorded.
    OtherPolicy,
    /// Fed the same again it did something else again: it depends on what is not in the recording.
    Nondeterministic,
}

/// A call that was abandoned in the recording, and was in the replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Number of the event.
    pub number: u64,
    /// Time of the call, ns.
    pub now: u64,
    /// Which CPU.
    pub cpu: u16,
    /// The method.
    pub method: &'static str,
    /// The task that the call was about.
    pub task: Option<u32>,
    /// Its kind.
    pub kind: &'static str,
    /// What the policy said, in the replay.
    pub message: String,
    /// The source line.
    pub place: Option<String>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Number of the first event that was replayed, or would have been.
    pub first: u64,
    /// Events that were replayed.
    pub events: u64,
    /// Events that the file has.
    pub all: u64,
    /// Calls.
    pub calls: u64,
    /// Why it ended.
    pub end: End,
    /// Calls that were abandoned, as recorded.
    pub faults: Vec<Fault>,
    /// How long it took.
    pub elapsed: Duration,
    /// How long what was replayed took when it was recorded, ns.
    pub recorded: u64,
}

/// The last checkpoint that is not later than this: an event's number, or how long after the first
/// call. The error says why there is none.
pub fn checkpoint_before(recording: &Recording, place: Until) -> Result<Mark, String> {
    let marks = recording.marks();
    let begin = recording.begin();
    let is_before = |mark: &Mark| match place {
        Until::Event(number) => mark.number <= number,
        Until::Time(after) => mark.now.saturating_sub(begin) <= after,
    };
    let found = marks.iter().rfind(|mark| is_before(mark));
    found.copied().ok_or_else(|| match &marks[..] {
        [] => "it has no checkpoints".into(),
        [only] => format!("its only checkpoint is later: before event {}", only.number),
        [first, .., last] => {
            format!(
                "its {} checkpoints are later: before events {} to {}",
                marks.len(),
                first.number,
                last.number
            )
        }
    })
}

/// Where a replay that ended at a gap can be taken up again: the first checkpoint that may be after
/// it.
pub fn checkpoint_after(
    recording: &Recording,
    outcome: &Outcome,
    options: &Options,
) -> Option<Mark> {
    let (from, place) = (
        options.from.map_or(0, |mark| mark.stamp),
        outcome.first + outcome.events,
    );
    recording
        .marks()
        .into_iter()
        .find(|mark| mark.stamp > from && mark.number >= place)
}

/// Replays a recording. An error says why it cannot be.
pub fn replay(recording: &Recording, policy: Policy, options: &Options) -> Result<Outcome, String> {
    let (mut outcome, instance) = run::once(recording, policy, options)?;
    let End::Diverged(first) = &mut outcome.end else {
        return Ok(outcome);
    };
    if let Some(cpu) = torn_away(recording) {
        let what =
            "the file was torn before anything of this CPU was written, and what comes next is not \
             as without it"
                .into();
        outcome.end = End::Gap { cpu, what };
        return Ok(outcome);
    }
    tell(first, recording);
    // Instances that are still there keep their addresses for themselves.
    let mut instances = vec![instance];
    for _ in 0..AGAIN {
        let (again, instance) = run::once(
            recording,
            policy,
            &Options {
                stop_at: None,
                ..options.clone()
            },
        )?;
        instances.push(instance);
        let is_same = match &again.end {
            End::Diverged(other) => (other.number, &other.did) == (first.number, &first.did),
            _ => false,
        };
        if !is_same {
            first.cause = Cause::Nondeterministic;
            break;
        }
    }
    Ok(outcome)
}

/// Replays up to the event with this number, which is a call that no other crosses, and gives the
/// policy as it is then. An error says why that cannot be.
pub fn up_to(
    recording: &Recording,
    policy: Policy,
    policy_options: Option<&str>,
    number: u64,
) -> Result<Instance, String> {
    let options = Options {
        single: true,
        policy_options: policy_options.map(str::to_owned),
        until: Some(Until::Event(number)),
        ..Options::default()
    };
    let (outcome, instance) = run::once(recording, policy, &options)?;
    match outcome.end {
        End::Until => Ok(instance),
        End::Diverged(it) => Err(format!(
            "it does something else at event {} already",
            it.number
        )),
        End::Gap { .. } | End::Whole => Err(format!(
            "the recording has no event {number}, or it comes after a gap"
        )),
    }
}

/// So often is what differs replayed again: one bit of an address may be the same by chance.
const AGAIN: usize = 4;

/// A CPU that has no events in a file that does not have all.
fn torn_away(recording: &Recording) -> Option<u16> {
    let has_gap = !recording.damage.is_empty() || recording.streams.iter().any(Stream::has_gap);
    let is_there = |cpu: &u16| recording.streams.iter().any(|stream| stream.cpu == *cpu);
    (0..recording.header.cpus.len() as u16).find(|cpu| has_gap && !is_there(cpu))
}

/// Puts into words what was recorded there and before, and what was done.
fn tell(divergence: &mut Divergence, recording: &Recording) {
    const BEFORE: u64 = 10;
    let mut words = Words::of(recording);
    for told in recording.merged() {
        let Item::Event(event) = told.item else {
            continue;
        };
        if told.number == divergence.number {
            divergence.expected = words.tell(told.cpu, &event);
            break;
        }
        if told.cpu == divergence.cpu && matches!(event, Event::Call(_)) {
            divergence.call = told.number;
        }
        if told.number + BEFORE >= divergence.number {
            divergence.before.push(words.line(&told));
        }
        words.note(told.cpu, &event);
    }
    divergence.got = match &divergence.did {
        Did::Answered(end) => words.tell(divergence.cpu, &Event::Return(*end)),
        Did::Else(text) => text.clone(),
        Did::Asked(event) => {
            let text = words.tell(divergence.cpu, event);
            // The answer would have been the recording's.
            text.rsplit_once(": ")
                .map_or(text.clone(), |(question, _)| question.to_owned())
        }
    };
}
