// SPDX-License-Identifier: GPL-2.0-only
//! Writes a policy as a crate in Rust, against `lang/machine`.

mod body;
mod expr;
mod hints;
mod names;
mod state;

use std::collections::HashSet;

use crate::hir::*;
use crate::walk::uses;
pub(crate) use names::is_reserved;
use names::{camel, constant_of, function_name, number_of, passed, safe, stored, upper};

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

/// Names of the generated crate, which no policy has.
const OF_CRATE: [&str; 8] = [
    "Hint", "OfCore", "OfThread", "Option", "Reply", "Result", "Self", "Send",
];

/// Is the name of a policy taken by a type that the generated crate uses?
pub(crate) fn is_taken(policy: &str) -> bool {
    let name = camel(policy);
    let mut taken = OF_MACHINE.iter().chain(&OF_CRATE);
    taken.any(|taken| **taken == name)
}

/// What the machine offers to policies.
const OF_MACHINE: [&str; 20] = [
    "At",
    "Attribute",
    "Balance",
    "CoreSet",
    "Cpu",
    "DEFAULT_SLICE",
    "Domain",
    "Env",
    "Error",
    "Hinted",
    "Machine",
    "Named",
    "Next",
    "Order",
    "Place",
    "Rules",
    "Seen",
    "Thread",
    "Upgradable",
    "Wake",
];

struct Writer<'p> {
    policy: &'p Policy,
    out: String,
    depth: usize,
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
        self.line("#![allow(unused_variables, clippy::collapsible_if, clippy::let_and_return)]");
        self.line("");
        let head = std::mem::take(&mut self.out);
        self.items();
        let items = std::mem::replace(&mut self.out, head);
        self.imports(&items);
        self.out.push_str(&items);
    }

    /// Imports what these items name.
    fn imports(&mut self, items: &str) {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let words: HashSet<&str> = items.split(|letter| !is_word(letter)).collect();
        let names = OF_MACHINE.into_iter().filter(|name| words.contains(name));
        let names: Vec<&str> = names.collect();
        self.line(format!("use baton_machine::{{{}}};", names.join(", ")));
        self.line("");
    }

    fn items(&mut self) {
        let policy = self.policy;
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
        self.state(&name);
        if policy.hints.is_empty() {
            self.line(format!("baton_machine::policy!(Machine<{name}>, upgrade);"));
        } else {
            self.hints();
            self.line(format!(
                "baton_machine::policy!(Machine<{name}>, upgrade, hints);"
            ));
        }
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
            ("timer", &policy.handlers.timer),
        ] {
            let Some(handler) = handler else { continue };
            self.line("");
            self.open(format!("fn {name}(&self, at: &mut At<'_, '_, Self>) {{"));
            self.core_name(handler);
            let scope = self.scope(&handler.body, Given::Lock);
            self.statements(&handler.body.statements, scope);
            self.close("}");
        }
        if policy.handlers.timer.is_some() {
            self.line("");
            self.open("fn has_timer(&self) -> bool {");
            self.line("true");
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
        if given == Given::Lock {
            // In a kernel module, each call that is not inlined checks the stack.
            self.line("#[inline]");
        }
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
