// SPDX-License-Identifier: GPL-2.0-only
//! Names, numbers and types of a policy as Rust has them.

use crate::hir::*;

/// `ule_cwc` as `UleCwc`.
pub(super) fn camel(name: &str) -> String {
    name.split('_')
        .map(|part| {
            let mut chars = part.chars();
            let first = chars.next().map(|c| c.to_ascii_uppercase());
            first.into_iter().chain(chars).collect::<String>()
        })
        .collect()
}

/// Words of Rust, and names that the generated code has for its own use.
const RESERVED: &[&str] = &[
    "as", "async", "at", "await", "balance", "box", "break", "const", "continue", "crate", "do",
    "dyn", "else", "enum", "env", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "left", "let", "loop", "macro", "match", "mod", "move", "moved", "mut", "next",
    "override", "priv", "pub", "queue", "ref", "return", "seen", "static", "struct", "super", "to",
    "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "value", "virtual",
    "thread", "wake", "walk", "where", "while", "yield", "abstract", "become",
];

/// Does a name of the policy differ in Rust?
pub(crate) fn is_reserved(name: &str) -> bool {
    let number = name.strip_prefix("argument");
    let is_argument = number.is_some_and(|number| number.parse::<usize>().is_ok());
    is_argument || RESERVED.contains(&name)
}

/// A name of the policy in Rust.
pub(super) fn safe(name: &str) -> String {
    if is_reserved(name) {
        format!("{name}_")
    } else {
        name.to_owned()
    }
}

/// A function of the policy in Rust. It is told apart from those of the trait.
pub(super) fn function_name(name: &str) -> String {
    const TRAIT: &[&str] = &[
        "new",
        "queues",
        "core",
        "begin",
        "load",
        "place_new",
        "place_unblock",
        "start",
        "unblock",
        "preempt",
        "give_way",
        "block",
        "terminate",
        "tick",
        "entry",
        "exit",
        "schedule",
        "newly_idle",
        "balancing",
        "can_steal_core",
        "select_core",
        "steal_thread",
        "depart",
        "arrive",
        "hint",
        "named",
        "timer",
        "has_timer",
        "place_in",
        "until",
    ];
    match name {
        _ if TRAIT.contains(&name) => format!("{name}_"),
        // Those of hints begin with `hear_`.
        _ if name.starts_with("hear_") || name.starts_with("own_") => format!("own_{name}"),
        _ => safe(name),
    }
}

/// The constant that is the number of a queue.
pub(super) fn constant_of(queue: &Queue) -> String {
    format!("{}_QUEUE", upper(&queue.name))
}

pub(super) fn upper(name: &str) -> String {
    name.to_ascii_uppercase()
}

/// A number as Rust's style has it.
pub(super) fn number(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::new();
    if value < 0 {
        out.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len() > 4 && (digits.len() - at).is_multiple_of(3) {
            out.push('_');
        }
        out.push(digit);
    }
    out
}

pub(super) fn number_of(value: &Expr) -> String {
    match value.kind {
        ExprKind::Int(value) => number(value),
        _ => "0".into(),
    }
}

/// The type of a core's attribute.
pub(super) fn stored(of: Type) -> &'static str {
    match of {
        Type::Bool => "bool",
        Type::Core => "Cpu",
        _ => "i64",
    }
}

/// The type of a parameter or a result.
pub(super) fn passed(of: Type) -> &'static str {
    match of {
        Type::Bool => "bool",
        Type::Core => "Cpu",
        Type::MaybeCore => "Option<Cpu>",
        Type::Thread => "Thread<'_, OfThread>",
        Type::MaybeThread => "Option<Thread<'_, OfThread>>",
        Type::Cores => "&CoreSet",
        Type::Domain => "Domain",
        _ => "i64",
    }
}
