// SPDX-License-Identifier: GPL-2.0-only
//! Attributes of threads and cores.

use super::assigned::is_hinted;
use super::found::Stir;
use super::terms::and;
use super::values::Value;
use super::{Evaluator, Path};
use crate::hir::*;

/// Maximum nesting of loops whose changes are followed. A deeper loop may change all attributes.
const MOST_TRIALS: usize = 3;

impl<'p> Evaluator<'p> {
    /// An attribute of a thread was changed.
    pub(super) fn changes_thread(&mut self, thread: usize, index: usize, path: &Path) {
        let is_subject = Some(thread) == self.subject;
        let condition = if is_subject {
            // It is in no queue until it is moved.
            and(&path.condition, &self.moved)
        } else {
            path.condition.clone()
        };
        self.stirs.push(Stir {
            condition,
            index,
            is_parameter: thread >= parameter(0),
        });
        if is_subject {
            return;
        }
        // Other names may be of the same thread.
        let kind = self.policy.thread[index].kind;
        let others: Vec<(String, Type)> = self
            .attributes
            .keys()
            .filter(|key| is_of_other(key, thread, index, self.subject))
            .map(|key| (key.clone(), kind))
            .collect();
        self.forget(&others);
    }

    /// The attributes that turns of a loop change.
    pub(super) fn changed_by(
        &self,
        member: LocalId,
        body: &'p [Statement],
        path: &Path,
    ) -> Vec<(String, Type)> {
        let kind = |key: &str| {
            let (whose, index) = key.split_once('.').unwrap_or((key, "0"));
            let index: usize = index.parse().unwrap_or_default();
            match whose {
                "core" => self.policy.core[index].kind,
                _ => self.policy.thread[index].kind,
            }
        };
        let mut changed: Vec<(String, Type)> = Vec::new();
        loop {
            let mut turn = self.clone();
            turn.trials += 1;
            if turn.trials > MOST_TRIALS {
                let all = self.attributes.keys();
                return all.map(|key| (key.clone(), kind(key))).collect();
            }
            // A later turn begins with what the ones before it changed.
            turn.forget(&changed);
            let before = turn.attributes.clone();
            let value = turn.any("member", turn.locals[member].kind);
            turn.values.insert(member, value);
            turn.block(body, &mut path.clone());
            let is_new = |name: &String| turn.declared.iter().any(|(known, _)| known == name);
            let found = turn.attributes.iter().filter(|(key, term)| {
                let before = before.get(*key);
                before.map_or_else(|| !is_new(term), |before| before != *term)
            });
            let found = found.map(|(key, _)| (key.clone(), kind(key)));
            // A thread that is found in a turn is another one in the next.
            let is_known = |key: &str| match thread_of(key) {
                Some(thread) => thread <= self.fresh || thread >= parameter(0),
                None => true,
            };
            let found: Vec<_> = found
                .filter(|it| is_known(&it.0) && !changed.contains(it))
                .collect();
            if found.is_empty() {
                return changed;
            }
            changed.extend(found);
        }
    }

    /// Nothing is known of these attributes from here on.
    pub(super) fn forget(&mut self, attributes: &[(String, Type)]) {
        for (key, of) in attributes {
            let value = self.declare("attribute", Self::sort(*of));
            self.attributes.insert(key.clone(), value);
        }
    }

    pub(super) fn set_attribute(&mut self, key: String, value: &'p Expr, path: &mut Path) {
        let old = self.attribute(&key, value.of);
        let new = self.term(value, path);
        let new = match path.condition.as_str() {
            "true" => new,
            condition => format!("(ite {condition} {new} {old})"),
        };
        let new = self.named(new, value.of);
        self.attributes.insert(key, new);
    }

    pub(super) fn attribute_of(&mut self, thread: &Value, index: usize, of: Type) -> Value {
        match thread {
            Value::Thread(thread) => self.thread_attribute(*thread, index, of),
            Value::Either(condition, a, b) => {
                match (
                    self.attribute_of(a, index, of),
                    self.attribute_of(b, index, of),
                ) {
                    (Value::Term(a), Value::Term(b)) => {
                        Value::Term(format!("(ite {condition} {a} {b})"))
                    }
                    _ => self.any("attribute", of),
                }
            }
            _ => self.any("attribute", of),
        }
    }

    pub(super) fn thread_attribute(&mut self, thread: usize, index: usize, of: Type) -> Value {
        if of == Type::Core {
            return self.any("attribute", of);
        }
        if !is_hinted(self.policy, index) {
            return Value::Term(self.attribute(&format!("thread{thread}.{index}"), of));
        }
        // A hint may have changed it since the last read.
        self.any("attribute", of)
    }

    pub(super) fn attribute(&mut self, key: &str, of: Type) -> String {
        if let Some(known) = self.attributes.get(key) {
            return known.clone();
        }
        let name = self.declare("attribute", Self::sort(of));
        self.attributes.insert(key.into(), name.clone());
        name
    }
}

/// The thread that is a parameter.
pub(super) fn parameter(id: LocalId) -> usize {
    id + (1 << 20)
}

/// Is this the same attribute of a thread that may be the same one?
pub(super) fn is_of_other(key: &str, thread: usize, index: usize, subject: Option<usize>) -> bool {
    let is_same = key.ends_with(&format!(".{index}"));
    let other = thread_of(key).filter(|_| is_same);
    other.is_some_and(|other| other != thread && Some(other) != subject)
}

/// The thread that an attribute is of; none if it is the core's.
pub(super) fn thread_of(key: &str) -> Option<usize> {
    let (thread, _) = key.strip_prefix("thread")?.split_once('.')?;
    thread.parse().ok()
}
