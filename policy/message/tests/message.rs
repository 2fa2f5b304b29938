// SPDX-License-Identifier: GPL-2.0-only
//! Tests of `message!`: a type decodes every message that it encodes, and refuses everything else.

use baton_message::{message, Message, Raw, Thread};

message! {
    /// A type with each kind of field.
    pub enum Said, version 3 {
        Nothing {} = 0,
        Numbers { a: u8, b: u16, c: u32, d: u64, e: i32, f: i64 } = 7,
        Of { yes: bool, thread: Thread } = 9,
    }
}

message! {
    /// Like `Said`, except for the name of one field.
    pub enum Other, version 3 {
        Nothing {} = 0,
        Numbers { a: u8, b: u16, c: u32, d: u64, e: i32, g: i64 } = 7,
        Of { yes: bool, thread: Thread } = 9,
    }
}

fn raw(tag: u32, thread: u32, words: [u64; 6]) -> Raw {
    Raw { tag, thread, words }
}

#[test]
fn what_is_written_is_read() {
    let check = |said: Said, expected: Raw| {
        assert_eq!(said.encode(), expected);
        assert_eq!(Said::decode(&expected), Some(said));
    };
    check(Said::Nothing {}, raw(0, 0, [0; 6]));
    let minus = |number: i64| number as u64;
    check(
        Said::Numbers {
            a: 255,
            b: 65535,
            c: u32::MAX,
            d: u64::MAX,
            e: i32::MIN,
            f: -1,
        },
        raw(
            7,
            0,
            [
                255,
                65535,
                u64::from(u32::MAX),
                u64::MAX,
                minus(i64::from(i32::MIN)),
                minus(-1),
            ],
        ),
    );
    check(
        Said::Of {
            yes: true,
            thread: Thread::of_id(12),
        },
        raw(9, 12, [1, 0, 0, 0, 0, 0]),
    );
}

#[test]
fn nothing_else_is_read() {
    let refused = [
        ("a tag that there is not", raw(1, 0, [0; 6])),
        ("a word that is not used", raw(0, 0, [0, 0, 0, 0, 0, 1])),
        ("a thread that is not used", raw(0, 1, [0; 6])),
        ("a u8 that is too large", raw(7, 0, [256, 0, 0, 0, 0, 0])),
        ("a u16 that is too large", raw(7, 0, [0, 65536, 0, 0, 0, 0])),
        (
            "a u32 that is too large",
            raw(7, 0, [0, 0, 1 << 32, 0, 0, 0]),
        ),
        (
            "an i32 that is too large",
            raw(7, 0, [0, 0, 0, 0, 1 << 31, 0]),
        ),
        (
            "an i32 without its sign",
            raw(7, 0, [0, 0, 0, 0, 0xffff_ffff, 0]),
        ),
        ("a truth that is neither", raw(9, 1, [2, 0, 0, 0, 0, 0])),
        (
            "no thread where one is needed",
            raw(9, 0, [1, 0, 0, 0, 0, 0]),
        ),
    ];
    for (what, raw) in refused {
        assert_eq!(Said::decode(&raw), None, "{what}");
    }
}

#[test]
fn a_type_is_told_by_name_version_and_fields() {
    let name: Vec<u8> = Said::TYPE
        .name
        .iter()
        .take_while(|c| **c != 0)
        .map(|c| *c as u8)
        .collect();
    assert_eq!(
        (name.as_slice(), Said::TYPE.version, Said::THREADS),
        (&b"Said"[..], 3, 1)
    );
    assert_ne!(Said::TYPE.layout, Other::TYPE.layout);
}
