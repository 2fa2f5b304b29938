// SPDX-License-Identifier: GPL-2.0-only
//! JSON as json-c and rt-app's workgen accept it: comments, commas before a closing bracket,
//! `suspend` without a value, and repeated keys in an object, in order.
//!
//! Objects are lists here. To rt-app, the order of keys is the order of events, and workgen turns
//! two `run` into `run` and `run1`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Int(i64),
    /// rt-app has no use for these.
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The kind of the value, for errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a number that is no integer",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(i64::try_from(value).map_or(Json::Float(value as f64), Json::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut of: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = of.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut of: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = of.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any)
    }
}

/// Parses a file.
pub(super) fn parse(text: &str) -> Result<Json, String> {
    serde_json::from_str(&filled(&strict(text)?)).map_err(|why| format!("no JSON: {why}"))
}

/// Replaces with spaces what JSON does not allow, so that lines and columns in errors are those of
/// the file.
fn strict(text: &str) -> Result<String, String> {
    let mut bytes = text.as_bytes().to_vec();
    let (mut at, mut comma) = (0, None);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let long = match rest {
            [b'"', ..] => string(rest),
            [b'/', b'*', ..] => {
                let end = rest[2..].windows(2).position(|pair| pair == b"*/");
                let line = || {
                    1 + text.as_bytes()[..at]
                        .iter()
                        .filter(|&&c| c == b'\n')
                        .count()
                };
                blank(
                    &mut bytes,
                    at,
                    end.ok_or_else(|| format!("the comment in line {} has no end", line()))? + 4,
                )
            }
            [b'/', b'/', ..] => {
                let end = rest.iter().position(|&c| c == b'\n').unwrap_or(rest.len());
                blank(&mut bytes, at, end)
            }
            _ => 1,
        };
        match text.as_bytes()[at] {
            b',' => comma = Some(at),
            b']' | b'}' => {
                if let Some(comma) = comma.take() {
                    bytes[comma] = b' ';
                }
            }
            b'/' if long > 1 => {}
            c if c.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at += long;
    }
    // Comments are replaced as a whole, so no character is cut in two.
    String::from_utf8(bytes).map_err(|why| why.to_string())
}

/// Adds empty values to the keys `suspend...` that have none. workgen fills in the task's name
/// there, which an empty name stands for here. Other keys must have values, and all keys quotes:
/// workgen adds neither, and json-c refuses such a file.
fn filled(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    // For each open bracket: whether it is an object's, and whether a key comes next.
    let (mut open, mut key) = (Vec::new(), false);
    while let Some(first) = rest.chars().next() {
        let is_string = first == '"';
        let long = if is_string {
            string(rest.as_bytes())
        } else {
            first.len_utf8()
        };
        let (part, after) = rest.split_at(long);
        out.push_str(part);
        if is_string
            && key
            && part.starts_with("\"suspend")
            && after.trim_start().starts_with([',', '}'])
        {
            out.push_str(": \"\"");
        }
        match first {
            '{' | '[' => open.push(first == '{'),
            '}' | ']' => drop(open.pop()),
            _ => {}
        }
        key = match first {
            '{' => true,
            ',' => open.last() == Some(&true),
            c => key && c.is_ascii_whitespace(),
        };
        rest = after;
    }
    out
}

/// The length of a string, including its quotes.
fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    rest.len()
}

fn blank(bytes: &mut [u8], at: usize, long: usize) -> usize {
    for byte in bytes[at..at + long]
        .iter_mut()
        .filter(|byte| **byte != b'\n')
    {
        *byte = b' ';
    }
    long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_has_not() {
        let check = |text: &str, expected: &str| {
            assert_eq!(strict(text).unwrap_or_else(|why| why), expected, "{text}")
        };
        check("{\"a\": 1}", "{\"a\": 1}");
        check("[1, /* é\n*/ 2]", "[1,      \n   2]");
        check("[1, // two ]\n]", "[1          \n]");
        check("[1 , ]", "[1   ]");
        check("{\"a\" : [1,],\n}", "{\"a\" : [1 ] \n}");
        check("[\",]\", \"\\\",}\"]", "[\",]\", \"\\\",}\"]");
        check("[\"/* no */\"]", "[\"/* no */\"]");
        check("\n /* *", "the comment in line 2 has no end");
        check("[1,,]", "[1, ]");
        check("\"open", "\"open");
    }

    #[test]
    fn suspend_may_have_no_value() {
        let check = |text: &str, expected: &str| {
            assert_eq!(
                filled(&text.replace('\'', "\"")),
                expected.replace('\'', "\""),
                "{text}"
            );
        };
        check(
            "{'t': {'suspend', 'run': 1}}",
            "{'t': {'suspend': '', 'run': 1}}",
        );
        check(
            "{'t': {'run': 1, 'suspend'\n}}",
            "{'t': {'run': 1, 'suspend': ''\n}}",
        );
        check(
            "{'suspend1' , 'suspend2'}",
            "{'suspend1': '' , 'suspend2': ''}",
        );
        // `suspend` as a key with a value, as a value, and in an array.
        check(
            "{'suspend' : 'x', 'a': 'suspend', 'b': ['suspend', 'suspend']}",
            "{'suspend' : 'x', 'a': 'suspend', 'b': ['suspend', 'suspend']}",
        );
        check(
            "{'a': [1], 'suspend', 'é'}",
            "{'a': [1], 'suspend': '', 'é'}",
        );
        check("{'suspend", "{'suspend");
        let refused = |text: &str| parse(&text.replace('\'', "\"")).expect_err(text);
        assert_eq!(
            refused("{'t': {'yield', 'run': 1}}"),
            "no JSON: expected `:` at line 1 column 15"
        );
        assert_eq!(
            refused("{t: {'run': 1}}"),
            "no JSON: key must be a string at line 1 column 2"
        );
    }

    #[test]
    fn order_and_repetition_stay() {
        let keys = |text| match parse(text) {
            Ok(Json::Object(members)) => members
                .into_iter()
                .map(|(key, _)| key)
                .collect::<Vec<_>>()
                .join(" "),
            other => format!("{other:?}"),
        };
        assert_eq!(
            keys("{\"run\": 1, \"sleep\": 2, \"run\": 3, \"a\": 4}"),
            "run sleep run a"
        );
        assert!(parse(&"[".repeat(1000)).is_err());
    }
}
