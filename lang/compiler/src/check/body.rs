// SPDX-License-Identifier: GPL-2.0-only
//! Bodies of handlers and functions.

use super::{Checker, Meaning, Progress};
use crate::ast::{self, Assign, Binary, ExprKind as Written, StatementKind as Said};
use crate::diagnostic::{Diagnostic, Span};
use crate::hir::*;

/// What a body may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Chooses a core, without locks.
    Place,
    /// Filters and chooses cores for a steal, without locks.
    Observe,
    /// Moves threads between cores; takes locks itself.
    Balance,
    /// Under the lock of one core.
    Update,
    /// Under that lock, chooses what runs.
    Schedule,
    /// A function, which needs what its body needs.
    Function,
}

/// How often a block moves the thread that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Never,
    Always,
    Sometimes,
}

/// Checks one body.
pub(super) struct BodyChecker<'c, 'a> {
    pub checker: &'c mut Checker<'a>,
    pub phase: Phase,
    pub locals: Vec<Local>,
    names: Vec<(&'a str, LocalId)>,
    /// The local that is the core whose lock is held.
    pub here: Option<LocalId>,
    /// The thread that must be moved.
    pub subject: Option<LocalId>,
    /// In `steal_thread`: the core to which threads move.
    pub dst: Option<LocalId>,
    /// In `select_core`: the set, and names for its members.
    pub set: Option<LocalId>,
    members: Vec<LocalId>,
    /// Names of the observing phase, which the updating one does not know.
    pub gone: Vec<&'a str>,
    pub needs: Needs,
    pub changes: bool,
    pub result: Type,
    loops: u32,
}

impl<'c, 'a> BodyChecker<'c, 'a> {
    pub fn new(checker: &'c mut Checker<'a>, phase: Phase) -> Self {
        Self {
            checker,
            phase,
            locals: Vec::new(),
            names: Vec::new(),
            here: None,
            subject: None,
            dst: None,
            set: None,
            members: Vec::new(),
            gone: Vec::new(),
            needs: Needs::Nothing,
            changes: false,
            result: Type::Nothing,
            loops: 0,
        }
    }

    pub fn local(&mut self, name: &'a str, kind: Type) -> LocalId {
        self.locals.push(Local {
            name: name.into(),
            kind,
            is_changed: false,
        });
        let id = self.locals.len() - 1;
        self.names.push((name, id));
        id
    }

    fn find(&self, name: &str) -> Option<LocalId> {
        let mut names = self.names.iter().rev();
        names.find(|(known, _)| *known == name).map(|(_, id)| *id)
    }

    fn error(&mut self, span: Span, message: impl Into<String>, help: &str) {
        let diagnostic = Diagnostic::error(span, message);
        self.checker.report(match help {
            "" => diagnostic,
            help => diagnostic.help(help),
        });
    }

    fn wrong(span: Span) -> Expr {
        Expr {
            span,
            kind: ExprKind::Int(0),
            of: Type::Wrong,
        }
    }

    fn need(&mut self, needs: Needs) {
        self.needs = self.needs.max(needs);
    }

    /// The body uses a core whose lock must be held.
    fn need_lock(&mut self, span: Span, what: &str) {
        self.need(Needs::Lock);
        if matches!(self.phase, Phase::Place | Phase::Observe | Phase::Balance) {
            self.error(
                span,
                format!("{what} is not known here: no core's lock is held"),
                "without its lock, a core shows its `cload` and its `count` only",
            );
        }
    }

    // --- Expressions ---

    /// An expression of this type.
    pub fn expect(&mut self, expr: &'a ast::Expr, of: Type) -> Expr {
        let found = self.expr(expr);
        self.fits(&found, of);
        found
    }

    fn fits(&mut self, expr: &Expr, of: Type) {
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

    fn first(&mut self, set: &'a ast::Expr, order: Option<&'a ast::Order>, span: Span) -> Expr {
        let set = self.expr(set);
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

    fn order(&mut self, order: Option<&'a ast::Order>, of: Type) -> Option<Order> {
        let order = order?;
        self.need(Needs::Seen);
        self.checker.key(order, of)
    }

    fn binary(&mut self, a: &'a ast::Expr, operator: Binary, b: &'a ast::Expr, span: Span) -> Expr {
        let (a, b) = (self.expr(a), self.expr(b));
        let of = self.result_of(&a, operator, &b, span);
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

    fn result_of(&mut self, a: &Expr, operator: Binary, b: &Expr, span: Span) -> Type {
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
            "valid" | "count" | "random" | "llc" | "node" | "siblings" => Some(1),
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

    fn has_arguments(
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
            if matches!(text, "resched" | "steal_for") {
                self.error(
                    span,
                    format!("`{text}` is a statement, and has no value"),
                    "",
                );
                return Self::wrong(span);
            }
            let functions = self.checker.written.iter().map(|it| it.name.text.as_str());
            let mut known: Vec<&str> = functions.collect();
            known.extend(super::TAKEN);
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

    /// Attributes change here.
    fn change(&mut self, span: Span) {
        self.changes = true;
        if matches!(self.phase, Phase::Place | Phase::Observe | Phase::Balance) {
            self.error(
                span,
                "nothing can be changed here: no core's lock is held",
                "change attributes where the thread is moved, or after that",
            );
        }
    }

    // --- Statements ---

    /// A block, which ends the names that it declares.
    pub fn block(&mut self, block: &'a ast::Block) -> (Vec<Statement>, Moved) {
        if let Some(value) = &block.value {
            self.error(
                value.span,
                "this value is not used",
                "add `;`, or return it",
            );
        }
        self.statements(&block.statements)
    }

    pub fn statements(&mut self, statements: &'a [ast::Statement]) -> (Vec<Statement>, Moved) {
        let names = self.names.len();
        let checked = self.statements_open(statements);
        self.names.truncate(names);
        checked
    }

    /// Statements whose names stay known.
    pub fn statements_open(&mut self, statements: &'a [ast::Statement]) -> (Vec<Statement>, Moved) {
        let mut moved = Moved::Never;
        let mut checked = Vec::new();
        for statement in statements {
            let (statement, now) = self.statement(statement);
            moved = self.then(moved, now, statement.as_ref().map(|it| it.span));
            checked.extend(statement);
        }
        (checked, moved)
    }

    /// One thing after another.
    fn then(&mut self, before: Moved, now: Moved, span: Option<Span>) -> Moved {
        if now == Moved::Never {
            return before;
        }
        if before != Moved::Never {
            let span = span.unwrap_or_default();
            self.error(
                span,
                "the thread is moved twice on a path through here",
                "it was moved before: move it once on each path",
            );
        }
        now
    }

    fn statement(&mut self, statement: &'a ast::Statement) -> (Option<Statement>, Moved) {
        let span = statement.span;
        let make = |kind| Some(Statement { span, kind });
        match &statement.kind {
            Said::Wrong => (None, Moved::Never),
            Said::Let(variable) => (self.declaration(variable).and_then(make), Moved::Never),
            Said::Assign(target, how, value) => {
                let kind = self.assignment(target, *how, value);
                (kind.and_then(make), Moved::Never)
            }
            Said::Expr(expr) => (self.call_statement(expr).and_then(make), Moved::Never),
            Said::If(condition, then, otherwise) => {
                let (kind, moved) = self.conditional(condition, then, otherwise.as_ref(), span);
                (make(kind), moved)
            }
            Said::Foreach(name, set, order, body) => {
                let kind = self.foreach(name, set, order.as_ref(), body);
                (kind.and_then(make), Moved::Never)
            }
            Said::Break => {
                if self.loops == 0 {
                    self.error(span, "`break` is in no foreach", "remove it");
                }
                (make(StatementKind::Break), Moved::Never)
            }
            Said::Return(value) => {
                if self.subject.is_some() {
                    self.error(
                        span,
                        "a handler that moves a thread has no return: it ends at its end",
                        "use if and else",
                    );
                }
                let result = self.result;
                let value = match value {
                    Some(value) => {
                        let value = self.expect(value, result);
                        self.is_member(&value);
                        Some(value)
                    }
                    None => {
                        if !matches!(result, Type::Nothing | Type::Wrong) {
                            let message = format!("this returns {}", self.checker.called(result));
                            self.error(span, message, "write return VALUE;");
                        }
                        None
                    }
                };
                (make(StatementKind::Return(value)), Moved::Never)
            }
            Said::Move(thread, place, time) => self.moves(thread, place, time.as_ref(), span),
        }
    }

    /// In `select_core`: reports a value that is no member of the set.
    pub fn is_member(&mut self, value: &Expr) {
        let Some(set) = self.set else { return };
        let is_set = |expr: &Expr| matches!(expr.kind, ExprKind::Local(id) if id == set);
        let is_member = match &value.kind {
            ExprKind::First(of, _) => is_set(of),
            ExprKind::Local(id) => self.members.contains(id),
            _ => value.of == Type::Wrong,
        };
        if !is_member {
            let name = self.locals[set].name.clone();
            self.error(
                value.span,
                format!("this may be a core that is not in `{name}`"),
                &format!("return first({name} ..), or a core of foreach (c in {name})"),
            );
        }
    }

    fn declaration(&mut self, variable: &'a ast::Variable) -> Option<StatementKind> {
        let mut kind = self.checker.kind(&variable.kind);
        self.checker.may_be_named(&variable.name);
        let name = &variable.name;
        let Some(value) = &variable.value else {
            let message = format!("`{}` has no value", name.text);
            self.error(name.span, message, "give it one: TYPE NAME = VALUE;");
            return None;
        };
        let value = self.expr(value);
        // What may be none keeps that.
        kind = match (kind, value.of) {
            (Type::Thread, Type::MaybeThread) => Type::MaybeThread,
            (Type::Core, Type::MaybeCore) => Type::MaybeCore,
            (kind, _) => kind,
        };
        self.fits(&value, kind);
        let id = self.local(&name.text, kind);
        Some(StatementKind::Let(id, value))
    }

    fn assignment(
        &mut self,
        target: &'a ast::Expr,
        how: Assign,
        value: &'a ast::Expr,
    ) -> Option<StatementKind> {
        let to = self.expr(target);
        let value = self.expr(value);
        let value = match how {
            Assign::Set => value,
            Assign::Add | Assign::Subtract => {
                let operator = match how {
                    Assign::Add => Binary::Add,
                    _ => Binary::Subtract,
                };
                // `t.left--` counts in the unit of what it changes.
                let value = match (to.of, value.kind) {
                    (Type::Time, ExprKind::Int(1)) if value.of == Type::Int => {
                        self.error(value.span, "a time has a unit", "write -= 1ms, for example");
                        return None;
                    }
                    (_, kind) => Expr { kind, ..value },
                };
                let span = to.span.to(value.span);
                let of = self.result_of(&to, operator, &value, span);
                Expr {
                    span,
                    kind: ExprKind::Binary(Box::new(to.clone()), operator, Box::new(value)),
                    of,
                }
            }
        };
        match to.kind {
            ExprKind::Local(id) => {
                // A name for what was found by a test does not change.
                let kind = self.locals[id].kind;
                if self.here == Some(id) || self.subject == Some(id) {
                    self.error(to.span, "this name does not change", "declare another one");
                }
                self.fits(&value, kind);
                self.locals[id].is_changed = true;
                Some(StatementKind::Set(id, value))
            }
            ExprKind::ThreadAttribute(thread, index) => {
                self.fits(&value, to.of);
                self.change(to.span);
                Some(StatementKind::SetThread(*thread, index, value))
            }
            ExprKind::CoreAttribute(index) => {
                self.fits(&value, to.of);
                self.change(to.span);
                Some(StatementKind::SetCore(index, value))
            }
            _ if to.of == Type::Wrong => None,
            ExprKind::Cload(_) | ExprKind::Count(_) | ExprKind::Waiting(_) => {
                self.error(
                    to.span,
                    "loads and counts change as threads are moved, and by nothing else",
                    "remove this",
                );
                None
            }
            _ => {
                self.error(to.span, "nothing can be assigned to this", "");
                None
            }
        }
    }

    fn call_statement(&mut self, expr: &'a ast::Expr) -> Option<StatementKind> {
        if let Written::Call(name, arguments) = &expr.kind {
            match name.text.as_str() {
                "resched" => {
                    self.has_arguments(arguments, 0, "resched", expr.span);
                    self.need_lock(expr.span, "`resched()`");
                    return Some(StatementKind::Resched);
                }
                "steal_for" => {
                    if !self.has_arguments(arguments, 1, "steal_for", expr.span) {
                        return None;
                    }
                    let core = self.expect(&arguments[0], Type::Core);
                    if self.phase != Phase::Balance {
                        self.error(
                            expr.span,
                            "threads are stolen on `newly_idle` and `balancing` only",
                            "here the lock of a core is held, or nothing may change",
                        );
                    }
                    return Some(StatementKind::StealFor(core));
                }
                _ => {}
            }
        }
        let checked = self.expr(expr);
        match checked.kind {
            ExprKind::Call(function, arguments) if checked.of == Type::Nothing => {
                Some(StatementKind::Call(function, arguments))
            }
            _ if checked.of == Type::Wrong => None,
            _ => {
                self.error(
                    expr.span,
                    "this does nothing",
                    "assign the value, or remove it",
                );
                None
            }
        }
    }

    /// `valid(NAME)`, if the condition holds only where that holds.
    fn test_of(condition: &ast::Expr) -> Option<&ast::Expr> {
        match &condition.kind {
            Written::Call(name, arguments) if name.text == "valid" && arguments.len() == 1 => {
                matches!(arguments[0].kind, Written::Name(_)).then_some(&arguments[0])
            }
            _ => None,
        }
    }

    /// The parts of a condition that must all hold. What is tested by one is known to be there in
    /// the next ones.
    fn conditions(&mut self, condition: &'a ast::Expr, parts: &mut Vec<Condition>) {
        if let Written::Binary(a, Binary::And, b) = &condition.kind {
            self.conditions(a, parts);
            self.conditions(b, parts);
            return;
        }
        if let Some(tested) = Self::test_of(condition) {
            let value = self.expr(tested);
            if let (Some(kind), Written::Name(name)) = (certain(value.of), &tested.kind) {
                let id = self.local(&name.text, kind);
                parts.push(Condition::IsThere(value, id));
                return;
            }
        }
        let checked = self.expect(condition, Type::Bool);
        parts.push(Condition::Holds(checked));
    }

    fn conditional(
        &mut self,
        condition: &'a ast::Expr,
        then: &'a ast::Block,
        otherwise: Option<&'a ast::Block>,
        span: Span,
    ) -> (StatementKind, Moved) {
        // if (!valid(x)) { .. return; }
        if let (Written::Not(of), None) = (&condition.kind, otherwise) {
            if let Some(tested) = Self::test_of(of) {
                let leaves = then
                    .statements
                    .last()
                    .is_some_and(|last| matches!(last.kind, Said::Return(_) | Said::Break));
                let value = self.expr(tested);
                if let (true, Some(kind), Written::Name(name)) =
                    (leaves, certain(value.of), &tested.kind)
                {
                    let (then, _) = self.block(then);
                    let id = self.local(&name.text, kind);
                    return (StatementKind::Unless(value, id, then), Moved::Never);
                }
            }
        }
        let names = self.names.len();
        // if (valid(x) && ..) { .. }
        let mut conditions = Vec::new();
        self.conditions(condition, &mut conditions);
        let (then, moved) = self.block(then);
        self.names.truncate(names);
        let (otherwise, other) = match otherwise {
            Some(block) => {
                let (statements, moved) = self.block(block);
                (Some(statements), moved)
            }
            None => (None, Moved::Never),
        };
        let moved = match (moved, other) {
            (a, b) if a == b => a,
            _ => {
                if self.phase == Phase::Schedule || self.subject.is_some() {
                    // In a steal, a thread that is not moved stays.
                    Moved::Sometimes
                } else {
                    Moved::Never
                }
            }
        };
        let _ = span;
        let kind = StatementKind::If {
            conditions,
            then,
            otherwise,
        };
        (kind, moved)
    }

    fn foreach(
        &mut self,
        name: &'a ast::Name,
        set: &'a ast::Expr,
        order: Option<&'a ast::Order>,
        body: &'a ast::Block,
    ) -> Option<StatementKind> {
        let set = self.expr(set);
        let kind = match set.of {
            Type::Cores => Type::Core,
            Type::Threads => Type::Thread,
            Type::Wrong => Type::Wrong,
            other => {
                let message = format!("{} has no members", self.checker.called(other));
                self.error(set.span, message, "give a queue or a set of cores");
                Type::Wrong
            }
        };
        let order = match (set.of, order) {
            (Type::Threads, Some(order)) => {
                self.error(
                    order.by.span,
                    "the threads of a queue come in the order of the queue",
                    "give the queue this order, or remove it here",
                );
                None
            }
            (of, order) => self.order(order, of),
        };
        let names = self.names.len();
        self.checker.may_be_named(name);
        let id = self.local(&name.text, kind);
        if matches!(set.kind, ExprKind::Local(of) if self.set == Some(of)) {
            self.members.push(id);
        }
        self.loops += 1;
        let (statements, moved) = self.block(body);
        self.loops -= 1;
        self.names.truncate(names);
        if moved != Moved::Never {
            self.error(
                body.span,
                "a thread is moved in a foreach: it might be moved twice, or never",
                "choose in the foreach, and move behind it",
            );
        }
        Some(StatementKind::Foreach(id, set, order, statements))
    }

    fn moves(
        &mut self,
        thread: &'a ast::Expr,
        place: &'a ast::Expr,
        time: Option<&'a ast::Expr>,
        span: Span,
    ) -> (Option<Statement>, Moved) {
        let make = |kind| (Some(Statement { span, kind }), Moved::Always);
        let checked = self.expr(thread);
        if let Written::Name(name) = &place.kind {
            if self.checker.current == Some(name.text.as_str()) {
                if self.phase != Phase::Schedule {
                    self.error(span, "a thread begins to run on `schedule` only", "");
                }
                self.fits(&checked, Type::MaybeThread);
                let time = time.map(|time| self.expect(time, Type::Time));
                return make(StatementKind::Run(checked, time));
            }
            if matches!(name.text.as_str(), "BLOCKED" | "TERMINATED") {
                // The kernel has done that.
                return (None, Moved::Never);
            }
        }
        if let Some(time) = time {
            self.error(
                time.span,
                "only a thread that begins to run does so for a time",
                "",
            );
        }
        if self.phase == Phase::Schedule {
            self.error(
                span,
                "on `schedule` a thread is moved to the running one's place only",
                "a thread goes into a queue on new, unblock, preempt and yield",
            );
            return (None, Moved::Always);
        }
        let is_subject = matches!(checked.kind, ExprKind::Local(id) if self.subject == Some(id));
        if !is_subject && checked.of != Type::Wrong {
            let help = match self.subject {
                Some(id) => format!("move `{}`", self.locals[id].name),
                None => "threads move on new, unblock, preempt, yield and in steal_thread".into(),
            };
            self.error(thread.span, "this thread cannot be moved here", &help);
            return (None, Moved::Always);
        }
        if let (Some(dst), Written::Field(core, queue)) = (self.dst, &place.kind) {
            let core = self.expr(core);
            if matches!(core.kind, ExprKind::Local(id) if id == dst) {
                let queues = &self.checker.policy.queues;
                if let Some(queue) = queues.iter().position(|it| it.name == queue.text) {
                    return make(StatementKind::Enqueue(checked, queue));
                }
            }
            let name = self.locals[dst].name.clone();
            let help = format!("write t => {name}.QUEUE;");
            self.error(
                place.span,
                "a stolen thread goes to a queue of the other core",
                &help,
            );
            return (None, Moved::Always);
        }
        let to = self.expr(place);
        match to.kind {
            ExprKind::Queue(queue) => make(StatementKind::Enqueue(checked, queue)),
            _ => {
                if to.of != Type::Wrong {
                    let message =
                        format!("a thread is not moved to {}", self.checker.called(to.of));
                    self.error(place.span, message, "move it to a queue: t => ready;");
                }
                (None, Moved::Always)
            }
        }
    }
}

/// The type of what is there, of what may be none.
fn certain(of: Type) -> Option<Type> {
    match of {
        Type::MaybeThread => Some(Type::Thread),
        Type::MaybeCore => Some(Type::Core),
        _ => None,
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
