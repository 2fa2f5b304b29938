// SPDX-License-Identifier: GPL-2.0-only
//! Hints. Their type is known only as a policy is interpreted.

use baton_lang::hir;
use baton_machine::{Hinted, Named, Seen, Thread};
use baton_message::{Message, Raw, Type};

use crate::evaluate::{Frame, Given};
use crate::value::Value;
use crate::{Interpreted, OfThread, PROGRAM};

/// A hint of any type.
#[derive(Clone, Copy)]
pub struct Any(Raw);

/// The hint of the program with this tag.
fn with_tag(program: &hir::Policy, tag: u32) -> Option<&hir::Hint> {
    program.hints.get((tag as usize).checked_sub(1)?)
}

/// Could the compiled policy read it? Each message has one encoding.
fn is_readable(program: &hir::Policy, raw: &Raw) -> bool {
    let Some(hint) = with_tag(program, raw.tag) else {
        return false;
    };
    let (used, unused) = raw.words.split_at(hint.fields.len());
    let is_bool = |field: &hir::Field| hint.body.locals[field.local].kind == hir::Type::Bool;
    let mut fields = hint.fields.iter().zip(used);
    raw.thread != 0
        && fields.all(|(field, word)| !is_bool(field) || *word < 2)
        && unused.iter().all(|word| *word == 0)
}

impl Message for Any {
    const TYPE: Type = Type::NONE;
    const THREADS: usize = 1;

    fn encode(&self) -> Raw {
        self.0
    }

    fn decode(raw: &Raw) -> Option<Self> {
        let is_readable = PROGRAM.with_borrow(|program| {
            let program = program.as_ref();
            program.is_none_or(|program| is_readable(program, raw))
        });
        is_readable.then_some(Self(*raw))
    }
}

impl Hinted for Interpreted {
    type Hint = Any;

    fn named(Any(raw): &Any) -> Named {
        Named::of_id(raw.thread)
    }

    fn hint(&self, seen: &Seen<'_, '_, Self>, thread: Thread<'_, OfThread>, Any(raw): Any) -> bool {
        if !is_readable(&self.program, &raw) {
            return true;
        }
        let Some(hint) = with_tag(&self.program, raw.tag) else {
            return true;
        };
        let fields = || hint.fields.iter().zip(raw.words.map(|word| word as i64));
        let is_within = |(field, value): (&hir::Field, i64)| {
            let range = field.range;
            range.is_none_or(|(least, most)| (least..=most).contains(&value))
        };
        if !fields().all(is_within) {
            return false;
        }
        // It may have been sent before the thread begins.
        self.attributes(thread);
        let mut frame = Frame::new(self, Given::Seen(seen.clone(), None), &hint.body);
        frame.name(hint.thread, Value::Thread(Some(thread)));
        for (field, value) in fields() {
            let kind = hint.body.locals[field.local].kind;
            frame.name(field.local, Value::of(value, kind));
        }
        frame.statements(&hint.body.statements);
        true
    }
}
