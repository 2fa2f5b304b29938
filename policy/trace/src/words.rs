// SPDX-License-Identifier: GPL-2.0-only
//! Events in words, for users.

extern crate alloc;

use crate::{About, Call, Carried, Event, Item, Question, Recording, Told};
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use baton_abi::{
    BatonHint, BatonMethod, BatonRefusal, BatonTask, BATON_FAULT_NAMES, BATON_F_FORK, BATON_F_SYNC,
    BATON_KICK_PREEMPT, BATON_METHOD_NAMES, BATON_PICK_KEEP, BATON_PICK_NONE, BATON_SELECT_DIRECT,
};

/// The name of the method with this number.
pub fn method_name(number: u8) -> &'static str {
    BATON_METHOD_NAMES.get(usize::from(number)).unwrap_or(&"?")
}

/// The name of the fault with this number.
pub fn fault_name(number: u8) -> &'static str {
    BATON_FAULT_NAMES
        .get(usize::from(number))
        .unwrap_or(&"an unknown fault")
}

/// Describes events one after the other. It remembers the task in each slot and the call in
/// progress on each CPU.
#[derive(Default)]
pub struct Words {
    /// The origin of times, ns.
    begin: u64,
    pids: BTreeMap<u32, u32>,
    calls: BTreeMap<u16, (u8, Carried)>,
}

impl Words {
    /// For the events of a recording. Times of calls are relative to its first call.
    pub fn of(recording: &Recording) -> Self {
        Self {
            begin: recording.begin(),
            ..Self::default()
        }
    }

    /// Remembers what later events need. Must be called for each event in order.
    pub fn note(&mut self, cpu: u16, event: &Event) {
        match event {
            Event::Call(call) => {
                if let Some(task) = call.about.task() {
                    self.pids.insert(task.slot, task.pid);
                }
                self.calls.insert(cpu, (call.method, call.carried));
            }
            Event::Return(_) | Event::Abandoned { .. } | Event::End { .. } => {
                self.calls.remove(&cpu);
            }
            _ => {}
        }
    }

    /// Describes the task in a slot.
    fn slot(&self, slot: u32) -> String {
        match self.pids.get(&slot) {
            Some(pid) => format!("task {pid}"),
            None => format!("the task in slot {slot}"),
        }
    }

    fn hint(&self, hint: &BatonHint) -> String {
        let thread = match hint.thread.checked_sub(1) {
            Some(slot) => format!(" about {}", self.slot(slot)),
            None => String::new(),
        };
        let count = hint
            .words
            .iter()
            .rposition(|word| *word != 0)
            .map_or(0, |last| last + 1);
        format!("{} {:?}{thread}", hint.tag, &hint.words[..count])
    }

    fn token(&self, token: u64) -> String {
        match (token as u32).checked_sub(1) {
            Some(slot) => format!("{} (generation {})", self.slot(slot), token >> 32),
            None => format!("a token that there is not ({token:#x})"),
        }
    }

    /// Describes an event of this CPU. Must be called before [`Words::note`].
    pub fn tell(&self, cpu: u16, event: &Event) -> String {
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        match event {
            Event::Call(call) => self.call(call),
            Event::Return(end) => match self.calls.get(&cpu) {
                Some((method, before)) => self.answer(*method, before, end.answer, &end.carried),
                None => "returns".into(),
            },
            Event::Abandoned { kind, .. } => match self.calls.get(&cpu) {
                Some((method, _)) => format!(
                    "{} is abandoned: {}",
                    method_name(*method),
                    fault_name(*kind)
                ),
                None => format!("a call is abandoned: {}", fault_name(*kind)),
            },
            Event::Lock { id, .. } => format!("takes lock {id:#x}"),
            Event::Busy { id } => format!("does not get lock {id:#x}, which is taken"),
            Event::Now(now) => format!("asks for the time: {}", time(*now)),
            Event::Random(number) => format!("draws a random number: {number:#x}"),
            Event::Read(value) => format!("reads a shared value: {value}"),
            Event::MayRun {
                slot,
                cpu,
                yes: answer,
            } => {
                format!(
                    "asks whether {} may run on CPU {cpu}: {}",
                    self.slot(*slot),
                    yes(*answer)
                )
            }
            Event::Cpu {
                question,
                cpu,
                yes: answer,
            } => match question {
                Question::Online => format!("asks whether CPU {cpu} is online: {}", yes(*answer)),
                Question::Idle => format!("asks whether CPU {cpu} is idle: {}", yes(*answer)),
                Question::Claim => format!("claims CPU {cpu}, if it is idle: {}", yes(*answer)),
            },
            Event::AnyIdle(answer) => format!("asks whether any CPU is idle: {}", yes(*answer)),
            Event::ArmTimer(after) => format!("sets its timer, {} from now", length(*after)),
            Event::CancelTimer => "stops its timer".into(),
            Event::NoMemory { .. } => "asks for memory, and there is none".into(),
            Event::Dropped(token) => format!("drops the Schedulable of {}", self.token(*token)),
            Event::Reply {
                slot,
                reply,
                answer,
            } => {
                let answer = ["sent", "it has no queue", "its ring is full"]
                    .get(usize::from(*answer))
                    .unwrap_or(&"?");
                format!(
                    "replies to {} with {}: {answer}",
                    self.slot(*slot),
                    self.hint(reply)
                )
            }
            Event::End { .. } => "the recording of this CPU ends".into(),
        }
    }

    /// Describes an item as a line, with its number and its CPU.
    pub fn line(&self, told: &Told) -> String {
        let Told { number, cpu, item } = told;
        match item {
            Item::Event(event) => {
                let indent = if matches!(event, Event::Call(_) | Event::End { .. }) {
                    ""
                } else {
                    "  "
                };
                format!(
                    "{number:>10}  CPU {cpu:<3} {indent}{}",
                    self.tell(*cpu, event)
                )
            }
            Item::Gap { lost, blocks } => {
                let what = [
                    (*lost, "events were lost as it was recorded"),
                    (*blocks, "blocks are missing in the file"),
                ];
                let what: Vec<String> = what
                    .iter()
                    .filter(|(n, _)| *n != 0)
                    .map(|(n, what)| format!("{n} {what}"))
                    .collect();
                format!("{:>10}  CPU {cpu:<3} {}", "-", what.join(", "))
            }
            Item::Malformed => format!(
                "{:>10}  CPU {cpu:<3} the rest of a block cannot be read",
                "-"
            ),
        }
    }

    fn call(&self, call: &Call) -> String {
        let name = method_name(call.method);
        let at = time(call.now.saturating_sub(self.begin));
        match &call.about {
            About::Waking(task, wake) => {
                let fork = if wake.flags & BATON_F_FORK != 0 {
                    ", a new task"
                } else {
                    ""
                };
                let sync = if wake.flags & BATON_F_SYNC != 0 {
                    ", whose waker is about to sleep"
                } else {
                    ""
                };
                let BatonTask { pid, .. } = task;
                format!(
                    "{at} {name}: task {pid}, last on CPU {}, woken on CPU {}{fork}{sync}",
                    wake.prev_cpu, wake.waker_cpu
                )
            }
            About::Given(task, token) => {
                format!("{at} {name}: {} (generation {})", of(task), token >> 32)
            }
            About::Task(task) => format!("{at} {name}: {}", of(task)),
            About::Pick(cpu, None) => format!("{at} {name} for CPU {cpu}"),
            About::Pick(cpu, Some(task)) => format!(
                "{at} {name} for CPU {cpu}, where task {} can go on",
                task.pid
            ),
            About::Cpu(cpu) => format!("{at} {name}: CPU {cpu}"),
            About::Refused(token, why) => {
                const STALE: u8 = BatonRefusal::Stale as u8;
                const FOREIGN: u8 = BatonRefusal::Foreign as u8;
                const NOT_ALLOWED: u8 = BatonRefusal::NotAllowed as u8;
                const CPU_OFFLINE: u8 = BatonRefusal::CpuOffline as u8;
                let why = match *why {
                    STALE => "its token is stale",
                    FOREIGN => "it is another policy's",
                    NOT_ALLOWED => "it may not run there",
                    CPU_OFFLINE => "the CPU is offline",
                    _ => "there is nothing to keep",
                };
                format!("{at} {name}: {}: {why}", self.token(*token))
            }
            About::Hint(task, hint) => format!("{at} {name}: {}: {}", of(task), self.hint(hint)),
        }
    }

    /// Describes the answer of a method, and its further requests.
    pub fn answer(&self, method: u8, before: &Carried, answer: u64, after: &Carried) -> String {
        use BatonMethod::{
            Hint, NewlyIdle, PickNextTask, SelectTaskRq, TaskDeparted, TaskDequeued,
        };
        let what = match BatonMethod::of(method.into()) {
            SelectTaskRq => {
                let cpu = answer as u32 as i32;
                match answer & BATON_SELECT_DIRECT {
                    0 => format!(": queue it on CPU {cpu}"),
                    _ => format!(": run it at once on CPU {cpu}, for {}", slice(after.slice)),
                }
            }
            of @ (PickNextTask | NewlyIdle) => match answer {
                BATON_PICK_NONE => ": nothing".into(),
                BATON_PICK_KEEP => format!(": it goes on, for {}", slice(after.slice)),
                token if of == PickNextTask => {
                    format!(": {}, for {}", self.token(token), slice(after.slice))
                }
                token => format!(": {}", self.token(token)),
            },
            Hint if answer != 0 => ": that is no hint of its type".into(),
            TaskDequeued | TaskDeparted => match answer {
                0 => ": it had none".into(),
                token => format!(": gives back {}", self.token(token)),
            },
            _ => String::new(),
        };
        let kicks = |carried: &Carried| carried.kicks.len().min(usize::from(carried.nr_kicks));
        let new = after.kicks.iter().take(kicks(after)).skip(kicks(before));
        let new: String = new
            .map(|kick| match kick & BATON_KICK_PREEMPT {
                0 => format!(", and wakes CPU {kick} if it is idle"),
                _ => format!(", and preempts CPU {}", kick & !BATON_KICK_PREEMPT),
            })
            .collect();
        format!("{} answers{what}{new}", method_name(method))
    }
}

impl About {
    /// The task among the arguments.
    pub fn task(&self) -> Option<&BatonTask> {
        match self {
            About::Waking(task, _)
            | About::Given(task, _)
            | About::Task(task)
            | About::Pick(_, Some(task)) => Some(task),
            About::Hint(task, _) => Some(task),
            _ => None,
        }
    }
}

fn of(task: &BatonTask) -> String {
    let BatonTask {
        pid,
        cpu,
        nice,
        runtime,
        ..
    } = task;
    let nice = if *nice == 0 {
        String::new()
    } else {
        format!(", nice {nice}")
    };
    format!(
        "task {pid} on CPU {cpu}, ran for {}{nice}",
        length(*runtime)
    )
}

fn slice(ns: u64) -> String {
    if ns == 0 {
        "the usual slice".into()
    } else {
        length(ns)
    }
}

/// Formats a time in seconds.
fn time(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Formats a duration with a suitable unit.
fn length(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => (1.0, "ns"),
        1_000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    // Without trailing zeros.
    format!("{} {name}", (ns as f64 / unit * 1e3).round() / 1e3)
}
