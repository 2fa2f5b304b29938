// SPDX-License-Identifier: GPL-2.0-only
//! Hints in Rust: their type, and what each does.

use super::names::{camel, number, passed, safe};
use super::{Given, Writer};
use crate::hir::*;

impl Writer<'_> {
    pub(super) fn hints(&mut self) {
        let policy = self.policy;
        let name = camel(&policy.name);
        self.line("pub use baton_machine::Reply;");
        self.line("");
        self.open("baton_machine::message! {");
        self.line("/// What a program can say of a thread.");
        self.open("pub enum Hint, version 1 {");
        for (tag, hint) in (1..).zip(&policy.hints) {
            let mut fields = vec![format!("{}: Named", local(hint, hint.thread))];
            fields.extend(hint.fields.iter().map(|field| {
                let kind = passed(hint.body.locals[field.local].kind);
                format!("{}: {kind}", local(hint, field.local))
            }));
            let variant = camel(&hint.name);
            self.line(format!("{variant} {{ {} }} = {tag},", fields.join(", ")));
        }
        self.close("}");
        self.close("}");
        self.line("");
        self.open(format!("impl {name} {{"));
        for (number, hint) in policy.hints.iter().enumerate() {
            if number > 0 {
                self.line("");
            }
            self.hint(hint);
        }
        self.close("}");
        self.line("");
        self.open(format!("impl Hinted for {name} {{"));
        self.line("type Hint = Hint;");
        self.line("");
        self.open("fn named(hint: &Hint) -> Named {");
        self.open("match *hint {");
        for hint in &policy.hints {
            let (variant, thread) = (camel(&hint.name), local(hint, hint.thread));
            self.line(format!("Hint::{variant} {{ {thread}, .. }} => {thread},"));
        }
        self.close("}");
        self.close("}");
        self.line("");
        self.open(
            "fn hint(&self, seen: &Seen<'_, '_, Self>, thread: Thread<'_, OfThread>, hint: Hint) \
             -> bool {",
        );
        self.open("match hint {");
        for hint in &policy.hints {
            self.arm(hint);
        }
        if policy.hints.iter().any(is_limited) {
            self.line("_ => return false,");
        }
        self.close("}");
        self.line("true");
        self.close("}");
        self.close("}");
        self.line("");
    }

    /// What a hint does.
    fn hint(&mut self, hint: &Hint) {
        let locals = &hint.body.locals;
        let parameters = hint.fields.iter().map(|field| {
            let mark = if locals[field.local].is_changed {
                "mut "
            } else {
                ""
            };
            let kind = passed(locals[field.local].kind);
            format!(", {mark}{}: {kind}", local(hint, field.local))
        });
        self.open(format!(
            "fn hear_{}(&self, seen: &Seen<'_, '_, Self>, {}: Thread<'_, OfThread>{}) {{",
            hint.name,
            local(hint, hint.thread),
            parameters.collect::<String>()
        ));
        let scope = self.scope(&hint.body, Given::Seen);
        self.statements(&hint.body.statements, scope);
        self.close("}");
    }

    /// Calls that, if the values are in their ranges.
    fn arm(&mut self, hint: &Hint) {
        let names: Vec<String> = hint
            .fields
            .iter()
            .map(|field| local(hint, field.local))
            .collect();
        let ranges: Vec<String> = hint
            .fields
            .iter()
            .zip(&names)
            .filter_map(|(field, name)| {
                let (least, most) = field.range?;
                Some(format!(
                    "({}..={}).contains(&{name})",
                    number(least),
                    number(most)
                ))
            })
            .collect();
        let fields: String = names.iter().map(|name| format!("{name}, ")).collect();
        let values: String = names.iter().map(|name| format!(", {name}")).collect();
        let condition = if ranges.is_empty() {
            String::new()
        } else {
            format!(" if {}", ranges.join(" && "))
        };
        self.line(format!(
            "Hint::{} {{ {fields}.. }}{condition} => self.hear_{}(seen, thread{values}),",
            camel(&hint.name),
            hint.name
        ));
    }
}

fn local(hint: &Hint, id: LocalId) -> String {
    safe(&hint.body.locals[id].name)
}

/// Are there values of a hint that are refused?
fn is_limited(hint: &Hint) -> bool {
    hint.fields.iter().any(|field| field.range.is_some())
}
