// SPDX-License-Identifier: GPL-2.0-only
//! The story of a schedule: its events as text.

use crate::seed::Seed;
use crate::world::World;
use crate::Property;
use std::backtrace::Backtrace;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A heading: a part of the schedule begins.
    Part,
    /// Something happens to a task or a CPU.
    Event,
    /// A call of the policy begins.
    Call,
    /// The call has returned an answer.
    Answer,
    /// A lock is taken, waited for, released.
    Lock,
    /// The policy uses an atomic of its own, just after other CPUs have run.
    Atomic,
    /// What was found.
    End,
}

/// One line of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The CPU on which it happens, if any.
    pub cpu: Option<usize>,
    /// The kind of the line.
    pub kind: Kind,
    /// The text of the line.
    pub text: String,
}

/// A fault as the kernel would report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its kind, as `baton status` names it.
    pub kind: &'static str,
    /// The method in which it occurred.
    pub method: &'static str,
    /// Thread id of the task of the call; 0 for none.
    pub task: u32,
    /// The CPU on which it occurred.
    pub cpu: Option<usize>,
    /// File of a panic; empty if there was none.
    pub file: String,
    /// Line of the panic.
    pub line: u32,
    /// Message of the panic.
    pub message: String,
}

/// A violation of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The property that was violated.
    pub property: Property,
    /// What went wrong, in a sentence.
    pub what: String,
    /// The fault, if the kernel would have found one, too.
    pub report: Option<Report>,
    /// For a task that waits, and only in stories: the call that gave the policy the task, and the
    /// lock under which the policy then stored it.
    pub holder: Option<String>,
}

/// A schedule in which the policy goes wrong, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// The policy's name.
    pub policy: String,
    /// The seed that reproduces it.
    pub seed: Seed,
    /// What is wrong; `None` if the schedule went well.
    pub finding: Option<Finding>,
    /// All events up to the end.
    pub lines: Vec<Line>,
}

impl Story {
    /// The lines that matter. Locks are included only in the story of a deadlock, or of a schedule
    /// that went well. Repetitions are shown once.
    pub fn abridged(&self) -> Vec<Abridged<'_>> {
        let locks = self
            .finding
            .as_ref()
            .is_none_or(|finding| finding.property == Property::Deadlock);
        let mut lines: Vec<Cow<'_, Line>> = Vec::new();
        for line in self
            .lines
            .iter()
            .filter(|line| locks || line.kind != Kind::Lock)
        {
            // The answer is appended to the line of the call, if no other line came between.
            match lines.last_mut().filter(|last| {
                line.kind == Kind::Answer && last.kind == Kind::Call && last.cpu == line.cpu
            }) {
                Some(last) => {
                    let answer = line
                        .text
                        .split_once(" -> ")
                        .map_or("", |(_, answer)| answer);
                    last.to_mut().text = format!("{} -> {answer}", last.text);
                }
                None => lines.push(Cow::Borrowed(line)),
            }
        }
        let mut told = Vec::new();
        let mut rest = &lines[..];
        while !rest.is_empty() {
            let (period, times) = repeats(rest);
            told.extend(rest[..period].iter().cloned().map(Abridged::Line));
            if times > 1 {
                told.push(Abridged::Again {
                    lines: period,
                    times: times - 1,
                });
            }
            rest = &rest[period * times..];
        }
        told
    }
}

/// A line as it is shown.
#[derive(Clone, Debug)]
pub enum Abridged<'s> {
    /// A line of the story.
    Line(Cow<'s, Line>),
    /// The preceding lines are repeated.
    Again {
        /// Number of those lines.
        lines: usize,
        /// Number of repetitions.
        times: usize,
    },
}

/// The length, in lines, of the group at the beginning that repeats at once, and how often the
/// group comes in all. A group counts if it comes at least three times; else the result is (1, 1).
fn repeats(lines: &[Cow<'_, Line>]) -> (usize, usize) {
    let count = |period: usize| {
        lines
            .chunks_exact(period)
            .take_while(|chunk| **chunk == lines[..period])
            .count()
    };
    let most = LONGEST_REPEAT.min(lines.len());
    (1..=most)
        .map(|period| (period, count(period)))
        .find(|&(_, times)| times >= 3)
        .unwrap_or((1, 1))
}

/// Limit of the length of a repetition, in lines.
const LONGEST_REPEAT: usize = 12;

impl fmt::Display for Abridged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => line.fmt(f),
            Self::Again { lines: 1, times } => write!(f, "(the line above, {times} more times)"),
            Self::Again { lines, times } => {
                write!(f, "(the {lines} lines above, {times} more times)")
            }
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.cpu) {
            (Kind::Part, _) => write!(f, "-- {}", self.text),
            (Kind::End, _) => write!(f, "=> {}", self.text),
            (Kind::Event, Some(cpu)) => write!(f, "CPU {cpu}: {}", self.text),
            (_, Some(cpu)) => write!(f, "CPU {cpu}:   {}", self.text),
            (_, None) => f.write_str(&self.text),
        }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.abridged().iter().enumerate() {
            writeln!(f, "{:4}  {line}", index + 1)?;
        }
        writeln!(f)?;
        f.write_str(&self.verdict())
    }
}

impl Story {
    /// The finding, as a report.
    pub fn verdict(&self) -> String {
        let mut text = String::new();
        let _ = self.write_verdict(&mut text);
        text
    }

    fn write_verdict(&self, f: &mut String) -> fmt::Result {
        let Some(finding) = &self.finding else {
            return writeln!(f, "nothing is wrong in this schedule");
        };
        writeln!(
            f,
            "{} of policy {}: {}",
            finding.property.name(),
            self.policy,
            finding.what
        )?;
        writeln!(f, "  at fault  the policy {}", self.policy)?;
        if let Some(holder) = &finding.holder {
            writeln!(f, "  held      {holder}")?;
        }
        if let Some(report) = &finding.report {
            writeln!(f, "  fault     {} in {}", report.kind, report.method)?;
            if !report.file.is_empty() {
                writeln!(f, "  source    {}:{}", report.file, report.line)?;
            }
            if !report.message.is_empty() {
                writeln!(f, "  message   {}", report.message)?;
            }
            if report.task != 0 {
                writeln!(f, "  task      {}", report.task)?;
            }
            if let Some(cpu) = report.cpu {
                writeln!(f, "  where     on CPU {cpu}")?;
            }
        }
        writeln!(f, "  seed      {}", self.seed)
    }
}

/// Parts of the paths of source files that lie between the policy and this crate.
const BETWEEN: [&str; 8] = [
    "/lock_api-",
    "/rustc",
    "library/",
    "policy/seam/",
    "policy/api/",
    "policy/bridge/",
    "policy/c/",
    "hosts/native/",
];

impl World {
    /// The source line of the policy that the current call has reached, as `file:line`, if the
    /// story is recorded.
    pub fn site(&self) -> Option<String> {
        self.story.borrow().as_ref()?;
        let trace = Backtrace::force_capture().to_string();
        let places = trace
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("at "));
        // The innermost frames are this crate's. The outermost of those is a function in
        // `table.rs`, by which the policy called its host.
        let is_given = |place: &&str| place.contains("src/table.rs:");
        let mut outer = places
            .skip_while(|place| !is_given(place))
            .skip_while(is_given);
        let own = outer.find(|place| !BETWEEN.iter().any(|part| place.contains(part)))?;
        // Without the column.
        Some(
            own.rsplit_once(':')
                .map_or(own, |(place, _)| place)
                .trim_start_matches("./")
                .to_owned(),
        )
    }
}
