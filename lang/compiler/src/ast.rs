// SPDX-License-Identifier: GPL-2.0-only
//! A policy as it is written: names are not resolved, and nothing has a type.

use crate::diagnostic::Span;

/// A name, and where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

/// A policy.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// The comment before it.
    pub about: Vec<String>,
    pub name: Name,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `const int MOST = 4;`
    Const(Variable),
    /// `param time slice = 10ms in 1ms .. 1s;`
    Param(Variable, Option<(Expr, Expr)>),
    /// `enum priority { LOW, HIGH }`
    Enum(Name, Vec<Name>),
    /// `thread { .. }`
    Thread(Span, Vec<Variable>),
    /// `core { .. }`
    Core(Span, Vec<CorePart>),
    /// `steal { .. }`
    Steal(Span, Vec<Function>),
    /// `hint within(thread t, time due in 0ms .. 10s) { .. }`
    Hint(Hint),
    /// `on tick(thread t) { .. }`
    Handler(Function),
    /// `int twice(int x) { .. }`
    Function(Function),
}

/// What a program can say of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Hint {
    pub name: Name,
    pub fields: Vec<Field>,
    pub body: Block,
}

/// `TYPE NAME [in LEAST .. MOST]`
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub kind: Name,
    pub name: Name,
    pub range: Option<(Expr, Expr)>,
}

/// `TYPE NAME [= VALUE];`
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub kind: Name,
    pub name: Name,
    pub value: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CorePart {
    /// `RUNNING thread current;`
    Running(Name),
    /// `READY queue NAME [order lowest ATTRIBUTE] [rank VALUE, ..];`
    Ready(Name, Option<Order>, Vec<Expr>),
    Attribute(Variable),
}

/// `order lowest ATTRIBUTE`
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub is_lowest: bool,
    pub by: Name,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// None for a handler, and for what is in `steal`.
    pub result: Option<Name>,
    pub name: Name,
    pub parameters: Vec<(Name, Name)>,
    pub body: Block,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub span: Span,
    pub statements: Vec<Statement>,
    /// The value, for an expression without a semicolon at the end.
    pub value: Option<Box<Expr>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    pub span: Span,
    pub kind: StatementKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StatementKind {
    Let(Variable),
    Assign(Expr, Assign, Expr),
    Expr(Expr),
    If(Expr, Block, Option<Block>),
    /// `foreach (NAME in SET [order ..]) { .. }`
    Foreach(Name, Expr, Option<Order>, Block),
    Break,
    Return(Option<Expr>),
    /// `THREAD => PLACE [for TIME];`
    Move(Expr, Expr, Option<Expr>),
    /// Could not be read.
    Wrong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assign {
    Set,
    Add,
    Subtract,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub span: Span,
    pub kind: ExprKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    Int(i64),
    /// ns
    Time(i64),
    Bool(bool),
    Name(Name),
    Field(Box<Expr>, Name),
    Call(Name, Vec<Expr>),
    /// `first(SET order ..)`
    First(Box<Expr>, Option<Order>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Binary(Box<Expr>, Binary, Box<Expr>),
    /// Could not be read.
    Wrong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    And,
    Or,
}

impl Binary {
    /// As it is written, here and in Rust.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::More => ">",
            Self::MoreOrEqual => ">=",
            Self::And => "&&",
            Self::Or => "||",
        }
    }

    /// Binds more tightly the higher it is.
    pub const fn level(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And => 2,
            Self::Equal | Self::NotEqual => 3,
            Self::Less | Self::LessOrEqual | Self::More | Self::MoreOrEqual => 4,
            Self::Add | Self::Subtract => 5,
            Self::Multiply | Self::Divide | Self::Remainder => 6,
        }
    }
}
