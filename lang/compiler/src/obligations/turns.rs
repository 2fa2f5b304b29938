// SPDX-License-Identifier: GPL-2.0-only
//! What must be true of a policy whose queues have ranks, so that each waiting thread's turn comes
//! (`lang/proofs/turns.mlw`).
//!
//! A rank is a list of numbers and times, the first of most weight. While a thread waits in a
//! queue, each turn that goes to a thread elsewhere lowers the queue's rank. A number falls by at
//! least 1, and is not negative then. A time falls as the clock runs, and the turn is given while
//! it is not negative.

use super::symbols::{is_number, Evaluator};
use super::{span_of, Goal, Property};
use crate::diagnostic::Span;
use crate::hir::*;

/// When the handler begins, and a time that passes after its end.
const BEGIN: &str = "begin";
const LATER: &str = "later";

/// A part of a rank: its type, and its value before and after.
struct Part {
    of: Type,
    before: String,
    after: String,
}

impl Part {
    fn does_not_rise(&self) -> String {
        let Self { of, before, after } = self;
        match of {
            Type::Time => format!("(<= (+ {after} {LATER}) {before})"),
            _ => format!("(<= {after} {before})"),
        }
    }

    fn falls(&self) -> String {
        let Self { of, before, after } = self;
        match of {
            Type::Time => format!("(and {} (>= {before} 0))", self.does_not_rise()),
            _ => format!("(and (< {after} {before}) (>= {after} 0))"),
        }
    }
}

/// The rank falls: one part does, and none before it rises.
fn falls(rank: &[Part]) -> String {
    let ways = (0..rank.len()).map(|at| {
        let before = rank[..at].iter().map(Part::does_not_rise);
        let all: Vec<String> = before.chain([rank[at].falls()]).collect();
        format!("(and {})", all.join(" "))
    });
    let ways: Vec<String> = ways.collect();
    format!("(or false {})", ways.join(" "))
}

fn does_not_rise(rank: &[Part]) -> String {
    let all: Vec<String> = rank.iter().map(Part::does_not_rise).collect();
    format!("(or (and true {}) {})", all.join(" "), falls(rank))
}

/// The goals of a policy whose queues have ranks.
pub fn goals(policy: &Policy) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (index, queue) in policy.queues.iter().enumerate() {
        let Some(first) = queue.rank.first() else {
            continue;
        };
        goals.extend(policy.handlers.schedule.as_ref().map(|it| {
            let span = span_of(&it.body, first.span);
            turn(policy, index, &it.body, span)
        }));
        for (handler, body) in others(policy) {
            let span = span_of(body, first.span);
            goals.extend(keeps_rank(policy, index, handler, body, span));
            if queue.order.is_some() {
                goals.extend(entry(policy, index, handler, body, span));
            }
        }
    }
    goals
}

/// The handlers beside `schedule`, as far as they update a core.
fn others(policy: &Policy) -> Vec<(&'static str, &Body)> {
    let of = &policy.handlers;
    let placed = [("new", &of.new), ("unblock", &of.unblock)];
    let placed = placed
        .into_iter()
        .filter_map(|(name, it)| Some((name, &it.as_ref()?.update)));
    let others = [
        ("preempt", &of.preempt),
        ("yield", &of.give_way),
        ("block", &of.block),
        ("terminate", &of.terminate),
        ("tick", &of.tick),
        ("depart", &of.depart),
        ("arrive", &of.arrive),
        ("entry", &of.entry),
        ("timer", &of.timer),
    ];
    let others = others
        .into_iter()
        .filter_map(|(name, it)| Some((name, &it.as_ref()?.body)));
    placed.chain(others).collect()
}

/// A handler that ran, with a thread waiting in the queue all the time.
struct Ran<'p> {
    evaluator: Evaluator<'p>,
    rank: Vec<Part>,
    /// The attributes of the core before.
    begun: Vec<String>,
    /// What a counterexample shows.
    shown: Vec<(String, String)>,
}

fn run<'p>(policy: &'p Policy, queue: usize, body: &'p Body) -> Ran<'p> {
    let mut evaluator = Evaluator::new(policy, body);
    for time in [BEGIN, LATER] {
        evaluator.variable(time);
        evaluator.assume(format!("(>= {time} 0)"));
    }
    evaluator.follow(BEGIN);
    let waiting = evaluator.length(queue);
    evaluator.assume(format!("(>= {waiting} 1)"));
    let begun = evaluator.core_terms();
    let values = policy.core.iter().filter(|it| it.kind != Type::Core);
    let numbers = values.zip(&begun).filter(|(it, _)| is_number(it.kind));
    let mut shown: Vec<(String, String)> = numbers
        .map(|(it, term)| (term.clone(), it.name.clone()))
        .collect();
    let queues = policy.queues.iter().enumerate();
    shown
        .extend(queues.map(|(index, it)| (evaluator.length(index), format!("count({})", it.name))));
    let before = evaluator.rank(queue, BEGIN);
    evaluator.run(&body.statements);
    let end = format!("(+ {} {LATER})", evaluator.last_time());
    let after = evaluator.rank(queue, &end);
    let parts = before.into_iter().zip(after);
    let rank = parts.map(|((of, before), (_, after))| Part { of, before, after });
    Ran {
        rank: rank.collect(),
        begun,
        evaluator,
        shown,
    }
}

impl Ran<'_> {
    fn goal(self, name: &'static str, must: String, span: Span, wrong: String) -> Goal {
        let script = self.evaluator.script(&[wrong]);
        let mut shown = self.shown;
        shown.extend(self.evaluator.shown_parameters(&script));
        let small = self.evaluator.small();
        shown.push((BEGIN.into(), "now()".into()));
        Goal {
            property: Property::Turns,
            name,
            must,
            span,
            script,
            small,
            shown,
        }
    }
}

/// `schedule` runs the first thread of the queue, or the rank falls.
fn turn(policy: &Policy, queue: usize, body: &Body, span: Span) -> Goal {
    let ran = run(policy, queue, body);
    let picks = ran.evaluator.runs.iter().map(|run| {
        let is_first = ran.evaluator.is_first_of(&run.thread, queue);
        format!("(and {} {is_first})", run.condition)
    });
    let picks: Vec<String> = picks.collect();
    let must = format!(
        "schedule runs the first thread of {}, or lowers the rank of that queue",
        policy.queues[queue].name
    );
    let wrong = format!("(not (or false {} {}))", picks.join(" "), falls(&ran.rank));
    ran.goal("turn", must, span, wrong)
}

/// A handler does not raise the rank. None if it changes no attributes of the core.
fn keeps_rank(
    policy: &Policy,
    queue: usize,
    handler: &'static str,
    body: &Body,
    span: Span,
) -> Option<Goal> {
    let mut ran = run(policy, queue, body);
    if ran.evaluator.core_terms() == ran.begun {
        return None;
    }
    let must = format!(
        "{handler} does not raise the rank of {} while a thread waits there",
        policy.queues[queue].name
    );
    let wrong = format!("(not {})", does_not_rise(&ran.rank));
    Some(ran.goal("rank", must, span, wrong))
}

/// A thread that comes to an ordered queue has a time that has not passed, so it passes others for
/// a while at most. None if the handler puts no thread there.
fn entry(
    policy: &Policy,
    queue: usize,
    handler: &'static str,
    body: &Body,
    span: Span,
) -> Option<Goal> {
    let ran = run(policy, queue, body);
    let moves = ran.evaluator.moves.iter().filter(|it| it.queue == queue);
    let early: Vec<String> = moves
        .map(|it| format!("(and {} (< {} {BEGIN}))", it.condition, it.key))
        .collect();
    if early.is_empty() {
        return None;
    }
    let must = format!(
        "{handler} puts a thread into {} only with a time that has not passed",
        policy.queues[queue].name
    );
    Some(ran.goal(
        "entry",
        must,
        span,
        format!("(or false {})", early.join(" ")),
    ))
}
