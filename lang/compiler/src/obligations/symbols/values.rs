// SPDX-License-Identifier: GPL-2.0-only
//! What a body computes with: cores and threads as far as they are told apart, and reads.

use super::terms::{and, not};
use crate::hir::*;

/// A core, as far as it is told apart from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// A parameter, or the variable of a foreach: any core.
    Local(LocalId),
    /// Some core: the number of a place in the text.
    Some(usize),
    /// The one with the lowest load of all cores.
    Lowest,
    /// That of the thread that wakes the one which is placed.
    Waker,
    /// One of two, by a condition.
    Either(String, Box<Core>, Box<Core>),
}

/// A value. Numbers, times and enums are integers of SMT-LIB.
#[derive(Clone, Debug)]
pub enum Value {
    Term(String),
    Core(Core),
    /// A thread, or one of several.
    Thread(usize),
    /// One of two values, by a condition.
    Either(String, Box<Value>, Box<Value>),
    /// A domain of a core, in a turn of a loop over all of them. The last one has all cores.
    Domain,
}

/// A read of a core's load or count.
#[derive(Clone)]
pub struct Read {
    pub core: Core,
    /// Its variable.
    pub name: String,
    /// `count` or `cload`.
    pub what: &'static str,
}

/// What is read of cores.
#[derive(Clone, Default)]
pub struct Reads {
    all: Vec<Read>,
    /// What is known of each read of a core.
    pub(super) bounds: Vec<(Core, &'static str)>,
    /// The core whose lock is held, and whether its load is its count.
    pub(super) locked: Option<(Core, bool)>,
}

impl Reads {
    /// Each read of this core has this bound.
    pub fn bound(&mut self, core: Core, bound: &'static str) {
        self.bounds.push((core, bound));
    }

    /// The lock of this core is held.
    pub fn lock(&mut self, core: Core, has_unit_loads: bool) {
        self.locked = Some((core, has_unit_loads));
    }

    /// In the order of the text.
    pub fn all(&self) -> &[Read] {
        &self.all
    }

    /// Is this the core whose lock is held?
    pub fn is_locked(&self, core: &Core) -> bool {
        self.locked
            .as_ref()
            .is_some_and(|(locked, _)| locked == core)
    }

    /// A read of a core's count.
    pub fn count(&mut self, core: Core) -> String {
        self.read(core, "count")
    }

    pub(super) fn read(&mut self, core: Core, what: &'static str) -> String {
        if self.is_locked(&core) {
            // Under its lock, a value does not change.
            let known = self
                .all
                .iter()
                .find(|it| it.core == core && it.what == what);
            if let Some(known) = known {
                return known.name.clone();
            }
        }
        let name = format!("{what}_{}", self.all.len());
        self.all.push(Read {
            core,
            name: name.clone(),
            what,
        });
        name
    }
}

/// The threads that a value can be, each with its condition.
pub(super) fn threads(value: &Value) -> Vec<(String, usize)> {
    match value {
        Value::Thread(thread) => vec![("true".into(), *thread)],
        Value::Either(condition, a, b) => {
            let under = |condition: &str, of: &Value| {
                let of = threads(of).into_iter();
                of.map(|(other, thread)| (and(condition, &other), thread))
                    .collect::<Vec<_>>()
            };
            let mut all = under(condition, a);
            all.extend(under(&not(condition), b));
            all
        }
        _ => Vec::new(),
    }
}

/// Is a value of this type shown as a number?
pub fn is_number(of: Type) -> bool {
    matches!(of, Type::Int | Type::Time)
}
