// SPDX-License-Identifier: GPL-2.0-only
//! Attributes of threads, by their names.
//!
//! ```no_run
//! use baton_hints::attributes::Attributes;
//!
//! let mut attributes = Attributes::open("cfs_c").expect("it is granted, and has attributes");
//! attributes.set(std::process::id(), &[("slice", 3_000_000)]).expect("3 ms are in the range");
//! ```

use std::fmt;
use std::io;
use std::time::Duration;

use baton_message::attributes::{
    Attribute as Raw, Attributes as Ask, AttributesReply as Reply, NotSet, BATON_MAX_ATTRIBUTES,
};

use crate::{NotSent, OpenError, Queue, Thread};

/// How long a policy in an agent may take to reply. A policy in the kernel replies at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Entries of the queue.
const ENTRIES: u32 = 16;

/// An attribute of a policy's threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
    /// The value of new threads.
    pub initial: i64,
    /// Are the values nanoseconds?
    pub is_time: bool,
}

impl From<Raw> for Attribute {
    fn from(raw: Raw) -> Self {
        Self {
            name: raw.with_name(str::to_string),
            min: raw.min,
            max: raw.max,
            initial: raw.initial,
            is_time: raw.is_time,
        }
    }
}

/// Why attributes were not read or set.
#[derive(Debug)]
pub enum Error {
    /// The request was not sent.
    NotSent(NotSent),
    /// There was no reply, as the queue was closed or the policy's agent is slow.
    NoReply,
    /// `poll()` failed.
    Poll(io::Error),
    /// The policy has no attribute of this name.
    NoSuch(String),
    /// The value is out of the range of this attribute.
    Range(Attribute),
    /// The policy has not yet placed the thread for the first time. Try again.
    NotYet,
    /// The policy refuses the values, with its reason.
    Refused(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => why.fmt(f),
            Self::NoReply => f.write_str("the policy did not reply"),
            Self::Poll(why) => write!(f, "waiting for the reply: {why}"),
            Self::NoSuch(name) => write!(f, "the policy has no attribute {name}"),
            Self::Range(of) => write!(f, "{} is from {} to {}", of.name, of.min, of.max),
            Self::NotYet => f.write_str("the policy does not know the thread yet"),
            Self::Refused(why) => write!(f, "the policy refuses that: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// A thread's queue for attributes to a policy. Only the thread that opened it may use it.
pub struct Attributes {
    queue: Queue<Ask, Reply>,
    table: Vec<Attribute>,
}

impl Attributes {
    /// Opens this thread's queue. The policy must run, and this thread must be one of its tasks.
    pub fn open(policy: &str) -> Result<Self, OpenError> {
        Ok(Self {
            queue: Queue::open(policy, ENTRIES)?,
            table: Vec::new(),
        })
    }

    /// Sends a request, and returns the reply to it.
    fn ask(&mut self, ask: &Ask) -> Result<Reply, Error> {
        // Replies to requests that were given up.
        while self.queue.receive().is_some() {}
        self.queue.send_now(ask).map_err(Error::NotSent)?;
        let reply = self.queue.wait(PATIENCE).map_err(Error::Poll)?;
        reply.ok_or(Error::NoReply)
    }

    /// The attributes of the policy's threads.
    pub fn table(&mut self) -> Result<&[Attribute], Error> {
        let mut count = 1;
        while self.table.len() < count {
            let index = self.table.len() as u8;
            let reply = self.ask(&Ask::Describe { index })?;
            let (attribute, at, of) = reply.described().ok_or(Error::NoReply)?;
            if at != self.table.len() || of > BATON_MAX_ATTRIBUTES {
                return Err(Error::NoReply);
            }
            count = of;
            self.table.push(attribute.into());
        }
        Ok(&self.table)
    }

    fn number(&mut self, name: &str) -> Result<usize, Error> {
        let at = self.table()?.iter().position(|of| of.name == name);
        at.ok_or_else(|| Error::NoSuch(name.to_string()))
    }

    /// The attributes of a thread, in the order of the table. `thread` is its id.
    pub fn get(&mut self, thread: u32) -> Result<Vec<i64>, Error> {
        let thread = Thread::of_id(thread);
        let reply = self.ask(&Ask::Get { thread })?;
        if let Some((count, values)) = reply.values() {
            return Ok(values[..count].to_vec());
        }
        self.judge(&reply)?;
        Err(Error::NoReply)
    }

    /// Sets some attributes of a thread, all or none. `thread` is its id.
    pub fn set(&mut self, thread: u32, values: &[(&str, i64)]) -> Result<(), Error> {
        let (mut which, mut all) = (0, [0; BATON_MAX_ATTRIBUTES]);
        for (name, value) in values {
            let at = self.number(name)?;
            which |= 1 << at;
            all[at] = *value;
        }
        let [a, b, c, d, e] = all;
        let thread = Thread::of_id(thread);
        let reply = self.ask(&Ask::Set {
            thread,
            which,
            a,
            b,
            c,
            d,
            e,
        })?;
        self.judge(&reply)
    }

    fn judge(&self, reply: &Reply) -> Result<(), Error> {
        let mut reason = String::new();
        let answer = reply.answer(|why| reason = why.to_string());
        match answer.ok_or(Error::NoReply)? {
            Ok(()) => Ok(()),
            Err(NotSet::NotYet) => Err(Error::NotYet),
            Err(NotSet::Range(at)) => {
                let of = self.table.get(at).cloned();
                Err(of.map_or(Error::NoReply, Error::Range))
            }
            Err(NotSet::Refused) => Err(Error::Refused(reason)),
        }
    }
}
