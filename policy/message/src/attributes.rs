// SPDX-License-Identifier: GPL-2.0-only
//! Attributes of threads: numbers with a name and a range, which a policy gives its threads. They
//! are read and set by hints of these types (`policy/c/events-attributes.h`).
//!
//! A policy has at most [`BATON_MAX_ATTRIBUTES`] attributes, which are numbered from 0.

use crate::Thread;
use baton_abi::{BatonAttributeAnswer, BatonAttributeTag, BatonAttributeUnit};

pub use baton_abi::BATON_MAX_ATTRIBUTES;

crate::message! {
    /// What an application asks.
    pub enum Attributes, version 1 {
        /// What is the attribute with this number? The reply is a description.
        Describe {
            /// Number of the attribute.
            index: u8,
        } = 1,
        /// The reply is the values of the thread's attributes.
        Get {
            /// The thread.
            thread: Thread,
        } = 2,
        /// Sets the attributes of the thread whose bits are set in `which`; the others are 0 here.
        /// The reply is an answer.
        Set {
            /// The thread.
            thread: Thread,
            /// A bit for each attribute.
            which: u8,
            /// Value of attribute 0.
            a: i64,
            /// Value of attribute 1.
            b: i64,
            /// Value of attribute 2.
            c: i64,
            /// Value of attribute 3.
            d: i64,
            /// Value of attribute 4.
            e: i64,
        } = 3,
    }
}

crate::message! {
    /// What the policy replies.
    pub enum AttributesReply, version 1 {
        /// An attribute.
        Described {
            /// Its number, how many there are (times 256), and its unit (times 65,536), a
            /// [`BatonAttributeUnit`].
            facts: u32,
            /// The least value.
            min: i64,
            /// The greatest value.
            max: i64,
            /// The value of new threads.
            initial: i64,
            /// The first eight letters of its name.
            name: u64,
            /// The next letters. They end with a NUL.
            rest: u64,
        } = 1,
        /// The values of a thread's attributes; those that there are not are 0.
        Values {
            /// How many attributes there are.
            count: u8,
            /// Value of attribute 0.
            a: i64,
            /// Value of attribute 1.
            b: i64,
            /// Value of attribute 2.
            c: i64,
            /// Value of attribute 3.
            d: i64,
            /// Value of attribute 4.
            e: i64,
        } = 2,
        /// The result of a request.
        Answer {
            /// A [`BatonAttributeAnswer`].
            result: u8,
            /// If a value is out of range, the number of its attribute. If the policy refuses, this
            /// and the following words are the reason, which ends with a NUL.
            a: u64,
            /// More of the reason.
            b: u64,
            /// More of the reason.
            c: u64,
            /// More of the reason.
            d: u64,
            /// More of the reason.
            e: u64,
        } = 3,
    }
}

// The types above cannot take their tags from the interface.
const _: () = assert!(
    BatonAttributeTag::Describe as u32 == 1
        && BatonAttributeTag::Get as u32 == 2
        && BatonAttributeTag::Set as u32 == 3
);

/// Letters in words, up to the first NUL.
fn letters<'a>(words: &[u64], to: &'a mut [u8; 40]) -> &'a str {
    for (place, word) in to.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let end = to.iter().position(|letter| *letter == 0);
    core::str::from_utf8(to.get(..end.unwrap_or(0)).unwrap_or(&[])).unwrap_or("")
}

/// An attribute, as its policy describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    name: [u64; 2],
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
    /// The value of new threads.
    pub initial: i64,
    /// Are the values nanoseconds?
    pub is_time: bool,
}

impl Attribute {
    /// Calls `f` with the name.
    pub fn with_name<R>(&self, f: impl FnOnce(&str) -> R) -> R {
        f(letters(&self.name, &mut [0; 40]))
    }
}

impl AttributesReply {
    /// The attribute that this describes, its number, and how many there are.
    pub fn described(&self) -> Option<(Attribute, usize, usize)> {
        let Self::Described {
            facts,
            min,
            max,
            initial,
            name,
            rest,
        } = *self
        else {
            return None;
        };
        let [index, count, unit, _] = facts.to_le_bytes();
        let attribute = Attribute {
            name: [name, rest],
            min,
            max,
            initial,
            is_time: unit == BatonAttributeUnit::Time as u8,
        };
        Some((attribute, usize::from(index), usize::from(count)))
    }

    /// The values that this has, of as many attributes as there are.
    pub fn values(&self) -> Option<(usize, [i64; BATON_MAX_ATTRIBUTES])> {
        match *self {
            Self::Values {
                count,
                a,
                b,
                c,
                d,
                e,
            } => Some((
                usize::from(count).min(BATON_MAX_ATTRIBUTES),
                [a, b, c, d, e],
            )),
            _ => None,
        }
    }

    /// The result that this is; for a refusal, `f` gets the reason.
    pub fn answer(&self, f: impl FnOnce(&str)) -> Option<Result<(), NotSet>> {
        let Self::Answer {
            result,
            a,
            b,
            c,
            d,
            e,
        } = *self
        else {
            return None;
        };
        Some(match result {
            r if r == BatonAttributeAnswer::Set as u8 => Ok(()),
            r if r == BatonAttributeAnswer::NotYet as u8 => Err(NotSet::NotYet),
            r if r == BatonAttributeAnswer::Range as u8 => Err(NotSet::Range(a as usize)),
            _ => {
                f(letters(&[a, b, c, d, e], &mut [0; 40]));
                Err(NotSet::Refused)
            }
        })
    }
}

/// Why attributes are not set, or not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSet {
    /// The policy has not yet placed the thread for the first time.
    NotYet,
    /// The value of this attribute is out of its range.
    Range(usize),
    /// The policy refuses the values.
    Refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read() {
        let reply = AttributesReply::Described {
            facts: 1 | 2 << 8 | 1 << 16,
            min: -1,
            max: 7,
            initial: 3,
            name: u64::from_ne_bytes(*b"latency_"),
            rest: u64::from_ne_bytes(*b"nice\0\0\0\0"),
        };
        let (attribute, index, count) = reply.described().unwrap();
        assert_eq!((index, count, attribute.is_time), (1, 2, true));
        attribute.with_name(|name| assert_eq!(name, "latency_nice"));
        assert_eq!(reply.values(), None);
    }

    #[test]
    fn a_reason_is_read() {
        let answer = |result, a, b| AttributesReply::Answer {
            result,
            a,
            b,
            c: 0,
            d: 0,
            e: 0,
        };
        assert_eq!(answer(0, 0, 0).answer(|_| ()), Some(Ok(())));
        assert_eq!(answer(2, 4, 0).answer(|_| ()), Some(Err(NotSet::Range(4))));
        let refused = answer(
            3,
            u64::from_ne_bytes(*b"too shor"),
            u64::from_ne_bytes(*b"t\0\xff\xff\xff\xff\xff\xff"),
        );
        let mut reason = [0; 9];
        let result = refused.answer(|why| reason.copy_from_slice(why.as_bytes()));
        assert_eq!(result, Some(Err(NotSet::Refused)));
        assert_eq!(&reason, b"too short");
    }
}
