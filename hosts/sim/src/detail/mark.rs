// SPDX-License-Identifier: GPL-2.0-only
//! Converts one event of a detail to text and back.

use crate::trace::Left;

/// An event. Tasks are places in the detail's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A task becomes runnable. `waker` is the CPU and the task of the waker.
    Wake {
        task: u32,
        waker: Option<(u32, Option<u32>)>,
    },
    /// A CPU begins to run a task. `moved`: the task ran on another CPU before.
    Run { cpu: u32, task: u32, moved: bool },
    /// The task of a CPU leaves it.
    Leave { cpu: u32, left: Left },
    /// A higher class takes a CPU, or leaves it.
    Higher { cpu: u32, begins: bool },
    /// A CPU goes online or offline.
    Online { cpu: u32, online: bool },
}

/// Appends a number.
fn put(text: &mut String, number: u64) {
    let mut digits = [0; 13];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdefghijklmnopqrstuvwxyz"[(rest % 36) as usize];
        rest /= 36;
        if rest == 0 {
            break;
        }
    }
    text.extend(digits[at..].iter().map(|&digit| char::from(digit)));
}

/// Appends the time that passes, if any.
pub(super) fn step(text: &mut String, ns: u64) {
    if ns > 0 {
        text.push('+');
        put(text, ns);
    }
}

impl Mark {
    /// Appends the event.
    pub fn write(self, text: &mut String) {
        let (kind, first, others) = match self {
            Self::Wake { task, waker } => {
                let (cpu, by) = waker.map_or((None, None), |(cpu, by)| (Some(cpu), by));
                ('W', task, [cpu, by])
            }
            Self::Run { cpu, task, moved } => {
                (if moved { 'M' } else { 'R' }, cpu, [Some(task), None])
            }
            Self::Leave { cpu, left } => (LEAVES[left as usize], cpu, [None; 2]),
            Self::Higher { cpu, begins } => (if begins { 'H' } else { 'L' }, cpu, [None; 2]),
            Self::Online { cpu, online } => (if online { 'N' } else { 'F' }, cpu, [None; 2]),
        };
        text.push(kind);
        put(text, first.into());
        for other in others.into_iter().flatten() {
            text.push('.');
            put(text, other.into());
        }
    }

    fn new(kind: char, numbers: &[u32]) -> Option<Self> {
        let leave = |left, cpu| Some(Self::Leave { cpu, left });
        Some(match (kind, numbers) {
            ('W', &[task]) => Self::Wake { task, waker: None },
            ('W', &[task, cpu]) => Self::Wake {
                task,
                waker: Some((cpu, None)),
            },
            ('W', &[task, cpu, by]) => Self::Wake {
                task,
                waker: Some((cpu, Some(by))),
            },
            ('R' | 'M', &[cpu, task]) => Self::Run {
                cpu,
                task,
                moved: kind == 'M',
            },
            ('H' | 'L', &[cpu]) => Self::Higher {
                cpu,
                begins: kind == 'H',
            },
            ('F' | 'N', &[cpu]) => Self::Online {
                cpu,
                online: kind == 'N',
            },
            ('B', &[cpu]) => return leave(Left::Blocked, cpu),
            ('P', &[cpu]) => return leave(Left::Preempted, cpu),
            ('Y', &[cpu]) => return leave(Left::Yielded, cpu),
            ('X', &[cpu]) => return leave(Left::Dead, cpu),
            _ => return None,
        })
    }
}

/// The letters of [`Left`], by number.
const LEAVES: [char; 4] = ['B', 'P', 'Y', 'X'];

/// An element of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// This number of ns passes.
    Step(u64),
    /// An event.
    Mark(Mark),
}

/// Parses a text. An error names the part that is not in the grammar.
pub(super) fn read(text: &str) -> impl Iterator<Item = Result<Token, String>> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        let kind = rest.chars().next()?;
        let numbers = &rest[kind.len_utf8()..];
        let is_number = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || c == '.';
        let end = numbers.find(|c| !is_number(c)).unwrap_or(numbers.len());
        let (numbers, after) = numbers.split_at(end);
        rest = after;
        Some(token(kind, numbers).ok_or_else(|| format!("'{kind}{numbers}' is no event")))
    })
}

fn token(kind: char, numbers: &str) -> Option<Token> {
    if kind == '+' {
        return u64::from_str_radix(numbers, 36).ok().map(Token::Step);
    }
    let mut read = [0; 3];
    let mut count = 0;
    for number in numbers.split('.') {
        *read.get_mut(count)? = u32::from_str_radix(number, 36).ok()?;
        count += 1;
    }
    Mark::new(kind, &read[..count]).map(Token::Mark)
}
