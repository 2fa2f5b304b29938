// SPDX-License-Identifier: GPL-2.0-only
//! Visits the expressions of bodies.

use crate::hir::*;

/// Does a body use a local?
pub fn uses(body: &Body, id: LocalId) -> bool {
    let mut found = false;
    walk(body, &mut |expr| {
        found |= matches!(expr.kind, ExprKind::Local(used) if used == id);
    });
    found
}

/// Visits all expressions of a body.
pub fn walk(body: &Body, visit: &mut impl FnMut(&Expr)) {
    for statement in &body.statements {
        walk_statement(statement, visit);
    }
    if let Some(value) = &body.value {
        walk_expr(value, visit);
    }
}

fn walk_statement(statement: &Statement, visit: &mut impl FnMut(&Expr)) {
    match &statement.kind {
        StatementKind::Let(_, value)
        | StatementKind::Set(_, value)
        | StatementKind::SetCore(_, value)
        | StatementKind::SetTimer(value)
        | StatementKind::Enqueue(value, _) => walk_expr(value, visit),
        StatementKind::SetThread(thread, _, value) => {
            walk_expr(thread, visit);
            walk_expr(value, visit);
        }
        StatementKind::If {
            conditions,
            then,
            otherwise,
        } => {
            for condition in conditions {
                walk_expr(condition.expr(), visit);
            }
            for statement in then.iter().chain(otherwise.iter().flatten()) {
                walk_statement(statement, visit);
            }
        }
        StatementKind::Unless(value, _, body) | StatementKind::Foreach(_, value, _, body) => {
            walk_expr(value, visit);
            for statement in body {
                walk_statement(statement, visit);
            }
        }
        StatementKind::StealFor(core, domain) => {
            walk_expr(core, visit);
            if let Some(domain) = domain {
                walk_expr(domain, visit);
            }
        }
        StatementKind::Return(value) => {
            if let Some(value) = value {
                walk_expr(value, visit);
            }
        }
        StatementKind::Run(thread, time) => {
            walk_expr(thread, visit);
            if let Some(time) = time {
                walk_expr(time, visit);
            }
        }
        StatementKind::Call(_, arguments) => {
            for argument in arguments {
                walk_expr(argument, visit);
            }
        }
        StatementKind::Break | StatementKind::Resched => {}
    }
}

fn walk_expr(expr: &Expr, visit: &mut impl FnMut(&Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::ThreadAttribute(of, _)
        | ExprKind::Thread(of, _)
        | ExprKind::Cload(of)
        | ExprKind::Count(of)
        | ExprKind::First(of, _)
        | ExprKind::Domains(of)
        | ExprKind::Valid(of)
        | ExprKind::Random(of)
        | ExprKind::Not(of)
        | ExprKind::Negate(of) => walk_expr(of, visit),
        ExprKind::Cores(_, Some(of)) => walk_expr(of, visit),
        ExprKind::Call(_, arguments) => {
            for argument in arguments {
                walk_expr(argument, visit);
            }
        }
        ExprKind::Min(a, b) | ExprKind::Max(a, b) | ExprKind::Binary(a, _, b) => {
            walk_expr(a, visit);
            walk_expr(b, visit);
        }
        _ => {}
    }
}
