// SPDX-License-Identifier: GPL-2.0-only
//! Writes a policy as a crate in Rust, against `lang/machine`.

use std::fmt::Write;

use crate::ast::Binary;
use crate::hir::*;

/// The sources of a crate.
pub struct Crate {
    pub manifest: String,
    pub library: String,
}

/// A policy as a crate. `file` is the name of its source, and `tree` the way from the crate's
/// folder to Baton's source tree.
pub fn crate_of(policy: &Policy, file: &str, tree: &str) -> Crate {
    let mut writer = Writer {
        policy,
        out: String::new(),
        depth: 0,
    };
    writer.library(file);
    Crate {
        manifest: manifest(policy, tree),
        library: writer.out,
    }
}

fn manifest(policy: &Policy, tree: &str) -> String {
    let name = policy.name.replace('_', "-");
    format!(
        "# SPDX-License-Identifier: GPL-2.0-only\n[package]\nname = \"{name}\"\nversion = \
         \"0.1.0\"\nedition = \"2024\"\nlicense = \"GPL-2.0-only\"\npublish = \
         false\n\n[dependencies]\nbaton-machine = {{ path = \"{tree}/lang/machine\" }}\n"
    )
}

/// What a body has of the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    Nothing,
    /// `seen`
    Seen,
    /// `at`
    Lock,
    /// `balance`
    Balance,
}

/// Where a body is written.
#[derive(Clone, Copy)]
struct Scope<'a> {
    locals: &'a [Local],
    given: Given,
    /// The core to which threads move, in `steal_thread`.
    dst: Option<LocalId>,
    /// What a value that is returned becomes.
    result: Type,
    /// `to` is an option.
    may_stay: bool,
}

struct Writer<'p> {
    policy: &'p Policy,
    out: String,
    depth: usize,
}

/// `ule_cwc` as `UleCwc`.
fn camel(name: &str) -> String {
    name.split('_')
        .map(|part| {
            let mut chars = part.chars();
            let first = chars.next().map(|c| c.to_ascii_uppercase());
            first.into_iter().chain(chars).collect::<String>()
        })
        .collect()
}

/// Words of Rust, and names that the generated code has for its own use.
const RESERVED: &[&str] = &[
    "as", "async", "at", "await", "balance", "box", "break", "const", "continue", "crate", "do",
    "dyn", "else", "enum", "env", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "left", "let", "loop", "macro", "match", "mod", "move", "moved", "mut", "next",
    "override", "priv", "pub", "queue", "ref", "return", "seen", "static", "struct", "super", "to",
    "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "value", "virtual",
    "wake", "walk", "where", "while", "yield", "abstract", "become",
];

/// A name of the policy in Rust.
fn safe(name: &str) -> String {
    let number = name.strip_prefix("argument");
    let is_argument = number.is_some_and(|number| number.parse::<usize>().is_ok());
    match is_argument || RESERVED.contains(&name) {
        true => format!("{name}_"),
        false => name.to_owned(),
    }
}

/// A function of the policy in Rust. It is told apart from those of the trait.
fn function_name(name: &str) -> String {
    const TRAIT: &[&str] = &[
        "new",
        "core",
        "begin",
        "load",
        "place_new",
        "place_unblock",
        "start",
        "unblock",
        "preempt",
        "give_way",
        "block",
        "terminate",
        "tick",
        "entry",
        "exit",
        "schedule",
        "newly_idle",
        "balancing",
        "can_steal_core",
        "select_core",
        "steal_thread",
        "arrive",
        "until",
    ];
    match TRAIT.contains(&name) {
        true => format!("{name}_"),
        false => safe(name),
    }
}

/// The constant that is the number of a queue.
fn constant_of(queue: &Queue) -> String {
    format!("{}_QUEUE", upper(&queue.name))
}

impl Writer<'_> {
    fn line(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        if !text.is_empty() {
            for _ in 0..self.depth {
                self.out.push_str("    ");
            }
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn open(&mut self, text: impl AsRef<str>) {
        self.line(text);
        self.depth += 1;
    }

    fn close(&mut self, text: &str) {
        self.depth -= 1;
        self.line(text);
    }

    fn library(&mut self, file: &str) {
        let policy = self.policy;
        self.line("// SPDX-License-Identifier: GPL-2.0-only");
        self.line(format!(
            "// Written by Baton's compiler from {file}, which is what to change."
        ));
        for line in &policy.about {
            self.line(format!("//! {line}").trim_end());
        }
        self.line("#![no_std]");
        self.line("#![forbid(unsafe_code)]");
        self.line(
            "// No policy uses all that it is given, and conditions stay as they are written.",
        );
        self.line("#![allow(unused_imports, unused_variables, clippy::collapsible_if, clippy::let_and_return)]");
        self.line("");
        self.line(
            "use baton_machine::{\n    At, Attribute, Balance, CoreSet, Cpu, Env, Error, Machine, \
             Next, Order, Place, Rules, Seen, Thread, Wake,\n    DEFAULT_SLICE,\n};",
        );
        self.line("");
        for (number, queue) in policy.queues.iter().enumerate() {
            self.line(format!("const {}: usize = {number};", constant_of(queue)));
        }
        for of in &policy.enums {
            for (number, value) in of.values.iter().enumerate() {
                self.line("#[allow(dead_code)]");
                self.line(format!("const {}: i64 = {number};", upper(value)));
            }
        }
        self.line("");
        self.line("/// The policy's parameters.");
        let name = camel(&policy.name);
        self.open(format!("pub struct {name} {{"));
        for parameter in &policy.parameters {
            self.line(format!("{}: i64,", safe(&parameter.name)));
        }
        self.close("}");
        self.line("");
        self.line("/// The attributes of a thread.");
        self.line("#[derive(Default)]");
        self.open("pub struct OfThread {");
        for attribute in &policy.thread {
            self.line(format!("{}: Attribute,", safe(&attribute.name)));
        }
        self.close("}");
        self.line("");
        self.line("/// The attributes of a core.");
        self.open("pub struct OfCore {");
        for attribute in &policy.core {
            self.line(format!(
                "{}: {},",
                safe(&attribute.name),
                stored(attribute.kind)
            ));
        }
        self.close("}");
        self.line("");
        if !policy.functions.is_empty() {
            self.open(format!("impl {name} {{"));
            for (number, function) in policy.functions.iter().enumerate() {
                if number > 0 {
                    self.line("");
                }
                self.function(function);
            }
            self.close("}");
            self.line("");
        }
        self.open(format!("impl Rules for {name} {{"));
        self.rules();
        self.close("}");
        self.line("");
        self.line(format!("baton_machine::policy!(Machine<{name}>);"));
    }

    fn rules(&mut self) {
        let policy = self.policy;
        self.line(format!("const NAME: &'static str = {:?};", policy.name));
        self.line("");
        self.line("type Thread = OfThread;");
        self.line("type Core = OfCore;");
        self.parameters();
        self.queues();
        self.attributes();
        self.place("place_new", policy.handlers.new.as_ref());
        self.place("place_unblock", policy.handlers.unblock.as_ref());
        self.update("start", policy.handlers.new.as_ref());
        self.update("unblock", policy.handlers.unblock.as_ref());
        self.leaves("preempt", policy.handlers.preempt.as_ref());
        self.leaves("give_way", policy.handlers.give_way.as_ref());
        for (name, handler) in [
            ("block", &policy.handlers.block),
            ("terminate", &policy.handlers.terminate),
            ("tick", &policy.handlers.tick),
            ("depart", &policy.handlers.depart),
            ("arrive", &policy.handlers.arrive),
        ] {
            let Some(handler) = handler else { continue };
            let thread = safe(&handler.body.locals[handler.subject].name);
            self.line("");
            self.open(format!(
                "fn {name}(&self, at: &mut At<'_, '_, Self>, {thread}: Thread<'_, OfThread>) {{"
            ));
            let scope = self.scope(&handler.body, Given::Lock);
            self.statements(&handler.body.statements, scope);
            self.close("}");
        }
        for (name, handler) in [
            ("entry", &policy.handlers.entry),
            ("exit", &policy.handlers.exit),
        ] {
            let Some(handler) = handler else { continue };
            self.line("");
            self.open(format!("fn {name}(&self, at: &mut At<'_, '_, Self>) {{"));
            self.core_name(handler);
            let scope = self.scope(&handler.body, Given::Lock);
            self.statements(&handler.body.statements, scope);
            self.close("}");
        }
        if let Some(handler) = &policy.handlers.schedule {
            self.schedule(handler);
        }
        for (name, handler) in [
            ("newly_idle", &policy.handlers.newly_idle),
            ("balancing", &policy.handlers.balancing),
        ] {
            let Some(handler) = handler else { continue };
            let core = safe(&handler.body.locals[handler.subject].name);
            self.line("");
            self.open(format!(
                "fn {name}(&self, balance: &mut Balance<'_, '_, Self>, {core}: Cpu) {{"
            ));
            let scope = self.scope(&handler.body, Given::Balance);
            self.statements(&handler.body.statements, scope);
            self.close("}");
        }
        self.place_in();
        if let Some(steal) = &policy.steal {
            self.steal(steal);
        }
    }

    fn scope<'a>(&self, body: &'a Body, given: Given) -> Scope<'a> {
        Scope {
            locals: &body.locals,
            given,
            dst: None,
            result: Type::Nothing,
            may_stay: false,
        }
    }

    /// Declares the name of the core whose lock is held, if it is used.
    fn core_name(&mut self, handler: &Handler) {
        if uses(&handler.body, handler.subject) {
            let name = safe(&handler.body.locals[handler.subject].name);
            self.line(format!("let {name} = at.core();"));
        }
    }

    fn parameters(&mut self) {
        let policy = self.policy;
        self.line("");
        self.open("fn new(env: &Env<'_>) -> Result<Self, Error> {");
        let names: Vec<String> = policy
            .parameters
            .iter()
            .map(|parameter| format!("{:?}", parameter.name))
            .collect();
        self.line(format!("env.known_options(&[{}])?;", names.join(", ")));
        self.open("Ok(Self {");
        for parameter in &policy.parameters {
            let read = match parameter.kind {
                Type::Time => "duration",
                _ => "number",
            };
            let (least, most) = parameter.range.unwrap_or((0, i64::MAX));
            let (name, default) = (&parameter.name, parameter.default);
            self.line(format!(
                "{}: baton_machine::{read}(env, {name:?}, {default}, {least}, {})?,",
                safe(name),
                match most {
                    i64::MAX => "i64::MAX".to_owned(),
                    most => most.to_string(),
                }
            ));
        }
        self.close("})");
        self.close("}");
    }

    fn queues(&mut self) {
        let orders = self.policy.queues.iter().map(|queue| match queue.order {
            Some(_) => "Order::Key",
            None => "Order::Arrival",
        });
        let orders: Vec<&str> = orders.collect();
        self.line("");
        self.line("#[inline(always)]");
        self.open("fn queues(&self) -> &[Order] {");
        self.line(format!("&[{}]", orders.join(", ")));
        self.close("}");
    }

    fn attributes(&mut self) {
        let policy = self.policy;
        self.line("");
        self.open("fn core(&self, _: Cpu) -> OfCore {");
        self.open("OfCore {");
        for attribute in &policy.core {
            let initial = match &attribute.initial {
                Some(value) => self.constant(value),
                None => match attribute.kind {
                    Type::Bool => "false".into(),
                    Type::Core => "Cpu::new(0)".into(),
                    _ => "0".into(),
                },
            };
            self.line(format!("{}: {initial},", safe(&attribute.name)));
        }
        self.close("}");
        self.close("}");
        self.line("");
        let uses_core = policy.thread.iter().any(|it| it.kind == Type::Core);
        let core = if uses_core { "core" } else { "_" };
        let thread = if policy.thread.is_empty() {
            "_"
        } else {
            "thread"
        };
        self.open(format!(
            "fn begin(&self, {thread}: Thread<'_, OfThread>, {core}: Cpu) {{"
        ));
        for attribute in &policy.thread {
            let initial = match &attribute.initial {
                Some(value) => number_of(value),
                None if attribute.kind == Type::Core => "core.number().into()".into(),
                None => "0".into(),
            };
            self.line(format!(
                "thread.attributes().{}.set({initial});",
                safe(&attribute.name)
            ));
        }
        self.close("}");
        if policy.load.is_some() {
            self.line("");
            self.open("fn load(&self, thread: Thread<'_, OfThread>) -> i64 {");
            self.line("thread.attributes().load.get().max(1)");
            self.close("}");
        }
    }

    fn constant(&self, value: &Expr) -> String {
        match (&value.kind, value.of) {
            (ExprKind::Int(number), Type::Bool) => (*number != 0).to_string(),
            (ExprKind::Int(number), Type::Enum(of)) => {
                upper(&self.policy.enums[of].values[*number as usize])
            }
            (ExprKind::Int(number), _) => number.to_string(),
            _ => "0".into(),
        }
    }

    fn function(&mut self, function: &Function) {
        let mut parameters = Vec::new();
        let given = match function.needs {
            Needs::Nothing => Given::Nothing,
            Needs::Seen => {
                parameters.push("seen: &Seen<'_, '_, Self>".to_owned());
                Given::Seen
            }
            Needs::Lock => {
                let mark = if function.changes { "mut " } else { "" };
                parameters.push(format!("at: &{mark}At<'_, '_, Self>"));
                Given::Lock
            }
        };
        let locals = &function.body.locals;
        for id in &function.parameters {
            let mark = if locals[*id].is_changed { "mut " } else { "" };
            parameters.push(format!(
                "{mark}{}: {}",
                safe(&locals[*id].name),
                passed(locals[*id].kind)
            ));
        }
        let result = match function.result {
            Type::Nothing => String::new(),
            result => format!(" -> {}", passed(result)),
        };
        self.open(format!(
            "fn {}(&self{}){result} {{",
            function_name(&function.name),
            parameters
                .iter()
                .map(|it| format!(", {it}"))
                .collect::<String>()
        ));
        let scope = Scope {
            result: function.result,
            ..self.scope(&function.body, given)
        };
        self.body(&function.body, scope);
        self.close("}");
    }

    fn body(&mut self, body: &Body, scope: Scope<'_>) {
        let (statements, value) = match (body.statements.split_last(), &body.value) {
            (Some((last, before)), None) => match &last.kind {
                StatementKind::Return(Some(value)) => (before, Some(value)),
                _ => (&body.statements[..], None),
            },
            (_, value) => (&body.statements[..], value.as_ref()),
        };
        self.statements(statements, scope);
        if let Some(value) = value {
            let value = self.coerced(value, scope.result, scope);
            self.line(value);
        }
    }

    /// The observing phase of a handler.
    fn place(&mut self, name: &str, placed: Option<&Placed>) {
        let Some(Placed {
            thread,
            place: Some(place),
            ..
        }) = placed
        else {
            return;
        };
        let thread_name = safe(&place.body.locals[*thread].name);
        self.line("");
        self.open(format!(
            "fn {name}(\n        &self,\n        seen: &Seen<'_, '_, Self>,\n        \
             {thread_name}: Thread<'_, OfThread>,\n        wake: &Wake,\n    ) -> Cpu {{"
        ));
        let scope = self.scope(&place.body, Given::Seen);
        self.statements(&place.body.statements, scope);
        let core = self.expr(&place.core, scope);
        match place.core.of {
            Type::MaybeCore => self.line(format!("{core}.unwrap_or(wake.prev_cpu)")),
            _ => self.line(core),
        }
        self.close("}");
    }

    /// The updating phase of a handler.
    fn update(&mut self, name: &str, placed: Option<&Placed>) {
        let Some(placed) = placed else { return };
        let subject = 0;
        let handler = Handler {
            subject,
            body: placed.update.clone(),
        };
        // The core that was chosen is the one whose lock is held.
        let core = placed.place.as_ref().map(|_| subject + 1);
        self.leaves_as(name, &handler, core);
    }

    fn leaves(&mut self, name: &str, handler: Option<&Handler>) {
        if let Some(handler) = handler {
            self.leaves_as(name, handler, None);
        }
    }

    fn leaves_as(&mut self, name: &str, handler: &Handler, core: Option<LocalId>) {
        let body = &handler.body;
        let thread = safe(&body.locals[handler.subject].name);
        self.line("");
        self.open(format!(
            "fn {name}(&self, at: &mut At<'_, '_, Self>, {thread}: Thread<'_, OfThread>) -> Place \
             {{"
        ));
        if let Some(core) = core.filter(|core| uses(body, *core)) {
            self.line(format!(
                "let {} = at.core();",
                safe(&body.locals[core].name)
            ));
        }
        let scope = self.scope(body, Given::Lock);
        self.with_tail(&body.statements, scope, "to");
        self.close("}");
    }

    /// Statements of which one on each path gives the result. It is the value of the block where
    /// nothing follows it, and else assigned to this name.
    fn with_tail(&mut self, statements: &[Statement], scope: Scope<'_>, name: &str) {
        if ends_in_moves(statements) {
            return self.tail(statements, scope);
        }
        self.line(format!("let {name};"));
        self.statements(statements, scope);
        self.line(name);
    }

    fn tail(&mut self, statements: &[Statement], scope: Scope<'_>) {
        let Some((last, before)) = statements.split_last() else {
            return;
        };
        self.statements(before, scope);
        match &last.kind {
            StatementKind::If {
                conditions,
                then,
                otherwise: Some(otherwise),
            } => {
                let head = self.condition(conditions, scope);
                self.open(head);
                self.tail(then, scope);
                self.depth -= 1;
                self.open("} else {");
                self.tail(otherwise, scope);
                self.close("}");
            }
            moves => {
                let value = self.moved(moves, scope);
                self.line(value);
            }
        }
    }

    /// The value of a move.
    fn moved(&mut self, kind: &StatementKind, scope: Scope<'_>) -> String {
        match kind {
            StatementKind::Enqueue(_, queue) if scope.may_stay => {
                format!("Some({})", constant_of(&self.policy.queues[*queue]))
            }
            StatementKind::Enqueue(thread, queue) => {
                let thread = self.expr(thread, scope);
                self.place_of(&thread, *queue)
            }
            StatementKind::Run(thread, time) => {
                let slice = match time {
                    Some(time) => self.expr(time, scope),
                    None => "DEFAULT_SLICE as i64".into(),
                };
                let text = self.expr(thread, scope);
                match thread.of {
                    Type::MaybeThread => {
                        format!("{text}.map(|thread| Next {{ thread, slice: {slice} }})")
                    }
                    _ => format!("Some(Next {{ thread: {text}, slice: {slice} }})"),
                }
            }
            _ => String::new(),
        }
    }

    fn place_of(&self, thread: &str, queue: usize) -> String {
        let of = &self.policy.queues[queue];
        let key = match of.order {
            Some(Order {
                is_lowest,
                by: Key::Attribute(index),
            }) => {
                let name = safe(&self.policy.thread[index].name);
                let sign = if is_lowest { "" } else { "-" };
                format!("{sign}{thread}.attributes().{name}.get()")
            }
            _ => "0".into(),
        };
        format!("Place {{ queue: {}, key: {key} }}", constant_of(of))
    }

    fn schedule(&mut self, handler: &Handler) {
        self.line("");
        self.open(
            "fn schedule<'a>(&self, at: &mut At<'_, 'a, Self>) -> Option<Next<'a, OfThread>> {",
        );
        self.core_name(handler);
        let scope = self.scope(&handler.body, Given::Lock);
        self.with_tail(&handler.body.statements, scope, "next");
        self.close("}");
    }

    fn steal(&mut self, steal: &Steal) {
        let names = |function: &Function| -> Vec<String> {
            function
                .parameters
                .iter()
                .map(|id| safe(&function.body.locals[*id].name))
                .collect()
        };
        let filter = &steal.can_steal_core;
        let parameters = names(filter);
        self.line("");
        self.open(format!(
            "fn can_steal_core(&self, seen: &Seen<'_, '_, Self>, {}: Cpu, {}: Cpu) -> bool {{",
            parameters[0], parameters[1]
        ));
        let scope = observing(filter);
        self.body(&filter.body, scope);
        self.close("}");

        let select = &steal.select_core;
        let parameters = names(select);
        self.line("");
        self.open(format!(
            "fn select_core(\n        &self,\n        seen: &Seen<'_, '_, Self>,\n        {}: \
             &CoreSet,\n        {}: Cpu,\n    ) -> Option<Cpu> {{",
            parameters[0], parameters[1]
        ));
        let scope = observing(select);
        self.body(&select.body, scope);
        self.close("}");

        self.steal_thread(&steal.steal_thread);

        let until = &steal.until;
        let parameters = names(until);
        self.line("");
        self.open(format!(
            "fn until(&self, seen: &Seen<'_, '_, Self>, {}: Cpu) -> bool {{",
            parameters[0]
        ));
        let scope = observing(until);
        self.body(&until.body, scope);
        self.close("}");
    }

    fn steal_thread(&mut self, steal: &StealThread) {
        let body = &steal.body;
        let name = |id: LocalId| safe(&body.locals[id].name);
        self.line("");
        self.open(format!(
            "fn steal_thread(\n        &self,\n        at: &mut At<'_, '_, Self>,\n        {}: \
             Cpu,\n        moved: (i64, i64),\n        {}: Thread<'_, OfThread>,\n    ) -> \
             Option<usize> {{",
            name(steal.dst),
            name(steal.thread)
        ));
        if uses(body, steal.src) {
            self.line(format!("let {} = at.core();", name(steal.src)));
        }
        let scope = Scope {
            dst: Some(steal.dst),
            may_stay: true,
            ..self.scope(body, Given::Lock)
        };
        self.line("let mut to = None;");
        self.statements(&body.statements, scope);
        self.line("to");
        self.close("}");
    }

    /// The place of a thread in a queue that is known by number.
    fn place_in(&mut self) {
        self.line("");
        self.open("fn place_in(&self, queue: usize, thread: Thread<'_, OfThread>) -> Place {");
        self.place_in_body();
        self.close("}");
    }

    fn place_in_body(&mut self) {
        let policy = self.policy;
        if policy.queues.iter().all(|queue| queue.order.is_none()) {
            return self.line("Place { queue, key: 0 }");
        }
        if policy.queues.len() == 1 {
            let place = self.place_of("thread", 0);
            return self.line(place);
        }
        self.open("match queue {");
        for (number, queue) in policy.queues.iter().enumerate() {
            let place = self.place_of("thread", number);
            if number + 1 == policy.queues.len() {
                self.line(format!("_ => {place},"));
            } else {
                self.line(format!("{} => {place},", constant_of(queue)));
            }
        }
        self.close("}");
    }

    // --- Statements ---

    fn statements(&mut self, statements: &[Statement], scope: Scope<'_>) {
        for statement in statements {
            self.statement(statement, scope);
        }
    }

    fn statement(&mut self, statement: &Statement, scope: Scope<'_>) {
        let name = |id: LocalId| safe(&scope.locals[id].name);
        match &statement.kind {
            StatementKind::Let(id, value) => {
                let mark = if scope.locals[*id].is_changed {
                    "mut "
                } else {
                    ""
                };
                let value = self.coerced(value, scope.locals[*id].kind, scope);
                self.line(format!("let {mark}{} = {value};", name(*id)));
            }
            StatementKind::Set(
                id,
                Expr {
                    kind: ExprKind::Binary(target, operator @ (Binary::Add | Binary::Subtract), by),
                    ..
                },
            ) if matches!(target.kind, ExprKind::Local(of) if of == *id) => {
                let by = self.expr(by, scope);
                self.line(format!("{} {}= {by};", name(*id), operator.text()));
            }
            StatementKind::Set(id, value) => {
                let value = self.coerced(value, scope.locals[*id].kind, scope);
                self.line(format!("{} = {value};", name(*id)));
            }
            StatementKind::SetThread(thread, index, value) => {
                let attribute = &self.policy.thread[*index];
                let thread = self.expr(thread, scope);
                let value = self.expr(value, scope);
                let value = match attribute.kind {
                    Type::Bool => format!("i64::from({value})"),
                    Type::Core => format!("i64::from({value}.number())"),
                    _ => value,
                };
                self.line(format!(
                    "{thread}.attributes().{}.set({value});",
                    safe(&attribute.name)
                ));
            }
            StatementKind::SetCore(index, value) => {
                let value = self.expr(value, scope);
                let attribute = safe(&self.policy.core[*index].name);
                if uses_at(&value) {
                    self.line(format!("let value = {value};"));
                    self.line(format!("at.attributes_mut().{attribute} = value;"));
                } else {
                    self.line(format!("at.attributes_mut().{attribute} = {value};"));
                }
            }
            StatementKind::If {
                conditions,
                then,
                otherwise,
            } => {
                let head = self.condition(conditions, scope);
                self.open(head);
                self.statements(then, scope);
                match otherwise {
                    Some(otherwise) => {
                        self.depth -= 1;
                        self.open("} else {");
                        self.statements(otherwise, scope);
                        self.close("}");
                    }
                    None => self.close("}"),
                }
            }
            StatementKind::Unless(value, id, leaves) => {
                let value = self.expr(value, scope);
                self.open(format!("let Some({}) = {value} else {{", name(*id)));
                self.statements(leaves, scope);
                self.close("};");
            }
            StatementKind::Foreach(id, set, order, body) => {
                self.foreach(*id, set, *order, body, scope);
            }
            StatementKind::Break => self.line("break;"),
            StatementKind::Return(None) => self.line("return;"),
            StatementKind::Return(Some(value)) => {
                let value = self.coerced(value, scope.result, scope);
                self.line(format!("return {value};"));
            }
            StatementKind::Enqueue(..) => {
                let value = self.moved(&statement.kind, scope);
                self.line(format!("to = {value};"));
            }
            StatementKind::Run(..) => {
                let value = self.moved(&statement.kind, scope);
                self.line(format!("next = {value};"));
            }
            StatementKind::Call(function, arguments) => {
                let call = self.call(*function, arguments, scope);
                self.line(format!("{call};"));
            }
            StatementKind::Resched => self.line("at.resched();"),
            StatementKind::StealFor(core) => {
                let core = self.expr(core, scope);
                self.line(format!("balance.steal_for({core});"));
            }
        }
    }

    /// The head of an `if`.
    fn condition(&mut self, conditions: &[Condition], scope: Scope<'_>) -> String {
        let level = match conditions.len() {
            1 => 0,
            _ => Binary::And.level() + 1,
        };
        let texts = conditions.iter().map(|condition| match condition {
            Condition::Holds(condition) => self.operand(condition, level, scope),
            Condition::IsThere(value, id) => {
                let name = safe(&scope.locals[*id].name);
                format!("let Some({name}) = {}", self.expr(value, scope))
            }
        });
        let texts: Vec<String> = texts.collect();
        format!("if {} {{", texts.join(" && "))
    }

    fn foreach(
        &mut self,
        id: LocalId,
        set: &Expr,
        order: Option<Order>,
        body: &[Statement],
        scope: Scope<'_>,
    ) {
        let name = safe(&scope.locals[id].name);
        if let ExprKind::Queue(queue) = set.kind {
            let queue = constant_of(&self.policy.queues[queue]);
            self.line(format!("let mut walk = at.walk({queue});"));
            self.open(format!("while let Some({name}) = at.next_of(&mut walk) {{"));
        } else if let Some(order) = order {
            let (seen, members) = (seen(scope.given), self.members(set, scope));
            self.line(format!("let mut left: CoreSet = {members}.collect();"));
            let key = key_of(order, &seen);
            self.open(format!(
                "while let Some({name}) = {seen}.members(&left).min_by_key({key}) {{"
            ));
            self.line(format!("left.remove({name});"));
        } else {
            let members = self.members(set, scope);
            self.open(format!("for {name} in {members} {{"));
        }
        self.statements(body, scope);
        self.close("}");
    }

    // --- Expressions ---

    /// A value for a place of this type.
    fn coerced(&mut self, value: &Expr, of: Type, scope: Scope<'_>) -> String {
        let text = self.expr(value, scope);
        match (of, value.of) {
            (Type::MaybeThread, Type::Thread) | (Type::MaybeCore, Type::Core) => {
                format!("Some({text})")
            }
            _ => text,
        }
    }

    fn members(&mut self, set: &Expr, scope: Scope<'_>) -> String {
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
                }
            }
            _ => String::new(),
        }
    }

    fn call(&mut self, function: usize, arguments: &[Expr], scope: Scope<'_>) -> String {
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
        match before.is_empty() {
            true => call,
            false => format!("{{ {before}{call} }}"),
        }
    }

    fn expr(&mut self, expr: &Expr, scope: Scope<'_>) -> String {
        let seen = seen(scope.given);
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
                match is_dst {
                    true => format!("({seen}.cload({core}) + moved.0)"),
                    false => format!("{seen}.cload({core})"),
                }
            }
            ExprKind::Count(core) => {
                let is_dst = matches!(core.kind, ExprKind::Local(id) if scope.dst == Some(id));
                let core = self.expr(core, scope);
                match is_dst {
                    true => format!("({seen}.count({core}) + moved.1)"),
                    false => format!("{seen}.count({core})"),
                }
            }
            ExprKind::Waiting(queue) => {
                format!("at.waiting({})", constant_of(&self.policy.queues[*queue]))
            }
            ExprKind::Queue(queue) => constant_of(&self.policy.queues[*queue]),
            ExprKind::Cores(..) => self.members(expr, scope),
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
                match value < 0 {
                    true => format!("({text}_i64)"),
                    false => format!("{text}_i64"),
                }
            }
            _ => text,
        }
    }

    /// An operand of an operator that binds as tightly as `level`.
    fn operand(&mut self, expr: &Expr, level: u8, scope: Scope<'_>) -> String {
        let text = self.expr(expr, scope);
        match &expr.kind {
            ExprKind::Binary(_, operator, _) if operator.level() < level => format!("({text})"),
            _ => text,
        }
    }

    fn first(&mut self, set: &Expr, order: Option<Order>, scope: Scope<'_>) -> String {
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

/// Where a part of a steal is written that observes.
fn observing(function: &Function) -> Scope<'_> {
    Scope {
        locals: &function.body.locals,
        given: Given::Seen,
        dst: None,
        result: function.result,
        may_stay: false,
    }
}

/// The order of cores, as a closure. The nearest of those that are equal comes first.
fn key_of(order: Order, seen: &str) -> String {
    let what = match order.by {
        Key::Cload => "cload",
        Key::Count | Key::Attribute(_) => "count",
    };
    let sign = if order.is_lowest { "" } else { "-" };
    format!("|&core| {sign}{seen}.{what}(core)")
}

/// Does an expression use the core whose lock is held?
fn uses_at(text: &str) -> bool {
    text.contains("at.") || text.contains("(at")
}

/// How a body names what is seen of other cores.
fn seen(given: Given) -> String {
    match given {
        Given::Nothing | Given::Seen => "seen".into(),
        Given::Lock => "at.seen()".into(),
        Given::Balance => "balance.seen()".into(),
    }
}

fn upper(name: &str) -> String {
    name.to_ascii_uppercase()
}

/// A number as Rust's style has it.
fn number(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::new();
    if value < 0 {
        out.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len() > 4 && (digits.len() - at).is_multiple_of(3) {
            out.push('_');
        }
        out.push(digit);
    }
    out
}

fn number_of(value: &Expr) -> String {
    match value.kind {
        ExprKind::Int(value) => number(value),
        _ => "0".into(),
    }
}

/// The type of a core's attribute.
fn stored(of: Type) -> &'static str {
    match of {
        Type::Bool => "bool",
        Type::Core => "Cpu",
        _ => "i64",
    }
}

/// The type of a parameter or a result.
fn passed(of: Type) -> &'static str {
    match of {
        Type::Bool => "bool",
        Type::Core => "Cpu",
        Type::MaybeCore => "Option<Cpu>",
        Type::Thread => "Thread<'_, OfThread>",
        Type::MaybeThread => "Option<Thread<'_, OfThread>>",
        Type::Cores => "&CoreSet",
        _ => "i64",
    }
}

/// Is a move the last thing on each path?
fn ends_in_moves(statements: &[Statement]) -> bool {
    let Some((last, before)) = statements.split_last() else {
        return false;
    };
    if before.iter().any(moves) {
        return false;
    }
    match &last.kind {
        StatementKind::Enqueue(..) | StatementKind::Run(..) => true,
        StatementKind::If {
            then,
            otherwise: Some(otherwise),
            ..
        } => ends_in_moves(then) && ends_in_moves(otherwise),
        _ => false,
    }
}

/// Does a statement move a thread?
fn moves(statement: &Statement) -> bool {
    match &statement.kind {
        StatementKind::Enqueue(..) | StatementKind::Run(..) => true,
        StatementKind::If {
            then, otherwise, ..
        } => then.iter().chain(otherwise.iter().flatten()).any(moves),
        _ => false,
    }
}

/// Does a body use a local?
fn uses(body: &Body, id: LocalId) -> bool {
    let mut found = false;
    walk(body, &mut |expr| {
        found |= matches!(expr.kind, ExprKind::Local(used) if used == id);
    });
    found
}

/// Visits all expressions of a body.
fn walk(body: &Body, visit: &mut impl FnMut(&Expr)) {
    for statement in &body.statements {
        walk_statement(statement, visit);
    }
    if let Some(value) = &body.value {
        walk_expr(value, visit);
    }
}

fn walk_statement(statement: &Statement, visit: &mut impl FnMut(&Expr)) {
    match &statement.kind {
        StatementKind::Let(_, value)
        | StatementKind::Set(_, value)
        | StatementKind::SetCore(_, value)
        | StatementKind::StealFor(value)
        | StatementKind::Enqueue(value, _) => walk_expr(value, visit),
        StatementKind::SetThread(thread, _, value) => {
            walk_expr(thread, visit);
            walk_expr(value, visit);
        }
        StatementKind::If {
            conditions,
            then,
            otherwise,
        } => {
            for condition in conditions {
                walk_expr(condition.expr(), visit);
            }
            for statement in then.iter().chain(otherwise.iter().flatten()) {
                walk_statement(statement, visit);
            }
        }
        StatementKind::Unless(value, _, body) | StatementKind::Foreach(_, value, _, body) => {
            walk_expr(value, visit);
            for statement in body {
                walk_statement(statement, visit);
            }
        }
        StatementKind::Return(value) => {
            if let Some(value) = value {
                walk_expr(value, visit);
            }
        }
        StatementKind::Run(thread, time) => {
            walk_expr(thread, visit);
            if let Some(time) = time {
                walk_expr(time, visit);
            }
        }
        StatementKind::Call(_, arguments) => {
            for argument in arguments {
                walk_expr(argument, visit);
            }
        }
        StatementKind::Break | StatementKind::Resched => {}
    }
}

fn walk_expr(expr: &Expr, visit: &mut impl FnMut(&Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::ThreadAttribute(of, _)
        | ExprKind::Thread(of, _)
        | ExprKind::Cload(of)
        | ExprKind::Count(of)
        | ExprKind::First(of, _)
        | ExprKind::Valid(of)
        | ExprKind::Random(of)
        | ExprKind::Not(of)
        | ExprKind::Negate(of) => walk_expr(of, visit),
        ExprKind::Cores(_, Some(of)) => walk_expr(of, visit),
        ExprKind::Call(_, arguments) => {
            for argument in arguments {
                walk_expr(argument, visit);
            }
        }
        ExprKind::Min(a, b) | ExprKind::Max(a, b) | ExprKind::Binary(a, _, b) => {
            walk_expr(a, visit);
            walk_expr(b, visit);
        }
        _ => {}
    }
}
