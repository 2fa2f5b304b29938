// SPDX-License-Identifier: GPL-2.0-only
//! The events of a phase, from their keys and values.

use baton_abi::BatonHint;

use super::json::Json;
use super::parse::{int, micros, object, text, Global, Place, MAX_INT};

/// An event, with its key as written in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) key: String,
    pub(super) what: What,
}

/// Times in ns.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// CPU time.
    Run(u64),
    /// Computes until this much time has passed.
    Runtime(u64),
    Sleep(u64),
    Timer {
        name: String,
        period: u64,
        absolute: bool,
    },
    Lock(String),
    Unlock(String),
    Wait(Condition),
    Signal(String),
    Broad(String),
    Sync(Condition),
    Barrier(String),
    /// Suspends on a task's name. In effect, `Resume` resumes every task suspended on that name.
    Suspend(String),
    Resume(String),
    Yield,
    Fork(String),
    /// Not in rt-app: a hint, and the task whose first instance it names.
    Hint(BatonHint, Option<String>),
    /// Not in rt-app: waits for a reply.
    Reply,
}

/// The condition and mutex that `wait` and `sync` name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) name: String,
    pub(super) mutex: String,
}

/// Keys are matched by prefix, as in rt-app: `run`, `run1`, `runA` are `run`. A key that is a
/// prefix of another comes after it.
const PREFIXES: [&str; 19] = [
    "lock", "unlock", "wait", "signal", "broad", "sync", "sleep", "runtime", "run", "timer",
    "suspend", "resume", "mem", "iorun", "yield", "barrier", "fork", "hint", "reply",
];

fn prefix(key: &str) -> Option<&'static str> {
    // These keys begin with `mem`, but are other keys.
    if key.starts_with("membind") || key.starts_with("memrun") {
        return None;
    }
    PREFIXES.into_iter().find(|prefix| key.starts_with(prefix))
}

pub(super) fn is_one(key: &str) -> bool {
    prefix(key).is_some()
}

/// Approximate number of bytes that memset() writes in a nanosecond, if the buffer is larger than
/// the inner caches.
const BYTES_PER_NS: u64 = 10;
/// Cost of a write() to /dev/null, ns: it does not read the bytes.
const WRITE: u64 = 200;

pub(super) fn read(
    place: Place<'_>,
    key: &str,
    value: &Json,
    global: &Global,
) -> Result<Event, String> {
    let what = what(place, key, value, global).map_err(|why| place.wrong(key, why))?;
    Ok(Event {
        key: key.into(),
        what,
    })
}

fn what(place: Place<'_>, key: &str, value: &Json, global: &Global) -> Result<What, String> {
    let bytes = || int(value, 0, MAX_INT).map(|bytes| bytes as u64);
    Ok(match prefix(key).ok_or("rt-app has no such event")? {
        // As in rt-app: a whole number of loops.
        "run" => What::Run(micros(value)? / global.loop_ns * global.loop_ns),
        "runtime" => What::Runtime(micros(value)?),
        "sleep" => What::Sleep(micros(value)?),
        "mem" => What::Run(bytes()?.div_ceil(BYTES_PER_NS)),
        "iorun" => What::Run(bytes()?.div_ceil(global.buffer) * WRITE),
        "timer" => timer(value)?,
        "lock" => What::Lock(name(value)?),
        "unlock" => What::Unlock(name(value)?),
        "wait" => What::Wait(condition(value)?),
        "signal" => What::Signal(name(value)?),
        "broad" => What::Broad(name(value)?),
        "sync" => What::Sync(condition(value)?),
        "barrier" => What::Barrier(name(value)?),
        // workgen fills in the task's own name.
        "suspend" if text(value)?.is_empty() => What::Suspend(place.task.into()),
        "suspend" => What::Suspend(name(value)?),
        "resume" => What::Resume(name(value)?),
        "yield" => {
            text(value)?;
            What::Yield
        }
        "hint" => hint(value)?,
        "reply" => {
            text(value)?;
            What::Reply
        }
        _ => What::Fork(name(value)?),
    })
}

/// Parses a hint: its tag, then its words, in order. A name among the words is the thread.
fn hint(value: &Json) -> Result<What, String> {
    let Json::List(list) = value else {
        return Err(format!("an array is needed, not {}", value.kind()));
    };
    let (tag, rest) = list.split_first().ok_or("a tag is needed")?;
    let tag = int(tag, 0, i64::from(u32::MAX))? as u32;
    let (mut hint, mut thread, mut next) = (
        BatonHint {
            tag,
            ..BatonHint::default()
        },
        None,
        0,
    );
    for part in rest {
        match part {
            Json::Text(_) if thread.is_some() => {
                return Err("a hint names one thread at most".into())
            }
            Json::Text(_) => thread = Some(name(part)?),
            _ => {
                *hint
                    .words
                    .get_mut(next)
                    .ok_or("a hint has six words at most")? = int(part, i64::MIN, i64::MAX)? as u64;
                next += 1;
            }
        }
    }
    Ok(What::Hint(hint, thread))
}

fn name(value: &Json) -> Result<String, String> {
    match text(value)? {
        "" => Err("a name is needed".into()),
        name => Ok(name.into()),
    }
}

fn condition(value: &Json) -> Result<Condition, String> {
    let (mut of, mut mutex) = (None, None);
    for (key, value) in object(value)? {
        match key.as_str() {
            "ref" => of = Some(name(value)?),
            "mutex" => mutex = Some(name(value)?),
            _ => return Err(format!("it has ref and mutex, not '{key}'")),
        }
    }
    match (of, mutex) {
        (Some(name), Some(mutex)) => Ok(Condition { name, mutex }),
        _ => Err("it needs ref and mutex".into()),
    }
}

fn timer(value: &Json) -> Result<What, String> {
    let (mut of, mut period, mut absolute) = (None, None, false);
    for (key, value) in object(value)? {
        match key.as_str() {
            "ref" => of = Some(name(value)?),
            "period" => period = Some(micros(value)?),
            "mode" => {
                absolute = match text(value)? {
                    "absolute" => true,
                    "relative" => false,
                    other => {
                        return Err(format!("mode '{other}' is neither relative nor absolute"))
                    }
                }
            }
            _ => return Err(format!("a timer has ref, period and mode, not '{key}'")),
        }
    }
    match (of, period) {
        (Some(name), Some(period)) => Ok(What::Timer {
            name,
            period,
            absolute,
        }),
        _ => Err("it needs ref and period".into()),
    }
}
