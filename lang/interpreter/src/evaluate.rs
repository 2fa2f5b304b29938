// SPDX-License-Identifier: GPL-2.0-only
//! Statements and expressions.
//!
//! What a body asks of the host, it asks in the order in which the compiled policy does. A result
//! that does not fit into 64 bits is a panic, as there.

use baton_lang::ast::Binary;
use baton_lang::hir::*;
use baton_machine::{At, Balance, CoreSet, Cpu, Next, Place, Rules, Seen, Wake, DEFAULT_SLICE};

use crate::value::Value;
use crate::{Interpreted, OfThread};

/// What a body has of the machine.
pub enum Given<'x, 'm, 'c> {
    /// What is seen of other cores, and the wakeup that the call is about.
    Seen(Seen<'m, 'c, Interpreted>, Option<&'x Wake>),
    /// A core whose lock is held.
    Lock(&'x mut At<'c, 'm, Interpreted>),
    /// A call that moves threads between cores.
    Balance(&'x mut Balance<'m, 'c, Interpreted>),
}

/// What follows a statement.
enum Flow<'t> {
    Next,
    /// The end of a loop.
    Break,
    /// The end of the body.
    Return(Value<'t>),
}

/// A body that is being run.
pub struct Frame<'x, 'm, 'c, 't> {
    of: &'x Interpreted,
    given: Given<'x, 'm, 'c>,
    locals: Vec<Value<'t>>,
    /// In `steal_thread`: the core that threads move to, and their loads and number until now.
    pub moved: Option<(LocalId, (i64, i64))>,
    /// Where the thread of the body goes.
    pub place: Option<Place>,
    /// The thread that runs next.
    pub next: Option<Next<'t, OfThread>>,
}

impl<'x, 'm: 't, 'c, 't> Frame<'x, 'm, 'c, 't> {
    pub fn new(of: &'x Interpreted, given: Given<'x, 'm, 'c>, body: &Body) -> Self {
        Self {
            of,
            given,
            locals: vec![Value::Nothing; body.locals.len()],
            moved: None,
            place: None,
            next: None,
        }
    }

    /// Gives a local its value.
    pub fn name(&mut self, id: LocalId, value: Value<'t>) {
        self.locals[id] = value;
    }

    /// Runs a function's body.
    pub fn body(
        &mut self,
        function: &Function,
        arguments: impl IntoIterator<Item = Value<'t>>,
    ) -> Value<'t> {
        for (id, argument) in function.parameters.iter().zip(arguments) {
            self.name(*id, argument);
        }
        match self.run(&function.body.statements) {
            Flow::Return(value) => value,
            Flow::Next | Flow::Break => match &function.body.value {
                Some(value) => self.expr(value),
                None => Value::Nothing,
            },
        }
    }

    /// Runs statements of which no value is wanted.
    pub fn statements(&mut self, statements: &[Statement]) {
        self.run(statements);
    }

    fn run(&mut self, statements: &[Statement]) -> Flow<'t> {
        for statement in statements {
            match self.statement(&statement.kind) {
                Flow::Next => {}
                flow => return flow,
            }
        }
        Flow::Next
    }

    fn statement(&mut self, statement: &StatementKind) -> Flow<'t> {
        match statement {
            StatementKind::Let(id, value) | StatementKind::Set(id, value) => {
                self.locals[*id] = self.expr(value);
            }
            StatementKind::SetThread(thread, index, value) => {
                let thread = self.thread(thread);
                let value = self.expr(value).kept();
                thread.attributes().get(*index).set(value);
            }
            StatementKind::SetCore(index, value) => {
                let value = self.expr(value).kept();
                self.at().attributes_mut().0[*index] = value;
            }
            StatementKind::If {
                conditions,
                then,
                otherwise,
            } => {
                let holds = conditions.iter().all(|it| self.holds(it));
                return match (holds, otherwise) {
                    (true, _) => self.run(then),
                    (false, Some(otherwise)) => self.run(otherwise),
                    (false, None) => Flow::Next,
                };
            }
            StatementKind::Unless(value, id, leaves) => {
                let value = self.expr(value);
                if !value.is_there() {
                    return self.run(leaves);
                }
                self.locals[*id] = value;
            }
            StatementKind::Foreach(id, set, order, body) => {
                return self.foreach(*id, set, *order, body);
            }
            StatementKind::Break => return Flow::Break,
            StatementKind::Return(None) => return Flow::Return(Value::Nothing),
            StatementKind::Return(Some(value)) => return Flow::Return(self.expr(value)),
            StatementKind::Enqueue(thread, queue) => {
                let thread = self.thread(thread);
                // A thread that is stolen has its key when it comes to its new core.
                let key = match self.moved {
                    Some(_) => 0,
                    None => self.of.place_in(*queue, thread).key,
                };
                self.place = Some(Place { queue: *queue, key });
            }
            StatementKind::Run(thread, time) => {
                self.next = self.expr(thread).thread().map(|thread| {
                    let slice = time.as_ref().map(|time| self.expr(time).int());
                    let slice = slice.unwrap_or(DEFAULT_SLICE as i64);
                    Next { thread, slice }
                });
            }
            StatementKind::Call(function, arguments) => {
                self.call(*function, arguments);
            }
            StatementKind::Resched => self.at().resched(),
            StatementKind::SetTimer(after) => {
                let after = self.expr(after).int();
                self.at().set_timer(after);
            }
            StatementKind::StealFor(core, domain) => {
                let core = self.core(core);
                let domain = domain.as_ref().map(|it| self.expr(it).domain());
                let Given::Balance(balance) = &mut self.given else {
                    panic!("threads are stolen outside of balancing");
                };
                match domain {
                    Some(domain) => balance.steal_within(core, domain),
                    None => balance.steal_for(core),
                }
            }
        }
        Flow::Next
    }

    /// A condition of an `if`.
    fn holds(&mut self, condition: &Condition) -> bool {
        match condition {
            Condition::Holds(condition) => self.expr(condition).bool(),
            Condition::IsThere(value, id) => {
                self.locals[*id] = self.expr(value);
                self.locals[*id].is_there()
            }
        }
    }

    fn foreach(
        &mut self,
        id: LocalId,
        set: &Expr,
        order: Option<Order>,
        body: &[Statement],
    ) -> Flow<'t> {
        if let ExprKind::Queue(queue) = set.kind {
            let mut walk = self.at().walk(queue);
            while let Some(thread) = self.at().next_of(&mut walk) {
                match self.turn(id, Value::Thread(Some(thread)), body) {
                    Flow::Next => {}
                    Flow::Break => break,
                    flow => return flow,
                }
            }
            return Flow::Next;
        }
        let seen = self.seen();
        if let ExprKind::Domains(of) = &set.kind {
            let domains = seen.domains(self.core(of)).map(Value::Domain);
            return self.each(id, domains, body);
        }
        if let (Some(search), Given::Seen(..)) = (Search::of(set, order, body), &self.given) {
            return self.search(id, set, &search);
        }
        let members = self.members(&seen, set);
        let Some(order) = order else {
            let cores = members.map(|core| Value::Core(Some(core)));
            return self.each(id, cores, body);
        };
        let mut left: CoreSet = members.collect();
        let cores = std::iter::from_fn(|| {
            let key = |core: &Cpu| key(&seen, order, *core);
            let core = seen.members(&left).min_by_key(key)?;
            left.remove(core);
            Some(Value::Core(Some(core)))
        });
        self.each(id, cores, body)
    }

    /// A loop that looks for a core.
    fn search(&mut self, id: LocalId, set: &Expr, search: &Search<'_>) -> Flow<'t> {
        let ExprKind::Cores(which, of) = &set.kind else {
            panic!("a search is among cores");
        };
        let of = of.as_ref().map(|of| self.expr(of));
        let seen = self.seen();
        let holds = |core| {
            self.locals[id] = Value::Core(Some(core));
            search.conditions.iter().all(|it| self.holds(it))
        };
        let found = match (which, of) {
            (Cores::Llc, Some(of)) => seen.llc(there(of)).first_where(holds),
            (Cores::Node, Some(of)) => seen.node(there(of)).first_where(holds),
            (Cores::Siblings, Some(of)) => seen.siblings(there(of)).first_where(holds),
            (Cores::Domain, Some(of)) => seen.domain(of.domain()).first_where(holds),
            _ => seen.cores().first_where(holds),
        };
        if found.is_none() {
            return Flow::Next;
        }
        self.locals[id] = Value::Core(found);
        Flow::Return(self.expr(search.value))
    }

    fn each(
        &mut self,
        id: LocalId,
        values: impl Iterator<Item = Value<'t>>,
        body: &[Statement],
    ) -> Flow<'t> {
        for value in values {
            match self.turn(id, value, body) {
                Flow::Next => {}
                Flow::Break => break,
                flow => return flow,
            }
        }
        Flow::Next
    }

    /// One turn of a loop.
    fn turn(&mut self, id: LocalId, value: Value<'t>, body: &[Statement]) -> Flow<'t> {
        self.locals[id] = value;
        self.run(body)
    }

    /// The cores of a set, the nearest first.
    fn members<'s>(
        &mut self,
        seen: &'s Seen<'m, 'c, Interpreted>,
        set: &Expr,
    ) -> Box<dyn Iterator<Item = Cpu> + 's>
    where
        't: 's,
    {
        let ExprKind::Cores(which, of) = &set.kind else {
            let cores: &'s CoreSet = self.expr(set).cores();
            return Box::new(seen.members(cores));
        };
        let of = of.as_ref().map(|of| self.expr(of));
        match (which, of) {
            (Cores::Llc, Some(of)) => Box::new(seen.llc(there(of))),
            (Cores::Node, Some(of)) => Box::new(seen.node(there(of))),
            (Cores::Siblings, Some(of)) => Box::new(seen.siblings(there(of))),
            (Cores::Domain, Some(of)) => Box::new(seen.domain(of.domain())),
            (Cores::Idle, _) => Box::new(seen.idle_cores()),
            _ => Box::new(seen.cores()),
        }
    }

    fn call(&mut self, index: usize, arguments: &[Expr]) -> Value<'t> {
        let function = &self.of.program.functions[index];
        let arguments: Vec<_> = arguments.iter().map(|it| self.expr(it)).collect();
        let seen = self.seen();
        let given = match &mut self.given {
            Given::Lock(at) if function.needs == Needs::Lock => Given::Lock(at),
            _ => Given::Seen(seen, None),
        };
        Frame::new(self.of, given, &function.body).body(function, arguments)
    }

    pub fn expr(&mut self, expr: &Expr) -> Value<'t> {
        match &expr.kind {
            ExprKind::Int(value) if expr.of == Type::Bool => Value::Bool(*value != 0),
            ExprKind::Int(value) => Value::Int(*value),
            ExprKind::Bool(value) => Value::Bool(*value),
            ExprKind::Parameter(index) => Value::Int(self.of.parameters[*index]),
            ExprKind::Local(id) => self.locals[*id],
            ExprKind::SelfCore => Value::Core(Some(self.at().core())),
            ExprKind::Current => Value::Thread(self.at().current()),
            ExprKind::ThreadAttribute(thread, index) => {
                let thread = self.thread(thread);
                let kept = thread.attributes().get(*index).get();
                Value::of(kept, self.of.program.thread[*index].kind)
            }
            ExprKind::Thread(thread, fact) => {
                let thread = self.thread(thread);
                Value::Int(match fact {
                    ThreadFact::Nice => thread.nice(),
                    ThreadFact::Weight => thread.weight(),
                    ThreadFact::Runtime => thread.runtime(),
                })
            }
            ExprKind::CoreAttribute(index) => {
                let kept = self.at().attributes().0[*index];
                Value::of(kept, self.of.program.core[*index].kind)
            }
            ExprKind::Cload(core) => {
                let moves = self.moves_to(core);
                let core = self.core(core);
                let cload = match &self.given {
                    Given::Lock(at) => at.cload(core),
                    _ => self.seen().cload(core),
                };
                Value::Int(cload + moves.map_or(0, |moved| moved.0))
            }
            ExprKind::Count(core) => {
                let moves = self.moves_to(core);
                let core = self.core(core);
                let count = match &self.given {
                    Given::Lock(at) => at.count(core),
                    _ => self.seen().count(core),
                };
                Value::Int(count + moves.map_or(0, |moved| moved.1))
            }
            ExprKind::Waiting(queue) => Value::Int(self.at().waiting(*queue)),
            ExprKind::Queue(_) | ExprKind::Cores(..) | ExprKind::Domains(_) => {
                panic!("a set is no value")
            }
            ExprKind::First(set, order) => self.first(set, *order),
            ExprKind::Valid(of) => Value::Bool(self.expr(of).is_there()),
            ExprKind::Call(function, arguments) => self.call(*function, arguments),
            ExprKind::Min(a, b) => {
                let (a, b) = (self.expr(a).int(), self.expr(b).int());
                Value::Int(a.min(b))
            }
            ExprKind::Max(a, b) => {
                let (a, b) = (self.expr(a).int(), self.expr(b).int());
                Value::Int(a.max(b))
            }
            ExprKind::Now => Value::Int(self.seen().now()),
            ExprKind::Random(most) => {
                let most = self.expr(most).int();
                Value::Int(self.seen().random(most))
            }
            ExprKind::Wakeup(fact) => {
                let Given::Seen(_, Some(wake)) = &self.given else {
                    panic!("there is no wakeup");
                };
                match fact {
                    Wakeup::Last => Value::Core(Some(wake.prev_cpu)),
                    Wakeup::Waker => Value::Core(Some(wake.waker_cpu)),
                    Wakeup::IsSync => Value::Bool(wake.sync),
                }
            }
            ExprKind::Not(of) => Value::Bool(!self.expr(of).bool()),
            ExprKind::Negate(of) => {
                let value = self.expr(of).int().checked_neg();
                Value::Int(value.expect("attempt to negate with overflow"))
            }
            ExprKind::Binary(a, operator, b) => self.binary(a, *operator, b),
        }
    }

    fn binary(&mut self, a: &Expr, operator: Binary, b: &Expr) -> Value<'t> {
        match operator {
            Binary::And => return Value::Bool(self.expr(a).bool() && self.expr(b).bool()),
            Binary::Or => return Value::Bool(self.expr(a).bool() || self.expr(b).bool()),
            _ => {}
        }
        let (a, b) = (self.expr(a), self.expr(b));
        match operator {
            Binary::Equal => return Value::Bool(a.equals(b)),
            Binary::NotEqual => return Value::Bool(!a.equals(b)),
            _ => {}
        }
        let (a, b) = (a.int(), b.int());
        let (value, what) = match operator {
            Binary::Less => return Value::Bool(a < b),
            Binary::LessOrEqual => return Value::Bool(a <= b),
            Binary::More => return Value::Bool(a > b),
            Binary::MoreOrEqual => return Value::Bool(a >= b),
            Binary::Add => (a.checked_add(b), "add"),
            Binary::Subtract => (a.checked_sub(b), "subtract"),
            Binary::Multiply => (a.checked_mul(b), "multiply"),
            Binary::Divide => (a.checked_div(b), "divide"),
            _ => (a.checked_rem(b), "calculate the remainder"),
        };
        // As the compiled policy says it.
        Value::Int(value.unwrap_or_else(|| panic!("attempt to {what} with overflow")))
    }

    fn first(&mut self, set: &Expr, order: Option<Order>) -> Value<'t> {
        if let ExprKind::Queue(queue) = set.kind {
            return Value::Thread(self.at().first(queue));
        }
        let seen = self.seen();
        let mut members = self.members(&seen, set);
        Value::Core(match order {
            Some(order) => members.min_by_key(|core| key(&seen, order, *core)),
            None => members.next(),
        })
    }

    /// A thread that is there.
    fn thread(&mut self, expr: &Expr) -> baton_machine::Thread<'t, OfThread> {
        let thread = self.expr(expr).thread();
        thread.expect("the compiler has checked that the thread is there")
    }

    /// A core that is there.
    fn core(&mut self, expr: &Expr) -> Cpu {
        there(self.expr(expr))
    }

    /// What has moved to this core and is not counted there yet: loads and number.
    fn moves_to(&self, core: &Expr) -> Option<(i64, i64)> {
        let (dst, moved) = self.moved?;
        matches!(core.kind, ExprKind::Local(id) if id == dst).then_some(moved)
    }

    /// The core whose lock is held.
    fn at(&mut self) -> &mut At<'c, 'm, Interpreted> {
        match &mut self.given {
            Given::Lock(at) => at,
            _ => panic!("no core's lock is held"),
        }
    }

    /// What is seen of other cores.
    fn seen(&self) -> Seen<'m, 'c, Interpreted> {
        match &self.given {
            Given::Seen(seen, _) => seen.clone(),
            Given::Lock(at) => at.seen(),
            Given::Balance(balance) => balance.seen(),
        }
    }
}

/// A core that is there.
fn there(core: Value<'_>) -> Cpu {
    core.core()
        .expect("the compiler has checked that the core is there")
}

/// What cores are ordered by: the lowest is first.
fn key(seen: &Seen<'_, '_, Interpreted>, order: Order, core: Cpu) -> i64 {
    let value = match order.by {
        Key::Cload => seen.cload(core),
        Key::Count | Key::Attribute(_) => seen.count(core),
    };
    if order.is_lowest {
        value
    } else {
        -value
    }
}
