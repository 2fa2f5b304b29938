// SPDX-License-Identifier: GPL-2.0-only
//! What must be true of a policy whose queues have ranks, so that each waiting thread's turn comes
//! (`lang/proofs/turns.mlw`).
//!
//! A rank is a list of numbers and times, in lexicographic order. While a thread waits in a queue,
//! each turn that goes to a thread elsewhere lowers the queue's rank. A number falls by at
//! least 1, and is not negative then. A time falls as the clock runs, and the turn is given while
//! it is not negative.

use super::symbols::{is_number, Evaluator, Stir};
use super::{span_of, Goal, Property};
use crate::diagnostic::Span;
use crate::hir::*;

/// Variables of the formulas: the time at which the handler begins, and a duration after its end.
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
        for handler in handlers(policy) {
            let span = span_of(handler.body, first.span);
            match handler.name {
                "schedule" => goals.push(turn(policy, index, handler, span)),
                _ => goals.extend(keeps_rank(policy, index, handler, span)),
            }
            let order = queue.order.map(|order| order.by);
            if let Some(Key::Attribute(key)) = order {
                goals.extend(entry(policy, index, key, handler, span));
            }
        }
    }
    goals
}

/// A handler, as far as it updates a core.
#[derive(Clone, Copy)]
struct Updates<'p> {
    name: &'static str,
    body: &'p Body,
    /// The thread that it moves, which is in no queue before.
    subject: Option<LocalId>,
}

/// All handlers, but of a core that goes offline: no thread stays there.
fn handlers(policy: &Policy) -> Vec<Updates<'_>> {
    let of = &policy.handlers;
    let placed = [("new", &of.new), ("unblock", &of.unblock)];
    let placed = placed.into_iter().filter_map(|(name, it)| {
        let it = it.as_ref()?;
        Some(Updates {
            name,
            body: &it.update,
            subject: Some(it.thread),
        })
    });
    let moving = [("preempt", &of.preempt), ("yield", &of.give_way)];
    let moving = moving.into_iter().filter_map(|(name, it)| {
        let it = it.as_ref()?;
        Some(Updates {
            name,
            body: &it.body,
            subject: Some(it.subject),
        })
    });
    let steal = policy.steal.iter().map(|steal| Updates {
        name: "steal_thread",
        body: &steal.steal_thread.body,
        subject: None,
    });
    let others = [
        ("schedule", &of.schedule),
        ("block", &of.block),
        ("terminate", &of.terminate),
        ("tick", &of.tick),
        ("depart", &of.depart),
        ("arrive", &of.arrive),
        ("entry", &of.entry),
        ("timer", &of.timer),
    ];
    let others = others.into_iter().filter_map(|(name, it)| {
        let body = &it.as_ref()?.body;
        Some(Updates {
            name,
            body,
            subject: None,
        })
    });
    placed.chain(moving).chain(steal).chain(others).collect()
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

fn run<'p>(policy: &'p Policy, queue: usize, handler: Updates<'p>) -> Ran<'p> {
    let mut evaluator = Evaluator::new(policy, handler.body);
    if let Some(subject) = handler.subject {
        evaluator.subject(subject);
    }
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
    evaluator.run(&handler.body.statements);
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

/// `schedule` runs the first thread of the queue, or another thread, and the rank falls.
fn turn(policy: &Policy, queue: usize, handler: Updates<'_>, span: Span) -> Goal {
    let mut ran = run(policy, queue, handler);
    let (mut first, mut any) = (Vec::new(), Vec::new());
    for run in std::mem::take(&mut ran.evaluator.runs) {
        let is_first = ran.evaluator.is_first_of(&run.thread, queue);
        first.push(format!("(and {} {is_first})", run.condition));
        let is_there = ran.evaluator.is_there(&run.thread);
        any.push(format!("(and {} {is_there})", run.condition));
    }
    let must = format!(
        "schedule runs the first thread of {}, or another one, and lowers the rank of that queue",
        policy.queues[queue].name
    );
    let wrong = format!(
        "(not (or false {} (and (or false {}) {})))",
        first.join(" "),
        any.join(" "),
        falls(&ran.rank)
    );
    ran.goal("turn", must, span, wrong)
}

/// A handler does not raise the rank. None if it changes no attributes of the core.
fn keeps_rank(policy: &Policy, queue: usize, handler: Updates<'_>, span: Span) -> Option<Goal> {
    let mut ran = run(policy, queue, handler);
    if ran.evaluator.core_terms() == ran.begun {
        return None;
    }
    let must = format!(
        "{} does not raise the rank of {} while a thread waits there",
        handler.name, policy.queues[queue].name
    );
    let wrong = format!("(not {})", does_not_rise(&ran.rank));
    Some(ran.goal("rank", must, span, wrong))
}

/// A thread that enters an ordered queue has a key that has not passed, so it can overtake waiting
/// threads only until then; and no key changes while its thread waits. Threads that come from other
/// cores are left out. None if the handler does nothing of that.
fn entry(
    policy: &Policy,
    queue: usize,
    key: usize,
    handler: Updates<'_>,
    span: Span,
) -> Option<Goal> {
    let ran = run(policy, queue, handler);
    let moves = ran.evaluator.moves.iter();
    let moves = moves.filter(|it| it.queue == queue && handler.name != "steal_thread");
    let early = moves.map(|it| format!("(and {} (< {} {BEGIN}))", it.condition, it.key));
    // A running thread, or one that leaves, is in no queue.
    let is_elsewhere = |at: &Stir| {
        let elsewhere = [
            "tick",
            "block",
            "terminate",
            "depart",
            "arrive",
            "steal_thread",
        ];
        at.is_parameter && elsewhere.contains(&handler.name)
    };
    let stirs = ran.evaluator.stirs.iter();
    let stirs = stirs.filter(|it| it.index == key && !is_elsewhere(it));
    let wrong: Vec<String> = early.chain(stirs.map(|it| it.condition.clone())).collect();
    if wrong.iter().all(|it| it == "false") {
        return None;
    }
    let must = format!(
        "{} puts a thread into {} only with a time that has not passed, and changes no time there",
        handler.name, policy.queues[queue].name
    );
    Some(ran.goal(
        "entry",
        must,
        span,
        format!("(or false {})", wrong.join(" ")),
    ))
}
