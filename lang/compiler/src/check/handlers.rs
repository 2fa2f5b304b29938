// SPDX-License-Identifier: GPL-2.0-only
//! Handlers, and the phases of a steal.

use super::body::{BodyChecker, Moved, Phase};
use super::{Checker, Meaning};
use crate::ast::{self, ExprKind as Written, StatementKind as Said};
use crate::diagnostic::{Diagnostic, Span};
use crate::hir::*;

/// Events, each with the type of its parameter.
pub(crate) const EVENTS: &[(&str, Type)] = &[
    ("new", Type::Thread),
    ("unblock", Type::Thread),
    ("preempt", Type::Thread),
    ("yield", Type::Thread),
    ("block", Type::Thread),
    ("terminate", Type::Thread),
    ("tick", Type::Thread),
    ("depart", Type::Thread),
    ("arrive", Type::Thread),
    ("schedule", Type::Core),
    ("newly_idle", Type::Core),
    ("balancing", Type::Core),
    ("entry", Type::Core),
    ("exit", Type::Core),
    ("timer", Type::Core),
];

impl<'a> Checker<'a> {
    pub(super) fn handlers(&mut self) {
        let file = self.file;
        let mut seen: Vec<(&str, Span)> = Vec::new();
        for item in &file.items {
            let ast::Item::Handler(handler) = item else {
                continue;
            };
            let name = &handler.name;
            let Some((event, of)) = EVENTS.iter().find(|(event, _)| *event == name.text) else {
                let events: Vec<&str> = EVENTS.iter().map(|(event, _)| *event).collect();
                let help = format!("events are {}", events.join(", "));
                let message = format!("there is no event `{}`", name.text);
                self.report(Diagnostic::error(name.span, message).help(help));
                continue;
            };
            if let Some((_, before)) = seen.iter().find(|(known, _)| known == event) {
                let message = format!("`on {event}` is there twice");
                self.report(Diagnostic::error(name.span, message).note(*before, "first here"));
                continue;
            }
            seen.push((event, name.span));
            if let Some(value) = &handler.body.value {
                self.report(
                    Diagnostic::error(value.span, "a handler has no value").help("add `;`"),
                );
                continue;
            }
            let [(kind, parameter)] = &handler.parameters[..] else {
                let message = format!("`on {event}` has one parameter");
                let help = match of {
                    Type::Thread => format!("write on {event}(thread t)"),
                    _ => format!("write on {event}(core c)"),
                };
                self.report(Diagnostic::error(name.span, message).help(help));
                continue;
            };
            self.may_be_named(parameter);
            let found = self.kind(kind);
            if found != *of {
                if found != Type::Wrong {
                    let message = format!("`{event}` is an event of {}", self.called(*of));
                    self.report(Diagnostic::error(kind.span, message));
                }
                continue;
            }
            match *event {
                "new" => self.policy.handlers.new = self.placed(handler),
                "unblock" => self.policy.handlers.unblock = self.placed(handler),
                "preempt" => self.policy.handlers.preempt = self.handler(handler, Phase::Update),
                "yield" => self.policy.handlers.give_way = self.handler(handler, Phase::Update),
                "block" => self.policy.handlers.block = self.handler(handler, Phase::Update),
                "terminate" => {
                    self.policy.handlers.terminate = self.handler(handler, Phase::Update);
                }
                "tick" => self.policy.handlers.tick = self.handler(handler, Phase::Update),
                "depart" => self.policy.handlers.depart = self.handler(handler, Phase::Update),
                "arrive" => self.policy.handlers.arrive = self.handler(handler, Phase::Update),
                "schedule" => {
                    self.policy.handlers.schedule = self.handler(handler, Phase::Schedule);
                }
                "newly_idle" => {
                    self.policy.handlers.newly_idle = self.handler(handler, Phase::Balance);
                }
                "balancing" => {
                    self.policy.handlers.balancing = self.handler(handler, Phase::Balance);
                }
                "entry" => self.policy.handlers.entry = self.handler(handler, Phase::Update),
                "timer" => self.policy.handlers.timer = self.handler(handler, Phase::Update),
                _ => self.policy.handlers.exit = self.handler(handler, Phase::Update),
            }
        }
    }

    /// A handler of one phase.
    fn handler(&mut self, written: &'a ast::Function, phase: Phase) -> Option<Handler> {
        let event = written.name.text.as_str();
        let (kind, name) = written.parameters.first()?;
        let of = self.kind(kind);
        let must_move = matches!(event, "preempt" | "yield" | "schedule");
        let mut body = BodyChecker::new(self, phase);
        body.sets_timer = matches!(event, "schedule" | "tick" | "timer");
        let subject = body.local(&name.text, of);
        body.fixed.push(subject);
        match of {
            Type::Core if phase != Phase::Balance => body.here = Some(subject),
            Type::Thread if must_move => body.subject = Some(subject),
            _ => {}
        }
        let (statements, moved) = body.statements(&written.body.statements);
        let locals = std::mem::take(&mut body.locals);
        if must_move && moved != Moved::Always {
            self.not_moved(written, moved);
        }
        Some(Handler {
            subject,
            body: Body {
                locals,
                statements,
                value: None,
            },
        })
    }

    /// Reports a path on which a thread is lost.
    fn not_moved(&mut self, written: &ast::Function, moved: Moved) {
        let event = &written.name.text;
        let (what, help) = match event.as_str() {
            "schedule" => (
                "a thread to run is not chosen",
                "write `first(QUEUE) => current;` on each path",
            ),
            _ => (
                "the thread is lost",
                "move it to a queue on each path: t => QUEUE;",
            ),
        };
        let message = match moved {
            Moved::Never => format!("{what} on `{event}`"),
            _ => format!("{what} on a path through `{event}`"),
        };
        let end = written.body.span.end;
        let diagnostic = Diagnostic::error(written.name.span, message)
            .note(Span::new(end - 1, end), "a path ends here without it");
        self.report(diagnostic.help(help));
    }

    /// A handler that chooses a core, and then moves the thread to a queue of that core.
    fn placed(&mut self, written: &'a ast::Function) -> Option<Placed> {
        let (_, thread_name) = written.parameters.first()?;
        let statements = &written.body.statements;
        let begins = statements
            .iter()
            .position(|statement| self.updates(statement, &written.body))
            .unwrap_or(statements.len());
        let (mut observing, mut updating) = statements.split_at(begins);
        let mut cores: Vec<&'a ast::Name> = Vec::new();
        destinations(updating, &mut cores);
        let chooses = observing.iter().find(|statement| {
            matches!(&statement.kind, Said::Let(variable) if variable.kind.text == "core")
        });
        if let (Some(chosen), true) = (chooses, cores.is_empty()) {
            let message = "the core that is chosen here is not used";
            let help = "move the thread to a queue of that core: t => CORE.QUEUE;";
            self.report(Diagnostic::error(chosen.span, message).help(help));
        }
        if cores.is_empty() {
            // The thread stays where it was: there is nothing to choose.
            (observing, updating) = (&[], statements);
        }
        // Phase 1.
        let mut body = BodyChecker::new(self, Phase::Place);
        let thread = body.local(&thread_name.text, Type::Thread);
        let mut observed = Vec::new();
        let mut names: Vec<(&'a str, LocalId)> = Vec::new();
        for statement in observing {
            let (checked, _) = body.statements_open(std::slice::from_ref(statement));
            observed.extend(checked);
            if let Said::Let(variable) = &statement.kind {
                names.push((&variable.name.text, body.locals.len() - 1));
            }
        }
        let locals = std::mem::take(&mut body.locals);
        let core = cores.first().copied();
        let mut place = None;
        if let Some(core) = core {
            if let Some(other) = cores.iter().find(|other| other.text != core.text) {
                let message = "the thread is moved to different cores on different paths";
                let help = "choose one core first: core c = ..; then move to a queue of c";
                let note = (core.span, format!("to `{}` here", core.text));
                let diagnostic = Diagnostic::error(other.span, message);
                self.report(diagnostic.note(note.0, note.1).help(help));
                return None;
            }
            match names.iter().rev().find(|(name, _)| *name == core.text) {
                Some((_, id)) if matches!(locals[*id].kind, Type::Core | Type::MaybeCore) => {
                    place = Some(Place {
                        core: Expr {
                            span: core.span,
                            kind: ExprKind::Local(*id),
                            of: locals[*id].kind,
                        },
                        body: Body {
                            locals,
                            statements: observed,
                            value: None,
                        },
                    });
                }
                _ if core.text == "self" => {}
                _ => {
                    let message = format!("`{}` is no core that was chosen here", core.text);
                    let help = "choose it first: core c = ..;";
                    self.report(Diagnostic::error(core.span, message).help(help));
                    return None;
                }
            }
        }
        // Phase 2.
        let mut body = BodyChecker::new(self, Phase::Update);
        let subject = body.local(&thread_name.text, Type::Thread);
        body.subject = Some(subject);
        body.gone = names.iter().map(|(name, _)| *name).collect();
        if let (Some(core), true) = (core, place.is_some()) {
            body.here = Some(body.local(&core.text, Type::Core));
        }
        let (statements, moved) = body.statements(updating);
        let locals = std::mem::take(&mut body.locals);
        if moved != Moved::Always {
            self.not_moved(written, moved);
        }
        Some(Placed {
            thread,
            place,
            update: Body {
                locals,
                statements,
                value: None,
            },
        })
    }

    /// Does this statement belong to the updating phase?
    fn updates(&self, statement: &ast::Statement, body: &ast::Block) -> bool {
        let in_block =
            |block: &ast::Block| block.statements.iter().any(|it| self.updates(it, body));
        match &statement.kind {
            Said::Move(..) => true,
            Said::Assign(target, _, value) => match &target.kind {
                Written::Name(name) => !declares(body, &name.text) || self.calls_change(value),
                _ => true,
            },
            Said::Let(variable) => variable
                .value
                .as_ref()
                .is_some_and(|it| self.calls_change(it)),
            Said::Expr(expr) => {
                let is_update = |name: &str| matches!(name, "resched" | "set_timer");
                matches!(&expr.kind, Written::Call(name, _) if is_update(&name.text))
                    || self.calls_change(expr)
            }
            Said::If(condition, then, otherwise) => {
                self.calls_change(condition)
                    || in_block(then)
                    || otherwise.as_ref().is_some_and(in_block)
            }
            Said::Foreach(_, _, _, block) => in_block(block),
            Said::Break | Said::Return(_) | Said::Wrong => false,
        }
    }

    /// Does it call a function that changes attributes?
    fn calls_change(&self, expr: &ast::Expr) -> bool {
        match &expr.kind {
            Written::Call(name, arguments) => {
                let is_changing = matches!(
                    self.names.get(name.text.as_str()),
                    Some((Meaning::Function(_), _))
                ) && self
                    .policy
                    .functions
                    .iter()
                    .any(|it| it.name == name.text && it.changes);
                is_changing || arguments.iter().any(|it| self.calls_change(it))
            }
            Written::Binary(a, _, b) => self.calls_change(a) || self.calls_change(b),
            Written::Not(of) | Written::Negate(of) | Written::Field(of, _) => self.calls_change(of),
            _ => false,
        }
    }

    pub(super) fn steal(&mut self) {
        let file = self.file;
        let mut found: Option<Span> = None;
        for item in &file.items {
            let ast::Item::Steal(span, parts) = item else {
                continue;
            };
            if let Some(before) = found.replace(*span) {
                let message = "a policy has one of these";
                self.report(Diagnostic::error(*span, message).note(before, "another is here"));
                continue;
            }
            self.steal_parts(*span, parts);
        }
        if found.is_none() {
            self.no_steal();
        }
    }

    /// Reports calls of `steal_for` in a policy that does not say how to steal.
    fn no_steal(&mut self) {
        for item in &self.file.items {
            let ast::Item::Handler(handler) = item else {
                continue;
            };
            if let Some(span) = steals(&handler.body) {
                let help = "write steal { can_steal_core(..) {..} .. }, or remove this";
                let message = "the policy does not say how threads are stolen";
                self.diagnostics
                    .push(Diagnostic::error(span, message).help(help));
                return;
            }
        }
    }

    fn steal_parts(&mut self, span: Span, parts: &'a [ast::Function]) {
        const PARTS: &[(&str, &[Type])] = &[
            ("can_steal_core", &[Type::Core, Type::Core]),
            ("select_core", &[Type::Cores, Type::Core]),
            ("steal_thread", &[Type::Core, Type::Core, Type::Thread]),
            ("until", &[Type::Core]),
        ];
        const WRITTEN: [&str; 4] = [
            "can_steal_core(core src, core dst)",
            "select_core(cores stealable, core dst)",
            "steal_thread(core src, core dst, thread t)",
            "until(core dst)",
        ];
        let mut known: [Option<&'a ast::Function>; 4] = [None; 4];
        for part in parts {
            let name = &part.name;
            let Some(which) = PARTS.iter().position(|(it, _)| *it == name.text) else {
                let help = format!("a steal has {}", WRITTEN.join(", "));
                let message = format!("`{}` is no part of a steal", name.text);
                self.report(Diagnostic::error(name.span, message).help(help));
                continue;
            };
            let kinds: Vec<Type> = part
                .parameters
                .iter()
                .map(|(kind, _)| self.kind(kind))
                .collect();
            if kinds != PARTS[which].1 {
                let help = format!("write {}", WRITTEN[which]);
                let message = format!("`{}` has other parameters", name.text);
                self.report(Diagnostic::error(name.span, message).help(help));
                return;
            }
            known[which] = Some(part);
        }
        let [Some(filter), Some(select), Some(thread), Some(until)] = known else {
            let missing = (0..4).find(|which| known[*which].is_none());
            if let Some(which) = missing {
                let message = format!("the steal has no `{}`", PARTS[which].0);
                let help = format!("write {} {{ .. }}", WRITTEN[which]);
                self.report(Diagnostic::error(span, message).help(help));
            }
            return;
        };
        let can_steal_core = self.body_of(filter, Phase::Observe, Type::Bool);
        let select_core = self.body_of(select, Phase::Observe, Type::MaybeCore);
        let until = self.body_of(until, Phase::Observe, Type::Bool);
        let steal_thread = self.steal_thread(thread);
        self.policy.steal = Some(Steal {
            span,
            can_steal_core,
            select_core,
            steal_thread,
            until,
        });
    }

    fn steal_thread(&mut self, written: &'a ast::Function) -> StealThread {
        let mut body = BodyChecker::new(self, Phase::Update);
        let mut names = written
            .parameters
            .iter()
            .map(|(_, name)| name.text.as_str());
        let [src, dst, thread] = [Type::Core, Type::Core, Type::Thread]
            .map(|of| body.local(names.next().unwrap_or_default(), of));
        body.here = Some(src);
        body.dst = Some(dst);
        body.subject = Some(thread);
        let (statements, moved) = body.block(&written.body);
        let locals = std::mem::take(&mut body.locals);
        if moved == Moved::Never {
            let message = "`steal_thread` moves no thread";
            let help = "write t => dst.QUEUE;";
            self.report(Diagnostic::error(written.name.span, message).help(help));
        }
        StealThread {
            src,
            dst,
            thread,
            body: Body {
                locals,
                statements,
                value: None,
            },
        }
    }
}

/// Is a local of this name declared in the block?
fn declares(block: &ast::Block, name: &str) -> bool {
    block
        .statements
        .iter()
        .any(|statement| match &statement.kind {
            Said::Let(variable) => variable.name.text == name,
            Said::If(_, then, otherwise) => {
                declares(then, name) || otherwise.as_ref().is_some_and(|it| declares(it, name))
            }
            Said::Foreach(variable, _, _, body) => variable.text == name || declares(body, name),
            _ => false,
        })
}

/// The cores to which threads are moved, as they are named.
fn destinations<'a>(statements: &'a [ast::Statement], cores: &mut Vec<&'a ast::Name>) {
    for statement in statements {
        match &statement.kind {
            Said::Move(_, place, _) => {
                if let Written::Field(core, _) = &place.kind {
                    if let Written::Name(name) = &core.kind {
                        cores.push(name);
                    }
                }
            }
            Said::If(_, then, otherwise) => {
                destinations(&then.statements, cores);
                if let Some(otherwise) = otherwise {
                    destinations(&otherwise.statements, cores);
                }
            }
            Said::Foreach(_, _, _, body) => destinations(&body.statements, cores),
            _ => {}
        }
    }
}

/// Where a block steals.
fn steals(block: &ast::Block) -> Option<Span> {
    block
        .statements
        .iter()
        .find_map(|statement| match &statement.kind {
            Said::Expr(expr) => match &expr.kind {
                Written::Call(name, _) if name.text == "steal_for" => Some(expr.span),
                _ => None,
            },
            Said::If(_, then, otherwise) => {
                steals(then).or_else(|| otherwise.as_ref().and_then(steals))
            }
            Said::Foreach(_, _, _, body) => steals(body),
            _ => None,
        })
}
