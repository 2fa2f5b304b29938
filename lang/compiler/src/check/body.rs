// SPDX-License-Identifier: GPL-2.0-only
//! Bodies of handlers and functions.

mod expr;

use super::{has_handler, Checker};
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
    /// Takes a hint: changes attributes of a thread, without locks.
    Hint,
    /// Under the lock of a core, chooses what that core runs next.
    Schedule,
    /// A function, which needs what its body needs.
    Function,
}

impl Phase {
    /// Is no lock of a core held?
    fn is_unlocked(self) -> bool {
        matches!(
            self,
            Self::Place | Self::Observe | Self::Balance | Self::Hint
        )
    }
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
    /// Variables of foreach, and what a handler is about: they do not change.
    pub fixed: Vec<LocalId>,
    /// Names of the observing phase, which the updating one does not know.
    pub gone: Vec<&'a str>,
    pub needs: Needs,
    pub changes: bool,
    /// The core is the one on which the handler runs, so its timer can be set.
    pub sets_timer: bool,
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
            fixed: Vec::new(),
            gone: Vec::new(),
            needs: Needs::Nothing,
            changes: false,
            sets_timer: false,
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
        if self.phase.is_unlocked() {
            self.error(
                span,
                format!("{what} is not known here: no core's lock is held"),
                "without its lock, a core shows its `cload` and its `count` only",
            );
        }
    }

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
                if self.subject.is_some() || self.phase == Phase::Schedule {
                    self.error(
                        span,
                        "a handler that moves a thread cannot use `return`",
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
                self.computes(target.span);
                let operator = match how {
                    Assign::Add => Binary::Add,
                    _ => Binary::Subtract,
                };
                // `t.left--` subtracts the number 1. A time has a unit, so this is an error there.
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
                // Nor do the core whose lock is held, and the thread to be moved.
                let kind = self.locals[id].kind;
                if self.here == Some(id) || self.subject == Some(id) || self.fixed.contains(&id) {
                    self.error(to.span, "this name does not change", "declare another one");
                }
                self.fits(&value, kind);
                self.locals[id].is_changed = true;
                Some(StatementKind::Set(id, value))
            }
            ExprKind::ThreadAttribute(thread, index) => {
                self.fits(&value, to.of);
                self.change(to.span);
                if self.phase == Phase::Hint && self.checker.policy.load == Some(index) {
                    self.error(
                        to.span,
                        "a hint does not change the load, by which the thread is counted",
                        "keep the value in another attribute, and set the load in a handler",
                    );
                }
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
                "set_timer" => {
                    if !self.has_arguments(arguments, 1, "set_timer", expr.span) {
                        return None;
                    }
                    let after = self.expect(&arguments[0], Type::Time);
                    if !self.sets_timer {
                        self.error(
                            expr.span,
                            "the core's timer is set on `schedule`, `tick` and `timer` only",
                            "elsewhere, the core may not be the one on which the handler runs",
                        );
                    } else if !has_handler(self.checker.file, "timer") {
                        self.error(
                            expr.span,
                            "the policy does not say what happens on `timer`",
                            "write `on timer(core c) { .. }`",
                        );
                    }
                    return Some(StatementKind::SetTimer(after));
                }
                "steal_for" => {
                    let count = arguments.len().clamp(1, 2);
                    if !self.has_arguments(arguments, count, "steal_for", expr.span) {
                        return None;
                    }
                    let core = self.expect(&arguments[0], Type::Core);
                    let domain = arguments.get(1).map(|it| self.expect(it, Type::Domain));
                    if self.phase != Phase::Balance {
                        self.error(
                            expr.span,
                            "threads are stolen on `newly_idle` and `balancing` only",
                            "here the lock of a core is held, or nothing may change",
                        );
                    }
                    return Some(StatementKind::StealFor(core, domain));
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
        let set = self.set(set);
        let kind = match set.of {
            Type::Cores => Type::Core,
            Type::Domains => Type::Domain,
            Type::Threads => Type::Thread,
            Type::Wrong => Type::Wrong,
            other => {
                let message = format!("{} has no members", self.checker.called(other));
                self.error(set.span, message, "give a queue or a set of cores");
                Type::Wrong
            }
        };
        let order = match (set.of, order) {
            (Type::Domains, Some(order)) => {
                self.error(
                    order.by.span,
                    "domains come from the smallest to the largest",
                    "remove the order",
                );
                None
            }
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
        self.fixed.push(id);
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
