// SPDX-License-Identifier: GPL-2.0-only
//! Generates `policy/python/baton_abi.py` from the text of `policy/c/baton.h`, which is generated
//! itself: the constants, and the structures as ctypes has them.

use std::fmt::Write;

const HEAD: &str = "\
# SPDX-License-Identifier: GPL-2.0-only
# Made from policy/abi by `cargo xtask header`: change it there.
\"\"\"The structures and numbers that Baton's clients in Python share with the kernel.\"\"\"

import ctypes
";

/// The text of the module.
pub fn module(header: &str) -> String {
    let mut text = String::from(HEAD);
    text += &constants(header);
    for (name, fields) in structures(header) {
        text += &structure(name, &fields);
    }
    text
}

/// `#define`s of numbers, and the values of enumerations.
fn constants(header: &str) -> String {
    let mut text = String::from("\n");
    // The value of an entry of an enumeration that has none of its own.
    let mut next = 0;
    for line in header.lines() {
        let listed = line
            .strip_prefix('\t')
            .and_then(|rest| rest.strip_suffix(','));
        let (name, value) = match (line.strip_prefix("#define "), listed) {
            (Some(rest), _) => rest.split_once(' ').unwrap_or((rest, "")),
            (_, Some(entry)) => entry.split_once(" = ").unwrap_or((entry, "")),
            _ => continue,
        };
        let value = match (value.trim_end_matches('U'), listed) {
            ("", Some(_)) => format!("{next}"),
            (value, _) => value.to_owned(),
        };
        if !name.starts_with("BATON_") || !is_number(&value) {
            continue;
        }
        if listed.is_some() {
            next = value.parse().map_or(0, |value: i64| value + 1);
        }
        writeln!(text, "{} = {value}", short(name)).expect("a string takes all");
    }
    text
}

/// A number, or a sum of bits.
fn is_number(value: &str) -> bool {
    let is_number = |text: &str| {
        !text.is_empty()
            && (text.parse::<i64>().is_ok()
                || text
                    .strip_prefix("0x")
                    .is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok()))
    };
    let inner = value.trim_start_matches('(').trim_end_matches(')');
    inner.split(" << ").all(is_number)
}

/// A name without the prefix, which the name of the module replaces.
fn short(name: &str) -> &str {
    name.strip_prefix("BATON_").unwrap_or(name)
}

/// The structures whose fields are numbers, arrays of numbers, or such structures.
fn structures(header: &str) -> Vec<(&str, Vec<(&str, String)>)> {
    let mut found: Vec<(&str, Vec<(&str, String)>)> = Vec::new();
    for part in header.split("\nstruct ").skip(1) {
        let Some((name, rest)) = part.split_once(" {\n") else {
            continue;
        };
        let body = rest.split_once("\n};").map_or("", |(body, _)| body);
        let fields: Option<Vec<_>> = body
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("//"))
            .map(|line| field(line, |kind| found.iter().any(|(known, _)| *known == kind)))
            .collect();
        if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
            found.push((name, fields));
        }
    }
    found
}

/// A field: its name and its type.
fn field(line: &str, is_known: impl Fn(&str) -> bool) -> Option<(&str, String)> {
    let line = line.strip_suffix(';')?;
    // Python programs are given no structures with pointers.
    let (kind, name) = line
        .rsplit_once(' ')
        .filter(|(_, name)| !name.starts_with('*'))?;
    let (name, lengths) = match name.split_once('[') {
        Some((name, lengths)) => (name, lengths.strip_suffix(']')?.split("][").collect()),
        None => (name, Vec::new()),
    };
    let kind = match kind {
        "uint8_t" => "ctypes.c_uint8".into(),
        "uint16_t" => "ctypes.c_uint16".into(),
        "uint32_t" => "ctypes.c_uint32".into(),
        "uint64_t" | "baton_token" => "ctypes.c_uint64".into(),
        "int16_t" => "ctypes.c_int16".into(),
        "int32_t" => "ctypes.c_int32".into(),
        "char" => "ctypes.c_char".into(),
        _ => {
            let structure = kind.strip_prefix("struct ").filter(|kind| is_known(kind))?;
            class(structure)
        }
    };
    // Text is read up to its NUL.
    let kind = match lengths.last() {
        Some(length) if length.ends_with("_LEN") => "ctypes.c_char".into(),
        _ => kind,
    };
    // The first length is that of the outermost array.
    let of = lengths
        .iter()
        .rev()
        .map(|length| format!(" * {}", short(length)));
    Some((name, kind + &of.collect::<String>()))
}

/// `baton_agent_task` is `AgentTask`.
fn class(name: &str) -> String {
    let words = name.strip_prefix("baton_").unwrap_or(name).split('_');
    words
        .map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_uppercase() + rest
        })
        .collect()
}

fn structure(name: &str, fields: &[(&str, String)]) -> String {
    let fields: String = fields
        .iter()
        .map(|(name, kind)| format!("\n        (\"{name}\", {kind}),"))
        .collect();
    format!(
        "\n\nclass {}(ctypes.Structure):\n    _fields_ = [{fields}\n    ]\n",
        class(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_and_numbers_become_python() {
        let header = "\
#define BATON_SIZE 3
#define BATON_BIT (1 << 2)
#define BATON_IOC 0xc0U
#define BATON_NAMES { \\
enum baton_e {
\tBATON_E_ONE = 1,
\tBATON_E_TWO,
};
struct baton_part {
\tuint8_t bytes[2][BATON_SIZE];
};
struct baton_whole {
\t// A comment.
\tstruct baton_part part;
\tbaton_token token;
};
struct baton_code {
\tvoid *pointer;
};
";
        let expected = "
SIZE = 3
BIT = (1 << 2)
IOC = 0xc0
E_ONE = 1
E_TWO = 2


class Part(ctypes.Structure):
    _fields_ = [
        (\"bytes\", ctypes.c_uint8 * SIZE * 2),
    ]


class Whole(ctypes.Structure):
    _fields_ = [
        (\"part\", Part),
        (\"token\", ctypes.c_uint64),
    ]
";
        assert_eq!(module(header), HEAD.to_owned() + expected);
    }
}
