// SPDX-License-Identifier: GPL-2.0-only
//! Hints: what programs can say of their threads.

use super::body::{BodyChecker, Phase};
use super::Checker;
use crate::ast;
use crate::diagnostic::Diagnostic;
use crate::hir::*;
use crate::rust::is_reserved;

/// A message has six words (`BATON_HINT_WORDS` of the ABI), and a thread besides.
const MOST_FIELDS: usize = 6;

impl<'a> Checker<'a> {
    pub(super) fn hints(&mut self) {
        let file = self.file;
        let mut seen: Vec<(&ast::Name, String)> = Vec::new();
        for item in &file.items {
            let ast::Item::Hint(hint) = item else {
                continue;
            };
            let name = &hint.name;
            self.may_be_named(name);
            let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
            if !begins(&name.text) || !name.text.chars().all(is_good) {
                let help = "letters a to z, digits and _, with a letter first";
                let message = format!("`{}` is no name of a hint", name.text);
                self.report(Diagnostic::error(name.span, message).help(help));
                continue;
            }
            // The variants of a type in Rust, in which `_` is not told apart.
            let told = name.text.replace('_', "");
            if let Some((before, _)) = seen.iter().find(|(_, known)| *known == told) {
                let message = format!("the hint `{}` is there twice", name.text);
                let diagnostic = Diagnostic::error(name.span, message);
                self.report(diagnostic.note(before.span, "first here"));
                continue;
            }
            seen.push((name, told));
            let checked = self.hint(hint);
            self.policy.hints.extend(checked);
        }
    }

    fn hint(&mut self, written: &'a ast::Hint) -> Option<Hint> {
        let name = &written.name;
        let kinds: Vec<Type> = written
            .fields
            .iter()
            .map(|field| self.kind(&field.kind))
            .collect();
        let is_about_one = kinds.iter().filter(|kind| **kind == Type::Thread).count() == 1;
        if kinds.first() != Some(&Type::Thread) || !is_about_one {
            let message = format!("the hint `{}` is about one thread", name.text);
            let help = format!("write hint {}(thread t, ..)", name.text);
            self.report(Diagnostic::error(name.span, message).help(help));
            return None;
        }
        if written.fields.len() > MOST_FIELDS + 1 {
            let message = format!("a hint has at most {MOST_FIELDS} values beside its thread");
            self.error(name.span, message);
        }
        for (at, field) in written.fields.iter().enumerate() {
            self.may_be_named(&field.name);
            if is_reserved(&field.name.text) {
                // The name is part of the message's type, for programs in Rust.
                let message = format!("`{}` is a word of Rust or of Baton", field.name.text);
                self.report(
                    Diagnostic::error(field.name.span, message).help("choose another name"),
                );
            }
            let mut before = written.fields[..at].iter();
            if before.any(|other| other.name.text == field.name.text) {
                let message = format!("`{}` is declared twice", field.name.text);
                self.error(field.name.span, message);
            }
        }
        let ranges: Vec<Option<(i64, i64)>> = written
            .fields
            .iter()
            .zip(&kinds)
            .map(|(field, kind)| self.field_range(field, *kind))
            .collect();
        if let Some(value) = &written.body.value {
            self.report(Diagnostic::error(value.span, "a hint has no value").help("add `;`"));
        }
        let mut body = BodyChecker::new(self, Phase::Hint);
        let locals: Vec<LocalId> = written
            .fields
            .iter()
            .zip(&kinds)
            .map(|(field, kind)| body.local(&field.name.text, *kind))
            .collect();
        body.fixed.extend(&locals);
        let (statements, _) = body.statements(&written.body.statements);
        let names = std::mem::take(&mut body.locals);
        let fields = locals[1..].iter().zip(&ranges[1..]);
        Some(Hint {
            name: name.text.clone(),
            thread: locals[0],
            fields: fields
                .map(|(local, range)| Field {
                    local: *local,
                    range: *range,
                })
                .collect(),
            body: Body {
                locals: names,
                statements,
                value: None,
            },
        })
    }

    /// The values that are accepted. Programs are not trusted: a handler that computes with a value
    /// without a limit would overflow.
    fn field_range(&mut self, field: &ast::Field, kind: Type) -> Option<(i64, i64)> {
        match (kind, &field.range) {
            (Type::Int | Type::Time, Some((least, most))) => {
                let span = least.span.to(most.span);
                let range = (self.constant(least, kind)?, self.constant(most, kind)?);
                if range.0 > range.1 {
                    self.error(span, "no value is in this range");
                }
                Some(range)
            }
            (Type::Int | Type::Time, None) => {
                let message = format!("`{}` has no range", field.name.text);
                let example = match kind {
                    Type::Time => "0ms .. 10s",
                    _ => "0 .. 100",
                };
                let (kind, name) = (&field.kind.text, &field.name.text);
                let help = format!("programs send any value: write {kind} {name} in {example}");
                self.report(Diagnostic::error(field.name.span, message).help(help));
                None
            }
            (Type::Enum(index), None) => {
                let values = self.policy.enums[index].values.len();
                Some((0, i64::try_from(values).unwrap_or(i64::MAX) - 1))
            }
            (Type::Thread | Type::Bool | Type::Wrong, None) => None,
            (Type::Thread | Type::Bool | Type::Enum(_), Some((least, _))) => {
                let message = format!("{} has no range", self.called(kind));
                self.error(least.span, message);
                None
            }
            (Type::Wrong, Some(_)) => None,
            _ => {
                let help = "it has numbers, times, conditions and values of enums";
                let message = format!("a hint does not have {}", self.called(kind));
                self.report(Diagnostic::error(field.kind.span, message).help(help));
                None
            }
        }
    }
}
