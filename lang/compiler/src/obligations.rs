// SPDX-License-Identifier: GPL-2.0-only
//! What must be true of a policy so that no core idles while another has two threads, as goals in
//! SMT-LIB (`docs/language/proofs.md`).
//!
//! A goal is a formula that has no model if the obligation holds. A model is a counterexample.
//!
//! **Stale reads.** A read of another core's `cload` or count, without its lock, may return an old
//! value. So each read in the text is a variable of its own. What is known of a core is known of
//! each of its reads: while it has no thread, each read is 0 from the moment on at which the
//! operation began, and so on. Under the lock of a core, its own values do not change.

mod symbols;
mod turns;
mod why;

use crate::diagnostic::Span;
use crate::hir::*;
pub use symbols::SMALL;
use symbols::{Core, Evaluator, Loop, Reads, Value};
pub use why::module as why3_module;

/// Something that must hold.
#[derive(Clone, Debug)]
pub struct Goal {
    pub property: Property,
    /// One word or two, such as `filter`.
    pub name: &'static str,
    /// What must hold, in the policy's terms.
    pub must: String,
    /// The part of the policy that it is about.
    pub span: Span,
    /// A script in SMT-LIB that answers `unsat` if it holds.
    pub script: String,
    /// What holds in a small machine, with up to [`SMALL`] threads on a core.
    pub small: Vec<String>,
    /// The variables that a counterexample gives values to, and what they are.
    pub shown: Vec<(String, String)>,
}

/// What is proved by several goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Property {
    /// After a balancing, no core idles while another has two threads.
    Balancing,
    /// A thread that is placed on a core with another thread saw no idle core.
    Placement,
    /// A waiting thread runs at some time.
    Turns,
}

impl Property {
    pub const ALL: [Self; 3] = [Self::Balancing, Self::Placement, Self::Turns];

    /// As the table of results has it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Balancing => "balancing leaves no core idle beside two threads",
            Self::Placement => "a thread is placed beside another only if no core idles",
            Self::Turns => "the turn of each waiting thread comes",
        }
    }

    /// Why a policy without goals does not claim it.
    pub const fn why_not(self) -> &'static str {
        match self {
            Self::Balancing => "the policy does not balance",
            Self::Placement => "the policy places no threads",
            Self::Turns => "its queues have no rank",
        }
    }
}

impl Goal {
    /// Does it assume that a waker which is about to sleep does so?
    pub fn trusts_wakers(&self) -> bool {
        let declared = format!("(declare-const {} Bool)", symbols::IS_SYNC);
        self.script.contains(&declared)
    }

    /// What happens in a machine where it does not hold, step by step: the shortest way to a core
    /// that idles beside two threads. `values` are those of a counterexample.
    pub fn story(&self, values: &[(String, String)]) -> Vec<String> {
        const BESIDE: &str = "core 1 has two threads, and core 0 has none: it looks for threads";
        const END: &str = "core 0 stays idle beside the two threads";
        let seen = match values {
            [] => "whatever it sees".to_owned(),
            values => {
                let values = values
                    .iter()
                    .map(|(what, value)| format!("{what} = {value}"));
                format!("with {}", values.collect::<Vec<_>>().join(", "))
            }
        };
        match self.name {
            "filter" => vec![
                BESIDE.to_owned(),
                format!("can_steal_core(1, 0) is false, {seen}: core 1 is passed by"),
                END.to_owned(),
            ],
            "steal" => vec![
                BESIDE.to_owned(),
                "core 1 is selected".to_owned(),
                format!("steal_thread(1, 0, t) does not move the first thread, {seen}"),
                END.to_owned(),
            ],
            "keep one" => vec![
                "core 0 has a thread, which waits, and core 1 takes threads from it".to_owned(),
                format!("steal_thread(0, 1, t) moves this thread, {seen}"),
                "core 0 has none any more. Its own balancing is over, and core 2 has two"
                    .to_owned(),
                END.to_owned(),
            ],
            "until" => vec![
                "core 0 has no thread, cores 1 and 2 have two each, and core 0 looks for threads"
                    .to_owned(),
                "core 1 is selected, but one of its threads sleeps now: it has none to give"
                    .to_owned(),
                format!("until(0) is true, {seen}: core 2 is not asked"),
                END.to_owned(),
            ],
            "newly idle" | "balancing" => vec![
                "core 1 has two threads, and core 0, far from it, has none".to_owned(),
                format!("nothing looks for threads on all cores for core 0, {seen}"),
                END.to_owned(),
            ],
            "turn" => vec![
                "a thread waits in the queue".to_owned(),
                format!("schedule runs one from elsewhere, {seen}, and the rank does not fall"),
                "so this can happen again and again, and the thread waits forever".to_owned(),
            ],
            "rank" => vec![
                "a thread waits in the queue".to_owned(),
                format!("the handler raises the rank, {seen}"),
                "so turns may go elsewhere again and again, and the thread waits forever"
                    .to_owned(),
            ],
            "entry" => vec![
                "a thread waits in the queue".to_owned(),
                format!("another comes with an earlier time than now(), {seen}"),
                "so others may pass the thread again and again, and it waits forever".to_owned(),
            ],
            _ => vec![
                "a thread is placed while core 0 has none".to_owned(),
                "core 1 is chosen, though it was not seen without a thread: it has one".to_owned(),
                "core 1 has two threads now, and core 0 has none".to_owned(),
            ],
        }
    }
}

/// The goals of a policy.
pub fn goals(policy: &Policy) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(steal) = &policy.steal {
        goals.push(filter(policy, steal));
        goals.push(migrates(policy, steal));
        goals.push(keeps_one(policy, steal));
        goals.push(until(policy, steal));
        let Handlers {
            newly_idle,
            balancing,
            ..
        } = &policy.handlers;
        goals.extend(newly_idle.as_ref().map(|it| idle(policy, steal, it)));
        goals.push(each_idle(policy, steal, balancing.as_ref()));
    }
    for (name, placed) in [
        ("placement of new", &policy.handlers.new),
        ("placement of unblock", &policy.handlers.unblock),
    ] {
        goals.extend(placed.as_ref().map(|placed| place(policy, name, placed)));
    }
    goals.extend(turns::goals(policy));
    goals
}

/// Are all loads 1?
pub fn has_unit_loads(policy: &Policy) -> bool {
    let Some(load) = policy.load else { return true };
    let is_one = policy.thread[load]
        .initial
        .as_ref()
        .is_some_and(|it| matches!(it.kind, ExprKind::Int(1)));
    is_one && !symbols::assigns(policy, load)
}

/// `rs >= 2` and `rd = 0`: each read of `src` shows two threads, each of `dst` none.
fn two_and_none(reads: &mut Reads, src: LocalId, dst: LocalId) {
    reads.bound(Core::Local(src), ">= 2");
    reads.bound(Core::Local(dst), "= 0");
}

fn filter(policy: &Policy, steal: &Steal) -> Goal {
    let function = &steal.can_steal_core;
    let (src, dst) = (function.parameters[0], function.parameters[1]);
    let mut evaluator = Evaluator::new(policy, &function.body);
    two_and_none(&mut evaluator.reads, src, dst);
    let passes = evaluator.condition(&function.body);
    let script = evaluator.script(&[format!("(not {passes})")]);
    Goal {
        property: Property::Balancing,
        name: "filter",
        must: "can_steal_core accepts a core with two threads, for one with none".into(),
        span: span_of(&function.body, steal.span),
        shown: evaluator.shown(&script),
        small: evaluator.small(),
        script,
    }
}

/// The evaluator for `steal_thread`, and the condition on which the thread moves.
fn moves<'p>(
    policy: &'p Policy,
    steal: &'p StealThread,
    bounds: impl FnOnce(&mut Reads),
) -> (Evaluator<'p>, String) {
    let mut evaluator = Evaluator::new(policy, &steal.body);
    evaluator
        .reads
        .lock(Core::Local(steal.src), has_unit_loads(policy));
    bounds(&mut evaluator.reads);
    evaluator.thread_load(steal.thread, steal.src);
    let moves = evaluator.moves(&steal.body);
    (evaluator, moves)
}

fn migrates(policy: &Policy, steal: &Steal) -> Goal {
    let thread = &steal.steal_thread;
    let (evaluator, moves) = moves(policy, thread, |reads| {
        two_and_none(reads, thread.src, thread.dst);
    });
    let script = evaluator.script(&[format!("(not {moves})")]);
    Goal {
        property: Property::Balancing,
        name: "steal",
        must: "steal_thread moves a thread from a core with two threads to one with none".into(),
        span: span_of(&thread.body, steal.span),
        shown: evaluator.shown(&script),
        small: evaluator.small(),
        script,
    }
}

fn keeps_one(policy: &Policy, steal: &Steal) -> Goal {
    let thread = &steal.steal_thread;
    let (mut evaluator, moves) = moves(policy, thread, |_| {});
    let count = evaluator.reads.count(Core::Local(thread.src));
    let script = evaluator.script(&[moves, format!("(< {count} 2)")]);
    Goal {
        property: Property::Balancing,
        name: "keep one",
        must: "steal_thread moves no thread from a core that has only one".into(),
        span: span_of(&thread.body, steal.span),
        shown: evaluator.shown(&script),
        small: evaluator.small(),
        script,
    }
}

fn until(policy: &Policy, steal: &Steal) -> Goal {
    let function = &steal.until;
    let mut evaluator = Evaluator::new(policy, &function.body);
    evaluator
        .reads
        .bound(Core::Local(function.parameters[0]), "= 0");
    let stops = evaluator.condition(&function.body);
    let script = evaluator.script(&[stops]);
    Goal {
        property: Property::Balancing,
        name: "until",
        must: "until is false while the core has no thread".into(),
        span: span_of(&function.body, steal.span),
        shown: evaluator.shown(&script),
        small: evaluator.small(),
        script,
    }
}

/// If a core has no thread, `newly_idle` searches all cores.
fn idle(policy: &Policy, steal: &Steal, handler: &Handler) -> Goal {
    let mut evaluator = Evaluator::new(policy, &handler.body);
    let core = Core::Local(handler.subject);
    evaluator.run(&handler.body.statements);
    evaluator.reads.bound(core.clone(), "= 0");
    let is_searched = evaluator.is_searched(&core);
    let script = evaluator.script(&[format!("(not {is_searched})")]);
    Goal {
        property: Property::Balancing,
        name: "newly idle",
        must: "newly_idle looks for threads on all cores, until it has seen one on its core".into(),
        span: span_of(&handler.body, steal.span),
        shown: evaluator.shown(&script),
        small: evaluator.small(),
        script,
    }
}

/// For each core without a thread, `balancing` searches all cores. If no loop does that, this does
/// not hold, and if several do, the first is looked at.
fn each_idle(policy: &Policy, steal: &Steal, handler: Option<&Handler>) -> Goal {
    let mut goal = Goal {
        property: Property::Balancing,
        name: "balancing",
        must: "balancing looks for threads on all cores, for each idle core".into(),
        span: steal.span,
        script: "(check-sat)\n".into(),
        small: Vec::new(),
        shown: Vec::new(),
    };
    let Some(handler) = handler else {
        return goal;
    };
    goal.span = span_of(&handler.body, steal.span);
    let mut evaluator = Evaluator::new(policy, &handler.body);
    evaluator.run(&handler.body.statements);
    let loops = std::mem::take(&mut evaluator.loops);
    let searches = |it: &Loop| evaluator.sweeps.iter().any(|sweep| sweep.of == it.member);
    let Some(first) = loops.into_iter().find(searches) else {
        return goal;
    };
    let is_searched = evaluator.is_searched(&first.member);
    // Of this core alone it is known that it has no thread.
    evaluator.reads.bound(first.member, "= 0");
    goal.script = evaluator.script(&[first.comes, format!("(not {is_searched})")]);
    goal.small = evaluator.small();
    goal.shown = evaluator.shown(&goal.script);
    goal
}

/// The core that is chosen was seen idle, or with only the waker, which is about to sleep; or it is
/// the lowest of all cores, or all were seen busy.
fn place(policy: &Policy, name: &'static str, placed: &Placed) -> Goal {
    let must = "the core that is chosen was seen without a thread, or all were seen with one";
    let Some(place) = &placed.place else {
        return Goal {
            property: Property::Placement,
            name,
            must: must.into(),
            span: placed
                .update
                .statements
                .first()
                .map(|it| it.span)
                .unwrap_or_default(),
            // The thread stays where it was.
            script: "(check-sat)\n".into(),
            small: Vec::new(),
            shown: Vec::new(),
        };
    };
    let mut evaluator = Evaluator::new(policy, &place.body);
    let mut path = evaluator.run(&place.body.statements);
    let chosen = evaluator.value(&place.core, &mut path);
    let is_good = match chosen {
        Value::Core(core) => evaluator.is_good(&core),
        _ => "false".into(),
    };
    let script = evaluator.script(&[format!("(not {is_good})")]);
    Goal {
        property: Property::Placement,
        name,
        must: must.into(),
        span: place.core.span,
        shown: evaluator.shown(&script),
        small: evaluator.small(),
        script,
    }
}

fn span_of(body: &Body, otherwise: Span) -> Span {
    let first = body.statements.first().map(|it| it.span);
    let last = body.statements.last().map(|it| it.span);
    match (first, last, &body.value) {
        (_, _, Some(value)) => first.map_or(value.span, |first| first.to(value.span)),
        (Some(first), Some(last), None) => first.to(last),
        _ => otherwise,
    }
}
