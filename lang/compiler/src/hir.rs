// SPDX-License-Identifier: GPL-2.0-only
//! A policy whose names are resolved and whose types are right. Constants are folded.
//!
//! Handlers are split into phases: what observes other cores without a lock, and what updates one
//! core under its lock.

use crate::ast::Binary;
use crate::diagnostic::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Int,
    /// ns
    Time,
    Bool,
    /// Index in [`Policy::enums`].
    Enum(usize),
    Thread,
    /// A thread, or none.
    MaybeThread,
    Core,
    /// A core, or none.
    MaybeCore,
    Cores,
    /// A domain of a core: the cores that share something with it.
    Domain,
    /// The domains of a core.
    Domains,
    /// A queue of ready threads.
    Threads,
    Nothing,
    /// An error was reported.
    Wrong,
}

#[derive(Clone, Debug)]
pub struct Policy {
    pub name: String,
    pub about: Vec<String>,
    pub parameters: Vec<Parameter>,
    pub enums: Vec<Enum>,
    pub thread: Vec<Attribute>,
    pub core: Vec<Attribute>,
    pub queues: Vec<Queue>,
    /// The thread attribute `load`, if there is one.
    pub load: Option<usize>,
    pub functions: Vec<Function>,
    pub handlers: Handlers,
    pub hints: Vec<Hint>,
    pub steal: Option<Steal>,
}

/// What `baton load` can set.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: String,
    pub kind: Type,
    pub default: i64,
    pub range: Option<(i64, i64)>,
}

#[derive(Clone, Debug)]
pub struct Enum {
    pub name: String,
    pub values: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Attribute {
    pub name: String,
    pub kind: Type,
    pub initial: Option<Expr>,
}

#[derive(Clone, Debug)]
pub struct Queue {
    pub name: String,
    pub order: Option<Order>,
    /// Numbers and times, the first of most weight, of which each turn of another queue's thread
    /// lowers one, while a thread waits here. Empty: nothing is claimed.
    pub rank: Vec<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub is_lowest: bool,
    pub by: Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Cload,
    Count,
    /// Of a thread.
    Attribute(usize),
}

/// A named value of a body.
#[derive(Clone, Debug)]
pub struct Local {
    pub name: String,
    pub kind: Type,
    pub is_changed: bool,
}

pub type LocalId = usize;

/// What a body needs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    Nothing,
    /// What is seen of other cores.
    Seen,
    /// A core whose lock is held.
    Lock,
}

#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub parameters: Vec<LocalId>,
    pub result: Type,
    pub body: Body,
    pub needs: Needs,
    /// Changes attributes.
    pub changes: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Body {
    pub locals: Vec<Local>,
    pub statements: Vec<Statement>,
    /// The value of an expression body.
    pub value: Option<Expr>,
}

/// A handler in two phases.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The thread.
    pub thread: LocalId,
    /// The observing phase: it chooses the core. None: the one that the thread was on.
    pub place: Option<Place>,
    /// The updating phase, under that core's lock.
    pub update: Body,
}

#[derive(Clone, Debug)]
pub struct Place {
    pub body: Body,
    pub core: Expr,
}

/// A handler of a thread or a core.
#[derive(Clone, Debug)]
pub struct Handler {
    /// The thread or the core.
    pub subject: LocalId,
    pub body: Body,
}

#[derive(Clone, Debug, Default)]
pub struct Handlers {
    pub new: Option<Placed>,
    pub unblock: Option<Placed>,
    pub preempt: Option<Handler>,
    pub give_way: Option<Handler>,
    pub block: Option<Handler>,
    pub terminate: Option<Handler>,
    pub tick: Option<Handler>,
    pub depart: Option<Handler>,
    pub arrive: Option<Handler>,
    pub schedule: Option<Handler>,
    pub newly_idle: Option<Handler>,
    pub balancing: Option<Handler>,
    pub entry: Option<Handler>,
    pub exit: Option<Handler>,
    pub timer: Option<Handler>,
}

/// What a program can say of a thread. It changes attributes of the thread, without a lock.
#[derive(Clone, Debug)]
pub struct Hint {
    pub name: String,
    pub thread: LocalId,
    pub fields: Vec<Field>,
    pub body: Body,
}

/// A value of a hint.
#[derive(Clone, Debug)]
pub struct Field {
    pub local: LocalId,
    /// A hint with a value outside is refused. None for a condition.
    pub range: Option<(i64, i64)>,
}

/// The phases of load balancing.
#[derive(Clone, Debug)]
pub struct Steal {
    pub span: Span,
    /// Of `src` and `dst`.
    pub can_steal_core: Function,
    /// Of the set, and `dst`.
    pub select_core: Function,
    pub steal_thread: StealThread,
    /// Of `dst`.
    pub until: Function,
}

/// Phase 3: what happens to one thread.
#[derive(Clone, Debug)]
pub struct StealThread {
    pub src: LocalId,
    pub dst: LocalId,
    pub thread: LocalId,
    pub body: Body,
}

#[derive(Clone, Debug)]
pub struct Statement {
    pub span: Span,
    pub kind: StatementKind,
}

#[derive(Clone, Debug)]
pub enum StatementKind {
    Let(LocalId, Expr),
    Set(LocalId, Expr),
    /// The attribute of a thread.
    SetThread(Expr, usize, Expr),
    /// The attribute of the core whose lock is held.
    SetCore(usize, Expr),
    If {
        /// All of them, from the first on. The next ones are not asked after one that does not
        /// hold.
        conditions: Vec<Condition>,
        then: Vec<Statement>,
        otherwise: Option<Vec<Statement>>,
    },
    /// From here on a thread or core is there: if not, the body leaves.
    Unless(Expr, LocalId, Vec<Statement>),
    Foreach(LocalId, Expr, Option<Order>, Vec<Statement>),
    Break,
    Return(Option<Expr>),
    /// Into a queue of the core of this phase.
    Enqueue(Expr, usize),
    /// A thread, or none, runs next, for this time.
    Run(Expr, Option<Expr>),
    Call(usize, Vec<Expr>),
    Resched,
    /// The timer of the core, after this time.
    SetTimer(Expr),
    /// For a core, from the cores of a domain, or from all.
    StealFor(Expr, Option<Expr>),
}

/// A loop that looks for a core: `if (conditions) return value;` is all that it does.
pub struct Search<'a> {
    pub conditions: &'a [Condition],
    pub value: &'a Expr,
}

impl<'a> Search<'a> {
    /// The search that a loop over cores is, if it is one and its set has no order. Its conditions
    /// may be asked of cores that the thread may not use, before the host is asked which those are:
    /// most do not hold.
    pub fn of(set: &Expr, order: Option<Order>, body: &'a [Statement]) -> Option<Self> {
        let is_plain = order.is_none()
            && matches!(&set.kind, ExprKind::Cores(which, _) if *which != Cores::Idle);
        let [Statement {
            kind:
                StatementKind::If {
                    conditions,
                    then,
                    otherwise: None,
                },
            ..
        }] = body
        else {
            return None;
        };
        let [Statement {
            kind: StatementKind::Return(Some(value)),
            ..
        }] = &then[..]
        else {
            return None;
        };
        let holds = |condition: &Condition| matches!(condition, Condition::Holds(_));
        (is_plain && conditions.iter().all(holds)).then_some(Self { conditions, value })
    }
}

#[derive(Clone, Debug)]
pub enum Condition {
    Holds(Expr),
    /// A thread or core must be there, and has the name of a new local.
    IsThere(Expr, LocalId),
}

impl Condition {
    pub fn expr(&self) -> &Expr {
        match self {
            Self::Holds(expr) | Self::IsThere(expr, _) => expr,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Expr {
    pub span: Span,
    pub kind: ExprKind,
    pub of: Type,
}

#[derive(Clone, Debug)]
pub enum ExprKind {
    /// Also a time, and the value of an enum.
    Int(i64),
    Bool(bool),
    Parameter(usize),
    Local(LocalId),
    /// The core whose lock is held.
    SelfCore,
    /// The thread that runs there.
    Current,
    ThreadAttribute(Box<Expr>, usize),
    Thread(Box<Expr>, ThreadFact),
    /// Of the core whose lock is held.
    CoreAttribute(usize),
    Cload(Box<Expr>),
    Count(Box<Expr>),
    /// The threads in a queue of the core whose lock is held.
    Waiting(usize),
    /// The same queue, as a set.
    Queue(usize),
    Cores(Cores, Option<Box<Expr>>),
    /// The domains of a core, from the smallest to the whole machine.
    Domains(Box<Expr>),
    First(Box<Expr>, Option<Order>),
    Valid(Box<Expr>),
    Call(usize, Vec<Expr>),
    Min(Box<Expr>, Box<Expr>),
    Max(Box<Expr>, Box<Expr>),
    Now,
    Random(Box<Expr>),
    /// Of a wakeup.
    Wakeup(Wakeup),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Binary(Box<Expr>, Binary, Box<Expr>),
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadFact {
    Nice,
    Weight,
    Runtime,
}

/// What is known of a wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// Where the thread ran last.
    Last,
    /// Where its waker runs.
    Waker,
    /// The waker is about to sleep.
    IsSync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    All,
    Idle,
    /// Those under the last-level cache of a core, of its node, and its SMT siblings.
    Llc,
    Node,
    Siblings,
    /// Those of a domain.
    Domain,
}
