// SPDX-License-Identifier: GPL-2.0-only
//! Terms of SMT-LIB.

pub(super) fn and(a: &str, b: &str) -> String {
    match (a, b) {
        ("true", other) | (other, "true") => other.into(),
        ("false", _) | (_, "false") => "false".into(),
        _ => format!("(and {a} {b})"),
    }
}

pub(super) fn or(a: &str, b: &str) -> String {
    match (a, b) {
        ("false", other) | (other, "false") => other.into(),
        ("true", _) | (_, "true") => "true".into(),
        _ => format!("(or {a} {b})"),
    }
}

pub(super) fn not(a: &str) -> String {
    match a {
        "true" => "false".into(),
        "false" => "true".into(),
        _ => format!("(not {a})"),
    }
}

pub(super) fn number(value: i64) -> String {
    if value < 0 {
        format!("(- {})", value.unsigned_abs())
    } else {
        value.to_string()
    }
}
