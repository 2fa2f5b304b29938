// SPDX-License-Identifier: GPL-2.0-only
//! Keys and values of workload specs.
//!
//! ```text
//! keys     = [ key "=" value { "," key "=" value } ]
//! value    = count | "cpus" | time | number | nice { "/" nice } | law [ "/" number ] | path | name
//! time     = digits [ "." digits ] ( "ns" | "us" | "ms" | "s" )
//! ```

use std::fmt;

use super::law::{Law, LAWS};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// The kind of value that a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number between these limits, or `cpus` for the number of CPUs of the machine.
    Count(u64, u64),
    /// A time with its unit, between these limits, ns.
    Time(u64, u64),
    /// A number between these limits.
    Number(f64, f64),
    /// Nice values, -20 to 19, with `/` between them.
    Nices,
    /// A distribution.
    Law,
    /// The path of a file, without `,` and `+`; empty for none.
    Path,
    /// One of these names.
    Name(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Count(low, high) => write!(f, "{low} to {high}, or cpus"),
            Self::Time(low, high) => write!(f, "time, {} to {}", Time(low), Time(high)),
            Self::Number(low, high) => write!(f, "number, {low} to {high}"),
            Self::Nices => write!(f, "nice values -20 to 19, as 0/5/19"),
            Self::Law => f.write_str(LAWS),
            Self::Path => f.write_str("a file"),
            Self::Name(names) => write!(f, "one of {}", names.join(", ")),
        }
    }
}

/// A time, displayed in the largest unit that keeps it whole.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(S, "s"), (MS, "ms"), (US, "us")];
        let (unit, name) = units
            .into_iter()
            .find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit))
            .unwrap_or((1, "ns"));
        write!(f, "{}{name}", self.0 / unit)
    }
}

/// A key of a workload.
pub struct Key {
    /// Its name in a spec.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// The value if the spec does not set it.
    pub default: &'static str,
    /// One-line description.
    pub help: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Whole(u64),
    Number(f64),
    Nices(Vec<i32>),
    Law(Law),
    Path(String),
}

/// The values of all keys of a workload.
pub(super) struct Params(Vec<(&'static str, Value)>);

impl Params {
    pub(super) fn parse(
        name: &str,
        keys: &'static [Key],
        text: &str,
        cpus: usize,
    ) -> Result<Self, String> {
        let value = |key: &Key, text: &str| {
            read(key.kind, text, cpus).ok_or_else(|| {
                format!(
                    "{name}: {}={text} is not allowed: {} takes {}",
                    key.name, key.name, key.kind
                )
            })
        };
        let defaults: Result<Vec<_>, String> = keys
            .iter()
            .map(|key| Ok((key.name, value(key, key.default)?)))
            .collect();
        let mut params = Self(defaults?);
        let mut given: Vec<&str> = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, given_value) = part.split_once('=').unwrap_or((part, ""));
            let Some(at) = keys.iter().position(|other| other.name == key) else {
                let names: Vec<_> = keys.iter().map(|key| key.name).collect();
                return Err(format!(
                    "{name} has no key '{key}': it has {}",
                    names.join(", ")
                ));
            };
            if given.contains(&key) {
                return Err(format!("{name}: {key} is there twice"));
            }
            given.push(key);
            params.0[at].1 = value(&keys[at], given_value)?;
        }
        Ok(params)
    }

    fn get(&self, key: &str) -> &Value {
        &self
            .0
            .iter()
            .find(|(name, _)| *name == key)
            .expect("a workload asks for keys that it has")
            .1
    }

    /// A count, a time in ns, or the place of a name among those that it could be.
    pub(super) fn whole(&self, key: &str) -> u64 {
        match self.get(key) {
            Value::Whole(value) => *value,
            _ => unreachable!("{key} is no whole number"),
        }
    }

    pub(super) fn number(&self, key: &str) -> f64 {
        match self.get(key) {
            Value::Number(value) => *value,
            _ => unreachable!("{key} is no number"),
        }
    }

    pub(super) fn law(&self, key: &str) -> Law {
        match self.get(key) {
            Value::Law(law) => *law,
            _ => unreachable!("{key} is no distribution"),
        }
    }

    /// Empty for none.
    pub(super) fn path(&self, key: &str) -> &str {
        match self.get(key) {
            Value::Path(path) => path,
            _ => unreachable!("{key} is no file"),
        }
    }

    /// Has at least one value.
    pub(super) fn nices(&self, key: &str) -> &[i32] {
        match self.get(key) {
            Value::Nices(values) => values,
            _ => unreachable!("{key} is no list of nice values"),
        }
    }
}

fn read(kind: Kind, text: &str, cpus: usize) -> Option<Value> {
    match kind {
        Kind::Count(low, high) => {
            let count = if text == "cpus" {
                cpus as u64
            } else {
                text.parse().ok()?
            };
            (low..=high).contains(&count).then_some(Value::Whole(count))
        }
        Kind::Time(low, high) => time(text)
            .filter(|time| (low..=high).contains(time))
            .map(Value::Whole),
        Kind::Number(low, high) => text
            .parse()
            .ok()
            .filter(|number| (low..=high).contains(number))
            .map(Value::Number),
        Kind::Nices => {
            let nices: Option<Vec<i32>> = text
                .split('/')
                .map(|nice| nice.parse().ok().filter(|nice| (-20..=19).contains(nice)))
                .collect();
            nices.map(Value::Nices)
        }
        Kind::Law => text.parse().ok().map(Value::Law),
        Kind::Path => Some(Value::Path(text.into())),
        Kind::Name(names) => {
            let place = names.iter().position(|name| *name == text)?;
            Some(Value::Whole(place as u64))
        }
    }
}

/// Parses a time such as `1.5ms` to ns. It uses whole numbers only, so that no rounding differs
/// between machines, and refuses fractions of a nanosecond.
pub(super) fn time(text: &str) -> Option<u64> {
    let at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "ns" => 1,
        "us" => US,
        "ms" => MS,
        "s" => S,
        "" if number == "0" => 1,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if part.len() > 9
        || !part
            .bytes()
            .chain(whole.bytes())
            .all(|c| c.is_ascii_digit())
    {
        return None;
    }
    let scale = 10u64.pow(part.len() as u32);
    let part = if part.is_empty() {
        0
    } else {
        part.parse::<u64>().ok()? * unit
    };
    if part % scale != 0 {
        return None;
    }
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)?
        .checked_add(part / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(time(text), expected, "{text}");
        check("17ns", Some(17));
        check("4us", Some(4_000));
        check("1.5ms", Some(1_500_000));
        check("2s", Some(2_000_000_000));
        check("0", Some(0));
        check("0.000000001s", Some(1));
        check("1.5ns", None);
        check("10", None);
        check("ms", None);
        check("-1ms", None);
        check("1e3us", None);
        check("99999999999999999999s", None);
        check("1.0000000000s", None);
        check("18446744073709551615s", None);
    }

    #[test]
    fn what_is_said_of_a_workload() {
        const KEYS: &[Key] = &[
            Key {
                name: "n",
                kind: Kind::Count(1, 64),
                default: "cpus",
                help: "",
            },
            Key {
                name: "t",
                kind: Kind::Time(1, S),
                default: "1ms",
                help: "",
            },
            Key {
                name: "x",
                kind: Kind::Number(0.0, 1.0),
                default: "0.5",
                help: "",
            },
            Key {
                name: "nice",
                kind: Kind::Nices,
                default: "0",
                help: "",
            },
        ];
        let check = |text: &str, expected: Result<(u64, u64, f64, &[i32]), &str>| {
            let got = Params::parse("w", KEYS, text, 8);
            let got = got
                .as_ref()
                .map(|p| (p.whole("n"), p.whole("t"), p.number("x"), p.nices("nice")));
            assert_eq!(got.map_err(|why| &**why), expected, "{text}");
        };
        check("", Ok((8, 1_000_000, 0.5, &[0])));
        check(
            "n=2,t=3us,x=0.25,nice=-20/19",
            Ok((2, 3_000, 0.25, &[-20, 19])),
        );
        check("m=1", Err("w has no key 'm': it has n, t, x, nice"));
        check(
            "n=0",
            Err("w: n=0 is not allowed: n takes 1 to 64, or cpus"),
        );
        check("n", Err("w: n= is not allowed: n takes 1 to 64, or cpus"));
        check(
            "t=2s",
            Err("w: t=2s is not allowed: t takes time, 1ns to 1s"),
        );
        check(
            "x=nan",
            Err("w: x=nan is not allowed: x takes number, 0 to 1"),
        );
        check(
            "nice=20",
            Err("w: nice=20 is not allowed: nice takes nice values -20 to 19, as 0/5/19"),
        );
        check("n=1,n=2", Err("w: n is there twice"));
    }
}
