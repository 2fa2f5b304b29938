// SPDX-License-Identifier: GPL-2.0-only
// Written by Baton's compiler from lottery.baton, which is what to change.
//! `lottery`: lottery scheduling (Waldspurger and Weihl, OSDI '94), as Ipanema has it, over a machine
//! on which no core idles while another has two threads.
//!
//! 1. A thread has as many tickets as its weight: 1024 at nice 0. When a core needs a thread, a
//!    ticket is drawn among its ready threads, and its holder runs for a slice.
//! 2. A woken or new thread goes to the core with the lowest load.
//! 3. A core that would go idle takes threads from the core with the highest load. A busy core makes
//!    each idle core do so, at its tick.
#![no_std]
#![forbid(unsafe_code)]
// No policy uses all that it is given, and conditions stay as they are written.
#![allow(unused_variables, clippy::collapsible_if, clippy::let_and_return)]

use baton_machine::{
    At, Balance, CoreSet, Cpu, Env, Error, Machine, Next, Order, Place, Rules, Seen, Thread,
    Upgradable, Wake,
};

const READY_QUEUE: usize = 0;

/// The policy's parameters.
pub struct Lottery {
    slice: i64,
}

/// The attributes of a thread.
#[derive(Default)]
pub struct OfThread {}

/// The attributes of a core.
pub struct OfCore {}

impl Rules for Lottery {
    const NAME: &'static str = "lottery";

    type Thread = OfThread;
    type Core = OfCore;

    fn new(env: &Env<'_>) -> Result<Self, Error> {
        env.known_options(&["slice"])?;
        Ok(Self {
            slice: baton_machine::duration(env, "slice", 5000000, 100000, 1000000000)?,
        })
    }

    #[inline(always)]
    fn queues(&self) -> &[Order] {
        &[Order::Arrival]
    }

    fn core(&self, _: Cpu) -> OfCore {
        OfCore {}
    }

    fn begin(&self, _: Thread<'_, OfThread>, _: Cpu) {}

    fn place_new(&self, seen: &Seen<'_, '_, Self>, t: Thread<'_, OfThread>, wake: &Wake) -> Cpu {
        let c = seen.cores().min_by_key(|&core| seen.cload(core));
        c.unwrap_or(wake.prev_cpu)
    }

    fn place_unblock(
        &self,
        seen: &Seen<'_, '_, Self>,
        t: Thread<'_, OfThread>,
        wake: &Wake,
    ) -> Cpu {
        let c = seen.cores().min_by_key(|&core| seen.cload(core));
        c.unwrap_or(wake.prev_cpu)
    }

    fn start(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        Place {
            queue: READY_QUEUE,
            key: 0,
        }
    }

    fn unblock(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        Place {
            queue: READY_QUEUE,
            key: 0,
        }
    }

    fn preempt(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        Place {
            queue: READY_QUEUE,
            key: 0,
        }
    }

    fn schedule<'a>(&self, at: &mut At<'_, 'a, Self>) -> Option<Next<'a, OfThread>> {
        let mut tickets = 0;
        let mut walk = at.walk(READY_QUEUE);
        while let Some(t) = at.next_of(&mut walk) {
            tickets += t.weight();
        }
        let mut drawn = at.random(tickets);
        let mut winner = at.first(READY_QUEUE);
        let mut walk = at.walk(READY_QUEUE);
        while let Some(t) = at.next_of(&mut walk) {
            drawn -= t.weight();
            if drawn < 0 {
                winner = Some(t);
                break;
            }
        }
        winner.map(|thread| Next {
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
            to = Some(READY_QUEUE);
        }
        to
    }

    fn until(&self, seen: &Seen<'_, '_, Self>, dst: Cpu) -> bool {
        seen.count(dst) != 0
    }
}

baton_machine::state!(OfThread, version 1 {  });
baton_machine::state!(OfCore, version 1 {  });

impl Upgradable for Lottery {
    const DECLARED: &'static [&'static str] = &["queue ready"];
}

baton_machine::policy!(Machine<Lottery>, upgrade);
