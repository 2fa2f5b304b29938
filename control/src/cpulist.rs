// SPDX-License-Identifier: GPL-2.0-only
//! Sets of CPUs in the kernel's format `0,2-5` (cpulist in its documentation).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use baton_abi::BATON_CPU_WORDS;
use serde::{Deserialize, Serialize};

const CPUS: u32 = BATON_CPU_WORDS as u32 * 64;

/// A set of CPUs 0 to 4095.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(BTreeSet<u32>);

impl CpuList {
    /// A set in the format of the control device.
    pub fn from_words(words: &[u64; BATON_CPU_WORDS]) -> Self {
        Self(
            (0..CPUS)
                .filter(|cpu| words[*cpu as usize / 64] & 1 << (cpu % 64) != 0)
                .collect(),
        )
    }

    pub fn words(&self) -> [u64; BATON_CPU_WORDS] {
        let mut words = [0; BATON_CPU_WORDS];
        self.0
            .iter()
            .for_each(|cpu| words[*cpu as usize / 64] |= 1 << (cpu % 64));
        words
    }

    /// The CPUs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes these CPUs.
    pub fn remove(&mut self, others: &Self) {
        self.0.retain(|cpu| !others.0.contains(cpu));
    }

    /// Removes all but these CPUs.
    pub fn keep(&mut self, these: &Self) {
        self.0.retain(|cpu| these.0.contains(cpu));
    }

    pub fn first_not_in(&self, others: &Self) -> Option<u32> {
        self.0.difference(&others.0).next().copied()
    }

    /// The first CPU that is in both sets.
    pub fn common(&self, other: &Self) -> Option<u32> {
        self.0.intersection(&other.0).next().copied()
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| match part.trim().parse::<u32>() {
            Ok(cpu) if cpu < CPUS => Ok(cpu),
            Ok(_) => Err(format!("CPUs are numbered 0 to {}", CPUS - 1)),
            Err(_) => Err(format!(
                "'{part}' in '{text}' is no CPU: write CPUs as 0,2-5"
            )),
        };
        let mut list = Self::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("{first}-{last} in '{text}' goes backwards"));
            }
            list.0.extend(first..=last);
        }
        Ok(list)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for &cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let texts = ranges.iter().map(|(a, b)| {
            if a == b {
                a.to_string()
            } else {
                format!("{a}-{b}")
            }
        });
        f.write_str(&texts.collect::<Vec<_>>().join(","))
    }
}

impl fmt::Debug for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPUs {self}")
    }
}

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_written() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(
                text.parse::<CpuList>()
                    .ok()
                    .map(|list| list.to_string())
                    .as_deref(),
                expected,
                "{text}"
            );
        };
        check("3", Some("3"));
        check("0,2-5", Some("0,2-5"));
        check("5,4, 3,7,63-65", Some("3-5,7,63-65"));
        check("4095", Some("4095"));
        for wrong in ["", "a", "1-", "5-2", "4096", "1,,2", "-1"] {
            check(wrong, None);
        }
        assert_eq!(
            "1-3"
                .parse::<CpuList>()
                .unwrap()
                .common(&"3-9".parse().unwrap()),
            Some(3)
        );
        assert_eq!(
            "1-3"
                .parse::<CpuList>()
                .unwrap()
                .common(&CpuList::default()),
            None
        );
        let list: CpuList = "0,64-66,4095".parse().unwrap();
        assert_eq!(CpuList::from_words(&list.words()), list);
    }
}
