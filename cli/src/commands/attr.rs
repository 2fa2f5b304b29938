// SPDX-License-Identifier: GPL-2.0-only
//! `baton attr`: attributes that a policy gives its threads (docs/attributes.md).

use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use baton_hints::attributes::{Attribute, Attributes, Error as Failed};
use baton_hints::{Answer, NotSent, OpenError};
use clap::{Args, Subcommand};
use rustix::io::Errno;
use rustix::thread::gettid;
use serde_json::{json, Map, Value};

use super::{print, print_json};
use crate::cli::Output;
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::{names, tasks};

#[derive(Subcommand, Debug)]
pub enum Attr {
    /// List the attributes of a policy's threads, with their ranges.
    List {
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        output: Output,
    },
    /// Show the attributes of a thread.
    Get {
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        output: Output,
    },
    /// Set attributes of a thread. A time has a unit: slice=3ms.
    Set {
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        of: Of,
        /// The attributes, and what they are to be.
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = setting)]
        values: Vec<(String, String)>,
    },
}

#[derive(Args, Debug)]
pub struct Policy {
    /// Name of the policy, which must run.
    #[arg(short = 'p', long = "policy", value_name = "POLICY", value_parser = names::policy)]
    name: String,
}

#[derive(Args, Debug)]
pub struct Of {
    /// This thread, which must be a task of the policy; with --threads all threads of its process.
    #[arg(long)]
    pid: u32,
    /// All threads of the process.
    #[arg(long)]
    threads: bool,
}

impl Of {
    fn list(&self) -> Result<Vec<u32>> {
        if !self.threads {
            return Ok(vec![self.pid]);
        }
        let mut list = tasks::threads_of(self.pid)?;
        list.sort_unstable();
        Ok(list)
    }
}

impl Of {
    /// Has this thread of the process ended since it was listed?
    fn has_ended(&self, thread: u32) -> bool {
        self.threads && !Path::new(&format!("/proc/{thread}")).exists()
    }
}

fn setting(text: &str) -> std::result::Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it is KEY=VALUE: slice=3ms")?;
    Ok((key.into(), value.into()))
}

pub fn command(command: &Attr) -> Result<ExitCode> {
    match command {
        Attr::List { policy, output } => list(policy, *output)?,
        Attr::Get { policy, of, output } => get(policy, of, *output)?,
        Attr::Set { policy, of, values } => set(policy, of, values)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes this process a task of the policy, which only root may.
fn join(policy: &str) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::user(
            format!("only tasks of {policy} may set its attributes, and this process is none"),
            format!("run this under it, or as root: baton run -p {policy} -- baton attr ..."),
        ));
    }
    let device = Device::open()?;
    let own = gettid().as_raw_nonzero().get() as u32;
    tasks::give(&device, &device.core()?, own, policy)
}

/// How long the kernel may take until this process is a task of the policy.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens this thread's queue, and reads what attributes there are.
fn open(policy: &str) -> Result<(Attributes, Vec<Attribute>)> {
    let no_queue = |why: OpenError| match why {
        OpenError::Refused(Errno::PROTOTYPE, _) => Error::user(
            format!("the threads of {policy} have no attributes"),
            "a policy in C can have them: docs/attributes.md",
        ),
        OpenError::Refused(Errno::NOENT, _) => Error::user(
            format!("no policy {policy} runs that has attributes"),
            "see what runs: baton status",
        ),
        other => Error::user(other.to_string(), "see docs/attributes.md"),
    };
    let mut queue = match Attributes::open(policy) {
        Err(OpenError::Refused(Errno::SRCH, _)) => {
            join(policy)?;
            Attributes::open(policy)
        }
        other => other,
    }
    .map_err(no_queue)?;
    let begin = Instant::now();
    let mut has_joined = false;
    loop {
        match queue.table() {
            Ok(table) => {
                let table = table.to_vec();
                return Ok((queue, table));
            }
            Err(Failed::NotSent(NotSent::Refused(Answer::NotMember)))
                if begin.elapsed() < PATIENCE =>
            {
                if !has_joined {
                    join(policy)?;
                    has_joined = true;
                }
                sleep(Duration::from_millis(1));
            }
            Err(why) => return Err(failed(policy, None, &[], why)),
        }
    }
}

/// An error about a thread, or about the table.
fn failed(policy: &str, thread: Option<u32>, table: &[Attribute], why: Failed) -> Error {
    let of = thread.map_or_else(|| policy.to_string(), |id| format!("thread {id}"));
    match why {
        Failed::NotSent(NotSent::Refused(Answer::Thread)) => Error::user(
            format!("{of} is no task of {policy}, or you may not set its attributes"),
            format!(
                "give it to the policy (baton attach {policy} --pid ...), or have the \
                 administrator grant it (baton hints grant {policy} --any-thread ...)"
            ),
        ),
        Failed::NotSent(NotSent::Closed(end)) => Error::user(
            format!("{policy} is gone: {}", baton_hints::words(end)),
            "see what runs: baton status",
        ),
        Failed::NoSuch(name) => Error::user(
            format!("{policy} has no attribute {name}"),
            format!("it has: {}", names_of(table)),
        ),
        Failed::Range(of) => Error::user(
            format!(
                "{} is from {} to {}",
                of.name,
                words(of.min, &of),
                words(of.max, &of)
            ),
            "choose a value in that range",
        ),
        Failed::NotYet => Error::user(
            format!("{policy} does not know {of} yet"),
            "try again when the thread has run under the policy",
        ),
        Failed::Refused(why) => Error::user(
            format!("{policy} refuses that for {of}: {why}"),
            "choose other values",
        ),
        other => Error::baton(format!("{of}: {other}")),
    }
}

fn names_of(table: &[Attribute]) -> String {
    let names: Vec<&str> = table.iter().map(|of| of.name.as_str()).collect();
    names.join(", ")
}

/// The units of times, from the largest.
const UNITS: [(i64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];

/// A value as a user writes it.
fn words(value: i64, of: &Attribute) -> String {
    if !of.is_time || value == 0 {
        return value.to_string();
    }
    let unit = UNITS.into_iter().find(|(ns, _)| value % ns == 0);
    let (ns, name) = unit.unwrap_or((1, "ns"));
    format!("{}{name}", value / ns)
}

/// Reads a value as a user writes it.
fn value(text: &str, of: &Attribute) -> Result<i64> {
    if let Ok(number) = text.parse() {
        // A number without a unit is ambiguous, but for 0.
        if !of.is_time || number == 0 {
            return Ok(number);
        }
    }
    let wrong = |remedy: String| Error::user(format!("{}: '{text}' is no value", of.name), remedy);
    if !of.is_time {
        let (min, max) = (of.min, of.max);
        return Err(wrong(format!("give a whole number from {min} to {max}")));
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let time = names::duration(digits).map_err(wrong)?;
    Ok(sign * time.as_nanos() as i64)
}

fn list(policy: &Policy, output: Output) -> Result<()> {
    let (_, table) = open(&policy.name)?;
    if output.json {
        let of = |of: &Attribute| {
            json!({
                "name": of.name, "min": of.min, "max": of.max, "initial": of.initial,
                "unit": of.is_time.then_some("ns"),
            })
        };
        return print_json(&table.iter().map(of).collect::<Vec<Value>>());
    }
    let mut text = format!(
        "{:<16} {:>12} {:>12} {:>12}\n",
        "ATTRIBUTE", "MIN", "MAX", "INITIAL"
    );
    for of in &table {
        text += &format!(
            "{:<16} {:>12} {:>12} {:>12}\n",
            of.name,
            words(of.min, of),
            words(of.max, of),
            words(of.initial, of)
        );
    }
    print(text)
}

fn get(policy: &Policy, of: &Of, output: Output) -> Result<()> {
    let (mut queue, table) = open(&policy.name)?;
    let mut rows = Vec::new();
    for thread in of.list()? {
        match queue.get(thread) {
            Ok(values) => rows.push((thread, values)),
            Err(_) if of.has_ended(thread) => {}
            Err(why) => return Err(failed(&policy.name, Some(thread), &table, why)),
        }
    }
    if output.json {
        let row = |(thread, values): &(u32, Vec<i64>)| {
            let named = table.iter().zip(values);
            let of: Map<_, _> = named
                .map(|(of, value)| (of.name.clone(), json!(value)))
                .collect();
            json!({ "thread": thread, "attributes": of })
        };
        return print_json(&rows.iter().map(row).collect::<Vec<Value>>());
    }
    let mut text = format!("{:>8}", "THREAD");
    for of in &table {
        text += &format!(" {:>15}", of.name);
    }
    text.push('\n');
    for (thread, values) in rows {
        text += &format!("{thread:>8}");
        for (of, value) in table.iter().zip(values) {
            text += &format!(" {:>15}", words(value, of));
        }
        text.push('\n');
    }
    print(text)
}

fn set(policy: &Policy, of: &Of, values: &[(String, String)]) -> Result<()> {
    let (mut queue, table) = open(&policy.name)?;
    let mut all = Vec::new();
    for (key, text) in values {
        let of = table.iter().find(|of| of.name == *key);
        let of =
            of.ok_or_else(|| failed(&policy.name, None, &table, Failed::NoSuch(key.clone())))?;
        all.push((key.as_str(), value(text, of)?));
    }
    let mut count = 0;
    for thread in of.list()? {
        match queue.set(thread, &all) {
            Ok(()) => count += 1,
            Err(_) if of.has_ended(thread) => {}
            Err(why) => {
                if count > 0 {
                    eprintln!("baton: threads whose attributes are set: {count}");
                }
                return Err(failed(&policy.name, Some(thread), &table, why));
            }
        }
    }
    eprintln!("baton: threads whose attributes are set: {count}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(is_time: bool) -> Attribute {
        Attribute {
            name: "slice".into(),
            min: -5,
            max: 5_000_000,
            initial: 0,
            is_time,
        }
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        let time = attribute(true);
        for (text, ns) in [
            ("0", 0),
            ("3ms", 3_000_000),
            ("1500us", 1_500_000),
            ("7ns", 7),
        ] {
            assert_eq!(value(text, &time).unwrap(), ns, "{text}");
            assert_eq!(words(ns, &time), text);
        }
        let number = attribute(false);
        assert_eq!(value("-4", &number).unwrap(), -4);
        assert_eq!(words(-4, &number), "-4");
    }

    #[test]
    fn a_time_has_a_unit() {
        let said = value("3", &attribute(true)).unwrap_err().to_string();
        assert!(said.contains("ms"), "{said}");
        let said = value("3ms", &attribute(false)).unwrap_err().to_string();
        assert!(said.contains("from -5 to 5000000"), "{said}");
    }
}
