// SPDX-License-Identifier: GPL-2.0-only
//! The wrong things, each in a function of its own so that a report's line tells which it was.

use alloc::vec::Vec;
use baton::{runqueue::Fifo, Cpu, Lock, Topology};
use core::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Kinds of faults, by the names that the option `fault` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Indexes an array past its end as a task wakes up.
    Index,
    /// Adds beyond the largest number as a task wakes up.
    Overflow,
    /// Unwraps a `None` as a task wakes up.
    Unwrap,
    /// Allocates and frees nothing, until there is no memory.
    Memory,
    /// Nothing wrong: it copes.
    Hoard,
    /// Calls itself until the stack ends.
    Recursion,
    /// Does not come back. Not for a kernel: nothing ends it there.
    Forever,
    /// Sends each task away that it has just picked.
    Kick,
    /// Locks its queue, and once more.
    Deadlock,
    /// On two CPUs, takes two locks in opposite orders ([`cycle`]).
    Cycle,
    /// Takes more locks at once than a call may hold.
    ManyLocks,
    /// Fails with the first task that it is told of.
    First,
    /// Forgets the guard of a lock, so that it is never released.
    KeptLock,
    /// Answers every other pick with a task that may not run there, where there is one.
    NotAllowed,
    /// Keeps what it should give back of a task that leaves, and answers a pick with that.
    Stale,
    /// Drops what it is given of a task that yields.
    Dropped,
    /// Forgets what it is given of a task that yields, which nothing notices then.
    Forgotten,
    /// Picks nobody any more.
    Stall,
    /// Answers each pick with a task that may not run there, and after the refusal with the same
    /// again.
    Loop,
    /// As [`Fault::Index`], in a timer that it sets as a task wakes up.
    Timer,
    /// As [`Fault::Index`], where a CPU is chosen.
    Select,
    /// As [`Fault::Index`], as a CPU goes idle that is going offline.
    Offline,
    /// Chooses CPU 4,000 for a task.
    SelectCpu,
    /// As [`Fault::Index`], while the policy is made.
    Create,
    /// As [`Fault::Memory`], while the policy is made.
    CreateMemory,
    /// As [`Fault::Recursion`], while the policy is made.
    CreateRecursion,
    /// As [`Fault::Index`], while the policy is unmade.
    Drop,
    /// As [`Fault::Recursion`], while the policy is unmade.
    DropRecursion,
}

impl Fault {
    /// The fault of that name; of another, what the loader is told.
    pub fn from_name(name: &str) -> Result<Self, baton::Error> {
        Ok(match name {
            "index" => Self::Index,
            "overflow" => Self::Overflow,
            "unwrap" => Self::Unwrap,
            "memory" => Self::Memory,
            "hoard" => Self::Hoard,
            "recursion" => Self::Recursion,
            "forever" => Self::Forever,
            "kick" => Self::Kick,
            "deadlock" => Self::Deadlock,
            "cycle" => Self::Cycle,
            "first" => Self::First,
            "many-locks" => Self::ManyLocks,
            "kept-lock" => Self::KeptLock,
            "not-allowed" => Self::NotAllowed,
            "stale" => Self::Stale,
            "dropped" => Self::Dropped,
            "forgotten" => Self::Forgotten,
            "stall" => Self::Stall,
            "loop" => Self::Loop,
            "timer" => Self::Timer,
            "select" => Self::Select,
            "offline" => Self::Offline,
            "select-cpu" => Self::SelectCpu,
            "create" => Self::Create,
            "create-memory" => Self::CreateMemory,
            "create-recursion" => Self::CreateRecursion,
            "drop" => Self::Drop,
            "drop-recursion" => Self::DropRecursion,
            _ => {
                return Err(alloc::format!(
                    "there is no fault {name}: see policies/testing/faulty/src/wrong.rs"
                )
                .into())
            }
        })
    }
}

/// An index of 4 to 7 into an array of three: panics.
pub fn index(n: u64) {
    let three = black_box([1_u8, 2, 3]);
    black_box(three[(n as usize & 7) | 4]); // README.md shows this line.
}

/// A sum that 64 bits do not hold: panics, whatever `n` is.
pub fn overflow(n: u64) {
    black_box(black_box(u64::MAX) + black_box(n | 1));
}

/// Looks for a CPU that no machine has, and takes it to be there: panics.
pub fn unwrap(topology: &Topology) {
    let far = topology.cpus().find(|cpu| cpu.index() == usize::MAX);
    black_box(far.unwrap());
}

/// Takes memory until there is none, and does not look whether it got it.
pub fn memory() {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(Vec::<u8>::with_capacity(4_000)));
    }
}

struct Link(Vec<Link>);

/// Takes all memory that there is, in small blocks, and gives it back. How many blocks it got.
pub fn hoard() -> u64 {
    let (mut chain, mut blocks) = (Vec::new(), 0);
    loop {
        let mut next = Vec::new();
        if next.try_reserve_exact(160).is_err() {
            break;
        }
        next.push(Link(chain));
        chain = next;
        blocks += 1;
    }
    // One after the other, as a stack is short.
    while let Some(Link(rest)) = chain.pop() {
        chain = rest;
    }
    blocks
}

/// Goes deeper with each call, and never comes back; what it keeps on the stack is used, so that no
/// loop is made of it.
#[inline(never)]
#[allow(unconditional_recursion, reason = "it is the point")]
pub fn recursion(n: u64) -> u64 {
    let deep = black_box([n; 16]);
    recursion(deep[3] ^ 1) + black_box(deep)[5]
}

/// Does not return.
pub fn forever() {
    while black_box(true) {
        core::hint::spin_loop();
    }
}

/// Takes a lock that it holds.
pub fn deadlock(queue: &Lock<Fifo>) {
    let once = queue.lock();
    let twice = queue.lock();
    black_box((once.len(), twice.len()));
}

/// Takes each lock of a chain while it holds those before.
pub fn many_locks(locks: &[Lock<u64>]) {
    let guards: Vec<_> = locks.iter().map(Lock::lock).collect();
    black_box(guards.len());
}

/// Takes a lock, and forgets that.
pub fn kept_lock(lock: &Lock<u64>) {
    core::mem::forget(lock.lock());
}

/// Takes two locks in the order that the other CPU does not, after a wait for the other to have its
/// first.
pub fn cycle(locks: &[Lock<u64>; 2], waiting_with: &[AtomicU64; 2], cpu: Cpu) {
    let own = cpu.index() & 1;
    let mut first = locks[own].lock();
    waiting_with[own].store(1, Relaxed);
    // Short beside the stall limit, as nobody else runs here; it comes again at the next pick.
    for _ in 0..1_000_000 {
        if waiting_with[1 - own].load(Relaxed) != 0 {
            let mut second = locks[1 - own].lock();
            *second += 1;
            break;
        }
        core::hint::spin_loop();
    }
    waiting_with[own].store(0, Relaxed);
    *first += 1;
}
