// SPDX-License-Identifier: GPL-2.0-only
//! A policy's balancing as a module of WhyML, beside the theory in `lang/proofs`: its goals are
//! there, word for word, what the theory assumes of a policy.

use std::fmt::Write;

use super::symbols::{Core, Evaluator};
use super::{has_unit_loads, moves};
use crate::hir::*;

/// The module, or none if the policy does not balance.
pub fn module(policy: &Policy) -> Option<String> {
    let steal = policy.steal.as_ref()?;
    let mut out = String::new();
    let name = policy.name.chars();
    let mut name: Vec<char> = name.collect();
    name[0] = name[0].to_ascii_uppercase();
    let name: String = name.into_iter().collect();
    let _ = writeln!(
        out,
        "(* Written by Baton's compiler from the policy {}. *)\nmodule {name}\n  use int.Int\n  use \
         int.EuclideanDivision\n  use map.Map\n  use core.Core\n",
        policy.name
    );
    if has_unit_loads(policy) {
        out.push_str("  axiom loads_are_1: unit_loads\n\n");
    }

    let filter = &steal.can_steal_core;
    let (src, dst) = (filter.parameters[0], filter.parameters[1]);
    let mut evaluator = Evaluator::new(policy, &filter.body);
    let accepts = evaluator.condition(&filter.body);
    let view = View::of(&evaluator, &[src, dst]);
    let of_src = view.reads.iter().enumerate();
    let of_src: Vec<String> = of_src
        .filter(|(_, (_, core))| *core == src)
        .map(|(at, _)| format!("i = {at}"))
        .collect();
    let of_src = if of_src.is_empty() {
        "false".into()
    } else {
        of_src.join(" || ")
    };
    let _ = writeln!(
        out,
        "  let constant filter_reads : int = {}",
        view.reads.len()
    );
    let _ = writeln!(
        out,
        "  let function filter_of_src (i: int) : bool = {of_src}"
    );
    view.predicate(&mut out, "filter_facts", "", &[], &view.facts());
    view.predicate(&mut out, "accepts", "", &[], &accepts);

    let thread = &steal.steal_thread;
    let (evaluator, takes) = moves(policy, thread, |_| {});
    let view = View::of(&evaluator, &[thread.dst]);
    let _ = writeln!(
        out,
        "  let constant steal_reads : int = {}",
        view.reads.len()
    );
    view.predicate(&mut out, "steal_facts", "", &[], &view.facts());
    // Of `src`, there is one value each.
    let reads = evaluator.reads.all().iter();
    let of_src = reads.filter(|read| read.core == Core::Local(thread.src));
    let mut known: Vec<(&str, &str)> = of_src.map(|it| (it.name.as_str(), it.what)).collect();
    known.extend(evaluator.load_name().map(|load| (load, "load")));
    let parameters = "(count cload load: int) ";
    view.predicate(&mut out, "takes", parameters, &known, &takes);

    let until = &steal.until;
    let mut evaluator = Evaluator::new(policy, &until.body);
    let stops = evaluator.condition(&until.body);
    let view = View::of(&evaluator, &[until.parameters[0]]);
    let _ = writeln!(
        out,
        "  let constant until_reads : int = {}",
        view.reads.len()
    );
    view.predicate(&mut out, "until_facts", "", &[], &view.facts());
    view.predicate(&mut out, "stops", "", &[], &stops);

    out.push_str(
        "\n  clone balance.Policy with\n    val filter_reads, val filter_of_src, predicate \
         filter_facts, predicate accepts,\n    val steal_reads, predicate steal_facts, predicate \
         takes,\n    val until_reads, predicate until_facts, predicate stops,\n    lemma filter, \
         lemma steal, lemma keep_one, lemma until\nend\n",
    );
    Some(out)
}

/// What a function knows, each value with its place.
struct View<'e, 'p> {
    evaluator: &'e Evaluator<'p>,
    /// The reads of the cores that the goals are about, with the core.
    reads: Vec<(String, LocalId)>,
    /// All else, with its sort.
    rest: Vec<(String, &'static str)>,
    /// Reads of further cores: they are not negative.
    others: Vec<String>,
}

impl<'e, 'p> View<'e, 'p> {
    fn of(evaluator: &'e Evaluator<'p>, cores: &[LocalId]) -> Self {
        let mut view = Self {
            evaluator,
            reads: Vec::new(),
            rest: Vec::new(),
            others: Vec::new(),
        };
        for read in evaluator.reads.all() {
            let core = cores.iter().find(|id| read.core == Core::Local(**id));
            match core {
                Some(core) => view.reads.push((read.name.clone(), *core)),
                // Known by another way.
                None if evaluator.reads.is_locked(&read.core) => {}
                None => {
                    view.rest.push((read.name.clone(), "Int"));
                    view.others.push(read.name.clone());
                }
            }
        }
        for (name, sort) in evaluator.declared() {
            if evaluator.load_name() != Some(name.as_str()) {
                view.rest.push((name.clone(), *sort));
            }
        }
        view
    }

    /// What is known of the rest.
    fn facts(&self) -> String {
        let others = self.others.iter().map(|name| format!("(>= {name} 0)"));
        let assumed = self.evaluator.assumed();
        let is_rest = |fact: &&String| {
            let is_known = |name: &str| self.rest.iter().any(|(known, _)| known == name);
            let words = fact.split(['(', ')', ' ']);
            let mut names = words.filter(|word| word.contains('_'));
            names.all(is_known)
        };
        let facts: Vec<String> = others
            .chain(assumed.iter().filter(is_rest).cloned())
            .collect();
        if facts.is_empty() {
            "true".into()
        } else {
            format!("(and true {})", facts.join(" "))
        }
    }

    /// A predicate of the view. `known` are variables that have their values from `parameters`.
    fn predicate(
        &self,
        out: &mut String,
        name: &str,
        parameters: &str,
        known: &[(&str, &str)],
        formula: &str,
    ) {
        let known = known
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let reads = self.reads.iter().map(|(name, _)| (name, "Int"));
        let rest = self.rest.iter().map(|(name, sort)| (name, *sort));
        let of_view = reads.chain(rest).enumerate().map(|(at, (name, sort))| {
            let value = match sort {
                "Bool" => format!("v[{at}] <> 0"),
                _ => format!("v[{at}]"),
            };
            (name.as_str(), value)
        });
        let is_used = |name: &str| formula.split(['(', ')', ' ']).any(|word| word == name);
        let named: String = known
            .chain(of_view)
            .filter(|(name, _)| is_used(name))
            .map(|(name, value)| format!("    let {} = {value} in\n", lower(name)))
            .collect();
        let is_bool = |name: &str| {
            let mut rest = self.rest.iter();
            rest.any(|(known, sort)| known == name && *sort == "Bool")
        };
        let text = Term::parse(&mut words(formula).into_iter()).text(&is_bool);
        let _ = writeln!(
            out,
            "  predicate {name} {parameters}(v: map int int) =\n{named}    {text}"
        );
    }
}

/// A name in WhyML.
fn lower(name: &str) -> String {
    format!("x_{name}")
}

/// A term of SMT-LIB.
enum Term {
    Atom(String),
    /// An operator, and what it is of.
    Of(Vec<Self>),
}

impl Term {
    fn parse(words: &mut impl Iterator<Item = String>) -> Self {
        let word = words.next().unwrap_or_default();
        if word != "(" {
            return Self::Atom(word);
        }
        Self::list(words)
    }

    /// The rest of a list.
    fn list(words: &mut impl Iterator<Item = String>) -> Self {
        let mut parts = Vec::new();
        while let Some(word) = words.next() {
            match word.as_str() {
                "(" => parts.push(Self::list(words)),
                ")" => break,
                _ => parts.push(Self::Atom(word)),
            }
        }
        Self::Of(parts)
    }

    /// In WhyML. `is_bool` says which variables are conditions.
    fn text(&self, is_bool: &dyn Fn(&str) -> bool) -> String {
        let parts = match self {
            Self::Atom(word) if word.contains('_') => return lower(word),
            Self::Atom(word) => return word.clone(),
            Self::Of(parts) => parts,
        };
        let Some((Self::Atom(operator), of)) = parts.split_first() else {
            return String::new();
        };
        let texts: Vec<String> = of.iter().map(|part| part.text(is_bool)).collect();
        let joined = |with: &str| format!("({})", texts.join(with));
        match (operator.as_str(), of) {
            ("and", _) => joined(" /\\ "),
            ("or", _) => joined(" \\/ "),
            ("=>", _) => joined(" -> "),
            ("not", _) => format!("(not {})", texts[0]),
            ("ite", _) => format!("(if {} then {} else {})", texts[0], texts[1], texts[2]),
            ("-", [_]) => format!("(- {})", texts[0]),
            ("div" | "mod", _) => format!("({operator} {} {})", texts[0], texts[1]),
            ("=", [a, _]) if a.is_condition(is_bool) => joined(" <-> "),
            ("<=" | "<" | "=", [_, _, _]) => {
                let (a, b, c) = (&texts[0], &texts[1], &texts[2]);
                format!("({a} {operator} {b} /\\ {b} {operator} {c})")
            }
            (operator, _) => joined(&format!(" {operator} ")),
        }
    }

    /// Is it true or false?
    fn is_condition(&self, is_bool: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Self::Atom(word) => matches!(word.as_str(), "true" | "false") || is_bool(word),
            Self::Of(parts) => match parts.split_first() {
                Some((Self::Atom(operator), of)) => match operator.as_str() {
                    "ite" => of.get(1).is_some_and(|part| part.is_condition(is_bool)),
                    operator => !matches!(operator, "+" | "-" | "*" | "div" | "mod"),
                },
                _ => false,
            },
        }
    }
}

/// The parts of a term of SMT-LIB.
fn words(text: &str) -> Vec<String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    spaced.split_whitespace().map(str::to_owned).collect()
}
