// SPDX-License-Identifier: GPL-2.0-only
//! Parses the lines of `perf script`, of `trace-cmd report`, and of ftrace's own `trace` file,
//! whose format is like that of trace-cmd.
//!
//! ```text
//! perf       = comm pid [ "/" tid ] "[" cpu "]" time ":" [ period ] [ "sched:" ] event ":" fields
//! trace-cmd  = comm "-" pid [ "(" tgid ")" ] "[" cpu "]" [ flags ] time ":" event ":" fields
//! ```
//!
//! Fields are as the kernel prints them (`comm=cc1 pid=7 prio=120`), or as the plugins of
//! libtraceevent do (`cc1:7 [120]`). Lines of other events, and lines that are no events (comments,
//! call chains), are skipped.

/// A scheduler event.
#[derive(Debug)]
pub(super) struct Event<'a> {
    /// The line number, from 1.
    pub(super) line: usize,
    /// The time, in ns of the recording's clock.
    pub(super) at: u64,
    pub(super) cpu: u32,
    /// Whether it happened in an interrupt; perf does not record that.
    pub(super) interrupt: bool,
    /// The pid of the current task, from the head of the line; -1 if perf could not name it.
    pub(super) pid: i64,
    pub(super) comm: &'a str,
    pub(super) what: What<'a>,
}

#[derive(Debug)]
pub(super) enum What<'a> {
    Switch {
        prev: Who<'a>,
        left: Left,
        next: Who<'a>,
    },
    /// sched_waking occurs on the waker's CPU, sched_wakeup possibly in an interrupt of another
    /// CPU. The first of the two counts.
    Wakeup(Who<'a>),
    WakeupNew(Who<'a>),
    Fork {
        comm: &'a str,
        pid: i64,
    },
    Exit,
}

/// How a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Left {
    Runnable,
    Asleep,
    Dead,
}

#[derive(Debug)]
pub(super) struct Who<'a> {
    pub(super) comm: &'a str,
    pub(super) pid: i64,
    pub(super) prio: i64,
}

const NAMES: [&str; 6] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_process_fork",
    "sched_process_exit",
];

/// All events, in order of time.
pub(super) fn events(text: &str) -> Result<Vec<Event<'_>>, String> {
    let mut events: Vec<Event<'_>> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let Some(head) = head(line) else {
            if is_loss(line) {
                return Err(format!(
                    "line {number} says that events were lost ({}): record again, with larger \
                     buffers (perf sched record -m 64M, \
                     trace-cmd record -b 65536)",
                    line.trim()
                ));
            }
            if line
                .split_whitespace()
                .any(|word| word.strip_suffix(':').and_then(ours).is_some())
            {
                return Err(format!(
                    "line {number}: before the event there is no task, [CPU] and time: {}",
                    line.trim()
                ));
            }
            continue;
        };
        let Some(name) = ours(head.name) else {
            continue;
        };
        let event = event(number, &head, name)
            .ok_or_else(|| format!("line {number}: {name} has other fields: {}", line.trim()))?;
        if events.last().is_some_and(|before| before.at > event.at) {
            return Err(format!("line {number}: time goes back, to {}", head.time));
        }
        events.push(event);
    }
    if events
        .iter()
        .any(|event| matches!(event.what, What::Switch { .. }))
    {
        return Ok(events);
    }
    Err(
        "there is no sched_switch in it: record with `perf sched record`, or `trace-cmd record -e \
        sched`, and give the text of \
         `perf script`, or `trace-cmd report`"
            .into(),
    )
}

/// The event's name, if it is one that the parser reads.
fn ours(name: &str) -> Option<&str> {
    let name = name.strip_prefix("sched:").unwrap_or(name);
    NAMES.contains(&name).then_some(name)
}

/// Recognises `CPU:1 [LOST 7 EVENTS]`, `CPU:1 [7 EVENTS DROPPED]`, `LOST 7 events!`,
/// PERF_RECORD_LOST.
fn is_loss(line: &str) -> bool {
    let line = line.to_ascii_uppercase();
    let counted = line.split("LOST ").skip(1).any(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.starts_with(" EVENTS") || rest.starts_with(" CHUNKS")
    });
    counted || line.contains("EVENTS DROPPED]") || line.contains("PERF_RECORD_LOST")
}

/// The part of a line before the fields.
struct Head<'a> {
    comm: &'a str,
    pid: i64,
    cpu: u32,
    flags: &'a str,
    time: &'a str,
    at: u64,
    name: &'a str,
    fields: &'a str,
}

/// Finds the first `[CPU]` that is followed by time and event: a name may contain brackets, too.
fn head(line: &str) -> Option<Head<'_>> {
    line.match_indices('[').find_map(|(open, _)| {
        let (cpu, rest) = line[open + 1..].split_once(']')?;
        let cpu = digits(cpu)?.parse().ok()?;
        let (mut word, mut rest) = first_word(rest)?;
        let mut flags = "";
        if !word.ends_with(':') {
            flags = word;
            (word, rest) = first_word(rest)?;
        }
        let time = word.strip_suffix(':')?;
        let at = time_of(time)?;
        let (mut name, mut fields) = first_word(rest)?;
        // The period, which perf prints for events that have one.
        if digits(name).is_some() {
            (name, fields) = first_word(fields)?;
        }
        let name = name.strip_suffix(':')?;
        let (comm, pid) = task(line[..open].trim())?;
        Some(Head {
            comm,
            pid,
            cpu,
            flags,
            time,
            at,
            name,
            fields: fields.trim(),
        })
    })
}

/// Parses `cc1 7`, `cc1 7/8`, `cc1-8`, `cc1-8 ( 7)`.
fn task(text: &str) -> Option<(&str, i64)> {
    let text = match text.strip_suffix(')') {
        Some(_) => text[..text.rfind('(')?].trim_end(),
        None => text,
    };
    let (comm, pid) = match text.rsplit_once(char::is_whitespace) {
        Some((comm, "-1")) => (comm, "-1"),
        Some((comm, pid)) if pid.bytes().all(|c| c.is_ascii_digit() || c == b'/') => {
            (comm, pid.rsplit('/').next()?)
        }
        _ => text.rsplit_once('-')?,
    };
    Some((comm.trim_end(), pid.parse().ok()?))
}

fn first_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())).then_some(text)
}

/// Parses `12.345678` to ns.
fn time_of(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let (whole, part): (u64, u64) = match digits(part)?.len() {
        long @ 1..=9 => (
            digits(whole)?.parse().ok()?,
            part.parse::<u64>().ok()? * 10u64.pow(9 - long as u32),
        ),
        _ => return None,
    };
    whole.checked_mul(1_000_000_000)?.checked_add(part)
}

fn event<'a>(line: usize, head: &Head<'a>, name: &str) -> Option<Event<'a>> {
    let fields = head.fields;
    let what = match name {
        "sched_switch" => switch(fields)?,
        "sched_waking" | "sched_wakeup" => What::Wakeup(woken(fields).filter(|who| who.pid > 0)?),
        "sched_wakeup_new" => What::WakeupNew(woken(fields).filter(|who| who.pid > 0)?),
        "sched_process_fork" => {
            let (comm, rest) = fields
                .split_once(" child_comm=")?
                .1
                .split_once(" child_pid=")?;
            What::Fork {
                comm,
                pid: Some(number(rest)?.0).filter(|&pid| pid > 0)?,
            }
        }
        _ => {
            who(fields, "")?;
            What::Exit
        }
    };
    // irqs-off, need-resched, then the context: h, H, s, z, Z stand for hard and soft interrupts
    // and NMIs.
    let interrupt = head
        .flags
        .chars()
        .nth(2)
        .is_some_and(|c| "hHszZ".contains(c));
    Some(Event {
        line,
        at: head.at,
        cpu: head.cpu,
        interrupt,
        pid: head.pid,
        comm: head.comm,
        what,
    })
}

fn switch(fields: &str) -> Option<What<'_>> {
    let (prev, rest, next) = match fields.split_once(" ==> next_comm=") {
        Some((prev, _)) => {
            let (prev, rest) = who(prev, "prev_")?;
            (
                prev,
                rest.trim().strip_prefix("prev_state=")?,
                who(&fields[fields.find(" ==> ")? + 5..], "next_")?.0,
            )
        }
        None => {
            let (prev, next) = fields.split_once(" ==> ")?;
            let (prev, state) = prev.rsplit_once(' ')?;
            (short_who(prev)?, state, short_who(next)?)
        }
    };
    Some(What::Switch {
        prev,
        left: left(rest.trim())?,
        next,
    })
}

/// Parses a task state of `TASK_STATE_TO_CHAR_STR`, or of older kernels: `R` and `R+` of a task
/// that is still runnable; `S`, `D|W`; `Z`, `X`.
fn left(state: &str) -> Option<Left> {
    let state = state.strip_suffix('+').unwrap_or(state);
    if !state
        .split('|')
        .all(|one| one.len() == 1 && "RSDTtXZPIKWNx".contains(one))
    {
        return None;
    }
    Some(match state {
        "R" => Left::Runnable,
        _ if state.contains(['Z', 'X', 'x']) => Left::Dead,
        _ => Left::Asleep,
    })
}

fn woken(fields: &str) -> Option<Who<'_>> {
    if fields.starts_with("comm=") {
        return Some(who(fields, "")?.0);
    }
    // cc1:7 [120] success=1 CPU:003, or without success
    short_who(&fields[..fields.rfind(']')? + 1])
}

/// Parses `comm=cc1 pid=7 prio=120`, each with a prefix, and returns the rest.
fn who<'a>(fields: &'a str, prefix: &str) -> Option<(Who<'a>, &'a str)> {
    let rest = fields.strip_prefix(prefix)?.strip_prefix("comm=")?;
    let (comm, rest) = rest.split_once(&format!(" {prefix}pid="))?;
    let (pid, rest) = number(rest)?;
    let (prio, rest) = number(
        rest.trim_start()
            .strip_prefix(prefix)?
            .strip_prefix("prio=")?,
    )?;
    Some((known(comm, pid, prio)?, rest))
}

/// Parses `cc1:7 [120]`.
fn short_who(text: &str) -> Option<Who<'_>> {
    let (name, prio) = text.trim().strip_suffix(']')?.rsplit_once('[')?;
    let (comm, pid) = name.trim_end().rsplit_once(':')?;
    known(comm, pid.parse().ok()?, prio.parse().ok()?)
}

/// Checks the ranges of pid and priority: -1 for deadline tasks, 0 to 139, and 140 for an idle
/// task.
fn known(comm: &str, pid: i64, prio: i64) -> Option<Who<'_>> {
    let most = if pid == 0 { 140 } else { 139 };
    (pid >= 0 && (-1..=most).contains(&prio)).then_some(Who { comm, pid, prio })
}

/// Parses a number at the beginning, and returns the rest.
fn number(text: &str) -> Option<(i64, &str)> {
    let (word, rest) = first_word(text)?;
    Some((word.parse().ok()?, rest))
}
