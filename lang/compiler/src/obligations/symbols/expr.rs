// SPDX-License-Identifier: GPL-2.0-only
//! Expressions.

use super::attributes::parameter;
use super::found::Clock;
use super::terms::{and, not, number, or};
use super::values::{Core, Value};
use super::{Evaluator, Path, IS_SYNC};
use crate::ast::Binary;
use crate::hir::*;

impl<'p> Evaluator<'p> {
    /// The condition on which a search has found something.
    pub fn is_there(&mut self, value: &Value) -> String {
        match value {
            Value::Core(Core::Some(place)) => {
                let name = format!("found_{place}");
                if !self.declared.iter().any(|(known, _)| *known == name) {
                    self.declared.push((name.clone(), "Bool"));
                }
                name
            }
            Value::Core(Core::Either(condition, a, b)) => {
                let (a, b) = (Value::Core((**a).clone()), Value::Core((**b).clone()));
                let (a, b) = (self.is_there(&a), self.is_there(&b));
                format!("(ite {condition} {a} {b})")
            }
            Value::Either(condition, a, b) => {
                let (a, b) = (self.is_there(a), self.is_there(b));
                format!("(ite {condition} {a} {b})")
            }
            Value::Core(_) | Value::Term(_) | Value::Domain => "true".into(),
            Value::Thread(thread) => match self.firsts.get(thread) {
                Some((_, is_there)) => is_there.clone(),
                None => self.declare("found", "Bool"),
            },
        }
    }

    pub(super) fn term(&mut self, expr: &'p Expr, path: &mut Path) -> String {
        match self.value(expr, path) {
            Value::Term(term) => term,
            Value::Core(_) | Value::Thread(_) | Value::Either(..) | Value::Domain => {
                self.declare("other", Self::sort(expr.of))
            }
        }
    }

    pub(super) fn core(&mut self, expr: &'p Expr, path: &mut Path) -> Core {
        match self.value(expr, path) {
            Value::Core(core) => core,
            _ => {
                self.fresh += 1;
                Core::Some(self.fresh)
            }
        }
    }

    pub fn value(&mut self, expr: &'p Expr, path: &mut Path) -> Value {
        match &expr.kind {
            ExprKind::Int(value) if expr.of == Type::Bool => Value::Term((*value != 0).to_string()),
            ExprKind::Int(value) => Value::Term(number(*value)),
            ExprKind::Bool(value) => Value::Term(value.to_string()),
            ExprKind::Parameter(index) => {
                Value::Term(format!("param_{}", self.policy.parameters[*index].name))
            }
            ExprKind::Local(id) => match self.values.get(id) {
                Some(value) => value.clone(),
                None => {
                    let value = match self.locals[*id].kind {
                        Type::Core => Value::Core(Core::Local(*id)),
                        Type::Thread => Value::Thread(parameter(*id)),
                        of => self.any("parameter", of),
                    };
                    self.values.insert(*id, value.clone());
                    value
                }
            },
            ExprKind::SelfCore
            | ExprKind::Current
            | ExprKind::Queue(_)
            | ExprKind::Cores(..)
            | ExprKind::Domains(_) => self.any("place", expr.of),
            ExprKind::ThreadAttribute(thread, index) => {
                if self.policy.load == Some(*index) {
                    if let Some(load) = &self.load {
                        return Value::Term(load.clone());
                    }
                }
                let thread = self.value(thread, path);
                self.attribute_of(&thread, *index, expr.of)
            }
            ExprKind::Thread(_, fact) => {
                let value = self.declare("fact", "Int");
                if *fact == ThreadFact::Weight {
                    self.assumed.push(format!("(<= 15 {value} 88761)"));
                    self.weights.push(value.clone());
                }
                Value::Term(value)
            }
            ExprKind::CoreAttribute(index) => match expr.of {
                Type::Core => self.any("attribute", expr.of),
                of => Value::Term(self.attribute(&format!("core.{index}"), of)),
            },
            ExprKind::Cload(core) => {
                let core = self.core(core, path);
                Value::Term(self.reads.read(core, "cload"))
            }
            ExprKind::Count(core) => {
                let core = self.core(core, path);
                Value::Term(self.reads.read(core, "count"))
            }
            ExprKind::Waiting(queue) => {
                if let Some(lengths) = &self.lengths {
                    return Value::Term(lengths[*queue].clone());
                }
                let value = self.declare("waiting", "Int");
                self.assumed.push(format!("(>= {value} 0)"));
                Value::Term(value)
            }
            ExprKind::First(set, order) => self.first(set, *order, path),
            ExprKind::Valid(of) => {
                let value = self.value(of, path);
                Value::Term(self.is_there(&value))
            }
            ExprKind::Call(function, arguments) => self.call(*function, arguments, path),
            ExprKind::Min(a, b) => {
                let (a, b) = (self.term(a, path), self.term(b, path));
                Value::Term(format!("(ite (<= {a} {b}) {a} {b})"))
            }
            ExprKind::Max(a, b) => {
                let (a, b) = (self.term(a, path), self.term(b, path));
                Value::Term(format!("(ite (>= {a} {b}) {a} {b})"))
            }
            ExprKind::Now => self.now(),
            ExprKind::Random(_) => self.any("input", expr.of),
            ExprKind::Wakeup(Wakeup::Waker) => Value::Core(Core::Waker),
            ExprKind::Wakeup(Wakeup::IsSync) => {
                let name = (IS_SYNC.to_owned(), "Bool");
                if !self.declared.contains(&name) {
                    self.declared.push(name);
                }
                Value::Term(IS_SYNC.into())
            }
            ExprKind::Wakeup(Wakeup::Last) => self.any("wakeup", expr.of),
            ExprKind::Not(of) => {
                let of = self.term(of, path);
                Value::Term(not(&of))
            }
            ExprKind::Negate(of) => {
                let of = self.term(of, path);
                Value::Term(format!("(- {of})"))
            }
            ExprKind::Binary(a, operator, b) => self.binary(a, *operator, b, path),
        }
    }

    pub(super) fn binary(
        &mut self,
        a: &'p Expr,
        operator: Binary,
        b: &'p Expr,
        path: &mut Path,
    ) -> Value {
        if matches!(a.of, Type::Core | Type::Thread) {
            return self.any("same", Type::Bool);
        }
        let (a, b) = (self.term(a, path), self.term(b, path));
        Value::Term(match operator {
            Binary::And => and(&a, &b),
            Binary::Or => or(&a, &b),
            Binary::NotEqual => format!("(not (= {a} {b}))"),
            Binary::Equal => format!("(= {a} {b})"),
            // Towards 0, as in the machine; the divisor is above 0.
            Binary::Divide => format!("(ite (>= {a} 0) (div {a} {b}) (- (div (- {a}) {b})))"),
            Binary::Remainder => format!("(ite (>= {a} 0) (mod {a} {b}) (- (mod (- {a}) {b})))"),
            other => format!("({} {a} {b})", other.text()),
        })
    }

    pub(super) fn now(&mut self) -> Value {
        let last = match &self.clock {
            Clock::Unknown => return self.any("input", Type::Time),
            Clock::Stands(time) => return Value::Term(time.clone()),
            Clock::Runs(last) => last.clone(),
        };
        let now = self.declare("now", "Int");
        self.assumed.push(format!("(<= {last} {now})"));
        self.clock = Clock::Runs(now.clone());
        Value::Term(now)
    }

    pub(super) fn first(&mut self, set: &'p Expr, order: Option<Order>, path: &Path) -> Value {
        if let ExprKind::Cores(which, _) = &set.kind {
            let is_lowest = order.is_some_and(|order| {
                order.is_lowest && matches!(order.by, Key::Cload | Key::Count)
            });
            match which {
                Cores::All if is_lowest => return Value::Core(Core::Lowest),
                Cores::Idle => {
                    self.fresh += 1;
                    let core = Core::Some(self.fresh);
                    let found = self.is_there(&Value::Core(core.clone()));
                    // Its count was seen at 0; if none was found, each count was seen above 0.
                    let seen = self.reads.count(core.clone());
                    self.assumed.push(format!("(=> {found} (= {seen} 0))"));
                    self.all_busy.push(and(&path.condition, &not(&found)));
                    return Value::Core(core);
                }
                _ => {}
            }
        }
        match set.of {
            Type::Threads => {
                let first = self.any("first", Type::MaybeThread);
                if let (Value::Thread(thread), ExprKind::Queue(queue), Some(lengths)) =
                    (&first, &set.kind, &self.lengths)
                {
                    let is_there = format!("(>= {} 1)", lengths[*queue]);
                    self.firsts.insert(*thread, (*queue, is_there));
                }
                first
            }
            _ => self.any("first", Type::MaybeCore),
        }
    }

    /// The value of a call: the function's body, in place.
    pub(super) fn call(
        &mut self,
        function: usize,
        arguments: &'p [Expr],
        path: &mut Path,
    ) -> Value {
        let called = &self.policy.functions[function];
        let values: Vec<Value> = arguments.iter().map(|it| self.value(it, path)).collect();
        let locals = std::mem::replace(&mut self.locals, &called.body.locals);
        let outer = std::mem::take(&mut self.values);
        let returns = std::mem::take(&mut self.returns);
        let exits = std::mem::take(&mut self.exits);
        let loops = self.loops.len();
        for (id, value) in called.parameters.iter().zip(values) {
            self.values.insert(*id, value);
        }
        let mut inner = path.clone();
        self.block(&called.body.statements, &mut inner);
        let value = called.body.value.as_ref();
        let mut result = value.map(|value| self.value(value, &mut inner));
        // The last return is that of the path that comes to it; each other one has its condition.
        for (condition, value) in std::mem::replace(&mut self.returns, returns)
            .into_iter()
            .rev()
        {
            result = Some(match (result, value) {
                (Some(Value::Term(other)), Value::Term(value)) => {
                    Value::Term(format!("(ite {condition} {value} {other})"))
                }
                (Some(Value::Core(other)), Value::Core(value)) => {
                    Value::Core(Core::Either(condition, Box::new(value), Box::new(other)))
                }
                (_, value) => value,
            });
        }
        self.locals = locals;
        self.values = outer;
        self.exits = exits;
        self.loops.truncate(loops);
        result.unwrap_or_else(|| Value::Term("0".into()))
    }
}
