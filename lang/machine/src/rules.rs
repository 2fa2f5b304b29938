// SPDX-License-Identifier: GPL-2.0-only
//! What the compiler makes of a policy.

use alloc::format;

use baton::{Cpu, Env, Error, Wake};

use crate::{At, Balance, CoreSet, Seen, Thread};

/// The order of a queue of ready threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First in, first out.
    Arrival,
    /// By a key: the lowest is first.
    Key,
}

/// A queue, and the key by which a thread is ordered there (0 in a queue by arrival).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index in [`Rules::queues`].
    pub queue: usize,
    /// Keys are compared as the kernel compares vruntimes, which may wrap.
    pub key: i64,
}

/// The thread that a core runs next.
pub struct Next<'a, A> {
    /// First in its queue, or the one that ran.
    pub thread: Thread<'a, A>,
    /// For how long at most, ns.
    pub slice: i64,
}

/// A policy, without its locks and counters.
///
/// Functions with an [`At`] are called with the lock of that core held. The others observe: they
/// see of other cores only what is in [`Seen`].
pub trait Rules: Sized + Send + Sync {
    /// See [`baton::Scheduler::NAME`].
    const NAME: &'static str;

    /// A thread's attributes. A new thread has those of its slot's last one until
    /// [`Rules::begin`].
    type Thread: Default + Send + Sync;
    /// A core's attributes.
    type Core: Send;

    /// Reads the policy's parameters. `Err` is a line for the user.
    fn new(env: &Env<'_>) -> Result<Self, Error>;

    /// The queues of ready threads that each core has. The same at each call.
    fn queues(&self) -> &[Order];

    /// A core's attributes, to begin with.
    fn core(&self, core: Cpu) -> Self::Core;

    /// Gives a new thread, on this core, its attributes.
    fn begin(&self, thread: Thread<'_, Self::Thread>, core: Cpu);

    /// The load by which a thread counts in `cload`, at least 1.
    fn load(&self, thread: Thread<'_, Self::Thread>) -> i64 {
        let _ = thread;
        1
    }

    /// Observes, and chooses the core of a new thread.
    fn place_new(
        &self,
        seen: &Seen<'_, '_, Self>,
        thread: Thread<'_, Self::Thread>,
        wake: &Wake,
    ) -> Cpu {
        let _ = (seen, thread);
        wake.prev_cpu
    }

    /// Observes, and chooses the core of a thread that wakes up.
    fn place_unblock(
        &self,
        seen: &Seen<'_, '_, Self>,
        thread: Thread<'_, Self::Thread>,
        wake: &Wake,
    ) -> Cpu {
        let _ = (seen, thread);
        wake.prev_cpu
    }

    /// The thread is new.
    fn start(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, Self::Thread>) -> Place;

    /// The thread woke up.
    fn unblock(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, Self::Thread>) -> Place;

    /// The thread's turn is over, and it can go on.
    fn preempt(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, Self::Thread>) -> Place;

    /// The thread gives way (sched_yield).
    fn give_way(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, Self::Thread>) -> Place {
        self.preempt(at, thread)
    }

    /// The running thread went to sleep.
    fn block(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, Self::Thread>) {
        let _ = (at, thread);
    }

    /// The thread is dead.
    fn terminate(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, Self::Thread>) {
        let _ = (at, thread);
    }

    /// The thread leaves this core for another, stolen or moved by the kernel.
    fn depart(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, Self::Thread>) {
        let _ = (at, thread);
    }

    /// The same thread comes to its new core.
    fn arrive(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, Self::Thread>) {
        let _ = (at, thread);
    }

    /// The place of a thread in a queue.
    fn place_in(&self, queue: usize, thread: Thread<'_, Self::Thread>) -> Place;

    /// The core comes online.
    fn entry(&self, at: &mut At<'_, '_, Self>) {
        let _ = at;
    }

    /// The core goes offline.
    fn exit(&self, at: &mut At<'_, '_, Self>) {
        let _ = at;
    }

    /// Is there a handler of the core's timer?
    fn has_timer(&self) -> bool {
        false
    }

    /// The time of [`At::set_timer`] has passed.
    fn timer(&self, at: &mut At<'_, '_, Self>) {
        let _ = at;
    }

    /// The kernel's tick, while the thread runs.
    fn tick(&self, at: &mut At<'_, '_, Self>, thread: Thread<'_, Self::Thread>) {
        let _ = (at, thread);
    }

    /// Chooses what a core runs next. A thread that ran on it until now is one of its ready
    /// threads, in the place of [`Rules::preempt`].
    fn schedule<'a>(&self, at: &mut At<'_, 'a, Self>) -> Option<Next<'a, Self::Thread>>;

    /// A core without a ready thread looks for one.
    fn newly_idle(&self, balance: &mut Balance<'_, '_, Self>, core: Cpu) {
        let _ = (balance, core);
    }

    /// A busy core balances: at each tick while it has several threads and another core idles, and
    /// at every 16th tick.
    fn balancing(&self, balance: &mut Balance<'_, '_, Self>, core: Cpu) {
        let _ = (balance, core);
    }

    /// Phase 1 of a steal: is `src` one to take threads from, for `dst`?
    fn can_steal_core(&self, seen: &Seen<'_, '_, Self>, src: Cpu, dst: Cpu) -> bool {
        let _ = (seen, src, dst);
        false
    }

    /// Phase 2: chooses one of these cores, or none if there is none.
    fn select_core(&self, seen: &Seen<'_, '_, Self>, cores: &CoreSet, dst: Cpu) -> Option<Cpu> {
        let _ = (cores, dst);
        seen.members(cores).next()
    }

    /// Phase 3, with the lock of the core of `at`: into which queue of `dst` does this ready
    /// thread go, if it moves? `moved` is the load and the number of the threads that already do.
    fn steal_thread(
        &self,
        at: &mut At<'_, '_, Self>,
        dst: Cpu,
        moved: (i64, i64),
        thread: Thread<'_, Self::Thread>,
    ) -> Option<usize> {
        let _ = (at, dst, moved, thread);
        None
    }

    /// Has `dst` enough?
    fn until(&self, seen: &Seen<'_, '_, Self>, dst: Cpu) -> bool {
        let _ = (seen, dst);
        true
    }
}

/// The value of a parameter that is a time, ns.
pub fn duration(
    env: &Env<'_>,
    name: &str,
    default: i64,
    least: i64,
    most: i64,
) -> Result<i64, Error> {
    within(name, env.duration(name, default as u64)?, least, most)
}

/// The value of a parameter that is a number.
pub fn number(
    env: &Env<'_>,
    name: &str,
    default: i64,
    least: i64,
    most: i64,
) -> Result<i64, Error> {
    within(name, env.number(name, default as u64)?, least, most)
}

fn within(name: &str, value: u64, least: i64, most: i64) -> Result<i64, Error> {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let message = match most {
        i64::MAX => format!("the option {name} is at least {least}, not {value}"),
        _ => format!("the option {name} is from {least} to {most}, not {value}"),
    };
    Err(message.into())
}
