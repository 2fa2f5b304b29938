// SPDX-License-Identifier: GPL-2.0-only
//! Places in a text: the protocol counts lines, and in them units of UTF-16; the compiler, bytes.

use baton_lang::diagnostic::Span;
use serde_json::{json, Value};

/// The place of a byte.
pub fn position(text: &str, at: usize) -> Value {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    json!({
        "line": text[..begin].matches('\n').count(),
        "character": text[begin..at].encode_utf16().count(),
    })
}

/// The byte of a place. One behind the end of a line is the line's end.
pub fn byte(text: &str, position: &Value) -> Option<usize> {
    let line = usize::try_from(position["line"].as_u64()?).ok()?;
    let character = usize::try_from(position["character"].as_u64()?).ok()?;
    let begin = match line.checked_sub(1) {
        None => 0,
        Some(before) => text.match_indices('\n').nth(before)?.0 + 1,
    };
    let line = text[begin..].split('\n').next().unwrap_or_default();
    let mut units = 0;
    for (at, c) in line.char_indices() {
        if units >= character {
            return Some(begin + at);
        }
        units += c.len_utf16();
    }
    Some(begin + line.len())
}

pub fn range(text: &str, span: Span) -> Value {
    json!({"start": position(text, span.begin), "end": position(text, span.end)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_units_of_utf16() {
        let text = "a\n// \u{1F600}\u{e9} x\n";
        let at = text.find('x').unwrap();
        let place = position(text, at);
        assert_eq!(place, json!({"line": 1, "character": 7}));
        assert_eq!(byte(text, &place), Some(at));
        assert_eq!(byte(text, &json!({"line": 0, "character": 9})), Some(1));
        assert_eq!(byte(text, &json!({"line": 9, "character": 0})), None);
        for at in 0..=text.len() {
            if text.is_char_boundary(at) {
                assert_eq!(byte(text, &position(text, at)), Some(at));
            }
        }
    }
}
