// SPDX-License-Identifier: GPL-2.0-only
//! Bodies as formulas: each path, with what is known on it.

use std::collections::HashMap;
use std::fmt::Write;

use crate::ast::Binary;
use crate::hir::*;

/// The variable that says whether the waker is about to sleep.
pub const IS_SYNC: &str = "is_sync";

/// The most threads on a core of a small machine.
pub const SMALL: u32 = 8;

/// How deep loops are in each other, of which it is looked what they change. Deeper ones may change
/// all attributes.
const MOST_TRIALS: usize = 3;

/// The longest term that is written out where it is used, bytes. A longer one has a name.
const LONGEST_TERM: usize = 300;

/// A core, as far as it is told apart from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// A parameter, or the variable of a foreach: any core.
    Local(LocalId),
    /// Some core: the number of a place in the text.
    Some(usize),
    /// The one with the lowest load of all cores.
    Lowest,
    /// That of the thread that wakes the one which is placed.
    Waker,
    /// One of two, by a condition.
    Either(String, Box<Core>, Box<Core>),
}

/// A value. Numbers, times and enums are integers of SMT-LIB.
#[derive(Clone, Debug)]
pub enum Value {
    Term(String),
    Core(Core),
    /// A thread, or one of several.
    Thread(usize),
    /// One of two values, by a condition.
    Either(String, Box<Value>, Box<Value>),
    /// A domain of a core, in a turn of a loop over all of them. The last one has all cores.
    Domain,
}

/// A read of a core's load or count.
#[derive(Clone)]
pub struct Read {
    pub core: Core,
    /// Its variable.
    pub name: String,
    /// `count` or `cload`.
    pub what: &'static str,
}

/// What is read of cores.
#[derive(Clone, Default)]
pub struct Reads {
    all: Vec<Read>,
    /// What is known of each read of a core.
    bounds: Vec<(Core, &'static str)>,
    /// The core whose lock is held, and whether its load is its count.
    locked: Option<(Core, bool)>,
}

impl Reads {
    /// Each read of this core has this bound.
    pub fn bound(&mut self, core: Core, bound: &'static str) {
        self.bounds.push((core, bound));
    }

    /// The lock of this core is held.
    pub fn lock(&mut self, core: Core, has_unit_loads: bool) {
        self.locked = Some((core, has_unit_loads));
    }

    /// In the order of the text.
    pub fn all(&self) -> &[Read] {
        &self.all
    }

    /// Is this the core whose lock is held?
    pub fn is_locked(&self, core: &Core) -> bool {
        self.locked
            .as_ref()
            .is_some_and(|(locked, _)| locked == core)
    }

    /// A read of a core's count.
    pub fn count(&mut self, core: Core) -> String {
        self.read(core, "count")
    }

    fn read(&mut self, core: Core, what: &'static str) -> String {
        if self.is_locked(&core) {
            // Under its lock, a value does not change.
            let known = self
                .all
                .iter()
                .find(|it| it.core == core && it.what == what);
            if let Some(known) = known {
                return known.name.clone();
            }
        }
        let name = format!("{what}_{}", self.all.len());
        self.all.push(Read {
            core,
            name: name.clone(),
            what,
        });
        name
    }
}

/// A search for threads on all cores.
#[derive(Clone)]
pub struct Sweep {
    /// For which core.
    pub of: Core,
    /// The condition on which it happens.
    pub condition: String,
}

/// A loop over all cores, or all idle ones, that no turn leaves.
#[derive(Clone)]
pub struct Loop {
    pub member: Core,
    /// The variable that says whether a turn for the member comes.
    pub comes: String,
}

/// A path that leaves a loop.
#[derive(Clone)]
struct Exit {
    condition: String,
    /// It leaves the body.
    is_return: bool,
}

/// A thread that is put into a queue.
#[derive(Clone)]
pub struct Move {
    pub condition: String,
    pub queue: usize,
    /// The attribute by which the queue is ordered; 0 if it is not.
    pub key: String,
}

/// An attribute of a thread is changed, and the thread may wait in a queue.
#[derive(Clone)]
pub struct Stir {
    pub condition: String,
    pub index: usize,
    /// It is a parameter of the handler.
    pub is_parameter: bool,
}

/// A thread that is chosen to run, or none.
#[derive(Clone)]
pub struct Run {
    pub condition: String,
    pub thread: Value,
}

/// What `now()` is.
#[derive(Clone)]
enum Clock {
    /// Anything.
    Unknown,
    /// At least this: the last read.
    Runs(String),
    Stands(String),
}

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

fn and(a: &str, b: &str) -> String {
    match (a, b) {
        ("true", other) | (other, "true") => other.into(),
        ("false", _) | (_, "false") => "false".into(),
        _ => format!("(and {a} {b})"),
    }
}

fn or(a: &str, b: &str) -> String {
    match (a, b) {
        ("false", other) | (other, "false") => other.into(),
        ("true", _) | (_, "true") => "true".into(),
        _ => format!("(or {a} {b})"),
    }
}

fn not(a: &str) -> String {
    match a {
        "true" => "false".into(),
        "false" => "true".into(),
        _ => format!("(not {a})"),
    }
}

fn number(value: i64) -> String {
    match value < 0 {
        true => format!("(- {})", value.unsigned_abs()),
        false => value.to_string(),
    }
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

    /// An attribute of a thread was changed.
    fn changes_thread(&mut self, thread: usize, index: usize, path: &Path) {
        let is_subject = Some(thread) == self.subject;
        let condition = match is_subject {
            // It is in no queue until it is moved.
            true => and(&path.condition, &self.moved),
            false => path.condition.clone(),
        };
        self.stirs.push(Stir {
            condition,
            index,
            is_parameter: thread >= parameter(0),
        });
        if is_subject {
            return;
        }
        // Other names may be of the same thread.
        let kind = self.policy.thread[index].kind;
        let others: Vec<(String, Type)> = self
            .attributes
            .keys()
            .filter(|key| is_of_other(key, thread, index, self.subject))
            .map(|key| (key.clone(), kind))
            .collect();
        self.forget(&others);
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

    /// The attributes that turns of a loop change.
    fn changed_by(
        &self,
        member: LocalId,
        body: &'p [Statement],
        path: &Path,
    ) -> Vec<(String, Type)> {
        let kind = |key: &str| {
            let (whose, index) = key.split_once('.').unwrap_or((key, "0"));
            let index: usize = index.parse().unwrap_or_default();
            match whose {
                "core" => self.policy.core[index].kind,
                _ => self.policy.thread[index].kind,
            }
        };
        let mut changed: Vec<(String, Type)> = Vec::new();
        loop {
            let mut turn = self.clone();
            turn.trials += 1;
            if turn.trials > MOST_TRIALS {
                let all = self.attributes.keys();
                return all.map(|key| (key.clone(), kind(key))).collect();
            }
            // A later turn begins with what the ones before it changed.
            turn.forget(&changed);
            let before = turn.attributes.clone();
            let value = turn.any("member", turn.locals[member].kind);
            turn.values.insert(member, value);
            turn.block(body, &mut path.clone());
            let is_new = |name: &String| turn.declared.iter().any(|(known, _)| known == name);
            let found = turn.attributes.iter().filter(|(key, term)| {
                let before = before.get(*key);
                before.map_or_else(|| !is_new(term), |before| before != *term)
            });
            let found = found.map(|(key, _)| (key.clone(), kind(key)));
            // A thread that is found in a turn is another one in the next.
            let is_known = |key: &str| match thread_of(key) {
                Some(thread) => thread <= self.fresh || thread >= parameter(0),
                None => true,
            };
            let found: Vec<_> = found
                .filter(|it| is_known(&it.0) && !changed.contains(it))
                .collect();
            if found.is_empty() {
                return changed;
            }
            changed.extend(found);
        }
    }

    /// Nothing is known of these attributes from here on.
    fn forget(&mut self, attributes: &[(String, Type)]) {
        for (key, of) in attributes {
            let value = self.declare("attribute", Self::sort(*of));
            self.attributes.insert(key.clone(), value);
        }
    }

    fn set_attribute(&mut self, key: String, value: &'p Expr, path: &mut Path) {
        let old = self.attribute(&key, value.of);
        let new = self.term(value, path);
        let new = match path.condition.as_str() {
            "true" => new,
            condition => format!("(ite {condition} {new} {old})"),
        };
        let new = self.named(new, value.of);
        self.attributes.insert(key, new);
    }

    fn attribute_of(&mut self, thread: &Value, index: usize, of: Type) -> Value {
        match thread {
            Value::Thread(thread) => self.thread_attribute(*thread, index, of),
            Value::Either(condition, a, b) => {
                match (
                    self.attribute_of(a, index, of),
                    self.attribute_of(b, index, of),
                ) {
                    (Value::Term(a), Value::Term(b)) => {
                        Value::Term(format!("(ite {condition} {a} {b})"))
                    }
                    _ => self.any("attribute", of),
                }
            }
            _ => self.any("attribute", of),
        }
    }

    fn thread_attribute(&mut self, thread: usize, index: usize, of: Type) -> Value {
        if of == Type::Core {
            return self.any("attribute", of);
        }
        if !is_hinted(self.policy, index) {
            return Value::Term(self.attribute(&format!("thread{thread}.{index}"), of));
        }
        // A hint may have changed it since the last read.
        self.any("attribute", of)
    }

    fn attribute(&mut self, key: &str, of: Type) -> String {
        if let Some(known) = self.attributes.get(key) {
            return known.clone();
        }
        let name = self.declare("attribute", Self::sort(of));
        self.attributes.insert(key.into(), name.clone());
        name
    }

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

    fn term(&mut self, expr: &'p Expr, path: &mut Path) -> String {
        match self.value(expr, path) {
            Value::Term(term) => term,
            Value::Core(_) | Value::Thread(_) | Value::Either(..) | Value::Domain => {
                self.declare("other", Self::sort(expr.of))
            }
        }
    }

    fn core(&mut self, expr: &'p Expr, path: &mut Path) -> Core {
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

    fn binary(&mut self, a: &'p Expr, operator: Binary, b: &'p Expr, path: &mut Path) -> Value {
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

    fn now(&mut self) -> Value {
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

    fn first(&mut self, set: &'p Expr, order: Option<Order>, path: &Path) -> Value {
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
    fn call(&mut self, function: usize, arguments: &'p [Expr], path: &mut Path) -> Value {
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

    /// The condition on which all cores are searched for this one.
    pub fn is_searched(&self, of: &Core) -> String {
        let sweeps = self.sweeps.iter().filter(|sweep| sweep.of == *of);
        sweeps.fold("false".to_owned(), |all, sweep| or(&all, &sweep.condition))
    }

    /// The condition on which a core is a good place: it was seen without a thread, or with its
    /// waker alone, which is about to sleep; or it is the lowest of all, or every core was seen
    /// with a thread.
    pub fn is_good(&self, core: &Core) -> String {
        let all_busy = self
            .all_busy
            .iter()
            .fold("false".to_owned(), |all, one| or(&all, one));
        or(&self.was_idle(core), &all_busy)
    }

    fn was_idle(&self, core: &Core) -> String {
        match core {
            Core::Lowest => "true".into(),
            Core::Either(condition, a, b) => {
                format!(
                    "(ite {condition} {} {})",
                    self.was_idle(a),
                    self.was_idle(b)
                )
            }
            Core::Waker => {
                let is_sync = self.declared.iter().any(|(name, _)| name == IS_SYNC);
                let alone = match is_sync {
                    true => and(IS_SYNC, &self.was_seen(core, "<= 1")),
                    false => "false".into(),
                };
                or(&self.was_seen(core, "= 0"), &alone)
            }
            core => self.was_seen(core, "= 0"),
        }
    }

    /// The condition on which some read of a core has this bound.
    fn was_seen(&self, core: &Core, bound: &str) -> String {
        let (operator, value) = bound.split_once(' ').unwrap_or(("=", "0"));
        let reads = self.reads.all.iter().filter(|read| read.core == *core);
        reads.fold("false".to_owned(), |all, read| {
            or(&all, &format!("({operator} {} {value})", read.name))
        })
    }

    /// The script that has a model where all these hold.
    pub fn script(&self, asserted: &[String]) -> String {
        let mut script = String::from("(set-logic ALL)\n");
        for (name, sort) in &self.declared {
            let _ = writeln!(script, "(declare-const {name} {sort})");
        }
        for read in &self.reads.all {
            let name = &read.name;
            let _ = writeln!(script, "(declare-const {name} Int)\n(assert (>= {name} 0))");
            for (core, bound) in &self.reads.bounds {
                if *core == read.core {
                    let (operator, value) = bound.split_once(' ').unwrap_or(("=", "0"));
                    let _ = writeln!(script, "(assert ({operator} {name} {value}))");
                }
            }
        }
        for assumed in self.assumed.iter().chain(asserted) {
            let _ = writeln!(script, "(assert {assumed})");
        }
        script.push_str("(check-sat)\n");
        script
    }

    /// The parameters in a script.
    pub fn shown_parameters(&self, script: &str) -> Vec<(String, String)> {
        let named = self.policy.parameters.iter().map(|parameter| {
            let name = format!("param_{}", parameter.name);
            (name, parameter.name.clone())
        });
        // It is declared, and has a range: more than that is a use.
        let used = named.filter(|(name, _)| script.matches(name.as_str()).count() > 2);
        used.collect()
    }

    /// What holds in a small machine: up to [`SMALL`] threads on a core, each of the default
    /// weight, with the defaults of all parameters.
    pub fn small(&self) -> Vec<String> {
        let reads = self.reads.all.iter();
        let reads = reads.map(|read| format!("(<= {} {SMALL})", read.name));
        let lengths = self.lengths.iter().flatten();
        let lengths = lengths.map(|length| format!("(<= {length} {SMALL})"));
        let parameters = self.policy.parameters.iter().map(|parameter| {
            let (name, default) = (&parameter.name, number(parameter.default));
            format!("(= param_{name} {default})")
        });
        let weights = self
            .weights
            .iter()
            .map(|weight| format!("(= {weight} 1024)"));
        reads
            .chain(lengths)
            .chain(parameters)
            .chain(weights)
            .collect()
    }

    /// What a counterexample of a script shows: the reads of cores, and the parameters in it.
    pub fn shown(&self, script: &str) -> Vec<(String, String)> {
        let mut shown = Vec::new();
        for read in &self.reads.all {
            let core = match &read.core {
                Core::Local(id) => self.locals[*id].name.clone(),
                Core::Waker => "waker()".into(),
                _ => "a core".into(),
            };
            let text = match read.what {
                "count" => format!("count({core})"),
                what => format!("{core}.{what}"),
            };
            shown.push((read.name.clone(), text));
        }
        shown.extend(self.shown_parameters(script));
        if let Some(load) = self.load_name() {
            shown.push((load.to_owned(), "the thread's load".into()));
        }
        shown
    }
}

/// The thread that is a parameter.
fn parameter(id: LocalId) -> usize {
    id + (1 << 20)
}

/// Is this the same attribute of a thread that may be the same one?
fn is_of_other(key: &str, thread: usize, index: usize, subject: Option<usize>) -> bool {
    let is_same = key.ends_with(&format!(".{index}"));
    let other = thread_of(key).filter(|_| is_same);
    other.is_some_and(|other| other != thread && Some(other) != subject)
}

/// The thread that an attribute is of; none if it is the core's.
fn thread_of(key: &str) -> Option<usize> {
    let (thread, _) = key.strip_prefix("thread")?.split_once('.')?;
    thread.parse().ok()
}

/// Is a value of this type shown as a number?
pub fn is_number(of: Type) -> bool {
    matches!(of, Type::Int | Type::Time)
}

/// The threads that a value can be, each with its condition.
fn threads(value: &Value) -> Vec<(String, usize)> {
    match value {
        Value::Thread(thread) => vec![("true".into(), *thread)],
        Value::Either(condition, a, b) => {
            let under = |condition: &str, of: &Value| {
                let of = threads(of).into_iter();
                of.map(|(other, thread)| (and(condition, &other), thread))
                    .collect::<Vec<_>>()
            };
            let mut all = under(condition, a);
            all.extend(under(&not(condition), b));
            all
        }
        _ => Vec::new(),
    }
}

/// The locals that statements assign.
fn assigned(statements: &[Statement], found: &mut Vec<LocalId>) {
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
fn sets(statements: &[Statement], attribute: usize) -> bool {
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
fn is_hinted(policy: &Policy, attribute: usize) -> bool {
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
