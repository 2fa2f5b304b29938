// SPDX-License-Identifier: GPL-2.0-only
//! The parser: recursive descent, as in `docs/language/grammar.md`.
//!
//! After an error it goes on behind the statement or item, so that each mistake gives one message.

use crate::ast::*;
use crate::diagnostic::{Diagnostic, Span};
use crate::token::{tokens, Token};

/// An error was reported.
struct Reported;

type Parsed<T> = Result<T, Reported>;

/// The deepest nesting of blocks and expressions. A policy has few levels; this keeps hostile input
/// from the stack's end.
const DEEPEST: u32 = 64;

struct Parser<'s> {
    source: &'s str,
    tokens: Vec<(Token, Span)>,
    at: usize,
    depth: u32,
    diagnostics: Vec<Diagnostic>,
}

/// Words that begin an item.
const ITEMS: &[&str] = &[
    "const", "param", "enum", "thread", "core", "steal", "hint", "on",
];

/// Reads a policy. There may be a file beside errors, in which what could not be read is left out.
pub fn parse(source: &str) -> (Option<File>, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    let tokens = tokens(source, &mut diagnostics);
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        depth: 0,
        diagnostics,
    };
    let file = parser.file().ok();
    (file, parser.diagnostics)
}

impl<'s> Parser<'s> {
    fn token(&self) -> Token {
        self.tokens[self.at].0
    }

    fn span(&self) -> Span {
        self.tokens[self.at].1
    }

    /// Where the last token ended.
    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].1
    }

    fn text(&self) -> &'s str {
        let span = self.span();
        &self.source[span.begin..span.end]
    }

    fn advance(&mut self) {
        if self.token() != Token::End {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: Token) -> bool {
        let is_there = self.token() == token;
        if is_there {
            self.advance();
        }
        is_there
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.token(), Token::Name | Token::Word) && self.text() == word
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let is_there = self.is_word(word);
        if is_there {
            self.advance();
        }
        is_there
    }

    /// What is there instead, for messages.
    fn found(&self) -> String {
        match self.token() {
            Token::Name | Token::Word | Token::Number => format!("`{}`", self.text()),
            token => token.to_string(),
        }
    }

    fn report<T>(&mut self, diagnostic: Diagnostic) -> Parsed<T> {
        self.diagnostics.push(diagnostic);
        Err(Reported)
    }

    fn wrong<T>(&mut self, expected: &str) -> Parsed<T> {
        let message = format!("expected {expected}, found {}", self.found());
        self.report(Diagnostic::error(self.span(), message))
    }

    fn expect(&mut self, token: Token) -> Parsed<Span> {
        let span = self.span();
        if self.eat(token) {
            return Ok(span);
        }
        if token == Token::Semicolon {
            let end = self.last_span().end;
            let message = format!("expected `;`, found {}", self.found());
            let diagnostic = Diagnostic::error(Span::new(end.saturating_sub(1), end), message);
            return self.report(diagnostic.help("add `;` here"));
        }
        self.wrong(&token.to_string())
    }

    fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.eat_word(word) {
            Ok(())
        } else {
            self.wrong(&format!("`{word}`"))
        }
    }

    fn name(&mut self, what: &str) -> Parsed<Name> {
        if self.token() != Token::Name {
            return self.wrong(what);
        }
        let name = Name {
            text: self.text().into(),
            span: self.span(),
        };
        self.advance();
        Ok(name)
    }

    /// Goes on behind the statement or item in which an error was found: behind the next `;` or
    /// the `}` of a block that it opened, or before a `}` that it did not.
    fn recover(&mut self) {
        let mut open = 0;
        loop {
            match self.token() {
                Token::End => return,
                Token::OpenBrace => open += 1,
                Token::CloseBrace if open == 0 => return,
                Token::CloseBrace => {
                    open -= 1;
                    if open == 0 {
                        return self.advance();
                    }
                }
                Token::Semicolon if open == 0 => return self.advance(),
                _ => {}
            }
            self.advance();
        }
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEEPEST {
            let span = self.span();
            return self.report(
                Diagnostic::error(span, "this is nested too deeply")
                    .help("make a function of an inner part"),
            );
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn file(&mut self) -> Parsed<File> {
        let about = self.about();
        self.expect_word("scheduler")?;
        let name = self.name("the name of the policy")?;
        self.expect(Token::OpenBrace)?;
        let mut items = Vec::new();
        while !matches!(self.token(), Token::CloseBrace | Token::End) {
            let begin = self.at;
            match self.item() {
                Ok(item) => items.push(item),
                Err(Reported) => {
                    self.recover();
                    if self.at == begin {
                        self.advance();
                    }
                }
            }
        }
        // What is missing or left over at the end says nothing about the rest.
        if self.expect(Token::CloseBrace).is_ok() && self.token() != Token::End {
            let _ = self.wrong::<()>("nothing after the policy");
        }
        Ok(File { about, name, items })
    }

    /// The comment before the first token.
    fn about(&self) -> Vec<String> {
        let before = &self.source[..self.span().begin];
        let lines = before
            .lines()
            .filter_map(|line| line.trim().strip_prefix("//"));
        let lines = lines.map(|line| line.trim_end());
        let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
        let is_licence = |line: &&str| line.starts_with("SPDX-License-Identifier");
        lines
            .filter(|line| !is_licence(line))
            .map(str::to_owned)
            .collect()
    }

    fn item(&mut self) -> Parsed<Item> {
        let span = self.span();
        if self.token() != Token::Name {
            return self.wrong("a declaration, a handler or a function");
        }
        // `thread t(..)` and `core c(..)` are functions with such a result.
        let is_function = self
            .tokens
            .get(self.at + 1)
            .is_some_and(|next| next.0 == Token::Name);
        match self.text() {
            "const" => {
                self.advance();
                let variable = self.variable()?;
                self.expect(Token::Semicolon)?;
                Ok(Item::Const(variable))
            }
            "param" => {
                self.advance();
                let variable = self.variable()?;
                let range = self.range()?;
                self.expect(Token::Semicolon)?;
                Ok(Item::Param(variable, range))
            }
            "enum" => {
                self.advance();
                let name = self.name("the name of the type")?;
                self.expect(Token::OpenBrace)?;
                let mut values = vec![self.name("a value")?];
                while self.eat(Token::Comma) && self.token() != Token::CloseBrace {
                    values.push(self.name("a value")?);
                }
                self.expect(Token::CloseBrace)?;
                Ok(Item::Enum(name, values))
            }
            "thread" if !is_function => {
                self.advance();
                let attributes = self.parts(|parser| {
                    let variable = parser.variable()?;
                    parser.expect(Token::Semicolon)?;
                    Ok(variable)
                })?;
                Ok(Item::Thread(span.to(self.last_span()), attributes))
            }
            "core" if !is_function => {
                self.advance();
                let parts = self.parts(Self::core_part)?;
                Ok(Item::Core(span.to(self.last_span()), parts))
            }
            "steal" => {
                self.advance();
                let parts = self.parts(|parser| parser.function(None))?;
                Ok(Item::Steal(span.to(self.last_span()), parts))
            }
            "hint" => {
                self.advance();
                Ok(Item::Hint(self.hint()?))
            }
            "on" => {
                self.advance();
                Ok(Item::Handler(self.function(None)?))
            }
            _ if is_function => {
                let result = self.name("a type")?;
                Ok(Item::Function(self.function(Some(result))?))
            }
            word => {
                let message = format!("`{word}` begins no declaration");
                let help = format!("a policy has these: {}, and functions", ITEMS.join(", "));
                self.report(Diagnostic::error(span, message).help(help))
            }
        }
    }

    /// `{ PART* }`
    fn parts<T>(&mut self, mut part: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.expect(Token::OpenBrace)?;
        let mut parts = Vec::new();
        while !matches!(self.token(), Token::CloseBrace | Token::End) {
            let begin = self.at;
            match part(self) {
                Ok(part) => parts.push(part),
                Err(Reported) => {
                    self.recover();
                    if self.at == begin {
                        self.advance();
                    }
                }
            }
        }
        self.expect(Token::CloseBrace)?;
        Ok(parts)
    }

    fn core_part(&mut self) -> Parsed<CorePart> {
        if self.eat_word("RUNNING") {
            self.expect_word("thread")?;
            let name = self.name("the name of the running thread")?;
            self.expect(Token::Semicolon)?;
            return Ok(CorePart::Running(name));
        }
        if self.eat_word("READY") {
            self.expect_word("queue")?;
            let name = self.name("the name of the queue")?;
            let order = self.order()?;
            let rank = self.rank()?;
            self.expect(Token::Semicolon)?;
            return Ok(CorePart::Ready(name, order, rank));
        }
        let variable = self.variable()?;
        self.expect(Token::Semicolon)?;
        Ok(CorePart::Attribute(variable))
    }

    /// `TYPE NAME [= VALUE]`
    fn variable(&mut self) -> Parsed<Variable> {
        let kind = self.name("a type")?;
        let name = self.name("a name")?;
        let value = if self.eat(Token::Equals) {
            Some(self.expr()?)
        } else {
            None
        };
        Ok(Variable { kind, name, value })
    }

    /// `[rank VALUE (, VALUE)*]`
    fn rank(&mut self) -> Parsed<Vec<Expr>> {
        let mut values = Vec::new();
        if self.eat_word("rank") {
            values.push(self.expr()?);
            while self.eat(Token::Comma) {
                values.push(self.expr()?);
            }
        }
        Ok(values)
    }

    /// `[order (lowest | highest) NAME]`
    fn order(&mut self) -> Parsed<Option<Order>> {
        if !self.eat_word("order") {
            return Ok(None);
        }
        let is_lowest = self.eat_word("lowest");
        if !is_lowest && !self.eat_word("highest") {
            return self.wrong("`lowest` or `highest`");
        }
        let by = self.name("an attribute")?;
        Ok(Some(Order { is_lowest, by }))
    }

    /// `in LEAST .. MOST`, if it is there.
    fn range(&mut self) -> Parsed<Option<(Expr, Expr)>> {
        if !self.eat_word("in") {
            return Ok(None);
        }
        let least = self.expr()?;
        self.expect(Token::Dots)?;
        Ok(Some((least, self.expr()?)))
    }

    /// `NAME ( FIELDS ) { .. }`
    fn hint(&mut self) -> Parsed<Hint> {
        let name = self.name("a name")?;
        let fields = self.list(|parser| {
            Ok(Field {
                kind: parser.name("the type of a field")?,
                name: parser.name("the name of the field")?,
                range: parser.range()?,
            })
        })?;
        let body = self.block()?;
        Ok(Hint { name, fields, body })
    }

    /// `(PART, PART ..)`
    fn list<T>(&mut self, mut part: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut parts = Vec::new();
        self.expect(Token::OpenParen)?;
        if !self.eat(Token::CloseParen) {
            loop {
                parts.push(part(self)?);
                if !self.eat(Token::Comma) {
                    break;
                }
            }
            self.expect(Token::CloseParen)?;
        }
        Ok(parts)
    }

    /// `NAME ( PARAMETERS ) { .. }`
    fn function(&mut self, result: Option<Name>) -> Parsed<Function> {
        let name = self.name("a name")?;
        let parameters = self.list(|parser| {
            let kind = parser.name("the type of a parameter")?;
            Ok((kind, parser.name("the name of the parameter")?))
        })?;
        let body = self.block()?;
        Ok(Function {
            result,
            name,
            parameters,
            body,
        })
    }

    fn block(&mut self) -> Parsed<Block> {
        self.nested(|parser| {
            let begin = parser.expect(Token::OpenBrace)?;
            let mut statements = Vec::new();
            let mut value = None;
            while !matches!(parser.token(), Token::CloseBrace | Token::End) {
                let at = parser.at;
                match parser.statement() {
                    Ok(Ok(statement)) => statements.push(statement),
                    Ok(Err(expr)) => value = Some(Box::new(expr)),
                    Err(Reported) => {
                        let span = parser.tokens[at].1;
                        parser.recover();
                        if parser.at == at {
                            parser.advance();
                        }
                        statements.push(Statement {
                            span,
                            kind: StatementKind::Wrong,
                        });
                    }
                }
            }
            let end = parser.expect(Token::CloseBrace)?;
            Ok(Block {
                span: begin.to(end),
                statements,
                value,
            })
        })
    }

    /// A block, or one statement as a block.
    fn body(&mut self) -> Parsed<Block> {
        if self.token() == Token::OpenBrace {
            return self.block();
        }
        let statement = self.nested(Self::statement)?;
        match statement {
            Ok(statement) => Ok(Block {
                span: statement.span,
                statements: vec![statement],
                value: None,
            }),
            Err(_) => self.wrong("`;`"),
        }
    }

    /// A statement, or the expression at the end of a block.
    fn statement(&mut self) -> Parsed<Result<Statement, Expr>> {
        let begin = self.span();
        let kind = if self.eat_word("if") {
            self.expect(Token::OpenParen)?;
            let condition = self.expr()?;
            self.expect(Token::CloseParen)?;
            let then = self.body()?;
            let otherwise = if self.eat_word("else") {
                Some(self.body()?)
            } else {
                None
            };
            StatementKind::If(condition, then, otherwise)
        } else if self.eat_word("foreach") {
            self.expect(Token::OpenParen)?;
            let name = self.name("a name")?;
            self.expect_word("in")?;
            let set = self.expr()?;
            let order = self.order()?;
            self.expect(Token::CloseParen)?;
            StatementKind::Foreach(name, set, order, self.body()?)
        } else if self.eat_word("break") {
            self.expect(Token::Semicolon)?;
            StatementKind::Break
        } else if self.eat_word("return") {
            let value = match self.token() {
                Token::Semicolon => None,
                _ => Some(self.expr()?),
            };
            self.expect(Token::Semicolon)?;
            StatementKind::Return(value)
        } else if self.begins_declaration() {
            let variable = self.variable()?;
            self.expect(Token::Semicolon)?;
            StatementKind::Let(variable)
        } else {
            match self.simple()? {
                Ok(kind) => kind,
                Err(expr) => return Ok(Err(expr)),
            }
        };
        Ok(Ok(Statement {
            span: begin.to(self.last_span()),
            kind,
        }))
    }

    /// `TYPE NAME ..`: two names in a row.
    fn begins_declaration(&self) -> bool {
        let next = self.tokens.get(self.at + 1).map(|next| next.0);
        self.token() == Token::Name && next == Some(Token::Name)
    }

    /// An assignment, a move or a call; or an expression at the end of a block.
    fn simple(&mut self) -> Parsed<Result<StatementKind, Expr>> {
        let target = self.expr()?;
        let one = |span| Expr {
            span,
            kind: ExprKind::Int(1),
        };
        let span = self.span();
        let kind = match self.token() {
            Token::Equals => self.assign(target, Assign::Set)?,
            Token::PlusEquals => self.assign(target, Assign::Add)?,
            Token::MinusEquals => self.assign(target, Assign::Subtract)?,
            Token::PlusPlus => {
                self.advance();
                StatementKind::Assign(target, Assign::Add, one(span))
            }
            Token::MinusMinus => {
                self.advance();
                StatementKind::Assign(target, Assign::Subtract, one(span))
            }
            Token::Arrow => {
                self.advance();
                let place = self.expr()?;
                let time = if self.eat_word("for") {
                    Some(self.expr()?)
                } else {
                    None
                };
                StatementKind::Move(target, place, time)
            }
            Token::CloseBrace => return Ok(Err(target)),
            _ => StatementKind::Expr(target),
        };
        self.expect(Token::Semicolon)?;
        Ok(Ok(kind))
    }

    fn assign(&mut self, target: Expr, how: Assign) -> Parsed<StatementKind> {
        self.advance();
        Ok(StatementKind::Assign(target, how, self.expr()?))
    }

    fn expr(&mut self) -> Parsed<Expr> {
        self.nested(|parser| parser.binary(1))
    }

    fn operator(&self) -> Option<Binary> {
        Some(match self.token() {
            Token::Plus => Binary::Add,
            Token::Minus => Binary::Subtract,
            Token::Star => Binary::Multiply,
            Token::Slash => Binary::Divide,
            Token::Percent => Binary::Remainder,
            Token::Same => Binary::Equal,
            Token::Other => Binary::NotEqual,
            Token::Less => Binary::Less,
            Token::AtMost => Binary::LessOrEqual,
            Token::More => Binary::More,
            Token::AtLeast => Binary::MoreOrEqual,
            Token::And => Binary::And,
            Token::Or => Binary::Or,
            _ => return None,
        })
    }

    fn binary(&mut self, least: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        while let Some(operator) = self.operator().filter(|it| it.level() >= least) {
            self.advance();
            let right = self.nested(|parser| parser.binary(operator.level() + 1))?;
            left = Expr {
                span: left.span.to(right.span),
                kind: ExprKind::Binary(Box::new(left), operator, Box::new(right)),
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let begin = self.span();
        let make: fn(Box<Expr>) -> ExprKind = match self.token() {
            Token::Not => ExprKind::Not,
            Token::Minus => ExprKind::Negate,
            _ => return self.postfix(),
        };
        self.advance();
        let of = self.nested(Self::unary)?;
        Ok(Expr {
            span: begin.to(of.span),
            kind: make(Box::new(of)),
        })
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let mut expr = self.primary()?;
        while self.eat(Token::Dot) {
            let field = self.name("the name of an attribute")?;
            expr = Expr {
                span: expr.span.to(field.span),
                kind: ExprKind::Field(Box::new(expr), field),
            };
        }
        Ok(expr)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let span = self.span();
        let text = self.text();
        let kind = match self.token() {
            Token::Number => {
                self.advance();
                match number(text) {
                    Some(kind) => kind,
                    None => {
                        let message = format!("`{text}` is too large");
                        let help = "numbers and times (in ns) are below 2^63";
                        return self.report(Diagnostic::error(span, message).help(help));
                    }
                }
            }
            Token::OpenParen => {
                self.advance();
                let inner = self.expr()?;
                let end = self.expect(Token::CloseParen)?;
                return Ok(Expr {
                    span: span.to(end),
                    kind: inner.kind,
                });
            }
            Token::Name => {
                let name = self.name("a name")?;
                match text {
                    "true" => ExprKind::Bool(true),
                    "false" => ExprKind::Bool(false),
                    _ if self.token() == Token::OpenParen => self.call(name)?,
                    _ => ExprKind::Name(name),
                }
            }
            _ => return self.wrong("an expression"),
        };
        Ok(Expr {
            span: span.to(self.last_span()),
            kind,
        })
    }

    fn call(&mut self, name: Name) -> Parsed<ExprKind> {
        self.expect(Token::OpenParen)?;
        if name.text == "first" {
            let set = self.expr()?;
            let order = self.order()?;
            self.expect(Token::CloseParen)?;
            return Ok(ExprKind::First(Box::new(set), order));
        }
        let mut arguments = Vec::new();
        if !self.eat(Token::CloseParen) {
            loop {
                arguments.push(self.expr()?);
                if !self.eat(Token::Comma) {
                    break;
                }
            }
            self.expect(Token::CloseParen)?;
        }
        Ok(ExprKind::Call(name, arguments))
    }
}

/// A number or a time; `None` if it is too large.
fn number(text: &str) -> Option<ExprKind> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let value: i64 = digits.replace('_', "").parse().ok()?;
    let unit = match &text[digits.len()..] {
        "" => return Some(ExprKind::Int(value)),
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        _ => 1_000_000_000,
    };
    value.checked_mul(unit).map(ExprKind::Time)
}
