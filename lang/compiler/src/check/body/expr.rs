// SPDX-License-Identifier: GPL-2.0-only
//! Expressions in bodies: names, types, and what each needs of the machine.

use super::super::{Meaning, Progress, TAKEN};
use super::BodyChecker;
use super::Phase;
use crate::ast::{self, Binary, ExprKind as Written};
use crate::diagnostic::{Diagnostic, Span};
use crate::hir::*;

impl<'a> BodyChecker<'_, 'a> {
    /// An expression of this type.
    pub fn expect(&mut self, expr: &'a ast::Expr, of: Type) -> Expr {
        let found = self.expr(expr);
        self.fits(&found, of);
        found
    }

    pub(super) fn fits(&mut self, expr: &Expr, of: Type) {
        let is_fit = expr.of == of
            || matches!(expr.of, Type::Wrong)
            || of == Type::Wrong
            || (of == Type::MaybeThread && expr.of == Type::Thread)
            || (of == Type::MaybeCore && expr.of == Type::Core);
        if is_fit {
            return;
        }
        let message = format!(
            "this is {}, not {}",
            self.checker.called(expr.of),
            self.checker.called(of)
        );
        let help = match (expr.of, of) {
            (Type::MaybeThread, Type::Thread) | (Type::MaybeCore, Type::Core) => {
                "test it first: if (valid(NAME)) { .. }"
            }
            (Type::Int, Type::Time) => "a time has a unit: 10ms, 500us",
            (Type::Time, Type::Int) => "divide it by a time: t / 1ms",
            _ => "",
        };
        self.error(expr.span, message, help);
    }

    pub fn expr(&mut self, expr: &'a ast::Expr) -> Expr {
        let span = expr.span;
        let make = |kind, of| Expr { span, kind, of };
        match &expr.kind {
            Written::Int(value) => make(ExprKind::Int(*value), Type::Int),
            Written::Time(value) => make(ExprKind::Int(*value), Type::Time),
            Written::Bool(value) => make(ExprKind::Bool(*value), Type::Bool),
            Written::Name(name) => self.name(&name.text, span),
            Written::Field(base, field) => self.field(base, field, span),
            Written::Call(name, arguments) => self.call(name, arguments, span),
            Written::First(set, order) => self.first(set, order.as_ref(), span),
            Written::Not(of) => {
                let of = self.expect(of, Type::Bool);
                make(ExprKind::Not(Box::new(of)), Type::Bool)
            }
            Written::Negate(of) => {
                let of = self.expr(of);
                if !matches!(of.kind, ExprKind::Int(_)) {
                    self.computes(span);
                }
                if !matches!(of.of, Type::Int | Type::Time | Type::Wrong) {
                    self.fits(&of, Type::Int);
                }
                let kind = of.of;
                make(ExprKind::Negate(Box::new(of)), kind)
            }
            Written::Binary(a, operator, b) => self.binary(a, *operator, b, span),
            Written::Wrong => Self::wrong(span),
        }
    }

    fn name(&mut self, name: &str, span: Span) -> Expr {
        let make = |kind, of| Expr { span, kind, of };
        if let Some(id) = self.find(name) {
            return make(ExprKind::Local(id), self.locals[id].kind);
        }
        if name == "self" {
            self.need_lock(span, "`self`");
            return make(ExprKind::SelfCore, Type::Core);
        }
        if self.checker.current == Some(name) {
            self.need_lock(span, "the running thread");
            return make(ExprKind::Current, Type::MaybeThread);
        }
        let policy = &self.checker.policy;
        if let Some(queue) = policy.queues.iter().position(|it| it.name == name) {
            self.need_lock(span, &format!("the queue `{name}`"));
            return make(ExprKind::Queue(queue), Type::Threads);
        }
        if let Some(index) = policy.core.iter().position(|it| it.name == name) {
            let of = policy.core[index].kind;
            self.need_lock(span, &format!("the core's `{name}`"));
            return make(ExprKind::CoreAttribute(index), of);
        }
        match self.checker.names.get(name) {
            Some((Meaning::Const(value, of), _)) => make(ExprKind::Int(*value), *of),
            Some((Meaning::Parameter(index), _)) => {
                let of = policy.parameters[*index].kind;
                make(ExprKind::Parameter(*index), of)
            }
            Some((Meaning::EnumValue(index, value), _)) => {
                make(ExprKind::Int(*value), Type::Enum(*index))
            }
            Some((Meaning::Function(_), at)) => {
                let diagnostic = Diagnostic::error(span, format!("`{name}` is a function"));
                self.checker.report(
                    diagnostic
                        .note(*at, "declared here")
                        .help("call it: NAME(..)"),
                );
                Self::wrong(span)
            }
            None if self.gone.contains(&name) => {
                self.error(
                    span,
                    format!("`{name}` is not known here any more"),
                    "the thread's core is chosen first, and the rest runs later, under the lock of \
                     that core: keep the value in an attribute of the thread",
                );
                Self::wrong(span)
            }
            None => {
                let help = match self.nearest(name) {
                    Some(near) => format!("is it `{near}`?"),
                    None => String::new(),
                };
                self.error(span, format!("there is no `{name}` here"), &help);
                Self::wrong(span)
            }
        }
    }

    /// A name that is written almost the same.
    fn nearest(&self, name: &str) -> Option<String> {
        let policy = &self.checker.policy;
        let mut known: Vec<&str> = self.names.iter().map(|(name, _)| *name).collect();
        known.extend(policy.queues.iter().map(|it| it.name.as_str()));
        known.extend(policy.core.iter().map(|it| it.name.as_str()));
        known.extend(self.checker.names.keys());
        known.extend(self.checker.current);
        nearest(name, &known)
    }

    /// Is this the core whose lock is held?
    fn is_here(&self, core: &Expr) -> bool {
        match core.kind {
            ExprKind::SelfCore => true,
            ExprKind::Local(id) => self.here == Some(id),
            _ => false,
        }
    }

    fn field(&mut self, base: &'a ast::Expr, field: &'a ast::Name, span: Span) -> Expr {
        let base = self.expr(base);
        let make = |kind, of| Expr { span, kind, of };
        let text = field.text.as_str();
        match base.of {
            Type::Thread => {
                let fact = match text {
                    "nice" => Some((ThreadFact::Nice, Type::Int)),
                    "weight" => Some((ThreadFact::Weight, Type::Int)),
                    "runtime" => Some((ThreadFact::Runtime, Type::Time)),
                    _ => None,
                };
                if let Some((fact, of)) = fact {
                    return make(ExprKind::Thread(Box::new(base), fact), of);
                }
                if text == "core" {
                    if self.phase != Phase::Place {
                        self.error(
                            span,
                            "where a thread ran last is known only while its core is chosen",
                            "keep it in an attribute: thread { core last; }",
                        );
                    }
                    return make(ExprKind::Wakeup(Wakeup::Last), Type::Core);
                }
                let attributes = &self.checker.policy.thread;
                match attributes.iter().position(|it| it.name == text) {
                    Some(index) => {
                        let of = attributes[index].kind;
                        make(ExprKind::ThreadAttribute(Box::new(base), index), of)
                    }
                    None => {
                        let mut known: Vec<&str> =
                            attributes.iter().map(|it| it.name.as_str()).collect();
                        known.extend(["nice", "weight", "runtime", "core"]);
                        let help = format!("a thread has {}", known.join(", "));
                        let message = format!("threads have no attribute `{text}`");
                        self.error(field.span, message, &help);
                        Self::wrong(span)
                    }
                }
            }
            Type::Core => self.core_field(base, field, span),
            Type::MaybeThread | Type::MaybeCore => {
                let message = format!("this may be {}", self.checker.called(base.of));
                let message = message.replace("may be a", "is a");
                let help = "test it first: if (valid(NAME)) { .. }";
                self.error(base.span, message, help);
                Self::wrong(span)
            }
            Type::Wrong => Self::wrong(span),
            other => {
                let message = format!("{} has no attributes", self.checker.called(other));
                self.error(span, message, "");
                Self::wrong(span)
            }
        }
    }

    fn core_field(&mut self, core: Expr, field: &'a ast::Name, span: Span) -> Expr {
        let make = |kind, of| Expr { span, kind, of };
        let text = field.text.as_str();
        if text == "cload" {
            self.need(Needs::Seen);
            return make(ExprKind::Cload(Box::new(core)), Type::Int);
        }
        let policy = &self.checker.policy;
        let attribute = policy.core.iter().position(|it| it.name == text);
        let queue = policy.queues.iter().position(|it| it.name == text);
        if attribute.is_none() && queue.is_none() {
            let known = policy.core.iter().map(|it| it.name.as_str());
            let known = known.chain(policy.queues.iter().map(|it| it.name.as_str()));
            let known: Vec<&str> = known.chain(["cload"]).collect();
            let help = match text {
                "count" => "write count(CORE)".to_owned(),
                _ => format!("a core has {}", known.join(", ")),
            };
            self.error(field.span, format!("cores have no `{text}`"), &help);
            return Self::wrong(span);
        }
        if !self.is_here(&core) {
            self.need(Needs::Seen);
            self.error(
                span,
                format!("`{text}` of another core cannot be seen without its lock"),
                "without its lock, a core shows its `cload` and its `count` only",
            );
            return Self::wrong(span);
        }
        self.need_lock(span, &format!("the core's `{text}`"));
        match (attribute, queue) {
            (Some(index), _) => {
                let of = self.checker.policy.core[index].kind;
                make(ExprKind::CoreAttribute(index), of)
            }
            (None, Some(queue)) => make(ExprKind::Queue(queue), Type::Threads),
            (None, None) => Self::wrong(span),
        }
    }

    /// A set. A domain is one of cores.
    pub(super) fn set(&mut self, expr: &'a ast::Expr) -> Expr {
        let set = self.expr(expr);
        match set.of {
            Type::Domain => {
                self.need(Needs::Seen);
                Expr {
                    span: set.span,
                    kind: ExprKind::Cores(Cores::Domain, Some(Box::new(set))),
                    of: Type::Cores,
                }
            }
            _ => set,
        }
    }

    fn first(&mut self, set: &'a ast::Expr, order: Option<&'a ast::Order>, span: Span) -> Expr {
        let set = self.set(set);
        let of = match set.of {
            Type::Threads => Type::MaybeThread,
            Type::Cores => Type::MaybeCore,
            Type::Wrong => return Self::wrong(span),
            _ => {
                let message = format!("{} has no first", self.checker.called(set.of));
                self.error(set.span, message, "give a queue or a set of cores");
                return Self::wrong(span);
            }
        };
        let order = self.order(order, set.of);
        Expr {
            span,
            kind: ExprKind::First(Box::new(set), order),
            of,
        }
    }

    pub(super) fn order(&mut self, order: Option<&'a ast::Order>, of: Type) -> Option<Order> {
        let order = order?;
        self.need(Needs::Seen);
        self.checker.key(order, of)
    }

    fn binary(&mut self, a: &'a ast::Expr, operator: Binary, b: &'a ast::Expr, span: Span) -> Expr {
        let (a, b) = (self.expr(a), self.expr(b));
        let of = self.result_of(&a, operator, &b, span);
        if operator.level() >= Binary::Add.level() {
            self.computes(span);
        }
        if matches!(operator, Binary::Divide | Binary::Remainder) && !self.is_positive(&b) {
            self.error(
                b.span,
                "this may be 0, and nothing can be divided by it",
                "divide by a number above 0, a weight, a parameter whose range begins above 0, or \
                 max(1, ..)",
            );
        }
        Expr {
            span,
            kind: ExprKind::Binary(Box::new(a), operator, Box::new(b)),
            of,
        }
    }

    pub(super) fn result_of(&mut self, a: &Expr, operator: Binary, b: &Expr, span: Span) -> Type {
        use Type::{Bool, Core, Int, Thread, Time, Wrong};
        if a.of == Wrong || b.of == Wrong {
            return match operator {
                Binary::Add | Binary::Subtract | Binary::Multiply => Wrong,
                Binary::Divide | Binary::Remainder => Wrong,
                _ => Bool,
            };
        }
        let is_number = |of| matches!(of, Int | Time);
        let result = match operator {
            Binary::Add | Binary::Subtract | Binary::Remainder if a.of == b.of => {
                is_number(a.of).then_some(a.of)
            }
            Binary::Multiply => match (a.of, b.of) {
                (Int, of) | (of, Int) if is_number(of) => Some(of),
                _ => None,
            },
            Binary::Divide => match (a.of, b.of) {
                (of, Int) if is_number(of) => Some(of),
                (Time, Time) => Some(Int),
                _ => None,
            },
            Binary::Less | Binary::LessOrEqual | Binary::More | Binary::MoreOrEqual => {
                (a.of == b.of && is_number(a.of)).then_some(Bool)
            }
            Binary::Equal | Binary::NotEqual => {
                let can = matches!(a.of, Int | Time | Bool | Type::Enum(_) | Core | Thread);
                (a.of == b.of && can).then_some(Bool)
            }
            Binary::And | Binary::Or => (a.of == Bool && b.of == Bool).then_some(Bool),
            _ => None,
        };
        result.unwrap_or_else(|| {
            let message = format!(
                "`{}` does not go with {} and {}",
                operator.text(),
                self.checker.called(a.of),
                self.checker.called(b.of)
            );
            let help = match (a.of, b.of) {
                (Int, Time) | (Time, Int) => "a time has a unit: 10ms, 500us",
                (Type::MaybeThread, _)
                | (_, Type::MaybeThread)
                | (Type::MaybeCore, _)
                | (_, Type::MaybeCore) => "test it first: if (valid(NAME)) { .. }",
                _ => "",
            };
            self.error(span, message, help);
            Wrong
        })
    }

    /// Is the value above 0 in any case?
    fn is_positive(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Int(value) => *value > 0,
            ExprKind::Thread(_, ThreadFact::Weight) => true,
            ExprKind::Parameter(index) => {
                let range = self.checker.policy.parameters[*index].range;
                range.is_some_and(|(least, _)| least > 0)
            }
            ExprKind::Max(a, b) => self.is_positive(a) || self.is_positive(b),
            ExprKind::Min(a, b) => self.is_positive(a) && self.is_positive(b),
            ExprKind::Binary(a, Binary::Multiply | Binary::Add, b) => {
                self.is_positive(a) && self.is_positive(b)
            }
            _ => expr.of == Type::Wrong,
        }
    }

    fn call(&mut self, name: &'a ast::Name, arguments: &'a [ast::Expr], span: Span) -> Expr {
        let make = |kind, of| Expr { span, kind, of };
        let text = name.text.as_str();
        let count = match text {
            "now" | "waker" | "is_sync" | "system_cores" | "idle_cores" => Some(0),
            "valid" | "count" | "random" | "llc" | "node" | "siblings" | "domains" => Some(1),
            "min" | "max" => Some(2),
            _ => None,
        };
        let Some(count) = count else {
            return self.call_function(name, arguments, span);
        };
        if !self.has_arguments(arguments, count, text, span) {
            return Self::wrong(span);
        }
        match text {
            "now" => {
                self.need(Needs::Seen);
                make(ExprKind::Now, Type::Time)
            }
            "waker" | "is_sync" => {
                if self.phase != Phase::Place {
                    let message = format!("`{text}()` is known only while a core is chosen");
                    self.error(span, message, "use it before the thread is moved");
                }
                let (fact, of) = match text {
                    "waker" => (Wakeup::Waker, Type::Core),
                    _ => (Wakeup::IsSync, Type::Bool),
                };
                make(ExprKind::Wakeup(fact), of)
            }
            "system_cores" | "idle_cores" => {
                self.need(Needs::Seen);
                let which = match text {
                    "system_cores" => Cores::All,
                    _ => Cores::Idle,
                };
                make(ExprKind::Cores(which, None), Type::Cores)
            }
            "llc" | "node" | "siblings" => {
                self.need(Needs::Seen);
                let of = Box::new(self.expect(&arguments[0], Type::Core));
                let which = match text {
                    "llc" => Cores::Llc,
                    "node" => Cores::Node,
                    _ => Cores::Siblings,
                };
                make(ExprKind::Cores(which, Some(of)), Type::Cores)
            }
            "domains" => {
                self.need(Needs::Seen);
                let of = Box::new(self.expect(&arguments[0], Type::Core));
                make(ExprKind::Domains(of), Type::Domains)
            }
            "valid" => {
                let of = self.expr(&arguments[0]);
                if !matches!(of.of, Type::MaybeThread | Type::MaybeCore | Type::Wrong) {
                    let message = format!("{} is always valid", self.checker.called(of.of));
                    self.error(of.span, message, "remove the test");
                }
                make(ExprKind::Valid(Box::new(of)), Type::Bool)
            }
            "count" => {
                let of = self.expr(&arguments[0]);
                match of.of {
                    Type::Core => {
                        self.need(Needs::Seen);
                        make(ExprKind::Count(Box::new(of)), Type::Int)
                    }
                    Type::Threads => match of.kind {
                        ExprKind::Queue(queue) => make(ExprKind::Waiting(queue), Type::Int),
                        _ => Self::wrong(span),
                    },
                    Type::Wrong => Self::wrong(span),
                    other => {
                        let message = format!("{} has no count", self.checker.called(other));
                        self.error(of.span, message, "give a core or a queue");
                        Self::wrong(span)
                    }
                }
            }
            "random" => {
                self.need(Needs::Seen);
                let most = self.expect(&arguments[0], Type::Int);
                make(ExprKind::Random(Box::new(most)), Type::Int)
            }
            _ => {
                let (a, b) = (self.expr(&arguments[0]), self.expr(&arguments[1]));
                if !matches!(a.of, Type::Int | Type::Time | Type::Wrong) {
                    self.fits(&a, Type::Int);
                } else {
                    self.fits(&b, a.of);
                }
                let of = a.of;
                let (a, b) = (Box::new(a), Box::new(b));
                match text {
                    "min" => make(ExprKind::Min(a, b), of),
                    _ => make(ExprKind::Max(a, b), of),
                }
            }
        }
    }

    pub(super) fn has_arguments(
        &mut self,
        arguments: &[ast::Expr],
        count: usize,
        name: &str,
        span: Span,
    ) -> bool {
        if arguments.len() == count {
            return true;
        }
        let message = format!(
            "`{name}` takes {count} argument{}, not {}",
            if count == 1 { "" } else { "s" },
            arguments.len()
        );
        self.error(span, message, "");
        false
    }

    fn call_function(
        &mut self,
        name: &'a ast::Name,
        arguments: &'a [ast::Expr],
        span: Span,
    ) -> Expr {
        let text = name.text.as_str();
        let Some((Meaning::Function(index), declared)) = self.checker.names.get(text).copied()
        else {
            if matches!(text, "resched" | "set_timer" | "steal_for") {
                self.error(
                    span,
                    format!("`{text}` is a statement, and has no value"),
                    "",
                );
                return Self::wrong(span);
            }
            let functions = self.checker.written.iter().map(|it| it.name.text.as_str());
            let mut known: Vec<&str> = functions.collect();
            known.extend(TAKEN);
            let help = match nearest(text, &known) {
                Some(near) => format!("is it `{near}`?"),
                None => String::new(),
            };
            self.error(name.span, format!("there is no function `{text}`"), &help);
            return Self::wrong(span);
        };
        match self.checker.progress[index] {
            Progress::Begun => {
                let message = format!("`{text}` calls itself, perhaps by others");
                let diagnostic = Diagnostic::error(span, message)
                    .note(declared, "declared here")
                    .help("a policy has no recursion: use foreach");
                self.checker.report(diagnostic);
                return Self::wrong(span);
            }
            Progress::NotBegun => self.checker.function(index),
            Progress::Done => {}
        }
        let Some(position) = self
            .checker
            .policy
            .functions
            .iter()
            .position(|it| it.name == text)
        else {
            return Self::wrong(span);
        };
        let function = &self.checker.policy.functions[position];
        let (needs, changes, result) = (function.needs, function.changes, function.result);
        let kinds: Vec<Type> = function
            .parameters
            .iter()
            .map(|id| function.body.locals[*id].kind)
            .collect();
        if !self.has_arguments(arguments, kinds.len(), text, span) {
            return Self::wrong(span);
        }
        let arguments: Vec<Expr> = arguments
            .iter()
            .zip(kinds)
            .map(|(argument, kind)| self.expect(argument, kind))
            .collect();
        if needs == Needs::Lock {
            self.need_lock(span, &format!("what `{text}` uses"));
        }
        self.computes(span);
        self.need(needs);
        if changes {
            self.change(span);
        }
        Expr {
            span,
            kind: ExprKind::Call(position, arguments),
            of: result,
        }
    }

    /// Reports a computation in a hint: programs send hints as often as they like, so its results
    /// could grow until they do not fit.
    pub(super) fn computes(&mut self, span: Span) {
        if self.phase == Phase::Hint {
            self.error(
                span,
                "a hint does not compute: it compares, and keeps values",
                "keep the value in an attribute of the thread, and compute in a handler",
            );
        }
    }

    /// Attributes change here.
    pub(super) fn change(&mut self, span: Span) {
        self.changes = true;
        if matches!(self.phase, Phase::Place | Phase::Observe | Phase::Balance) {
            self.error(
                span,
                "nothing can be changed here: no core's lock is held",
                "change attributes where the thread is moved, or after that",
            );
        }
    }
}

/// The known name that is nearest to this one, if it is near.
fn nearest(name: &str, known: &[&str]) -> Option<String> {
    let best = known
        .iter()
        .map(|other| (distance(name, other), *other))
        .min()?;
    (best.0 <= name.len() / 3).then(|| best.1.to_owned())
}

/// How many letters differ (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
