// SPDX-License-Identifier: GPL-2.0-only
// Written by Baton's compiler from ule.baton, which is what to change.
//! `ule`: FreeBSD's ULE as Ipanema describes it, with what keeps it from conserving work: `baton
//! prove ule` fails where the paper says.
//!
//! 1. A core has two queues: `realtime` for threads that sleep more than they run, `timeshare` for
//!    the others. It runs the first of `realtime`, or else the first of `timeshare`. After `turns`
//!    threads of `realtime`, one of `timeshare` has its turn.
//! 2. An interactive thread that wakes up stays on the core where it ran. Any other goes to an idle
//!    core under the last-level cache of that core, or else to the one with the lowest load there.
//! 3. A core that would go idle tries to take a thread from the core with the highest load, and gives
//!    up if that has none to give. A busy core makes each idle core do so, at its tick.
#![no_std]
#![forbid(unsafe_code)]
// No policy uses all that it is given, and conditions stay as they are written.
#![allow(unused_variables, clippy::collapsible_if, clippy::let_and_return)]

use baton_machine::{
    At, Attribute, Balance, CoreSet, Cpu, Env, Error, Machine, Next, Order, Place, Rules, Seen,
    Thread, Upgradable, Wake,
};

const REALTIME_QUEUE: usize = 0;
const TIMESHARE_QUEUE: usize = 1;
#[allow(dead_code)]
const INTERACTIVE: i64 = 0;
#[allow(dead_code)]
const REGULAR: i64 = 1;

/// The policy's parameters.
pub struct Ule {
    timeslice: i64,
    burst: i64,
    turns: i64,
}

/// The attributes of a thread.
#[derive(Default)]
pub struct OfThread {
    load: Attribute,
    prio: Attribute,
    woken: Attribute,
    last: Attribute,
}

/// The attributes of a core.
pub struct OfCore {
    taken: i64,
}

impl Ule {
    fn update_priority(&self, t: Thread<'_, OfThread>) {
        if t.runtime() - t.attributes().woken.get() < self.burst {
            t.attributes().prio.set(INTERACTIVE);
        } else {
            t.attributes().prio.set(REGULAR);
        }
    }

    fn choose_core(&self, seen: &Seen<'_, '_, Self>, last: Cpu) -> Cpu {
        if let Some(c) = seen.llc(last).first_where(|c| seen.cload(c) == 0) {
            return c;
        }
        let lowest = seen.llc(last).min_by_key(|&core| seen.cload(core));
        if let Some(lowest) = lowest {
            return lowest;
        }
        last
    }
}

impl Rules for Ule {
    const NAME: &'static str = "ule";

    type Thread = OfThread;
    type Core = OfCore;

    fn new(env: &Env<'_>) -> Result<Self, Error> {
        env.known_options(&["timeslice", "burst", "turns"])?;
        Ok(Self {
            timeslice: baton_machine::duration(env, "timeslice", 10000000, 1000000, 1000000000)?,
            burst: baton_machine::duration(env, "burst", 5000000, 100000, 1000000000)?,
            turns: baton_machine::number(env, "turns", 8, 1, 1000)?,
        })
    }

    #[inline(always)]
    fn queues(&self) -> &[Order] {
        &[Order::Arrival, Order::Arrival]
    }

    fn core(&self, _: Cpu) -> OfCore {
        OfCore { taken: 0 }
    }

    fn begin(&self, thread: Thread<'_, OfThread>, core: Cpu) {
        thread.attributes().load.set(1);
        thread.attributes().prio.set(1);
        thread.attributes().woken.set(0);
        thread.attributes().last.set(core.number().into());
    }

    fn load(&self, thread: Thread<'_, OfThread>) -> i64 {
        thread.attributes().load.get().max(1)
    }

    fn place_new(&self, seen: &Seen<'_, '_, Self>, t: Thread<'_, OfThread>, wake: &Wake) -> Cpu {
        let c = self.choose_core(seen, wake.prev_cpu);
        c
    }

    fn place_unblock(
        &self,
        seen: &Seen<'_, '_, Self>,
        t: Thread<'_, OfThread>,
        wake: &Wake,
    ) -> Cpu {
        let mut c = Cpu::new(t.attributes().last.get() as u32);
        if t.attributes().prio.get() == REGULAR {
            c = self.choose_core(seen, Cpu::new(t.attributes().last.get() as u32));
        }
        c
    }

    fn start(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        let c = at.core();
        t.attributes().woken.set(t.runtime());
        t.attributes().last.set(i64::from(c.number()));
        Place {
            queue: TIMESHARE_QUEUE,
            key: 0,
        }
    }

    fn unblock(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        let c = at.core();
        t.attributes().woken.set(t.runtime());
        t.attributes().last.set(i64::from(c.number()));
        if t.attributes().prio.get() == REGULAR {
            Place {
                queue: TIMESHARE_QUEUE,
                key: 0,
            }
        } else {
            Place {
                queue: REALTIME_QUEUE,
                key: 0,
            }
        }
    }

    fn preempt(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        self.update_priority(t);
        if t.attributes().prio.get() == REGULAR {
            Place {
                queue: TIMESHARE_QUEUE,
                key: 0,
            }
        } else {
            Place {
                queue: REALTIME_QUEUE,
                key: 0,
            }
        }
    }

    fn give_way(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        Place {
            queue: TIMESHARE_QUEUE,
            key: 0,
        }
    }

    fn block(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) {
        self.update_priority(t);
    }

    fn schedule<'a>(&self, at: &mut At<'_, 'a, Self>) -> Option<Next<'a, OfThread>> {
        let mut t = at.first(REALTIME_QUEUE);
        if !t.is_some() || at.attributes().taken >= self.turns && at.waiting(TIMESHARE_QUEUE) > 0 {
            t = at.first(TIMESHARE_QUEUE);
            at.attributes_mut().taken = 0;
        } else {
            let value = at.attributes().taken + 1;
            at.attributes_mut().taken = value;
        }
        t.map(|thread| Next {
            thread,
            slice: self.timeslice,
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
        Place { queue, key: 0 }
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
            if t.attributes().prio.get() == REGULAR {
                to = Some(TIMESHARE_QUEUE);
            } else {
                to = Some(REALTIME_QUEUE);
            }
        }
        to
    }

    fn until(&self, seen: &Seen<'_, '_, Self>, dst: Cpu) -> bool {
        true
    }
}

baton_machine::state!(OfThread, version 1 { load, prio, woken, last });
baton_machine::state!(OfCore, version 1 { taken });

impl Upgradable for Ule {
    const DECLARED: &'static [&'static str] = &[
        "enum priority {INTERACTIVE, REGULAR}",
        "int load",
        "priority prio",
        "time woken",
        "core last",
        "int taken",
        "queue realtime",
        "queue timeshare",
    ];
}

baton_machine::policy!(Machine<Ule>, upgrade);
