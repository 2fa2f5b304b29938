// SPDX-License-Identifier: GPL-2.0-only
//! Bodies as formulas: each path, with what is known on it.

mod assigned;
mod attributes;
mod expr;
mod found;
mod script;
mod terms;
mod values;

use std::collections::HashMap;

use crate::hir::*;
use assigned::assigned;
pub use assigned::assigns;
use attributes::parameter;
use found::{Clock, Exit, Move, Run, Sweep};
pub use found::{Loop, Stir};
use terms::{and, not, number, or};
use values::threads;
pub use values::{is_number, Core, Reads, Value};

/// The variable that says whether the waker is about to sleep.
pub const IS_SYNC: &str = "is_sync";

/// The most threads on a core of a small machine.
pub const SMALL: u32 = 8;

/// The longest term that is written out where it is used, bytes. A longer one has a name.
const LONGEST_TERM: usize = 300;

/// Evaluates one body, and the functions that it calls.
#[derive(Clone)]
pub struct Evaluator<'p> {
    policy: &'p Policy,
    locals: &'p [Local],
    values: HashMap<LocalId, Value>,
    pub reads: Reads,
    declared: Vec<(String, &'static str)>,
    assumed: Vec<String>,
    /// Attributes of threads and cores, by name: they do not change while a thread is looked at,
    /// but by assignments.
    attributes: HashMap<String, String>,
    /// Conditions under which every core was seen with a thread.
    all_busy: Vec<String>,
    /// The condition on which the subject was moved.
    moved: String,
    /// The load of the thread that is looked at.
    load: Option<String>,
    pub sweeps: Vec<Sweep>,
    pub loops: Vec<Loop>,
    pub moves: Vec<Move>,
    pub runs: Vec<Run>,
    pub stirs: Vec<Stir>,
    /// The thread of the handler, if it is in no queue and does not run.
    subject: Option<usize>,
    /// How many loops are tried for what they change.
    trials: usize,
    /// The variables that are weights of threads.
    weights: Vec<String>,
    clock: Clock,
    /// The number of threads in each queue, if that is followed.
    lengths: Option<Vec<String>>,
    /// Of each thread that is the first of a queue: the queue, and whether it is there.
    firsts: HashMap<usize, (usize, String)>,
    /// Of the loop that is looked at.
    exits: Vec<Exit>,
    /// What a function returned, by path.
    returns: Vec<(String, Value)>,
    fresh: usize,
}

/// A path through a body: the condition on which it is taken.
#[derive(Clone, Debug)]
pub struct Path {
    condition: String,
}

impl<'p> Evaluator<'p> {
    pub fn new(policy: &'p Policy, body: &'p Body) -> Self {
        let mut evaluator = Self {
            policy,
            locals: &body.locals,
            values: HashMap::new(),
            reads: Reads::default(),
            declared: Vec::new(),
            assumed: Vec::new(),
            attributes: HashMap::new(),
            all_busy: Vec::new(),
            moved: "false".into(),
            load: None,
            sweeps: Vec::new(),
            loops: Vec::new(),
            moves: Vec::new(),
            runs: Vec::new(),
            stirs: Vec::new(),
            subject: None,
            trials: 0,
            weights: Vec::new(),
            clock: Clock::Unknown,
            lengths: None,
            firsts: HashMap::new(),
            exits: Vec::new(),
            returns: Vec::new(),
            fresh: 0,
        };
        for parameter in &policy.parameters {
            let name = format!("param_{}", parameter.name);
            evaluator.declared.push((name.clone(), "Int"));
            let (least, most) = parameter.range.unwrap_or((0, i64::MAX));
            let range = format!("(<= {} {name} {})", number(least), number(most));
            evaluator.assumed.push(range);
        }
        evaluator
    }

    /// Follows the time from this moment on, and the number of threads in each queue.
    pub fn follow(&mut self, begin: &str) {
        self.clock = Clock::Runs(begin.into());
        let lengths = (0..self.policy.queues.len()).map(|_| {
            let length = self.declare("waiting", "Int");
            self.assumed.push(format!("(>= {length} 0)"));
            length
        });
        self.lengths = Some(lengths.collect());
    }

    /// The thread of the handler is in no queue, and does not run, until the handler moves it.
    pub fn subject(&mut self, thread: LocalId) {
        self.subject = Some(parameter(thread));
    }

    /// The number of threads in a queue, if that is followed.
    pub fn length(&self, queue: usize) -> String {
        let lengths = self.lengths.as_ref().map(|lengths| lengths[queue].clone());
        lengths.unwrap_or_else(|| "0".into())
    }

    /// The time that was read last; 0 if the time is not followed.
    pub fn last_time(&self) -> String {
        match &self.clock {
            Clock::Runs(last) | Clock::Stands(last) => last.clone(),
            Clock::Unknown => "0".into(),
        }
    }

    /// The rank of a queue at a time.
    pub fn rank(&mut self, queue: usize, time: &str) -> Vec<(Type, String)> {
        let clock = std::mem::replace(&mut self.clock, Clock::Stands(time.into()));
        let mut path = Path {
            condition: "true".into(),
        };
        let rank = &self.policy.queues[queue].rank;
        let rank = rank
            .iter()
            .map(|value| (value.of, self.term(value, &mut path)));
        let rank = rank.collect();
        self.clock = clock;
        rank
    }

    /// The condition on which a thread is the first of a queue.
    pub fn is_first_of(&self, thread: &Value, queue: usize) -> String {
        match thread {
            Value::Thread(thread) => match self.firsts.get(thread) {
                Some((of, is_there)) if *of == queue => is_there.clone(),
                _ => "false".into(),
            },
            Value::Either(condition, a, b) => {
                let (a, b) = (self.is_first_of(a, queue), self.is_first_of(b, queue));
                format!("(ite {condition} {a} {b})")
            }
            _ => "false".into(),
        }
    }

    /// The attributes of the core, as they are now, but cores.
    pub fn core_terms(&mut self) -> Vec<String> {
        let policy = self.policy;
        let core = policy.core.iter().enumerate();
        let values = core.filter(|(_, it)| it.kind != Type::Core);
        let terms = values.map(|(index, it)| self.attribute(&format!("core.{index}"), it.kind));
        terms.collect()
    }

    /// A variable of this name.
    pub fn variable(&mut self, name: &str) {
        self.declared.push((name.into(), "Int"));
    }

    /// The variables that are no reads, each with its sort.
    pub fn declared(&self) -> &[(String, &'static str)] {
        &self.declared
    }

    /// What is known of the variables.
    pub fn assumed(&self) -> &[String] {
        &self.assumed
    }

    pub fn assume(&mut self, what: String) {
        self.assumed.push(what);
    }

    /// The variable that is the load of the thread which is looked at, if it is not 1.
    pub fn load_name(&self) -> Option<&str> {
        self.load.as_deref().filter(|load| *load != "1")
    }

    /// The thread that is looked at has a load: at least 1, and less than its core's.
    pub fn thread_load(&mut self, thread: LocalId, src: LocalId) {
        let _ = thread;
        let src = Core::Local(src);
        let (sum, count) = (self.reads.read(src.clone(), "cload"), self.reads.count(src));
        if self.reads.locked.as_ref().is_some_and(|(_, unit)| *unit) {
            self.assumed.push(format!("(= {sum} {count})"));
            self.load = Some("1".into());
            return;
        }
        let load = self.declare("load", "Int");
        // Each other thread has a load of at least 1.
        self.assumed
            .push(format!("(and (<= 1 {load}) (<= {count} {sum}))"));
        self.assumed
            .push(format!("(<= (+ {load} (- {count} 1)) {sum})"));
        self.load = Some(load);
    }

    fn declare(&mut self, what: &str, of: &'static str) -> String {
        self.fresh += 1;
        let name = format!("{what}_v{}", self.fresh);
        self.declared.push((name.clone(), of));
        name
    }

    /// A term, or the name of a variable for it if it is long: used again and again, it would grow
    /// without limit.
    fn named(&mut self, term: String, of: Type) -> String {
        if term.len() <= LONGEST_TERM {
            return term;
        }
        let name = self.declare("long", Self::sort(of));
        self.assumed.push(format!("(= {name} {term})"));
        name
    }

    fn sort(of: Type) -> &'static str {
        match of {
            Type::Bool => "Bool",
            _ => "Int",
        }
    }

    /// Any value of a type.
    fn any(&mut self, what: &str, of: Type) -> Value {
        self.fresh += 1;
        match of {
            Type::Core | Type::MaybeCore => Value::Core(Core::Some(self.fresh)),
            Type::Thread | Type::MaybeThread => Value::Thread(self.fresh),
            _ => Value::Term(self.declare(what, Self::sort(of))),
        }
    }

    /// The condition on which an expression body, or one with returns, is true.
    pub fn condition(&mut self, body: &'p Body) -> String {
        let mut path = self.run(&body.statements);
        let mut truth = String::from("false");
        for (condition, value) in std::mem::take(&mut self.returns) {
            if let Value::Term(term) = value {
                truth = or(&truth, &and(&condition, &term));
            }
        }
        if let Some(value) = &body.value {
            if let Value::Term(term) = self.value(value, &mut path) {
                truth = or(&truth, &and(&path.condition, &term));
            }
        }
        truth
    }

    /// The condition on which `steal_thread` moves its thread.
    pub fn moves(&mut self, body: &'p Body) -> String {
        self.run(&body.statements);
        self.moved.clone()
    }

    /// Runs a body from its beginning. Returns the path to its end.
    pub fn run(&mut self, statements: &'p [Statement]) -> Path {
        let mut path = Path {
            condition: "true".into(),
        };
        self.block(statements, &mut path);
        path
    }

    fn block(&mut self, statements: &'p [Statement], path: &mut Path) {
        for statement in statements {
            self.statement(statement, path);
        }
    }

    fn assign(&mut self, id: LocalId, value: Value, path: &Path) {
        let of = self.locals[id].kind;
        // Paths that do not come here keep the old value.
        let value = match (self.values.get(&id).cloned(), value) {
            (Some(Value::Term(old)), Value::Term(new)) if path.condition != "true" => {
                let term = format!("(ite {} {new} {old})", path.condition);
                Value::Term(self.named(term, of))
            }
            (Some(Value::Core(old)), Value::Core(new)) if path.condition != "true" => Value::Core(
                Core::Either(path.condition.clone(), Box::new(new), Box::new(old)),
            ),
            (Some(old @ (Value::Thread(_) | Value::Either(..))), new)
                if path.condition != "true" && !matches!(new, Value::Term(_)) =>
            {
                Value::Either(path.condition.clone(), Box::new(new), Box::new(old))
            }
            // One of two domains is not known to have all cores.
            (Some(old), new)
                if path.condition != "true"
                    && matches!(old, Value::Domain) != matches!(new, Value::Domain) =>
            {
                self.any("domain", Type::Domain)
            }
            (_, value) => value,
        };
        self.values.insert(id, value);
    }

    fn statement(&mut self, statement: &'p Statement, path: &mut Path) {
        match &statement.kind {
            StatementKind::Let(id, value) => {
                let value = self.value(value, path);
                self.values.insert(*id, value);
            }
            StatementKind::Set(id, value) => {
                let value = self.value(value, path);
                self.assign(*id, value, path);
            }
            StatementKind::SetThread(thread, index, value) => {
                let thread = self.value(thread, path);
                for (condition, thread) in threads(&thread) {
                    let mut path = Path {
                        condition: and(&path.condition, &condition),
                    };
                    self.set_attribute(format!("thread{thread}.{index}"), value, &mut path);
                    self.changes_thread(thread, *index, &path);
                }
            }
            StatementKind::SetCore(index, value) => {
                self.set_attribute(format!("core.{index}"), value, path);
            }
            StatementKind::If {
                conditions,
                then,
                otherwise,
            } => {
                let mut holds = String::from("true");
                for condition in conditions {
                    let condition = match condition {
                        Condition::Holds(condition) => self.term(condition, path),
                        Condition::IsThere(value, id) => {
                            let value = self.value(value, path);
                            let is_there = self.is_there(&value);
                            self.values.insert(*id, value);
                            is_there
                        }
                    };
                    holds = and(&holds, &condition);
                }
                let mut yes = Path {
                    condition: and(&path.condition, &holds),
                };
                let mut no = Path {
                    condition: and(&path.condition, &not(&holds)),
                };
                self.block(then, &mut yes);
                if let Some(otherwise) = otherwise {
                    self.block(otherwise, &mut no);
                }
                let condition = or(&yes.condition, &no.condition);
                path.condition = self.named(condition, Type::Bool);
            }
            StatementKind::Unless(value, id, leaves) => {
                let value = self.value(value, path);
                let is_there = self.is_there(&value);
                let mut gone = Path {
                    condition: and(&path.condition, &not(&is_there)),
                };
                self.block(leaves, &mut gone);
                path.condition = and(&path.condition, &is_there);
                self.values.insert(*id, value);
            }
            StatementKind::Foreach(id, set, _, body) => self.foreach(*id, set, body, path),
            StatementKind::Break => self.exit(path, false),
            StatementKind::Return(value) => {
                let value = match value {
                    Some(value) => self.value(value, path),
                    None => Value::Term("0".into()),
                };
                self.returns.push((path.condition.clone(), value));
                self.exit(path, true);
            }
            StatementKind::Enqueue(thread, queue) => {
                self.moved = or(&self.moved, &path.condition);
                self.enqueue(thread, *queue, path);
            }
            StatementKind::Run(thread, _) => {
                let thread = self.value(thread, path);
                let condition = path.condition.clone();
                self.runs.push(Run { condition, thread });
            }
            StatementKind::Call(function, arguments) => {
                self.call(*function, arguments, path);
            }
            StatementKind::StealFor(core, domain) => {
                let of = self.core(core, path);
                let domain = domain.as_ref().map(|domain| self.value(domain, path));
                if matches!(domain, None | Some(Value::Domain)) {
                    let condition = path.condition.clone();
                    self.sweeps.push(Sweep { of, condition });
                }
            }
            StatementKind::Resched | StatementKind::SetTimer(_) => {}
        }
    }

    fn enqueue(&mut self, thread: &'p Expr, queue: usize, path: &mut Path) {
        let key = match (self.policy.queues[queue].order, self.value(thread, path)) {
            (
                Some(Order {
                    by: Key::Attribute(index),
                    ..
                }),
                Value::Thread(thread),
            ) => {
                let of = self.policy.thread[index].kind;
                self.thread_attribute(thread, index, of)
            }
            _ => Value::Term("0".into()),
        };
        if let Value::Term(key) = key {
            self.moves.push(Move {
                condition: path.condition.clone(),
                queue,
                key,
            });
        }
    }

    fn exit(&mut self, path: &mut Path, is_return: bool) {
        let condition = std::mem::replace(&mut path.condition, "false".into());
        self.exits.push(Exit {
            condition,
            is_return,
        });
    }

    /// One turn of a loop, of any member, after any number of turns. Of a loop over the domains of
    /// a core it is the last turn, which comes if no turn leaves the loop.
    fn foreach(&mut self, id: LocalId, set: &'p Expr, body: &'p [Statement], path: &mut Path) {
        let mut changed = Vec::new();
        assigned(body, &mut changed);
        for local in &changed {
            let value = self.any("turn", self.locals[*local].kind);
            self.values.insert(*local, value);
        }
        let attributes = self.changed_by(id, body, path);
        self.forget(&attributes);
        let member = match set.kind {
            ExprKind::Domains(_) => Value::Domain,
            _ => self.any("member", self.locals[id].kind),
        };
        let comes = match member {
            Value::Domain => "true".into(),
            // Whether there is such a turn is not known.
            _ => self.declare("comes", "Bool"),
        };
        self.values.insert(id, member.clone());
        let mut turn = Path {
            condition: and(&path.condition, &comes),
        };
        let (sweeps, outer) = (self.sweeps.len(), std::mem::take(&mut self.exits));
        self.block(body, &mut turn);
        let exits = std::mem::replace(&mut self.exits, outer);
        let conditions = exits.iter().map(|exit| &exit.condition);
        let leaves = conditions.fold("false".to_owned(), |all, one| or(&all, one));
        for sweep in &mut self.sweeps[sweeps..] {
            sweep.condition = and(&sweep.condition, &not(&leaves));
        }
        let is_whole = matches!(set.kind, ExprKind::Cores(Cores::All | Cores::Idle, _));
        if let (Value::Core(member), true, true) = (member, is_whole, exits.is_empty()) {
            self.loops.push(Loop { member, comes });
        }
        self.exits
            .extend(exits.into_iter().filter(|exit| exit.is_return));
        for local in changed {
            let value = self.any("after", self.locals[local].kind);
            self.values.insert(local, value);
        }
        self.forget(&attributes);
        // A turn that returns is the last one.
        let leaves: Vec<&String> = self
            .returns
            .iter()
            .map(|(condition, _)| condition)
            .collect();
        let left = leaves
            .iter()
            .fold("false".to_owned(), |all, one| or(&all, one));
        path.condition = and(&path.condition, &not(&left));
    }
}
