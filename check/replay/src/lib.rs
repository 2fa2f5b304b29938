// SPDX-License-Identifier: GPL-2.0-only
//! Feeds a recording to its policy, or to another one. The policy gets the recorded calls and
//! answers, and takes locks in the recorded order. Its actions are compared with the recorded ones,
//! and the first difference is reported.
//!
//! Each recorded CPU is a lane (`lane.rs`), which is a thread, or a coroutine of one thread.
//! Stamped events are replayed in the order of their stamps over all lanes (`order.rs`); between
//! them, lanes run freely. `table.rs` receives the policy's requests.
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

pub use baton_native::Change;
use baton_native::{Instance, Policy};
use baton_trace::{Event, Item, Mark, Recording, Return, Stream, Words};

/// Options of a replay.
#[derive(Clone, Default)]
pub struct Options {
    /// Runs the CPUs as coroutines of one thread, instead of each as a thread.
    pub single: bool,
    /// Options of the policy, instead of the recorded ones.
    pub policy_options: Option<String>,
    /// The checkpoint to begin at, instead of the beginning.
    pub from: Option<Mark>,
    /// Where to stop.
    pub until: Option<Until>,
    /// Number of an event. [`baton_replay_stop`] is called before it, if it is a call.
    pub stop_at: Option<u64>,
    /// Number of events so far, for a thread that monitors the replay.
    pub progress: Arc<AtomicU64>,
    /// What is to be done with each change of a thread's state, which policies in C report.
    pub changed: Option<OnChange>,
}

/// Receives the changes of threads' states, in the order of the replay.
pub type OnChange = Arc<dyn Fn(&Changed) + Send + Sync>;

/// A change of the state of a thread, during a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Number of the call in which it is made.
    pub number: u64,
    /// Time of the call, ns.
    pub now: u64,
    /// The CPU.
    pub cpu: u16,
    /// The change.
    pub change: Change,
}

/// A breakpoint for debuggers, just before the call that is event `number`.
#[no_mangle]
#[inline(never)]
pub extern "C" fn baton_replay_stop(number: u64) {
    std::hint::black_box(number);
}

/// Where to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Before the event with this number, or, if it has no stamp, before the next one that has.
    Event(u64),
    /// Before the first call that is so long after the first call of all, ns.
    Time(u64),
}

/// Why a replay ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// All events were replayed.
    Whole,
    /// It reached the place at which it was to stop.
    Until,
    /// Events are missing, or cannot be read.
    Gap {
        /// The CPU.
        cpu: u16,
        /// What is missing.
        what: String,
    },
    /// The policy did something that was not recorded.
    Diverged(Box<Divergence>),
}

/// The first difference between the policy and the recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// Number of the event.
    pub number: u64,
    /// Number of the call that it is in.
    pub call: u64,
    /// Time of that call, ns.
    pub now: u64,
    /// The CPU.
    pub cpu: u16,
    /// The method.
    pub method: &'static str,
    /// The task that the call is about: its process id.
    pub task: Option<u32>,
    /// What was recorded.
    pub expected: String,
    /// What the policy did.
    pub got: String,
    /// The same, before it is formatted.
    pub(crate) did: Did,
    /// The preceding events.
    pub before: Vec<String>,
    /// The cause of the difference.
    pub cause: Cause,
}

/// An action of a policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Did {
    /// It returns from its call with this.
    Answered(Return),
    /// It asks for this; the answer does not matter.
    Asked(Event),
    /// Something else.
    Else(String),
}

/// Why a policy differs from its recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It does the same in each replay, but not what was recorded.
    OtherPolicy,
    /// It differs between replays: it depends on something that is not in the recording.
    Nondeterministic,
}

/// A call that was abandoned both in the recording and in the replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Number of the event.
    pub number: u64,
    /// Time of the call, ns.
    pub now: u64,
    /// The CPU.
    pub cpu: u16,
    /// The method.
    pub method: &'static str,
    /// The task that the call was about.
    pub task: Option<u32>,
    /// Its kind.
    pub kind: &'static str,
    /// The policy's message in the replay.
    pub message: String,
    /// The source line.
    pub place: Option<String>,
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Number of the first event that was replayed, or would have been.
    pub first: u64,
    /// Events that were replayed.
    pub events: u64,
    /// Events in the file.
    pub all: u64,
    /// Calls that were replayed.
    pub calls: u64,
    /// Why it ended.
    pub end: End,
    /// Calls that were abandoned, as recorded.
    pub faults: Vec<Fault>,
    /// How long it took.
    pub elapsed: Duration,
    /// Duration of the replayed part in the recording, ns.
    pub recorded: u64,
}

/// The last checkpoint that is not later than this event number, or than this time after the first
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

/// The first checkpoint that may be after the gap at which a replay ended, where it can be resumed.
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

/// Replays a recording. The error says why it cannot be replayed.
pub fn replay(recording: &Recording, policy: Policy, options: &Options) -> Result<Outcome, String> {
    let (mut outcome, instance) = run::once(recording, policy, options)?;
    let End::Diverged(first) = &mut outcome.end else {
        // After a fault its values may be half changed. The kernel does not drop them either.
        if !outcome.faults.is_empty() {
            std::mem::forget(instance);
        }
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
    // The earlier instances are kept, so that their addresses are not used again.
    let mut instances = vec![instance];
    for _ in 0..AGAIN {
        let (again, instance) = run::once(
            recording,
            policy,
            &Options {
                stop_at: None,
                changed: None,
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

/// Replays up to the event with this number, which is a call that no other call overlaps, and
/// returns the policy in its state there. The error says why that is impossible.
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

/// Number of further replays of a difference; one bit of an address may be the same by chance.
const AGAIN: usize = 4;

/// A CPU without events, in a file that is incomplete.
fn torn_away(recording: &Recording) -> Option<u16> {
    let has_gap = !recording.damage.is_empty() || recording.streams.iter().any(Stream::has_gap);
    let is_there = |cpu: &u16| recording.streams.iter().any(|stream| stream.cpu == *cpu);
    (0..recording.header.nr_cpus() as u16).find(|cpu| has_gap && !is_there(cpu))
}

/// Formats the recorded events and what the policy did instead.
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
            // The answer would be the recording's, so it is removed.
            text.rsplit_once(": ")
                .map_or(text.clone(), |(question, _)| question.to_owned())
        }
    };
}
