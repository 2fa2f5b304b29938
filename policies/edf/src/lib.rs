// SPDX-License-Identifier: GPL-2.0-only
// Written by Baton's compiler from edf.baton, which is what to change.
//! `edf`: the earliest deadline first, on each core.
//!
//! 1. A program says by a hint how long after it becomes runnable a thread is due. It has that
//!    deadline each time that it wakes up.
//! 2. A core runs the thread that is due first. A woken thread preempts one that is due later.
//! 3. A thread whose turn ends after its deadline has none until it wakes up again, so that it does
//!    not keep others waiting.
//! 4. Threads without a deadline have turns when no thread with one is ready on their core. If they
//!    have waited there for `patience`, one of them has a turn all the same, and then one with a
//!    deadline.
//! 5. A woken or new thread goes to an idle core near the one where it ran, or else to the core with
//!    the lowest load.
//! 6. A core that would go idle takes threads from the core with the highest load. A busy core makes
//!    each idle core do so, at its tick.
#![no_std]
#![forbid(unsafe_code)]
// No policy uses all that it is given, and conditions stay as they are written.
#![allow(unused_variables, clippy::collapsible_if, clippy::let_and_return)]

use baton_machine::{
    At, Attribute, Balance, CoreSet, Cpu, Env, Error, Hinted, Machine, Named, Next, Order, Place,
    Rules, Seen, Thread, Upgradable, Wake,
};

const URGENT_QUEUE: usize = 0;
const READY_QUEUE: usize = 1;

/// The policy's parameters.
pub struct Edf {
    slice: i64,
    patience: i64,
}

/// The attributes of a thread.
#[derive(Default)]
pub struct OfThread {
    within: Attribute,
    due: Attribute,
    has_deadline: Attribute,
}

/// The attributes of a core.
pub struct OfCore {
    served: i64,
    overdue: i64,
}

impl Edf {
    #[inline]
    fn note_wait(&self, at: &mut At<'_, '_, Self>) {
        if at.waiting(READY_QUEUE) == 0 {
            let value = at.now();
            at.attributes_mut().served = value;
        }
    }

    fn precedes(&self, t: Thread<'_, OfThread>, other: Thread<'_, OfThread>) -> bool {
        !(other.attributes().has_deadline.get() != 0)
            || t.attributes().due.get() < other.attributes().due.get()
    }

    fn choose_core(&self, seen: &Seen<'_, '_, Self>, last: Cpu) -> Option<Cpu> {
        if let Some(c) = seen.llc(last).first_where(|c| seen.cload(c) == 0) {
            return Some(c);
        }
        seen.cores().min_by_key(|&core| seen.cload(core))
    }
}

impl Rules for Edf {
    const NAME: &'static str = "edf";

    type Thread = OfThread;
    type Core = OfCore;

    fn new(env: &Env<'_>) -> Result<Self, Error> {
        env.known_options(&["slice", "patience"])?;
        Ok(Self {
            slice: baton_machine::duration(env, "slice", 5000000, 100000, 1000000000)?,
            patience: baton_machine::duration(env, "patience", 100000000, 1000000, 5000000000)?,
        })
    }

    #[inline(always)]
    fn queues(&self) -> &[Order] {
        &[Order::Key, Order::Arrival]
    }

    fn core(&self, _: Cpu) -> OfCore {
        OfCore {
            served: 0,
            overdue: 0,
        }
    }

    fn begin(&self, thread: Thread<'_, OfThread>, _: Cpu) {
        thread.attributes().within.set(0);
        thread.attributes().due.set(0);
        thread.attributes().has_deadline.set(0);
    }

    fn place_new(&self, seen: &Seen<'_, '_, Self>, t: Thread<'_, OfThread>, wake: &Wake) -> Cpu {
        let c = self.choose_core(seen, wake.prev_cpu);
        c.unwrap_or(wake.prev_cpu)
    }

    fn place_unblock(
        &self,
        seen: &Seen<'_, '_, Self>,
        t: Thread<'_, OfThread>,
        wake: &Wake,
    ) -> Cpu {
        let c = self.choose_core(seen, wake.prev_cpu);
        c.unwrap_or(wake.prev_cpu)
    }

    fn start(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        self.note_wait(at);
        Place {
            queue: READY_QUEUE,
            key: 0,
        }
    }

    fn unblock(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        t.attributes()
            .has_deadline
            .set(i64::from(t.attributes().within.get() > 0));
        t.attributes()
            .due
            .set(at.now() + t.attributes().within.get().max(0));
        if t.attributes().has_deadline.get() != 0 {
            if at.attributes().overdue < 1
                && let Some(current) = at.current()
                && self.precedes(t, current)
            {
                at.resched();
            }
            Place {
                queue: URGENT_QUEUE,
                key: t.attributes().due.get(),
            }
        } else {
            self.note_wait(at);
            Place {
                queue: READY_QUEUE,
                key: 0,
            }
        }
    }

    fn preempt(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        if at.now() >= t.attributes().due.get() {
            t.attributes().has_deadline.set(i64::from(false));
        }
        if t.attributes().has_deadline.get() != 0 {
            Place {
                queue: URGENT_QUEUE,
                key: t.attributes().due.get(),
            }
        } else {
            self.note_wait(at);
            Place {
                queue: READY_QUEUE,
                key: 0,
            }
        }
    }

    fn give_way(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        t.attributes().has_deadline.set(i64::from(false));
        self.note_wait(at);
        Place {
            queue: READY_QUEUE,
            key: 0,
        }
    }

    fn arrive(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) {
        self.note_wait(at);
    }

    fn schedule<'a>(&self, at: &mut At<'_, 'a, Self>) -> Option<Next<'a, OfThread>> {
        let mut t = at.first(URGENT_QUEUE);
        if at.attributes().overdue < 1
            && let Some(t) = t
            && at.waiting(READY_QUEUE) > 0
            && at.now() - at.attributes().served > self.patience
        {
            at.attributes_mut().overdue = 1;
        } else {
            at.attributes_mut().overdue = 0;
        }
        if !t.is_some() || at.attributes().overdue == 1 {
            t = at.first(READY_QUEUE);
            let value = at.now();
            at.attributes_mut().served = value;
        }
        t.map(|thread| Next {
            thread,
            slice: self.slice,
        })
    }

    fn newly_idle(&self, balance: &mut Balance<'_, '_, Self>, c: Cpu) {
        balance.steal_for(c);
    }

    fn balancing(&self, balance: &mut Balance<'_, '_, Self>, c: Cpu) {
        for idle in balance.seen().idle_cores() {
            balance.steal_for(idle);
        }
    }

    fn place_in(&self, queue: usize, thread: Thread<'_, OfThread>) -> Place {
        match queue {
            URGENT_QUEUE => Place {
                queue: URGENT_QUEUE,
                key: thread.attributes().due.get(),
            },
            _ => Place {
                queue: READY_QUEUE,
                key: 0,
            },
        }
    }

    fn can_steal_core(&self, seen: &Seen<'_, '_, Self>, src: Cpu, dst: Cpu) -> bool {
        seen.cload(src) - seen.cload(dst) >= 2
    }

    fn select_core(&self, seen: &Seen<'_, '_, Self>, stealable: &CoreSet, dst: Cpu) -> Option<Cpu> {
        seen.members(stealable)
            .min_by_key(|&core| -seen.cload(core))
    }

    fn steal_thread(
        &self,
        at: &mut At<'_, '_, Self>,
        dst: Cpu,
        moved: (i64, i64),
        t: Thread<'_, OfThread>,
    ) -> Option<usize> {
        let src = at.core();
        let mut to = None;
        if at.cload(src) - (at.cload(dst) + moved.0) >= 2 {
            if t.attributes().has_deadline.get() != 0 {
                to = Some(URGENT_QUEUE);
            } else {
                to = Some(READY_QUEUE);
            }
        }
        to
    }

    fn until(&self, seen: &Seen<'_, '_, Self>, dst: Cpu) -> bool {
        seen.count(dst) != 0
    }
}

baton_machine::state!(OfThread, version 1 { within, due, has_deadline });
baton_machine::state!(OfCore, version 1 { served, overdue });

impl Upgradable for Edf {
    const DECLARED: &'static [&'static str] = &[
        "time within",
        "time due",
        "bool has_deadline",
        "time served",
        "int overdue",
        "queue urgent order lowest due",
        "queue ready",
    ];
}

pub use baton_machine::Reply;

baton_machine::message! {
    /// What a program can say of a thread.
    pub enum Hint, version 1 {
        Deadline { t: Named, within: i64 } = 1,
    }
}

impl Edf {
    fn hear_deadline(&self, seen: &Seen<'_, '_, Self>, t: Thread<'_, OfThread>, within: i64) {
        t.attributes().within.set(within);
    }
}

impl Hinted for Edf {
    type Hint = Hint;

    fn named(hint: &Hint) -> Named {
        match *hint {
            Hint::Deadline { t, .. } => t,
        }
    }

    fn hint(&self, seen: &Seen<'_, '_, Self>, thread: Thread<'_, OfThread>, hint: Hint) -> bool {
        match hint {
            Hint::Deadline { within, .. } if (0..=10_000_000_000).contains(&within) => {
                self.hear_deadline(seen, thread, within)
            }
            _ => return false,
        }
        true
    }
}

baton_machine::policy!(Machine<Edf>, upgrade, hints);
