// SPDX-License-Identifier: GPL-2.0-only
//! Statements in Rust.

use super::expr::{key_of, seen, uses_at};
use super::names::{constant_of, safe};
use super::{Given, Scope, Writer};
use crate::ast::Binary;
use crate::hir::*;

impl Writer<'_> {
    pub(super) fn body(&mut self, body: &Body, scope: Scope<'_>) {
        let (statements, value) = match (body.statements.split_last(), &body.value) {
            (Some((last, before)), None) => match &last.kind {
                StatementKind::Return(Some(value)) => (before, Some(value)),
                _ => (&body.statements[..], None),
            },
            (_, value) => (&body.statements[..], value.as_ref()),
        };
        self.statements(statements, scope);
        if let Some(value) = value {
            let value = self.coerced(value, scope.result, scope);
            self.line(value);
        }
    }

    /// Statements of which one on each path gives the result. It is the value of the block where
    /// nothing follows it, and else assigned to this name.
    pub(super) fn with_tail(&mut self, statements: &[Statement], scope: Scope<'_>, name: &str) {
        if ends_in_moves(statements) {
            return self.tail(statements, scope);
        }
        self.line(format!("let {name};"));
        self.statements(statements, scope);
        self.line(name);
    }

    fn tail(&mut self, statements: &[Statement], scope: Scope<'_>) {
        let Some((last, before)) = statements.split_last() else {
            return;
        };
        self.statements(before, scope);
        match &last.kind {
            StatementKind::If {
                conditions,
                then,
                otherwise: Some(otherwise),
            } => {
                let head = self.condition(conditions, scope);
                self.open(head);
                self.tail(then, scope);
                self.depth -= 1;
                self.open("} else {");
                self.tail(otherwise, scope);
                self.close("}");
            }
            moves => {
                let value = self.moved(moves, scope);
                self.line(value);
            }
        }
    }

    /// The value of a move.
    pub(super) fn moved(&mut self, kind: &StatementKind, scope: Scope<'_>) -> String {
        match kind {
            StatementKind::Enqueue(_, queue) if scope.may_stay => {
                format!("Some({})", constant_of(&self.policy.queues[*queue]))
            }
            StatementKind::Enqueue(thread, queue) => {
                let thread = self.expr(thread, scope);
                self.place_of(&thread, *queue)
            }
            StatementKind::Run(thread, time) => {
                let slice = match time {
                    Some(time) => self.expr(time, scope),
                    None => "DEFAULT_SLICE as i64".into(),
                };
                let text = self.expr(thread, scope);
                match thread.of {
                    Type::MaybeThread => {
                        format!("{text}.map(|thread| Next {{ thread, slice: {slice} }})")
                    }
                    _ => format!("Some(Next {{ thread: {text}, slice: {slice} }})"),
                }
            }
            _ => String::new(),
        }
    }

    pub(super) fn place_of(&self, thread: &str, queue: usize) -> String {
        let of = &self.policy.queues[queue];
        let key = match of.order {
            Some(Order {
                is_lowest,
                by: Key::Attribute(index),
            }) => {
                let name = safe(&self.policy.thread[index].name);
                let sign = if is_lowest { "" } else { "-" };
                format!("{sign}{thread}.attributes().{name}.get()")
            }
            _ => "0".into(),
        };
        format!("Place {{ queue: {}, key: {key} }}", constant_of(of))
    }

    pub(super) fn statements(&mut self, statements: &[Statement], scope: Scope<'_>) {
        for statement in statements {
            self.statement(statement, scope);
        }
    }

    fn statement(&mut self, statement: &Statement, scope: Scope<'_>) {
        let name = |id: LocalId| safe(&scope.locals[id].name);
        match &statement.kind {
            StatementKind::Let(id, value) => {
                let mark = if scope.locals[*id].is_changed {
                    "mut "
                } else {
                    ""
                };
                let value = self.coerced(value, scope.locals[*id].kind, scope);
                self.line(format!("let {mark}{} = {value};", name(*id)));
            }
            StatementKind::Set(
                id,
                Expr {
                    kind: ExprKind::Binary(target, operator @ (Binary::Add | Binary::Subtract), by),
                    ..
                },
            ) if matches!(target.kind, ExprKind::Local(of) if of == *id) => {
                let by = self.expr(by, scope);
                self.line(format!("{} {}= {by};", name(*id), operator.text()));
            }
            StatementKind::Set(id, value) => {
                let value = self.coerced(value, scope.locals[*id].kind, scope);
                self.line(format!("{} = {value};", name(*id)));
            }
            StatementKind::SetThread(thread, index, value) => {
                let attribute = &self.policy.thread[*index];
                let thread = self.expr(thread, scope);
                let value = self.alone(value, scope);
                let value = match attribute.kind {
                    Type::Bool => format!("i64::from({value})"),
                    Type::Core => format!("i64::from({value}.number())"),
                    _ => value,
                };
                self.line(format!(
                    "{thread}.attributes().{}.set({value});",
                    safe(&attribute.name)
                ));
            }
            StatementKind::SetCore(index, value) => {
                let value = self.alone(value, scope);
                let attribute = safe(&self.policy.core[*index].name);
                if uses_at(&value) {
                    self.line(format!("let value = {value};"));
                    self.line(format!("at.attributes_mut().{attribute} = value;"));
                } else {
                    self.line(format!("at.attributes_mut().{attribute} = {value};"));
                }
            }
            StatementKind::If {
                conditions,
                then,
                otherwise,
            } => {
                let head = self.condition(conditions, scope);
                self.open(head);
                self.statements(then, scope);
                match otherwise {
                    Some(otherwise) => {
                        self.depth -= 1;
                        self.open("} else {");
                        self.statements(otherwise, scope);
                        self.close("}");
                    }
                    None => self.close("}"),
                }
            }
            StatementKind::Unless(value, id, leaves) => {
                let value = self.expr(value, scope);
                self.open(format!("let Some({}) = {value} else {{", name(*id)));
                self.statements(leaves, scope);
                self.close("};");
            }
            StatementKind::Foreach(id, set, order, body) => {
                self.foreach(*id, set, *order, body, scope);
            }
            StatementKind::Break => self.line("break;"),
            StatementKind::Return(None) => self.line("return;"),
            StatementKind::Return(Some(value)) => {
                let value = self.coerced(value, scope.result, scope);
                self.line(format!("return {value};"));
            }
            StatementKind::Enqueue(..) => {
                let value = self.moved(&statement.kind, scope);
                self.line(format!("to = {value};"));
            }
            StatementKind::Run(..) => {
                let value = self.moved(&statement.kind, scope);
                self.line(format!("next = {value};"));
            }
            StatementKind::Call(function, arguments) => {
                let call = self.call(*function, arguments, scope);
                self.line(format!("{call};"));
            }
            StatementKind::Resched => self.line("at.resched();"),
            StatementKind::SetTimer(after) => {
                let after = self.expr(after, scope);
                if uses_at(&after) {
                    self.line(format!("let value = {after};"));
                    self.line("at.set_timer(value);");
                } else {
                    self.line(format!("at.set_timer({after});"));
                }
            }
            StatementKind::StealFor(core, domain) => {
                let core = self.expr(core, scope);
                match domain {
                    None => self.line(format!("balance.steal_for({core});")),
                    Some(domain) => {
                        let domain = self.expr(domain, scope);
                        self.line(format!("balance.steal_within({core}, {domain});"));
                    }
                }
            }
        }
    }

    /// The head of an `if`.
    fn condition(&mut self, conditions: &[Condition], scope: Scope<'_>) -> String {
        format!("if {} {{", self.all(conditions, scope))
    }

    /// Conditions that hold together.
    fn all(&mut self, conditions: &[Condition], scope: Scope<'_>) -> String {
        let level = match conditions.len() {
            1 => 0,
            _ => Binary::And.level() + 1,
        };
        let texts = conditions.iter().map(|condition| match condition {
            Condition::Holds(condition) if level == 0 => self.alone(condition, scope),
            Condition::Holds(condition) => self.operand(condition, level, scope),
            Condition::IsThere(value, id) => {
                let name = safe(&scope.locals[*id].name);
                format!("let Some({name}) = {}", self.expr(value, scope))
            }
        });
        let texts: Vec<String> = texts.collect();
        texts.join(" && ")
    }

    /// A loop that looks for a core. The conditions read no more than what is seen.
    fn search(&mut self, id: LocalId, set: &Expr, search: &Search<'_>, scope: Scope<'_>) {
        let name = safe(&scope.locals[id].name);
        let members = self.members(set, scope);
        let holds = self.all(search.conditions, scope);
        let value = self.coerced(search.value, scope.result, scope);
        let found = format!("{members}.first_where(|{name}| {holds})");
        match search.value.kind {
            ExprKind::Bool(_) | ExprKind::Int(_) => self.open(format!("if {found}.is_some() {{")),
            _ => self.open(format!("if let Some({name}) = {found} {{")),
        }
        self.line(format!("return {value};"));
        self.close("}");
    }

    fn foreach(
        &mut self,
        id: LocalId,
        set: &Expr,
        order: Option<Order>,
        body: &[Statement],
        scope: Scope<'_>,
    ) {
        let name = safe(&scope.locals[id].name);
        if let ExprKind::Domains(of) = &set.kind {
            let (seen, of) = (seen(scope.given), self.expr(of, scope));
            self.open(format!("for {name} in {seen}.domains({of}) {{"));
        } else if let ExprKind::Queue(queue) = set.kind {
            let queue = constant_of(&self.policy.queues[queue]);
            self.line(format!("let mut walk = at.walk({queue});"));
            self.open(format!("while let Some({name}) = at.next_of(&mut walk) {{"));
        } else if let Some(order) = order {
            let (seen, members) = (seen(scope.given), self.members(set, scope));
            self.line(format!("let mut left: CoreSet = {members}.collect();"));
            let key = key_of(order, &seen);
            self.open(format!(
                "while let Some({name}) = {seen}.members(&left).min_by_key({key}) {{"
            ));
            self.line(format!("left.remove({name});"));
        } else {
            if let (Some(search), Given::Seen) = (Search::of(set, order, body), scope.given) {
                return self.search(id, set, &search, scope);
            }
            let members = self.members(set, scope);
            self.open(format!("for {name} in {members} {{"));
        }
        self.statements(body, scope);
        self.close("}");
    }
}

/// Is a move the last thing on each path?
fn ends_in_moves(statements: &[Statement]) -> bool {
    let Some((last, before)) = statements.split_last() else {
        return false;
    };
    if before.iter().any(moves) {
        return false;
    }
    match &last.kind {
        StatementKind::Enqueue(..) | StatementKind::Run(..) => true,
        StatementKind::If {
            then,
            otherwise: Some(otherwise),
            ..
        } => ends_in_moves(then) && ends_in_moves(otherwise),
        _ => false,
    }
}

/// Does a statement move a thread?
fn moves(statement: &Statement) -> bool {
    match &statement.kind {
        StatementKind::Enqueue(..) | StatementKind::Run(..) => true,
        StatementKind::If {
            then, otherwise, ..
        } => then.iter().chain(otherwise.iter().flatten()).any(moves),
        _ => false,
    }
}
