// SPDX-License-Identifier: GPL-2.0-only
// Written by Baton's compiler from cfs_cwc_flat.baton, which is what to change.
//! `cfs_cwc_flat`: the kernel's former CFS as Ipanema models it, over one flat domain, with a load
//! balancing that leaves no core idle while another has two threads.
//!
//! 1. A thread's *vruntime* grows by its CPU time, times 1024, divided by its weight. A core runs
//!    the thread with the lowest. It is at most `lag` ahead of the core's, so that each thread's turn
//!    comes, whatever the weights.
//! 2. A core's `min_vruntime` is that of the thread that it picked last, and never falls. A thread
//!    that wakes up has at least that of its core less `credit`. A thread that moves to another
//!    core, asleep or not, keeps its distance, which counts as at most `period`.
//! 3. A slice is `period` divided by the number of threads of the core, and at least `slice`.
//! 4. A woken thread preempts one whose vruntime is ahead by more than `granularity`.
//! 5. A new thread goes to the nearest idle core whose SMT siblings are idle, too. A woken one
//!    goes to such a core under the last-level cache of the one where it ran, or else to any idle
//!    core there. If there is none, either goes to the core with the lowest load.
//! 6. If the waker is about to sleep, and has its core for itself, the woken thread goes there.
//! 7. A core that would go idle takes threads from the core with the highest load. A busy core makes
//!    each idle core do so, at its tick.
#![no_std]
#![forbid(unsafe_code)]
// No policy uses all that it is given, and conditions stay as they are written.
#![allow(unused_variables, clippy::collapsible_if, clippy::let_and_return)]

use baton_machine::{
    At, Attribute, Balance, CoreSet, Cpu, Env, Error, Machine, Next, Order, Place, Rules, Seen,
    Thread, Upgradable, Wake,
};

const READY_QUEUE: usize = 0;

/// The policy's parameters.
pub struct CfsCwcFlat {
    period: i64,
    slice: i64,
    credit: i64,
    lag: i64,
    granularity: i64,
}

/// The attributes of a thread.
#[derive(Default)]
pub struct OfThread {
    load: Attribute,
    vruntime: Attribute,
    charged: Attribute,
}

/// The attributes of a core.
pub struct OfCore {
    min_vruntime: i64,
}

impl CfsCwcFlat {
    #[inline]
    fn charge(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) {
        let ran = (t.runtime() - t.attributes().charged.get()) * 1024 / t.weight();
        t.attributes().vruntime.set(
            (t.attributes().vruntime.get() + ran).min(at.attributes().min_vruntime + self.lag),
        );
        t.attributes().charged.set(t.runtime());
    }

    #[inline]
    fn leave(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) {
        t.attributes()
            .vruntime
            .set((t.attributes().vruntime.get() - at.attributes().min_vruntime).min(self.period));
    }

    fn is_alone(&self, seen: &Seen<'_, '_, Self>, c: Cpu) -> bool {
        if seen
            .siblings(c)
            .first_where(|sibling| seen.cload(sibling) > 0)
            .is_some()
        {
            return false;
        }
        true
    }

    fn choose_core(&self, seen: &Seen<'_, '_, Self>, last: Cpu) -> Option<Cpu> {
        if let Some(c) = seen
            .llc(last)
            .first_where(|c| seen.cload(c) == 0 && self.is_alone(seen, c))
        {
            return Some(c);
        }
        if let Some(c) = seen.llc(last).first_where(|c| seen.cload(c) == 0) {
            return Some(c);
        }
        seen.cores().min_by_key(|&core| seen.cload(core))
    }

    fn spread(&self, seen: &Seen<'_, '_, Self>, last: Cpu) -> Option<Cpu> {
        if let Some(c) = seen
            .cores()
            .first_where(|c| seen.cload(c) == 0 && self.is_alone(seen, c))
        {
            return Some(c);
        }
        self.choose_core(seen, last)
    }

    fn choose_woken(
        &self,
        seen: &Seen<'_, '_, Self>,
        last: Cpu,
        caller: Cpu,
        sleeps: bool,
    ) -> Option<Cpu> {
        if sleeps && seen.count(caller) == 1 {
            return Some(caller);
        }
        self.choose_core(seen, last)
    }
}

impl Rules for CfsCwcFlat {
    const NAME: &'static str = "cfs_cwc_flat";

    type Thread = OfThread;
    type Core = OfCore;

    fn new(env: &Env<'_>) -> Result<Self, Error> {
        env.known_options(&["period", "slice", "credit", "lag", "granularity"])?;
        Ok(Self {
            period: baton_machine::duration(env, "period", 12000000, 1000000, 1000000000)?,
            slice: baton_machine::duration(env, "slice", 3000000, 100000, 1000000000)?,
            credit: baton_machine::duration(env, "credit", 500000, 0, 1000000000)?,
            lag: baton_machine::duration(env, "lag", 100000000, 1000000, 10000000000)?,
            granularity: baton_machine::duration(env, "granularity", 500000, 0, 1000000000)?,
        })
    }

    #[inline(always)]
    fn queues(&self) -> &[Order] {
        &[Order::Key]
    }

    fn core(&self, _: Cpu) -> OfCore {
        OfCore { min_vruntime: 0 }
    }

    fn begin(&self, thread: Thread<'_, OfThread>, _: Cpu) {
        thread.attributes().load.set(1);
        thread.attributes().vruntime.set(0);
        thread.attributes().charged.set(0);
    }

    fn load(&self, thread: Thread<'_, OfThread>) -> i64 {
        thread.attributes().load.get().max(1)
    }

    fn place_new(&self, seen: &Seen<'_, '_, Self>, t: Thread<'_, OfThread>, wake: &Wake) -> Cpu {
        let c = self.spread(seen, wake.prev_cpu);
        c.unwrap_or(wake.prev_cpu)
    }

    fn place_unblock(
        &self,
        seen: &Seen<'_, '_, Self>,
        t: Thread<'_, OfThread>,
        wake: &Wake,
    ) -> Cpu {
        let c = self.choose_woken(seen, wake.prev_cpu, wake.waker_cpu, wake.sync);
        c.unwrap_or(wake.prev_cpu)
    }

    fn start(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        t.attributes().charged.set(t.runtime());
        t.attributes()
            .vruntime
            .set(at.attributes().min_vruntime + (self.slice * 1024 / t.weight()).min(self.lag));
        Place {
            queue: READY_QUEUE,
            key: t.attributes().vruntime.get(),
        }
    }

    fn unblock(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        t.attributes()
            .vruntime
            .set(at.attributes().min_vruntime + t.attributes().vruntime.get().max(0 - self.credit));
        if let Some(current) = at.current() {
            if current.attributes().vruntime.get() - t.attributes().vruntime.get()
                > self.granularity
            {
                at.resched();
            }
        }
        Place {
            queue: READY_QUEUE,
            key: t.attributes().vruntime.get(),
        }
    }

    fn preempt(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) -> Place {
        self.charge(at, t);
        Place {
            queue: READY_QUEUE,
            key: t.attributes().vruntime.get(),
        }
    }

    fn block(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) {
        self.charge(at, t);
        self.leave(at, t);
    }

    fn tick(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) {
        self.charge(at, t);
        let next_ = at.first(READY_QUEUE);
        if let Some(next_) = next_ {
            if t.attributes().vruntime.get() - next_.attributes().vruntime.get() > self.slice {
                at.resched();
            }
        }
    }

    fn depart(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) {
        self.leave(at, t);
    }

    fn arrive(&self, at: &mut At<'_, '_, Self>, t: Thread<'_, OfThread>) {
        t.attributes()
            .vruntime
            .set(t.attributes().vruntime.get() + at.attributes().min_vruntime);
    }

    fn schedule<'a>(&self, at: &mut At<'_, 'a, Self>) -> Option<Next<'a, OfThread>> {
        let c = at.core();
        let next_ = at.first(READY_QUEUE);
        if let Some(next_) = next_ {
            let value = at
                .attributes()
                .min_vruntime
                .max(next_.attributes().vruntime.get());
            at.attributes_mut().min_vruntime = value;
        }
        next_.map(|thread| Next {
            thread,
            slice: self.slice.max(self.period / 1_i64.max(at.count(c))),
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
        Place {
            queue: READY_QUEUE,
            key: thread.attributes().vruntime.get(),
        }
    }

    fn can_steal_core(&self, seen: &Seen<'_, '_, Self>, src: Cpu, dst: Cpu) -> bool {
        seen.count(src) > 1 && seen.cload(src) > seen.cload(dst)
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
        if at.count(src) > 1 && at.cload(src) > (at.cload(dst) + moved.0) {
            to = Some(READY_QUEUE);
        }
        to
    }

    fn until(&self, seen: &Seen<'_, '_, Self>, dst: Cpu) -> bool {
        seen.count(dst) > 0
    }
}

baton_machine::state!(OfThread, version 1 { load, vruntime, charged });
baton_machine::state!(OfCore, version 1 { min_vruntime });

impl Upgradable for CfsCwcFlat {
    const DECLARED: &'static [&'static str] = &[
        "int load",
        "time vruntime",
        "time charged",
        "time min_vruntime",
        "queue ready order lowest vruntime",
    ];
}

baton_machine::policy!(Machine<CfsCwcFlat>, upgrade);
