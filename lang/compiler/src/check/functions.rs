// SPDX-License-Identifier: GPL-2.0-only
//! Functions.

use super::body::{BodyChecker, Phase};
use super::{Checker, Progress};
use crate::ast::{self, ExprKind as Written, StatementKind as Said};
use crate::diagnostic::{Diagnostic, Span};
use crate::hir::*;

impl<'a> Checker<'a> {
    pub(super) fn functions(&mut self) {
        for index in 0..self.written.len() {
            if self.progress[index] == Progress::NotBegun {
                self.function(index);
            }
        }
    }

    /// Checks a function, and those that it calls.
    pub(super) fn function(&mut self, index: usize) {
        self.progress[index] = Progress::Begun;
        let written = self.written[index];
        let result = match &written.result {
            Some(name) => self.kind(name),
            None => Type::Nothing,
        };
        // What is found by a search may be none.
        let result = match result {
            Type::Core if self.may_be_none(&written.body, &mut vec![index]) => Type::MaybeCore,
            result => result,
        };
        if matches!(result, Type::Cores | Type::Domain | Type::Thread) {
            let span = written
                .result
                .as_ref()
                .map_or(written.name.span, |it| it.span);
            let help = "return a number, a time, a condition or a core";
            let message = format!("a function does not return {}", self.called(result));
            self.report(Diagnostic::error(span, message).help(help));
        }
        let function = self.body_of(written, Phase::Function, result);
        self.policy.functions.push(function);
        self.progress[index] = Progress::Done;
    }

    /// Does a function of cores, with this body, return what may be none? `asked` has the functions
    /// that are asked already, as a mistaken policy may have recursion.
    fn may_be_none(&self, block: &ast::Block, asked: &mut Vec<usize>) -> bool {
        let is_value = block
            .value
            .as_deref()
            .is_some_and(|value| self.is_search(value, asked));
        is_value
            || block
                .statements
                .iter()
                .any(|statement| match &statement.kind {
                    Said::Return(Some(value)) => self.is_search(value, asked),
                    Said::If(_, then, otherwise) => {
                        self.may_be_none(then, asked)
                            || otherwise
                                .as_ref()
                                .is_some_and(|it| self.may_be_none(it, asked))
                    }
                    Said::Foreach(_, _, _, body) => self.may_be_none(body, asked),
                    _ => false,
                })
    }

    /// Is this a search, or a call of a function that returns the result of one?
    fn is_search(&self, expr: &ast::Expr, asked: &mut Vec<usize>) -> bool {
        match &expr.kind {
            Written::First(..) => true,
            Written::Call(name, _) => {
                let called = self.written.iter().position(|it| it.name.text == name.text);
                called.is_some_and(|index| {
                    let is_new = !asked.contains(&index);
                    asked.push(index);
                    is_new && self.may_be_none(&self.written[index].body, asked)
                })
            }
            _ => false,
        }
    }

    pub(super) fn body_of(
        &mut self,
        written: &'a ast::Function,
        phase: Phase,
        result: Type,
    ) -> Function {
        let mut kinds = Vec::new();
        for (kind, name) in &written.parameters {
            kinds.push(self.kind(kind));
            self.may_be_named(name);
        }
        let mut body = BodyChecker::new(self, phase);
        body.result = result;
        let names = written
            .parameters
            .iter()
            .map(|(_, name)| name.text.as_str());
        let parameters: Vec<LocalId> = names
            .zip(kinds)
            .map(|(name, kind)| body.local(name, kind))
            .collect();
        if phase != Phase::Function {
            body.fixed.extend(&parameters);
        }
        if written.name.text == "select_core" {
            body.set = parameters.first().copied();
        }
        let (statements, _) = body.statements(&written.body.statements);
        let value = written.body.value.as_ref().map(|value| {
            let value = body.expect(value, result);
            body.is_member(&value);
            value
        });
        let (needs, changes, locals) = (body.needs, body.changes, std::mem::take(&mut body.locals));
        if changes && result != Type::Nothing {
            let message = format!(
                "`{}` has a value, and changes attributes",
                written.name.text
            );
            let help = "make it two functions: one with a value, and one that is `void`";
            self.report(Diagnostic::error(written.name.span, message).help(help));
        }
        if value.is_none() && result != Type::Nothing && !returns(&written.body) {
            let end = written.body.span.end;
            let message = format!("`{}` has no value on a path through it", written.name.text);
            let help = "end it by return VALUE; or by an expression without `;`";
            self.report(Diagnostic::error(Span::new(end - 1, end), message).help(help));
        }
        Function {
            name: written.name.text.clone(),
            parameters,
            result,
            body: Body {
                locals,
                statements,
                value,
            },
            needs,
            changes,
        }
    }
}

/// Does each path through the block return?
fn returns(block: &ast::Block) -> bool {
    block
        .statements
        .iter()
        .any(|statement| match &statement.kind {
            Said::Return(_) | Said::Wrong => true,
            Said::If(_, then, Some(otherwise)) => returns(then) && returns(otherwise),
            _ => false,
        })
}
