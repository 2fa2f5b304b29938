// SPDX-License-Identifier: GPL-2.0-only
//! Resolves names, checks types, and splits handlers into phases.

mod body;
mod functions;
pub(crate) mod handlers;
mod hints;
mod ranks;

use std::collections::HashMap;

use crate::ast::{self, Binary, ExprKind as Written, Name};
use crate::diagnostic::{Diagnostic, Span};
use crate::hir::*;
use crate::rust::is_taken;

/// Checks a policy. There is one only if there are no errors.
pub fn check(file: &ast::File) -> Result<Policy, Vec<Diagnostic>> {
    let mut checker = Checker::new(file);
    checker.declarations();
    checker.functions();
    checker.handlers();
    checker.hints();
    checker.steal();
    checker.ranks();
    checker.required(file.name.span);
    if checker.diagnostics.is_empty() {
        Ok(checker.policy)
    } else {
        Err(checker.diagnostics)
    }
}

/// How far the check of a function has got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    NotBegun,
    Begun,
    Done,
}

/// What a name of the policy means.
#[derive(Clone, Copy)]
enum Meaning {
    Const(i64, Type),
    Parameter(usize),
    EnumValue(usize, i64),
    Function(usize),
}

pub(crate) struct Checker<'a> {
    file: &'a ast::File,
    diagnostics: Vec<Diagnostic>,
    policy: Policy,
    names: HashMap<&'a str, (Meaning, Span)>,
    enums: HashMap<&'a str, usize>,
    /// The functions as they are written, in the order of [`Policy::functions`].
    written: Vec<&'a ast::Function>,
    progress: Vec<Progress>,
    current: Option<&'a str>,
}

/// Names that the language has.
pub(crate) const TAKEN: &[&str] = &[
    "self",
    "first",
    "valid",
    "count",
    "now",
    "random",
    "min",
    "max",
    "system_cores",
    "idle_cores",
    "llc",
    "node",
    "siblings",
    "domains",
    "waker",
    "is_sync",
    "resched",
    "set_timer",
    "steal_for",
    "BLOCKED",
    "TERMINATED",
];

impl<'a> Checker<'a> {
    fn new(file: &'a ast::File) -> Self {
        Self {
            file,
            diagnostics: Vec::new(),
            policy: Policy {
                name: file.name.text.clone(),
                about: file.about.clone(),
                parameters: Vec::new(),
                enums: Vec::new(),
                thread: Vec::new(),
                core: Vec::new(),
                queues: Vec::new(),
                load: None,
                functions: Vec::new(),
                handlers: Handlers::default(),
                hints: Vec::new(),
                steal: None,
            },
            names: HashMap::new(),
            enums: HashMap::new(),
            written: Vec::new(),
            progress: Vec::new(),
            current: None,
        }
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        // One mistake may be met by several paths.
        if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(span, message));
    }

    /// The name of a type, for messages.
    fn called(&self, of: Type) -> String {
        match of {
            Type::Int => "a number".into(),
            Type::Time => "a time".into(),
            Type::Bool => "a condition".into(),
            Type::Enum(index) => format!("a {}", self.policy.enums[index].name),
            Type::Thread => "a thread".into(),
            Type::MaybeThread => "a thread or none".into(),
            Type::Core => "a core".into(),
            Type::MaybeCore => "a core or none".into(),
            Type::Cores => "a set of cores".into(),
            Type::Domain => "a domain".into(),
            Type::Domains => "a set of domains".into(),
            Type::Threads => "a queue".into(),
            Type::Nothing => "no value".into(),
            Type::Wrong => "an error".into(),
        }
    }

    fn kind(&mut self, name: &Name) -> Type {
        match name.text.as_str() {
            "int" => Type::Int,
            "time" => Type::Time,
            "bool" => Type::Bool,
            "thread" => Type::Thread,
            "core" => Type::Core,
            "cores" => Type::Cores,
            "domain" => Type::Domain,
            "void" => Type::Nothing,
            text => match self.enums.get(text) {
                Some(index) => Type::Enum(*index),
                None => {
                    let mut known = vec!["int", "time", "bool", "thread", "core", "domain"];
                    known.extend(self.enums.keys());
                    known[6..].sort_unstable();
                    let help = format!("types are {}", known.join(", "));
                    let message = format!("there is no type `{text}`");
                    self.report(Diagnostic::error(name.span, message).help(help));
                    Type::Wrong
                }
            },
        }
    }

    /// Reports a name that the policy may not give.
    fn may_be_named(&mut self, name: &Name) {
        if TAKEN.contains(&name.text.as_str()) {
            let message = format!("`{}` is a word of the language", name.text);
            self.report(Diagnostic::error(name.span, message).help("choose another name"));
        }
    }

    fn declare(&mut self, name: &'a Name, meaning: Meaning) {
        self.may_be_named(name);
        if let Some((_, before)) = self.names.get(name.text.as_str()) {
            let message = format!("`{}` is declared twice", name.text);
            let note = (*before, "first here");
            self.report(Diagnostic::error(name.span, message).note(note.0, note.1));
            return;
        }
        self.names.insert(&name.text, (meaning, name.span));
    }

    /// A constant of this type: a number of literals and constants.
    fn constant(&mut self, expr: &ast::Expr, of: Type) -> Option<i64> {
        let (value, found) = self.fold(expr)?;
        if found != of && of != Type::Wrong {
            let message = format!("this is {}, not {}", self.called(found), self.called(of));
            self.error(expr.span, message);
            return None;
        }
        Some(value)
    }

    fn fold(&mut self, expr: &ast::Expr) -> Option<(i64, Type)> {
        match &expr.kind {
            Written::Int(value) => Some((*value, Type::Int)),
            Written::Time(value) => Some((*value, Type::Time)),
            Written::Bool(value) => Some(((*value).into(), Type::Bool)),
            Written::Name(name) => match self.names.get(name.text.as_str()) {
                Some((Meaning::Const(value, of), _)) => Some((*value, *of)),
                Some((Meaning::EnumValue(index, value), _)) => Some((*value, Type::Enum(*index))),
                _ => self.not_constant(expr.span),
            },
            Written::Negate(of) => {
                let (value, of) = self.fold(of)?;
                Some((value.wrapping_neg(), of))
            }
            Written::Binary(a, operator, b) => {
                let (a, of) = self.fold(a)?;
                let (b, other) = self.fold(b)?;
                if [of, other].iter().any(|it| matches!(it, Type::Enum(_))) {
                    return self.not_constant(expr.span);
                }
                let value = match operator {
                    Binary::Add => a.checked_add(b),
                    Binary::Subtract => a.checked_sub(b),
                    Binary::Multiply => a.checked_mul(b),
                    Binary::Divide => a.checked_div(b),
                    _ => return self.not_constant(expr.span),
                };
                let of = match (operator, of, other) {
                    (Binary::Multiply, Type::Int, other) => other,
                    (Binary::Divide, Type::Time, Type::Time) => Type::Int,
                    _ => of,
                };
                match value {
                    Some(value) => Some((value, of)),
                    None => {
                        self.error(expr.span, "this is no number below 2^63");
                        None
                    }
                }
            }
            Written::Wrong => None,
            _ => self.not_constant(expr.span),
        }
    }

    fn not_constant<T>(&mut self, span: Span) -> Option<T> {
        let help = "it is made of numbers, times, constants and + - * /";
        self.report(Diagnostic::error(span, "this is not constant").help(help));
        None
    }

    fn declarations(&mut self) {
        let file = self.file;
        self.may_be_named(&file.name);
        let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let text = &file.name.text;
        let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || !text.chars().all(is_good) || text.len() > 31 {
            let help = "letters a to z, digits and _, with a letter first, at most 31 of them";
            let message = format!("`{text}` is no name of a policy");
            self.report(Diagnostic::error(file.name.span, message).help(help));
        } else if is_taken(text) {
            let message = format!("`{text}` is the name of something else in Rust");
            self.report(Diagnostic::error(file.name.span, message).help("choose another name"));
        }
        for item in &file.items {
            if let ast::Item::Enum(name, values) = item {
                self.may_be_named(name);
                let index = self.policy.enums.len();
                self.enums.insert(&name.text, index);
                self.policy.enums.push(Enum {
                    name: name.text.clone(),
                    values: values.iter().map(|value| value.text.clone()).collect(),
                });
                for (number, value) in (0..).zip(values) {
                    self.declare(value, Meaning::EnumValue(index, number));
                }
            }
        }
        for item in &file.items {
            match item {
                ast::Item::Const(variable) => self.const_item(variable),
                ast::Item::Param(variable, range) => self.param_item(variable, range.as_ref()),
                ast::Item::Function(function) => {
                    self.declare(&function.name, Meaning::Function(self.written.len()));
                    self.written.push(function);
                    self.progress.push(Progress::NotBegun);
                }
                _ => {}
            }
        }
        let mut seen: [Option<Span>; 2] = [None; 2];
        for item in &file.items {
            let (which, span) = match item {
                ast::Item::Thread(span, _) => (0, *span),
                ast::Item::Core(span, _) => (1, *span),
                _ => continue,
            };
            if let Some(before) = seen[which].replace(span) {
                let message = "a policy has one of these";
                self.report(Diagnostic::error(span, message).note(before, "another is here"));
                continue;
            }
            match item {
                ast::Item::Thread(_, attributes) => self.thread_item(attributes),
                ast::Item::Core(_, parts) => self.core_item(parts),
                _ => {}
            }
        }
        // Queues are ordered by attributes of threads, which may be declared later.
        for item in &file.items {
            if let ast::Item::Core(_, parts) = item {
                self.queue_orders(parts);
            }
        }
    }

    fn const_item(&mut self, variable: &'a ast::Variable) {
        let of = self.kind(&variable.kind);
        let Some(value) = &variable.value else {
            let message = format!("`{}` has no value", variable.name.text);
            return self.error(variable.name.span, message);
        };
        if let Some(value) = self.constant(value, of) {
            self.declare(&variable.name, Meaning::Const(value, of));
        }
    }

    fn param_item(&mut self, variable: &'a ast::Variable, range: Option<&(ast::Expr, ast::Expr)>) {
        let of = self.kind(&variable.kind);
        if !matches!(of, Type::Int | Type::Time | Type::Wrong) {
            return self.error(variable.kind.span, "a parameter is an `int` or a `time`");
        }
        let name = &variable.name;
        let Some(value) = &variable.value else {
            let message = format!("the parameter `{}` has no default", name.text);
            let help = format!("write `param {} {} = ..;`", variable.kind.text, name.text);
            return self.report(Diagnostic::error(name.span, message).help(help));
        };
        let default = self.constant(value, of);
        let range = range.and_then(|(least, most)| {
            let least = self.constant(least, of);
            Some((least?, self.constant(most, of)?))
        });
        let Some(default) = default else { return };
        if default < 0 {
            self.error(value.span, "a parameter is not negative");
        }
        if range.is_some_and(|(least, most)| !(least..=most).contains(&default)) {
            self.error(value.span, "the default is outside of the range");
        }
        self.declare(name, Meaning::Parameter(self.policy.parameters.len()));
        self.policy.parameters.push(Parameter {
            name: name.text.clone(),
            kind: of,
            default,
            range,
        });
    }

    fn attribute(&mut self, variable: &ast::Variable, others: &[Attribute]) -> Option<Attribute> {
        let of = self.kind(&variable.kind);
        let name = &variable.name;
        self.may_be_named(name);
        if others.iter().any(|other| other.name == name.text) {
            self.error(name.span, format!("`{}` is declared twice", name.text));
        }
        let taken = ["nice", "weight", "runtime", "cload", "core"];
        if taken.contains(&name.text.as_str()) {
            let message = format!("every thread or core has `{}` already", name.text);
            self.report(Diagnostic::error(name.span, message).help("choose another name"));
        }
        if !matches!(
            of,
            Type::Int | Type::Time | Type::Bool | Type::Enum(_) | Type::Core
        ) {
            if of != Type::Wrong {
                let help = "attributes are numbers, times, conditions, cores or values of enums";
                let message = format!("an attribute is not {}", self.called(of));
                self.report(Diagnostic::error(variable.kind.span, message).help(help));
            }
            return None;
        }
        let initial = match &variable.value {
            Some(value) if of == Type::Core => {
                self.error(value.span, "an attribute that is a core begins as core 0");
                None
            }
            Some(value) => {
                let known = self.constant(value, of)?;
                Some(Expr {
                    span: value.span,
                    kind: ExprKind::Int(known),
                    of,
                })
            }
            None => None,
        };
        Some(Attribute {
            name: name.text.clone(),
            kind: of,
            initial,
        })
    }

    fn thread_item(&mut self, attributes: &'a [ast::Variable]) {
        for variable in attributes {
            let others = std::mem::take(&mut self.policy.thread);
            let attribute = self.attribute(variable, &others);
            self.policy.thread = others;
            if variable.name.text == "load" {
                self.policy.load = Some(self.policy.thread.len());
                if attribute.as_ref().is_some_and(|it| it.kind != Type::Int) {
                    self.error(variable.kind.span, "the load of a thread is an `int`");
                }
                if attribute.as_ref().is_some_and(|it| it.initial.is_none()) {
                    let help = "write `int load = 1;`; a load is at least 1";
                    let message = "the load of a new thread is not known";
                    self.report(Diagnostic::error(variable.name.span, message).help(help));
                }
            }
            self.policy.thread.extend(attribute);
        }
    }

    fn core_item(&mut self, parts: &'a [ast::CorePart]) {
        for part in parts {
            match part {
                ast::CorePart::Running(name) => {
                    if self.current.replace(&name.text).is_some() {
                        self.error(name.span, "a core runs one thread");
                    }
                    self.may_be_named(name);
                }
                ast::CorePart::Ready(name, ..) => {
                    self.may_be_named(name);
                    if self
                        .policy
                        .queues
                        .iter()
                        .any(|queue| queue.name == name.text)
                    {
                        self.error(name.span, format!("`{}` is declared twice", name.text));
                    }
                    self.policy.queues.push(Queue {
                        name: name.text.clone(),
                        order: None,
                        rank: Vec::new(),
                    });
                }
                ast::CorePart::Attribute(variable) => {
                    let others = std::mem::take(&mut self.policy.core);
                    let attribute = self.attribute(variable, &others);
                    self.policy.core = others;
                    self.policy.core.extend(attribute);
                }
            }
        }
    }

    fn queue_orders(&mut self, parts: &'a [ast::CorePart]) {
        for part in parts {
            let ast::CorePart::Ready(name, Some(order), _) = part else {
                continue;
            };
            let by = self.key(order, Type::Threads);
            let queue = self
                .policy
                .queues
                .iter_mut()
                .find(|it| it.name == name.text);
            if let (Some(by), Some(queue)) = (by, queue) {
                queue.order = Some(by);
            }
        }
    }

    /// The order of a set of cores or threads.
    fn key(&mut self, order: &ast::Order, of: Type) -> Option<Order> {
        let text = order.by.text.as_str();
        let by = match (of, text) {
            (Type::Cores, "cload") => Some(Key::Cload),
            (Type::Cores, "count") => Some(Key::Count),
            (Type::Threads, _) => {
                let found = self.policy.thread.iter().position(|it| it.name == text);
                found.map(Key::Attribute)
            }
            _ => None,
        };
        let Some(by) = by else {
            let (message, help) = match of {
                Type::Cores => (
                    format!("cores have no order by `{text}`"),
                    "other cores show their `cload` and `count` only".to_owned(),
                ),
                _ => {
                    let known: Vec<&str> = self
                        .policy
                        .thread
                        .iter()
                        .map(|it| it.name.as_str())
                        .collect();
                    let help = if known.is_empty() {
                        "the policy declares no attributes of threads".to_owned()
                    } else {
                        format!("threads have {}", known.join(", "))
                    };
                    (format!("threads have no attribute `{text}`"), help)
                }
            };
            self.report(Diagnostic::error(order.by.span, message).help(help));
            return None;
        };
        Some(Order {
            is_lowest: order.is_lowest,
            by,
        })
    }

    /// Reports what every policy must have.
    fn required(&mut self, span: Span) {
        let mut missing = |is_there: bool, message: &str, help: &str| {
            if !is_there {
                self.diagnostics
                    .push(Diagnostic::error(span, message).help(help));
            }
        };
        let (file, handlers) = (self.file, &self.policy.handlers);
        missing(
            !self.policy.queues.is_empty(),
            "the policy has no queue of ready threads",
            "write `core { RUNNING thread current; READY queue ready; }`",
        );
        for (is_there, name, help) in [
            (
                handlers.new.is_some(),
                "new",
                "on new(thread t) { t => ready; }",
            ),
            (
                handlers.unblock.is_some(),
                "unblock",
                "on unblock(thread t) { t => ready; }",
            ),
            (
                handlers.preempt.is_some(),
                "preempt",
                "on preempt(thread t) { t => ready; }",
            ),
            (
                handlers.schedule.is_some(),
                "schedule",
                "on schedule(core c) { first(ready) => current; }",
            ),
        ] {
            missing(
                is_there || has_handler(file, name),
                &format!("the policy does not say what happens on `{name}`"),
                &format!("write `{help}`"),
            );
        }
    }
}

/// Is there a handler of this event, right or wrong?
fn has_handler(file: &ast::File, event: &str) -> bool {
    let is_it = |item: &ast::Item| matches!(item, ast::Item::Handler(it) if it.name.text == event);
    file.items.iter().any(is_it)
}
