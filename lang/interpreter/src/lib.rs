// SPDX-License-Identifier: GPL-2.0-only
//! Runs a policy in Baton's language as it was checked, without making Rust of it.
//!
//! The interpreter is a second reading of the language, beside the compiler's. It has the same
//! [`Machine`] under it: both give it [`Rules`]. So a difference between the two shows in a run of
//! the simulator, and a recording of the compiled policy is replayed by the interpreter, answer by
//! answer.
//!
//! [`Interpreted`] is a policy as any other, of user space only. It is made for the program of
//! [`with`], as a policy has no way to be given one.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod evaluate;
mod hints;
mod state;
mod value;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::OnceLock;

use baton_lang::hir;
use baton_machine::{
    At, Attribute, Balance, CoreSet, Cpu, Env, Error, Machine, Next, Order, Place, Rules, Seen,
    Thread, Wake,
};

use evaluate::{Frame, Given};
use value::Value;

thread_local! {
    static PROGRAM: RefCell<Option<Rc<hir::Policy>>> = const { RefCell::new(None) };
}

/// Runs `call`. The instances of [`Interpreted`] that this thread makes meanwhile are of this
/// program.
pub fn with<T>(program: &hir::Policy, call: impl FnOnce() -> T) -> T {
    let program = Some(Rc::new(program.clone()));
    let before = PROGRAM.replace(program);
    let result = call();
    PROGRAM.set(before);
    result
}

/// A policy whose text is interpreted.
pub struct Interpreted {
    program: hir::Policy,
    /// The values of its parameters.
    parameters: Vec<i64>,
    queues: Vec<Order>,
}

/// A thread's attributes, in the order in which they are declared. There are none before the thread
/// begins.
#[derive(Debug, Default)]
pub struct OfThread(OnceLock<Vec<Attribute>>);

/// A core's attributes, in the order in which they are declared.
#[derive(Debug)]
pub struct OfCore(Vec<i64>);

impl OfThread {
    /// Attribute `index`.
    fn get(&self, index: usize) -> &Attribute {
        &self.0.get().expect("the thread has begun")[index]
    }
}

impl Interpreted {
    /// A body with a thread or a core as its subject.
    fn handle<'t, 'm: 't>(
        &self,
        given: Given<'_, 'm, '_>,
        handler: &hir::Handler,
        subject: Value<'t>,
    ) {
        let mut frame = Frame::new(self, given, &handler.body);
        frame.name(handler.subject, subject);
        frame.statements(&handler.body.statements);
    }

    /// The handler of a thread, if the policy has one.
    fn on_thread(
        &self,
        at: &mut At<'_, '_, Self>,
        handler: Option<&hir::Handler>,
        thread: Thread<'_, OfThread>,
    ) {
        if let Some(handler) = handler {
            self.handle(Given::Lock(at), handler, Value::Thread(Some(thread)));
        }
    }

    /// The handler of a core, if the policy has one.
    fn on_core(&self, given: Given<'_, '_, '_>, handler: Option<&hir::Handler>, core: Cpu) {
        if let Some(handler) = handler {
            self.handle(given, handler, Value::Core(Some(core)));
        }
    }

    /// The observing phase of a handler.
    fn choose(
        &self,
        seen: &Seen<'_, '_, Self>,
        placed: Option<&hir::Placed>,
        thread: Thread<'_, OfThread>,
        wake: &Wake,
    ) -> Cpu {
        let Some(hir::Placed {
            thread: subject,
            place: Some(place),
            ..
        }) = placed
        else {
            return wake.prev_cpu;
        };
        let given = Given::Seen(seen.clone(), Some(wake));
        let mut frame = Frame::new(self, given, &place.body);
        frame.name(*subject, Value::Thread(Some(thread)));
        frame.statements(&place.body.statements);
        let core = frame.expr(&place.core).core();
        core.unwrap_or(wake.prev_cpu)
    }

    /// The updating phase of a handler.
    fn place(
        &self,
        at: &mut At<'_, '_, Self>,
        placed: Option<&hir::Placed>,
        thread: Thread<'_, OfThread>,
    ) -> Place {
        let placed = placed.expect("each policy has this handler");
        let core = at.core();
        let mut frame = Frame::new(self, Given::Lock(at), &placed.update);
        frame.name(0, Value::Thread(Some(thread)));
        if placed.place.is_some() {
            // The core that was chosen is the one whose lock is held.
            frame.name(1, Value::Core(Some(core)));
        }
        frame.statements(&placed.update.statements);
        frame.place.expect("each path moves the thread")
    }

    /// A handler after which a thread is ready.
    fn leave(
        &self,
        at: &mut At<'_, '_, Self>,
        handler: &hir::Handler,
        thread: Thread<'_, OfThread>,
    ) -> Place {
        let mut frame = Frame::new(self, Given::Lock(at), &handler.body);
        frame.name(handler.subject, Value::Thread(Some(thread)));
        frame.statements(&handler.body.statements);
        frame.place.expect("each path moves the thread")
    }

    /// A function of a steal, that observes.
    fn observe<'t, 'm: 't>(
        &self,
        seen: &Seen<'m, '_, Self>,
        function: &hir::Function,
        arguments: impl IntoIterator<Item = Value<'t>>,
    ) -> Value<'t> {
        let given = Given::Seen(seen.clone(), None);
        let mut frame = Frame::new(self, given, &function.body);
        frame.body(function, arguments)
    }

    /// The attributes of a thread, which may be about to begin.
    fn attributes<'t>(&self, thread: Thread<'t, OfThread>) -> &'t [Attribute] {
        thread.attributes().0.get_or_init(|| {
            let none = self.program.thread.iter().map(|_| Attribute::default());
            none.collect()
        })
    }

    fn steal(&self) -> &hir::Steal {
        let steal = self.program.steal.as_ref();
        steal.expect("only a policy with a steal block balances")
    }
}

impl Rules for Interpreted {
    const NAME: &'static str = "interpreted";

    type Thread = OfThread;
    type Core = OfCore;

    fn new(env: &Env<'_>) -> Result<Self, Error> {
        let program = PROGRAM.with_borrow(|program| program.as_deref().cloned());
        let program = program.ok_or("no program is to be interpreted")?;
        let of = &program.parameters;
        let names: Vec<&str> = of.iter().map(|it| it.name.as_str()).collect();
        env.known_options(&names)?;
        let value = |it: &hir::Parameter| {
            let (least, most) = it.range.unwrap_or((0, i64::MAX));
            match it.kind {
                hir::Type::Time => baton_machine::duration(env, &it.name, it.default, least, most),
                _ => baton_machine::number(env, &it.name, it.default, least, most),
            }
        };
        let orders = program.queues.iter().map(|queue| match queue.order {
            Some(_) => Order::Key,
            None => Order::Arrival,
        });
        Ok(Self {
            parameters: of.iter().map(value).collect::<Result<_, _>>()?,
            queues: orders.collect(),
            program,
        })
    }

    fn queues(&self) -> &[Order] {
        &self.queues
    }

    fn core(&self, _: Cpu) -> OfCore {
        let of = self.program.core.iter();
        OfCore(of.map(|it| initial(it).unwrap_or(0)).collect())
    }

    fn begin(&self, thread: Thread<'_, OfThread>, core: Cpu) {
        let of = &self.program.thread;
        for (attribute, declared) in self.attributes(thread).iter().zip(of) {
            let otherwise = match declared.kind {
                hir::Type::Core => core.number().into(),
                _ => 0,
            };
            attribute.set(initial(declared).unwrap_or(otherwise));
        }
    }

    fn load(&self, thread: Thread<'_, OfThread>) -> i64 {
        let load = self.program.load;
        load.map_or(1, |index| thread.attributes().get(index).get().max(1))
    }

    fn place_new(
        &self,
        seen: &Seen<'_, '_, Self>,
        thread: Thread<'_, OfThread>,
        wake: &Wake,
    ) -> Cpu {
        self.choose(seen, self.program.handlers.new.as_ref(), thread, wake)
    }

    fn place_unblock(
        &self,
        seen: &Seen<'_, '_, Self>,
        thread: Thread<'_, OfThread>,
        wake: &Wake,
    ) -> Cpu {
        self.choose(seen, self.program.handlers.unblock.as_ref(), thread, wake)
    }

    fn start(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, OfThread>) -> Place {
        self.place(at, self.program.handlers.new.as_ref(), thread)
    }

    fn unblock(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, OfThread>) -> Place {
        self.place(at, self.program.handlers.unblock.as_ref(), thread)
    }

    fn preempt(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, OfThread>) -> Place {
        let handler = self.program.handlers.preempt.as_ref();
        self.leave(at, handler.expect("each policy has this handler"), thread)
    }

    fn give_way(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, OfThread>) -> Place {
        match &self.program.handlers.give_way {
            Some(handler) => self.leave(at, handler, thread),
            None => self.preempt(at, thread),
        }
    }

    fn block(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, OfThread>) {
        self.on_thread(at, self.program.handlers.block.as_ref(), thread);
    }

    fn terminate(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, OfThread>) {
        self.on_thread(at, self.program.handlers.terminate.as_ref(), thread);
    }

    fn depart(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, OfThread>) {
        self.on_thread(at, self.program.handlers.depart.as_ref(), thread);
    }

    fn arrive(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, OfThread>) {
        self.on_thread(at, self.program.handlers.arrive.as_ref(), thread);
    }

    fn tick(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, OfThread>) {
        self.on_thread(at, self.program.handlers.tick.as_ref(), thread);
    }

    fn place_in(&self, queue: usize, thread: Thread<'_, OfThread>) -> Place {
        let key = match self.program.queues[queue].order {
            Some(hir::Order {
                is_lowest,
                by: hir::Key::Attribute(index),
            }) => {
                let value = thread.attributes().get(index).get();
                if is_lowest {
                    value
                } else {
                    value
                        .checked_neg()
                        .expect("attempt to negate with overflow")
                }
            }
            _ => 0,
        };
        Place { queue, key }
    }

    fn entry(&self, at: &mut At<'_, '_, Self>) {
        let core = at.core();
        self.on_core(Given::Lock(at), self.program.handlers.entry.as_ref(), core);
    }

    fn exit(&self, at: &mut At<'_, '_, Self>) {
        let core = at.core();
        self.on_core(Given::Lock(at), self.program.handlers.exit.as_ref(), core);
    }

    fn has_timer(&self) -> bool {
        self.program.handlers.timer.is_some()
    }

    fn timer(&self, at: &mut At<'_, '_, Self>) {
        let core = at.core();
        self.on_core(Given::Lock(at), self.program.handlers.timer.as_ref(), core);
    }

    fn schedule<'a>(&self, at: &mut At<'_, 'a, Self>) -> Option<Next<'a, OfThread>> {
        let handler = self.program.handlers.schedule.as_ref();
        let handler = handler.expect("each policy has this handler");
        let core = at.core();
        let mut frame = Frame::new(self, Given::Lock(at), &handler.body);
        frame.name(handler.subject, Value::Core(Some(core)));
        frame.statements(&handler.body.statements);
        frame.next
    }

    fn newly_idle(&self, balance: &mut Balance<'_, '_, Self>, core: Cpu) {
        let handler = self.program.handlers.newly_idle.as_ref();
        self.on_core(Given::Balance(balance), handler, core);
    }

    fn balancing(&self, balance: &mut Balance<'_, '_, Self>, core: Cpu) {
        let handler = self.program.handlers.balancing.as_ref();
        self.on_core(Given::Balance(balance), handler, core);
    }

    fn can_steal_core(&self, seen: &Seen<'_, '_, Self>, src: Cpu, dst: Cpu) -> bool {
        let cores = [src, dst].map(|core| Value::Core(Some(core)));
        self.observe(seen, &self.steal().can_steal_core, cores)
            .bool()
    }

    fn select_core(&self, seen: &Seen<'_, '_, Self>, cores: &CoreSet, dst: Cpu) -> Option<Cpu> {
        let arguments = [Value::Cores(cores), Value::Core(Some(dst))];
        self.observe(seen, &self.steal().select_core, arguments)
            .core()
    }

    fn steal_thread(
        &self,
        at: &mut At<'_, '_, Self>,
        dst: Cpu,
        moved: (i64, i64),
        thread: Thread<'_, OfThread>,
    ) -> Option<usize> {
        let steal = &self.steal().steal_thread;
        let src = at.core();
        let mut frame = Frame::new(self, Given::Lock(at), &steal.body);
        frame.name(steal.src, Value::Core(Some(src)));
        frame.name(steal.dst, Value::Core(Some(dst)));
        frame.name(steal.thread, Value::Thread(Some(thread)));
        frame.moved = Some((steal.dst, moved));
        frame.statements(&steal.body.statements);
        frame.place.map(|place| place.queue)
    }

    fn until(&self, seen: &Seen<'_, '_, Self>, dst: Cpu) -> bool {
        let dst = [Value::Core(Some(dst))];
        self.observe(seen, &self.steal().until, dst).bool()
    }
}

/// The value that an attribute is declared with.
fn initial(attribute: &hir::Attribute) -> Option<i64> {
    attribute.initial.as_ref().map(|value| match value.kind {
        hir::ExprKind::Int(value) => value,
        _ => 0,
    })
}

baton_machine::policy!(Machine<Interpreted>, upgrade, hints);
