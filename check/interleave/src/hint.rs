// SPDX-License-Identifier: GPL-2.0-only
//! Hints: messages from the task on a CPU to its policy (hosts/kernel/channel.c).

use crate::random::Random;
use crate::world::World;
use crate::Kind;
use baton_abi::{BatonHint, BatonHintAnswer, BatonReplyAnswer, BATON_HINT_WORDS};
use std::collections::BTreeMap;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// Messages between the tasks and their policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Hints that the policy took.
    pub hints: u64,
    /// Replies that were sent, by tag.
    pub replies: BTreeMap<u32, u64>,
}

impl Said {
    /// Adds the counts of another.
    pub(crate) fn add(&mut self, other: &Self) {
        self.hints += other.hints;
        other
            .replies
            .iter()
            .for_each(|(tag, count)| *self.replies.entry(*tag).or_default() += count);
    }
}

/// The form of a hint: `TAG[:task] [WORD...]`, where a word is a number or a range `LOW-HIGH`, both
/// ends included; missing words are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintSample {
    tag: u32,
    /// Whether the hint names a task.
    about_task: bool,
    words: [Range; BATON_HINT_WORDS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range {
    low: u64,
    high: u64,
}

impl Range {
    fn draw(self, random: &Random) -> u64 {
        match (self.high - self.low).checked_add(1) {
            Some(count) => self.low + random.next() % count,
            None => random.next(),
        }
    }
}

impl FromStr for Range {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        Ok(Self {
            low: low.parse()?,
            high: high.parse()?,
        })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high {
            write!(f, "{}", self.low)
        } else {
            write!(f, "{}-{}", self.low, self.high)
        }
    }
}

/// Writes the form that the parser reads.
impl fmt::Display for HintSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}",
            self.tag,
            if self.about_task { ":task" } else { "" }
        )?;
        let given = self
            .words
            .iter()
            .rposition(|range| range.high != 0)
            .map_or(0, |last| last + 1);
        self.words[..given]
            .iter()
            .try_for_each(|range| write!(f, " {range}"))
    }
}

impl FromStr for HintSample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let first = words
            .next()
            .ok_or("a hint has a tag: TAG[:task] [WORD...]")?;
        let (tag, about) = first
            .split_once(':')
            .map_or((first, None), |(tag, about)| (tag, Some(about)));
        if about.is_some_and(|about| about != "task") {
            return Err(format!(
                "'{first}': a hint is about nothing, or about a task: TAG:task"
            ));
        }
        let tag = tag
            .parse()
            .map_err(|_| format!("'{tag}' is no tag: tags are numbers"))?;
        let mut sample = Self {
            tag,
            about_task: about.is_some(),
            words: Default::default(),
        };
        for (index, word) in words.enumerate() {
            let range: Range = word
                .parse()
                .map_err(|_| format!("'{word}' is neither a number nor LOW-HIGH"))?;
            if range.low > range.high {
                return Err(format!("'{word}' has no number: its first is the lowest"));
            }
            let place = sample.words.get_mut(index);
            *place.ok_or(format!("a hint has at most {BATON_HINT_WORDS} words"))? = range;
        }
        Ok(sample)
    }
}

/// Limit of the hints that are tried until the policy takes one.
const TRIES: usize = 24;

impl World {
    /// Whether the policy takes hints.
    pub fn hears(&self) -> bool {
        self.instances
            .borrow()
            .last()
            .is_some_and(|instance| instance.policy().ops().hint.is_some())
    }

    /// The running task sends hints. Only the policy knows which hints it understands, so random
    /// hints are sent until it takes one.
    pub fn hint(&self, pid: u32) {
        let me = self.me();
        let task = self.task(pid);
        for _ in 0..TRIES {
            let Some(slot) = self.core.by_handle(task.handle) else {
                return;
            };
            let hint = self.draw_hint();
            let mut ctx = self.ctx(&task, me.number, 0);
            let handle_of = |id: u32| {
                let tasks = self.tasks.borrow();
                tasks
                    .get(id as usize - 1)
                    .filter(|task| task.is_alive())
                    .map_or(0, |task| task.handle)
            };
            let state = self.state(me.number);
            let said = self.in_rules(|| {
                self.core
                    .hint((), state, &mut ctx, slot, self.policy(), &hint, handle_of)
            });
            self.kick_plainly(&ctx);
            self.said.borrow_mut().hints += u64::from(said == BatonHintAnswer::Taken);
            if said != BatonHintAnswer::Malformed || self.over.get() {
                return;
            }
        }
    }

    /// Draws one of the samples. Without samples it draws small numbers, which more often have a
    /// meaning than large ones.
    /// The policy, or its agent, replies to the task in a slot.
    pub fn reply(&self, slot: u32, tag: u32) -> BatonReplyAnswer {
        // Whether a task reads what it is sent is its own affair.
        let answer = match self.task_in(slot) {
            Some(_) if self.random.once_in(4) => BatonReplyAnswer::Full,
            Some(_) => BatonReplyAnswer::Sent,
            None => BatonReplyAnswer::NoQueue,
        };
        if answer == BatonReplyAnswer::Sent {
            *self.said.borrow_mut().replies.entry(tag).or_default() += 1;
        }
        self.tell(Kind::Call, || {
            format!("replies {tag} to the task in slot {slot}: {answer:?}")
        });
        answer
    }

    fn draw_hint(&self) -> BatonHint {
        let random = &self.me().random;
        if !self.options.hints.is_empty() {
            let sample = &self.options.hints[random.below(self.options.hints.len())];
            let thread = if sample.about_task {
                1 + random.below(self.tasks.borrow().len()) as u32
            } else {
                0
            };
            return BatonHint {
                tag: sample.tag,
                thread,
                words: sample.words.map(|range| range.draw(random)),
            };
        }
        let tag = random.below(8) as u32;
        let thread = if random.once_in(2) {
            1 + random.below(self.tasks.borrow().len()) as u32
        } else {
            0
        };
        let mut words = [0; BATON_HINT_WORDS];
        let count = random.below(4);
        words
            .iter_mut()
            .take(count)
            .for_each(|word| *word = random.next() >> [62, 62, 56, 0][random.below(4)]);
        BatonHint { tag, thread, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read() {
        let sample: HintSample = "3:task 0-4 7".parse().unwrap();
        assert!(sample.about_task && sample.tag == 3);
        assert_eq!(sample.to_string(), "3:task 0-4 7");
        assert_eq!(
            (sample.words[0], sample.words[1]),
            (Range { low: 0, high: 4 }, Range { low: 7, high: 7 })
        );
        let random = Random::new(1);
        let drawn: Vec<u64> = (0..100).map(|_| sample.words[0].draw(&random)).collect();
        assert!(
            (0..5).all(|word| drawn.contains(&word)) && drawn.iter().all(|&word| word < 5),
            "{drawn:?}"
        );
        assert!(
            "1 0-18446744073709551615"
                .parse::<HintSample>()
                .unwrap()
                .words[0]
                .draw(&random)
                > 0
        );
    }

    #[test]
    fn what_is_no_sample_is_refused() {
        for text in [
            "",
            "x",
            "1:thread",
            "1 a",
            "1 4-0",
            "1 1 2 3 4 5 6 7",
            "-1",
            "1 1-2-3",
        ] {
            assert!(text.parse::<HintSample>().is_err(), "{text}");
        }
    }
}
