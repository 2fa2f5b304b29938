// SPDX-License-Identifier: GPL-2.0-only
//! The layouts of an object's structures and unions, from BTF
//! (Documentation/bpf/btf.rst).

use std::collections::BTreeMap;

/// Kinds of types.
const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FWD: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Beyond this number of types that are part of another, a description ends. No structure of the
/// kernel is nested as deeply; a damaged file may be.
const DEPTH: u32 = 32;

/// The layout of each structure and union that has a name, by `struct NAME` or `union NAME`: its
/// size, then a line for each member.
pub type Layouts = BTreeMap<String, Vec<String>>;

/// Reads the layouts; none if the bytes are no BTF.
pub fn layouts(bytes: &[u8]) -> Option<Layouts> {
    let btf = Btf::read(bytes)?;
    let mut layouts = Layouts::new();
    for record in &btf.types {
        let name = btf.name(record.name);
        if matches!(record.kind, STRUCT | UNION) && !name.is_empty() {
            let title = format!("{} {name}", word(record.kind));
            layouts.insert(title, btf.members(record, 0));
        }
    }
    Some(layouts)
}

/// A type: its kind, and what the kind makes of the rest.
struct Record {
    name: u32,
    kind: u32,
    /// Are offsets of members together with sizes of bit fields?
    has_bits: bool,
    /// The size in bytes, or the type that this one is made from.
    of: u32,
    /// What follows it.
    more: Vec<u32>,
}

struct Btf<'a> {
    strings: &'a [u8],
    types: Vec<Record>,
}

fn word(kind: u32) -> &'static str {
    match kind {
        UNION => "union",
        _ => "struct",
    }
}

impl<'a> Btf<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let number = |at: usize| -> Option<u32> {
            let bytes = bytes.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        if number(0)? & 0xffff != 0xeb9f {
            return None;
        }
        let header = number(4)? as usize;
        let part = |at: usize| -> Option<&'a [u8]> {
            let from = header.checked_add(number(at)? as usize)?;
            bytes.get(from..from.checked_add(number(at + 4)? as usize)?)
        };
        let (types, strings) = (part(8)?, part(16)?);
        let mut words = types
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let mut read = Vec::new();
        while let Some(name) = words.next() {
            let (info, of) = (words.next()?, words.next()?);
            let (kind, count) = ((info >> 24) & 31, (info & 0xffff) as usize);
            let more = match kind {
                INT | VAR | DECL_TAG => 1,
                ARRAY => 3,
                STRUCT | UNION | DATASEC | ENUM64 => 3 * count,
                ENUM | FUNC_PROTO => 2 * count,
                PTR | FWD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | FLOAT | TYPE_TAG => 0,
                _ => return None,
            };
            let more: Vec<u32> = words.by_ref().take(more).collect();
            read.push(Record {
                name,
                kind,
                has_bits: info >> 31 != 0,
                of,
                more,
            });
        }
        Some(Self {
            strings,
            types: read,
        })
    }

    fn name(&self, at: u32) -> String {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        let name = rest.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    fn members(&self, record: &Record, depth: u32) -> Vec<String> {
        let mut lines = vec![format!("{} bytes", record.of)];
        for member in record.more.chunks_exact(3) {
            let (offset, bits) = if record.has_bits {
                (member[2] & 0xff_ffff, member[2] >> 24)
            } else {
                (member[2], 0)
            };
            let bits = match bits {
                0 => String::new(),
                bits => format!(", {bits} bits"),
            };
            lines.push(format!(
                "{} at bit {offset}{bits}: {}",
                self.name(member[0]),
                self.text(member[1], depth)
            ));
        }
        lines
    }

    /// A type in words. One that has a name of its own stands for its contents.
    fn text(&self, id: u32, depth: u32) -> String {
        let record = (id as usize)
            .checked_sub(1)
            .and_then(|at| self.types.get(at));
        let Some(record) = record.filter(|_| depth < DEPTH) else {
            return "void".into();
        };
        let name = self.name(record.name);
        match record.kind {
            PTR => format!("pointer to {}", self.text(record.of, depth + 1)),
            ARRAY => match record.more[..] {
                [of, _, count] => format!("{count} of {}", self.text(of, depth + 1)),
                _ => "array".into(),
            },
            TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => self.text(record.of, depth + 1),
            STRUCT | UNION if name.is_empty() => {
                format!("{{{}}}", self.members(record, depth + 1).join("; "))
            }
            STRUCT | UNION => format!("{} {name}", word(record.kind)),
            FWD => format!(
                "{} {name}",
                word(if record.has_bits { UNION } else { STRUCT })
            ),
            ENUM | ENUM64 => format!("enum of {} bytes", record.of),
            FUNC_PROTO => "function".into(),
            _ => format!("{name} of {} bytes", record.of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct s { int a; struct s *next; union { int b[2]; } }`, by hand.
    fn small() -> Vec<u8> {
        let strings = b"\0int\0s\0a\0next\0b\0";
        let types: &[u32] = &[
            1,
            INT << 24,
            4,
            32, // 1: int
            5,
            STRUCT << 24 | 3,
            24,
            7,
            1,
            0,
            9,
            3,
            64,
            0,
            5,
            128, // 2: s
            0,
            PTR << 24,
            2, // 3
            0,
            ARRAY << 24,
            0,
            1,
            1,
            2, // 4
            0,
            UNION << 24 | 1,
            8,
            14,
            4,
            0, // 5
        ];
        let length = 4 * types.len() as u32;
        let header = [0x0001_eb9f, 24, 0, length, length, strings.len() as u32];
        let words = header
            .iter()
            .chain(types)
            .flat_map(|word| word.to_le_bytes());
        words.chain(strings.iter().copied()).collect()
    }

    #[test]
    fn a_structure_in_words() {
        let layouts = layouts(&small()).unwrap();
        let expected = [
            "24 bytes",
            "a at bit 0: int of 4 bytes",
            "next at bit 64: pointer to struct s",
            " at bit 128: {8 bytes; b at bit 0: 2 of int of 4 bytes}",
        ];
        assert_eq!(layouts["struct s"], expected);
    }

    #[test]
    fn no_bytes_make_it_fail() {
        let whole = small();
        for length in 0..whole.len() {
            let _ = layouts(&whole[..length]);
        }
        for at in 24..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = layouts(&changed);
        }
        assert!(layouts(b"").is_none());
    }
}
