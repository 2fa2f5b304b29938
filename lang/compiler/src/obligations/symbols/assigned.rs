// SPDX-License-Identifier: GPL-2.0-only
//! What statements assign.

use crate::hir::*;

/// The locals that statements assign.
pub(super) fn assigned(statements: &[Statement], found: &mut Vec<LocalId>) {
    for statement in statements {
        match &statement.kind {
            StatementKind::Set(id, _) => found.push(*id),
            StatementKind::If {
                then, otherwise, ..
            } => {
                assigned(then, found);
                assigned(otherwise.as_deref().unwrap_or_default(), found);
            }
            StatementKind::Foreach(_, _, _, body) | StatementKind::Unless(_, _, body) => {
                assigned(body, found);
            }
            _ => {}
        }
    }
}

/// Do statements assign this attribute of threads?
pub(super) fn sets(statements: &[Statement], attribute: usize) -> bool {
    statements.iter().any(|statement| match &statement.kind {
        StatementKind::SetThread(_, index, _) => *index == attribute,
        StatementKind::If {
            then, otherwise, ..
        } => sets(then, attribute) || otherwise.as_ref().is_some_and(|it| sets(it, attribute)),
        StatementKind::Foreach(_, _, _, body) | StatementKind::Unless(_, _, body) => {
            sets(body, attribute)
        }
        _ => false,
    })
}

/// Does a hint assign this attribute of threads?
pub(super) fn is_hinted(policy: &Policy, attribute: usize) -> bool {
    let mut hints = policy.hints.iter();
    hints.any(|hint| sets(&hint.body.statements, attribute))
}

/// Does any body assign this attribute of threads?
pub fn assigns(policy: &Policy, attribute: usize) -> bool {
    let handlers = &policy.handlers;
    let placed = [&handlers.new, &handlers.unblock];
    let others = [
        &handlers.preempt,
        &handlers.give_way,
        &handlers.block,
        &handlers.terminate,
        &handlers.tick,
        &handlers.depart,
        &handlers.arrive,
        &handlers.schedule,
        &handlers.entry,
        &handlers.exit,
        &handlers.timer,
    ];
    let bodies = policy.functions.iter().map(|function| &function.body);
    let bodies = bodies
        .chain(placed.into_iter().flatten().map(|placed| &placed.update))
        .chain(others.into_iter().flatten().map(|handler| &handler.body))
        .chain(policy.hints.iter().map(|hint| &hint.body))
        .chain(policy.steal.iter().map(|steal| &steal.steal_thread.body));
    bodies
        .into_iter()
        .any(|body| sets(&body.statements, attribute))
}
