// SPDX-License-Identifier: GPL-2.0-only
//! Expressions in Rust.

use std::fmt::Write;

use super::names::{constant_of, function_name, number, safe, upper};
use super::{Given, Scope, Writer};
use crate::hir::*;

impl Writer<'_> {
    /// An expression with nothing beside it, which needs no parentheses.
    pub(super) fn alone(&mut self, expr: &Expr, scope: Scope<'_>) -> String {
        let text = self.expr(expr, scope);
        let is_attribute = matches!(expr.kind, ExprKind::ThreadAttribute(..));
        match text.strip_prefix('(').and_then(|it| it.strip_suffix(')')) {
            Some(bare) if is_attribute => bare.to_owned(),
            _ => text,
        }
    }

    /// A value for a place of this type.
    pub(super) fn coerced(&mut self, value: &Expr, of: Type, scope: Scope<'_>) -> String {
        let text = self.alone(value, scope);
        match (of, value.of) {
            (Type::MaybeThread, Type::Thread) | (Type::MaybeCore, Type::Core) => {
                format!("Some({text})")
            }
            _ => text,
        }
    }

    pub(super) fn members(&mut self, set: &Expr, scope: Scope<'_>) -> String {
        let seen = seen(scope.given);
        match &set.kind {
            ExprKind::Local(id) => format!("{seen}.members({})", safe(&scope.locals[*id].name)),
            ExprKind::Cores(which, of) => {
                let of = of.as_ref().map(|of| self.expr(of, scope));
                let of = of.unwrap_or_default();
                match which {
                    Cores::All => format!("{seen}.cores()"),
                    Cores::Idle => format!("{seen}.idle_cores()"),
                    Cores::Llc => format!("{seen}.llc({of})"),
                    Cores::Node => format!("{seen}.node({of})"),
                    Cores::Siblings => format!("{seen}.siblings({of})"),
                    Cores::Domain => format!("{seen}.domain({of})"),
                }
            }
            _ => String::new(),
        }
    }

    pub(super) fn call(&mut self, function: usize, arguments: &[Expr], scope: Scope<'_>) -> String {
        let called = &self.policy.functions[function];
        let mut texts = Vec::new();
        match (called.needs, scope.given) {
            (Needs::Nothing, _) => {}
            (Needs::Seen, Given::Seen) => texts.push("seen".to_owned()),
            (Needs::Seen, Given::Balance) => texts.push("&balance.seen()".to_owned()),
            (Needs::Seen, _) => texts.push("&at.seen()".to_owned()),
            (Needs::Lock, _) => texts.push("at".to_owned()),
        }
        let kinds: Vec<Type> = called
            .parameters
            .iter()
            .map(|id| called.body.locals[*id].kind)
            .collect();
        let (name, needs) = (function_name(&called.name), called.needs);
        let mut before = String::new();
        for (number, (argument, kind)) in arguments.iter().zip(kinds).enumerate() {
            let text = self.coerced(argument, kind, scope);
            if needs == Needs::Lock && uses_at(&text) {
                let _ = write!(before, "let argument{number} = {text}; ");
                texts.push(format!("argument{number}"));
            } else {
                texts.push(text);
            }
        }
        let call = format!("self.{name}({})", texts.join(", "));
        if before.is_empty() {
            call
        } else {
            format!("{{ {before}{call} }}")
        }
    }

    pub(super) fn expr(&mut self, expr: &Expr, scope: Scope<'_>) -> String {
        let seen = seen(scope.given);
        // Under a core's lock, its own counts are read as they are.
        let counts = match scope.given {
            Given::Lock => "at",
            _ => &seen,
        };
        match &expr.kind {
            ExprKind::Int(value) => match expr.of {
                Type::Enum(of) => upper(&self.policy.enums[of].values[*value as usize]),
                Type::Bool => (*value != 0).to_string(),
                _ => number(*value),
            },
            ExprKind::Bool(value) => value.to_string(),
            ExprKind::Parameter(index) => {
                format!("self.{}", safe(&self.policy.parameters[*index].name))
            }
            ExprKind::Local(id) => safe(&scope.locals[*id].name),
            ExprKind::SelfCore => "at.core()".into(),
            ExprKind::Current => "at.current()".into(),
            ExprKind::ThreadAttribute(thread, index) => {
                let attribute = &self.policy.thread[*index];
                let thread = self.expr(thread, scope);
                let value = format!("{thread}.attributes().{}.get()", safe(&attribute.name));
                match attribute.kind {
                    Type::Bool => format!("({value} != 0)"),
                    Type::Core => format!("Cpu::new({value} as u32)"),
                    _ => value,
                }
            }
            ExprKind::Thread(thread, fact) => {
                let thread = self.expr(thread, scope);
                let fact = match fact {
                    ThreadFact::Nice => "nice",
                    ThreadFact::Weight => "weight",
                    ThreadFact::Runtime => "runtime",
                };
                format!("{thread}.{fact}()")
            }
            ExprKind::CoreAttribute(index) => {
                format!("at.attributes().{}", safe(&self.policy.core[*index].name))
            }
            ExprKind::Cload(core) => {
                let is_dst = matches!(core.kind, ExprKind::Local(id) if scope.dst == Some(id));
                let core = self.expr(core, scope);
                if is_dst {
                    format!("({counts}.cload({core}) + moved.0)")
                } else {
                    format!("{counts}.cload({core})")
                }
            }
            ExprKind::Count(core) => {
                let is_dst = matches!(core.kind, ExprKind::Local(id) if scope.dst == Some(id));
                let core = self.expr(core, scope);
                if is_dst {
                    format!("({counts}.count({core}) + moved.1)")
                } else {
                    format!("{counts}.count({core})")
                }
            }
            ExprKind::Waiting(queue) => {
                format!("at.waiting({})", constant_of(&self.policy.queues[*queue]))
            }
            ExprKind::Queue(queue) => constant_of(&self.policy.queues[*queue]),
            ExprKind::Cores(..) | ExprKind::Domains(_) => self.members(expr, scope),
            ExprKind::First(set, order) => self.first(set, *order, scope),
            ExprKind::Valid(of) => format!("{}.is_some()", self.expr(of, scope)),
            ExprKind::Call(function, arguments) => self.call(*function, arguments, scope),
            ExprKind::Min(a, b) => {
                format!("{}.min({})", self.receiver(a, scope), self.expr(b, scope))
            }
            ExprKind::Max(a, b) => {
                format!("{}.max({})", self.receiver(a, scope), self.expr(b, scope))
            }
            ExprKind::Now => match scope.given {
                Given::Lock => "at.now()".into(),
                _ => format!("{seen}.now()"),
            },
            ExprKind::Random(most) => {
                let most = self.expr(most, scope);
                match scope.given {
                    Given::Lock if uses_at(&most) => {
                        format!("{{ let most = {most}; at.random(most) }}")
                    }
                    Given::Lock => format!("at.random({most})"),
                    _ => format!("{seen}.random({most})"),
                }
            }
            ExprKind::Wakeup(Wakeup::Last) => "wake.prev_cpu".into(),
            ExprKind::Wakeup(Wakeup::Waker) => "wake.waker_cpu".into(),
            ExprKind::Wakeup(Wakeup::IsSync) => "wake.sync".into(),
            ExprKind::Not(of) => format!("!{}", self.receiver(of, scope)),
            ExprKind::Negate(of) => format!("-{}", self.receiver(of, scope)),
            ExprKind::Binary(a, operator, b) => {
                // Comparisons do not associate in Rust.
                let (left, right) = match operator.level() {
                    3 | 4 => (5, 5),
                    level => (level, level + 1),
                };
                let left = self.operand(a, left, scope);
                // At the beginning of a statement, a block is one.
                let left = if left.starts_with('{') {
                    format!("({left})")
                } else {
                    left
                };
                let right = self.operand(b, right, scope);
                format!("{left} {} {right}", operator.text())
            }
        }
    }

    /// What a method is called on, or a sign stands before.
    fn receiver(&mut self, expr: &Expr, scope: Scope<'_>) -> String {
        let text = self.expr(expr, scope);
        match expr.kind {
            ExprKind::Binary(..) | ExprKind::Negate(_) | ExprKind::Not(_) => format!("({text})"),
            ExprKind::Int(value) if !matches!(expr.of, Type::Enum(_) | Type::Bool) => {
                if value < 0 {
                    format!("({text}_i64)")
                } else {
                    format!("{text}_i64")
                }
            }
            _ => text,
        }
    }

    /// An operand of an operator that binds as tightly as `level`.
    pub(super) fn operand(&mut self, expr: &Expr, level: u8, scope: Scope<'_>) -> String {
        let text = self.expr(expr, scope);
        match &expr.kind {
            ExprKind::Binary(_, operator, _) if operator.level() < level => format!("({text})"),
            _ => text,
        }
    }

    pub(super) fn first(&mut self, set: &Expr, order: Option<Order>, scope: Scope<'_>) -> String {
        if let ExprKind::Queue(queue) = set.kind {
            return format!("at.first({})", constant_of(&self.policy.queues[queue]));
        }
        let members = self.members(set, scope);
        match order {
            Some(order) => {
                let key = key_of(order, &seen(scope.given));
                format!("{members}.min_by_key({key})")
            }
            None => format!("{members}.next()"),
        }
    }
}

/// The order of cores, as a closure. The nearest of those that are equal comes first.
pub(super) fn key_of(order: Order, seen: &str) -> String {
    let what = match order.by {
        Key::Cload => "cload",
        Key::Count | Key::Attribute(_) => "count",
    };
    let sign = if order.is_lowest { "" } else { "-" };
    format!("|&core| {sign}{seen}.{what}(core)")
}

/// Does an expression use the core whose lock is held?
pub(super) fn uses_at(text: &str) -> bool {
    text.contains("at.") || text.contains("(at")
}

/// How a body names what is seen of other cores.
pub(super) fn seen(given: Given) -> String {
    match given {
        Given::Nothing | Given::Seen => "seen".into(),
        Given::Lock => "at.seen()".into(),
        Given::Balance => "balance.seen()".into(),
    }
}
