// SPDX-License-Identifier: GPL-2.0-only
//! The scripts of goals, and what a counterexample shows.

use std::fmt::Write;

use super::terms::{and, number, or};
use super::values::Core;
use super::{Evaluator, IS_SYNC, SMALL};

impl<'p> Evaluator<'p> {
    /// The condition on which all cores are searched for this one.
    pub fn is_searched(&self, of: &Core) -> String {
        let sweeps = self.sweeps.iter().filter(|sweep| sweep.of == *of);
        sweeps.fold("false".to_owned(), |all, sweep| or(&all, &sweep.condition))
    }

    /// The condition on which a core is a good place: it was seen without a thread, or with its
    /// waker alone, which is about to sleep; or it is the lowest of all, or every core was seen
    /// with a thread.
    pub fn is_good(&self, core: &Core) -> String {
        let all_busy = self
            .all_busy
            .iter()
            .fold("false".to_owned(), |all, one| or(&all, one));
        or(&self.was_idle(core), &all_busy)
    }

    pub(super) fn was_idle(&self, core: &Core) -> String {
        match core {
            Core::Lowest => "true".into(),
            Core::Either(condition, a, b) => {
                format!(
                    "(ite {condition} {} {})",
                    self.was_idle(a),
                    self.was_idle(b)
                )
            }
            Core::Waker => {
                let is_sync = self.declared.iter().any(|(name, _)| name == IS_SYNC);
                let alone = if is_sync {
                    and(IS_SYNC, &self.was_seen(core, "<= 1"))
                } else {
                    "false".into()
                };
                or(&self.was_seen(core, "= 0"), &alone)
            }
            core => self.was_seen(core, "= 0"),
        }
    }

    /// The condition on which some read of a core has this bound.
    pub(super) fn was_seen(&self, core: &Core, bound: &str) -> String {
        let (operator, value) = bound.split_once(' ').unwrap_or(("=", "0"));
        let reads = self.reads.all().iter().filter(|read| read.core == *core);
        reads.fold("false".to_owned(), |all, read| {
            or(&all, &format!("({operator} {} {value})", read.name))
        })
    }

    /// The script that has a model where all these hold.
    pub fn script(&self, asserted: &[String]) -> String {
        let mut script = String::from("(set-logic ALL)\n");
        for (name, sort) in &self.declared {
            let _ = writeln!(script, "(declare-const {name} {sort})");
        }
        for read in self.reads.all() {
            let name = &read.name;
            let _ = writeln!(script, "(declare-const {name} Int)\n(assert (>= {name} 0))");
            for (core, bound) in &self.reads.bounds {
                if *core == read.core {
                    let (operator, value) = bound.split_once(' ').unwrap_or(("=", "0"));
                    let _ = writeln!(script, "(assert ({operator} {name} {value}))");
                }
            }
        }
        for assumed in self.assumed.iter().chain(asserted) {
            let _ = writeln!(script, "(assert {assumed})");
        }
        script.push_str("(check-sat)\n");
        script
    }

    /// The parameters in a script.
    pub fn shown_parameters(&self, script: &str) -> Vec<(String, String)> {
        let named = self.policy.parameters.iter().map(|parameter| {
            let name = format!("param_{}", parameter.name);
            (name, parameter.name.clone())
        });
        // It is declared, and has a range: more than that is a use.
        let used = named.filter(|(name, _)| script.matches(name.as_str()).count() > 2);
        used.collect()
    }

    /// What holds in a small machine: up to [`SMALL`] threads on a core, each of the default
    /// weight, with the defaults of all parameters.
    pub fn small(&self) -> Vec<String> {
        let reads = self.reads.all().iter();
        let reads = reads.map(|read| format!("(<= {} {SMALL})", read.name));
        let lengths = self.lengths.iter().flatten();
        let lengths = lengths.map(|length| format!("(<= {length} {SMALL})"));
        let parameters = self.policy.parameters.iter().map(|parameter| {
            let (name, default) = (&parameter.name, number(parameter.default));
            format!("(= param_{name} {default})")
        });
        let weights = self
            .weights
            .iter()
            .map(|weight| format!("(= {weight} 1024)"));
        reads
            .chain(lengths)
            .chain(parameters)
            .chain(weights)
            .collect()
    }

    /// What a counterexample of a script shows: the reads of cores, and the parameters in it.
    pub fn shown(&self, script: &str) -> Vec<(String, String)> {
        let mut shown = Vec::new();
        for read in self.reads.all() {
            let core = match &read.core {
                Core::Local(id) => self.locals[*id].name.clone(),
                Core::Waker => "waker()".into(),
                _ => "a core".into(),
            };
            let text = match read.what {
                "count" => format!("count({core})"),
                what => format!("{core}.{what}"),
            };
            shown.push((read.name.clone(), text));
        }
        shown.extend(self.shown_parameters(script));
        if let Some(load) = self.load_name() {
            shown.push((load.to_owned(), "the thread's load".into()));
        }
        shown
    }
}
