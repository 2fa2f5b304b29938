// SPDX-License-Identifier: GPL-2.0-only
//! The ranks of queues, by which each thread's turn comes.

use super::body::{BodyChecker, Phase};
use super::Checker;
use crate::ast;
use crate::diagnostic::{Diagnostic, Span};
use crate::hir::*;
use crate::walk::walk;

impl<'a> Checker<'a> {
    pub(super) fn ranks(&mut self) {
        let file = self.file;
        let parts = file.items.iter().filter_map(|item| match item {
            ast::Item::Core(_, parts) => Some(parts),
            _ => None,
        });
        for part in parts.flatten() {
            let ast::CorePart::Ready(name, _, written) = part else {
                continue;
            };
            if let Some(third) = written.get(2) {
                let message = "a rank has at most two parts";
                let help = "the first has most weight: rank A, B";
                self.report(Diagnostic::error(third.span, message).help(help));
            }
            let rank: Vec<Expr> = written.iter().map(|value| self.rank(value)).collect();
            let queues = &mut self.policy.queues;
            let Some(queue) = queues.iter_mut().find(|it| it.name == name.text) else {
                continue;
            };
            queue.rank = rank;
            let order = queue.order;
            if let (Some(first), Some(order)) = (written.first(), order) {
                self.has_good_order(first.span, order);
            }
        }
        let claims = |queue: &&Queue| !queue.rank.is_empty();
        let ranked = self.policy.queues.iter().find(claims);
        let open = self.policy.queues.iter().find(|queue| !claims(queue));
        if let (Some(ranked), Some(open)) = (ranked, open) {
            let message = format!("`{}` has a rank, and `{}` has none", ranked.name, open.name);
            let help = "give each queue a rank, or none of them";
            let span = ranked.rank[0].span;
            self.report(Diagnostic::error(span, message).help(help));
        }
    }

    fn rank(&mut self, written: &'a ast::Expr) -> Expr {
        let mut body = BodyChecker::new(self, Phase::Function);
        let value = body.expr(written);
        let mut is_known = matches!(value.of, Type::Int | Type::Time | Type::Wrong);
        let body = Body {
            value: Some(value.clone()),
            ..Body::default()
        };
        walk(&body, &mut |part| {
            is_known &= !matches!(
                part.kind,
                ExprKind::Waiting(_)
                    | ExprKind::First(..)
                    | ExprKind::Cload(_)
                    | ExprKind::Count(_)
                    | ExprKind::Current
                    | ExprKind::Random(_)
                    | ExprKind::Call(..)
            );
        });
        if !is_known {
            let message = "this is no rank";
            let help = "a rank is a number or a time, of parameters, the core's attributes and \
                        now()";
            self.report(Diagnostic::error(written.span, message).help(help));
        }
        value
    }

    /// With another order, those that come can pass one that waits without end.
    fn has_good_order(&mut self, span: Span, order: Order) {
        let is_time = match order.by {
            Key::Attribute(index) => self.policy.thread[index].kind == Type::Time,
            Key::Cload | Key::Count => false,
        };
        if !order.is_lowest || !is_time {
            let message = "a queue with this order has no rank";
            let help = "a rank is for a queue without an order, or ordered by the lowest time";
            self.report(Diagnostic::error(span, message).help(help));
        }
    }
}
