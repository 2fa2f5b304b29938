// SPDX-License-Identifier: GPL-2.0-only
//! Closed queues of hints, with the reasons; and upgrades that keep queues open.

use crate::{
    flight,
    hints::{heard, load, open, ping, A_WHILE},
    tool::{baton, changed_module, check, is_well, replace},
    Case,
};
use baton_hints::{End, Message, NotSent, Queue, Raw, Type};
use echo::{Hint, Reply};
use std::time::Instant;

pub fn cases() -> Vec<Case> {
    vec![
        case!("hints: upgrades, switches, unloads and faults", ends()),
        case!(
            "hints: upgrades to another type of replies, and back",
            other_types()
        ),
    ]
}

/// Checks that the queue is closed for that reason, and that a waiting thread is woken.
fn is_closed<R: Message>(queue: &mut Queue<Hint, R>, expected: End) -> Result<(), String> {
    let begin = Instant::now();
    let waited = queue.wait(A_WHILE).map_err(|e| e.to_string())?;
    let sent = queue.send(&ping(1));
    let now = queue.send_now(&ping(1));
    let all = NotSent::Closed(expected);
    check(
        waited.is_none() && begin.elapsed() < A_WHILE && sent == Err(all) && now == Err(all),
        || format!("not closed as {expected:?}, but: {sent:?}, {now:?}"),
    )
}

fn ends() -> Result<(), String> {
    load()?;
    let mut queue = open()?;
    let before = heard(&mut queue, 1)?;
    baton(&["upgrade", "echo"])?;
    let after = heard(&mut queue, 2)?;
    check(queue.end().is_none() && after == before + 1, || {
        format!("after an upgrade: {after}, {:?}", queue.end())
    })?;
    baton(&["switch", "echo", "fifo"])?;
    is_closed(&mut queue, End::Replaced)?;
    drop(queue);
    baton(&["switch", "fifo", "echo"])?;
    let mut queue = open()?;
    heard(&mut queue, 3)?;
    flight::stall("echo")?;
    is_closed(&mut queue, End::Fault)?;
    drop(queue);
    baton(&["unload", "echo"])?;
    load()?;
    let mut queue = open()?;
    baton(&["load", "fifo"])?;
    baton(&["attach", "fifo", "--all"])?;
    baton(&["unload", "echo"])?;
    is_closed(&mut queue, End::Unloaded)?;
    let said = baton(&["unload", "--everything"])?;
    check(said.contains("baton.ko stays loaded"), || said.clone())?;
    drop(queue);
    baton(&["unload", "--everything"]).map(|_| ())
}

/// Replies in the type of another version of `echo`.
#[derive(Clone, Copy)]
struct Renewed(Raw);

impl Message for Renewed {
    const TYPE: Type = Type {
        version: 2,
        layout: 0,
        ..Reply::TYPE
    };
    const THREADS: usize = 0;

    fn encode(&self) -> Raw {
        self.0
    }

    fn decode(raw: &Raw) -> Option<Self> {
        Some(Self(*raw))
    }
}

/// The other version has the same state, but another type of replies.
fn other_types() -> Result<(), String> {
    load()?;
    let named = |version: u32| {
        let mut bytes = b"Reply".to_vec();
        bytes.resize(Reply::TYPE.name.len(), 0);
        bytes.extend(version.to_le_bytes());
        bytes
    };
    let module = changed_module("echo", |bytes| replace(bytes, &named(1), &named(2)))?;
    let mut queue = open()?;
    let before = heard(&mut queue, 1)?;
    baton(&["upgrade", "echo", "--module", &module])?;
    is_closed(&mut queue, End::Replaced)?;
    drop(queue);
    let refused = open().err().unwrap_or_default();
    check(
        refused.contains("replies are of another type or version"),
        || format!("the old type is not refused: {refused}"),
    )?;
    let renewed = || Queue::<Hint, Renewed>::open("echo", 16).map_err(|e| e.to_string());
    let mut queue = renewed()?;
    queue.send_now(&ping(2)).map_err(|e| e.to_string())?;
    check(
        queue
            .receive()
            .is_some_and(|reply| reply.0.words[..2] == [2, before + 1]),
        || "no answer to 2".into(),
    )?;
    baton(&["rollback", "echo"])?;
    is_closed(&mut queue, End::Replaced)?;
    drop(queue);
    check(renewed().is_err(), || {
        "the other type is taken after the rollback".into()
    })?;
    let after = heard(&mut open()?, 3)?;
    check(after == before + 2, || {
        format!("{after} hints were heard, not {}", before + 2)
    })?;
    is_well("echo")
}
