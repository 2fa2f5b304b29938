// SPDX-License-Identifier: GPL-2.0-only
//! The faults, each in a function of its own, so that the line in a report shows which it was.

use alloc::vec::Vec;
use baton::{runqueue::Fifo, Cpu, Lock, Topology};
use core::{
    fmt,
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Kinds of faults, one for each value of the option `fault`. Those up to [`Fault::KeptLock`] may
/// happen in any method: the option `in` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Fault {
    /// Indexes an array past its end.
    Index,
    /// Panics with a message that needs more stack than a call is granted.
    LargeMessage,
    /// Adds beyond the largest number.
    Overflow,
    /// Unwraps a `None`.
    Unwrap,
    /// Allocates until there is no memory, and frees nothing.
    Memory,
    /// Calls itself until the stack ends.
    Recursion,
    /// Turns a loop without end.
    Forever,
    /// As [`Fault::Forever`], where each turn is three loops of seven turns, one in another.
    Nested,
    /// Two functions end with calls of each other, which need no stack.
    Tail,
    /// As [`Fault::Forever`], where each turn copies a block of a mebibyte.
    Copies,
    /// Locks its queue twice.
    Deadlock,
    /// Takes more locks at once than a call may hold.
    ManyLocks,
    /// Drops the `Schedulable` of the first task in its queue.
    Lost,
    /// Forgets the guard of a lock, so that it is never released.
    KeptLock,
    /// No fault: allocates all memory, and copes when there is no more ([`hoard`]).
    Hoard,
    /// Kicks the CPU whose task was just preempted, so that each picked task is preempted at once.
    Kick,
    /// On two CPUs, takes two locks in opposite orders ([`cycle`]).
    Cycle,
    /// Answers every other pick with a task that may not run there, if there is one.
    NotAllowed,
    /// Keeps the `Schedulable` of a task that is dequeued, and answers a later pick with it.
    Stale,
    /// Drops the `Schedulable` of a task that yields.
    Dropped,
    /// Forgets the `Schedulable` of a task that yields, which nothing notices at that time.
    Forgotten,
    /// Picks no task any more.
    Stall,
    /// Answers each pick with a task that may not run there, and after the refusal with the same
    /// task again.
    Loop,
    /// As [`Fault::Index`], as a CPU that is going offline goes idle.
    Offline,
    /// Chooses CPU 4,000 for a task.
    SelectCpu,
}

impl Fault {
    /// The fault of that name, or the error message for an unknown name.
    pub fn from_name(name: &str) -> Result<Self, baton::Error> {
        Ok(match name {
            "index" => Self::Index,
            "large-message" => Self::LargeMessage,
            "overflow" => Self::Overflow,
            "unwrap" => Self::Unwrap,
            "memory" => Self::Memory,
            "recursion" => Self::Recursion,
            "forever" => Self::Forever,
            "nested" => Self::Nested,
            "tail" => Self::Tail,
            "copies" => Self::Copies,
            "deadlock" => Self::Deadlock,
            "many-locks" => Self::ManyLocks,
            "lost" => Self::Lost,
            "kept-lock" => Self::KeptLock,
            "hoard" => Self::Hoard,
            "kick" => Self::Kick,
            "cycle" => Self::Cycle,
            "not-allowed" => Self::NotAllowed,
            "stale" => Self::Stale,
            "dropped" => Self::Dropped,
            "forgotten" => Self::Forgotten,
            "stall" => Self::Stall,
            "loop" => Self::Loop,
            "offline" => Self::Offline,
            "select-cpu" => Self::SelectCpu,
            _ => {
                return Err(alloc::format!(
                    "there is no fault {name}: see policies/testing/faulty/src/wrong.rs"
                )
                .into())
            }
        })
    }

    /// The method in which it happens if the option `in` names none.
    pub fn usual_method(self) -> &'static str {
        match self {
            Self::Deadlock => "pick_next_task",
            _ => "task_wakeup",
        }
    }
}

/// An index of 4 to 7 into an array of three: panics.
pub fn index(n: u64) {
    let three = black_box([1_u8, 2, 3]);
    black_box(three[(n as usize & 7) | 4]); // README.md shows this line.
}

/// A value that needs a large array on the stack when it is written.
struct Large;

impl fmt::Display for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let large = black_box([b'a'; 4200]);
        f.write_str(core::str::from_utf8(&large[..8]).unwrap_or_default())
    }
}

/// Panics, and has not enough stack to say why.
pub fn large_message() {
    panic!("{Large}");
}

/// A sum that does not fit into 64 bits: panics for any `n`.
pub fn overflow(n: u64) {
    black_box(black_box(u64::MAX) + black_box(n | 1));
}

/// Unwraps the result of a search for a CPU that no machine has: panics.
pub fn unwrap(topology: &Topology) {
    let far = topology.cpus().find(|cpu| cpu.index() == usize::MAX);
    black_box(far.unwrap());
}

/// Allocates memory until there is none, without checking for failure. Each block is twice as large
/// as the last one, so that this does not take long.
pub fn memory() {
    let mut hoard = Vec::new();
    for size in (12..).map(|power| 1 << power) {
        hoard.push(black_box(Vec::<u8>::with_capacity(size)));
    }
}

struct Link(Vec<Link>);

/// Allocates all memory in small blocks, and frees it. Returns the number of blocks.
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
    // One after the other, as the stack is small.
    while let Some(Link(rest)) = chain.pop() {
        chain = rest;
    }
    blocks
}

/// Calls itself without end. Its data on the stack are used after the call, so that the compiler
/// does not make a loop of it.
#[inline(never)]
#[allow(unconditional_recursion, reason = "it is the point")]
pub fn recursion(n: u64) -> u64 {
    let deep = black_box([n; 16]);
    recursion(deep[3] ^ 1) + black_box(deep)[5]
}

/// Turns a loop without end.
pub fn forever() {
    while black_box(true) {}
}

/// Turns a loop without end. Its inner loops do end.
pub fn nested() {
    while black_box(true) {
        for a in 0..7_u32 {
            for b in 0..7_u32 {
                for c in 0..7_u32 {
                    black_box(a ^ b ^ c);
                }
            }
        }
    }
}

static STEP: AtomicU64 = AtomicU64::new(3);

/// Calls [`odd`], and that calls this function. As nothing is left to do after the call, the
/// compiler makes a jump of it.
#[inline(never)]
#[allow(unconditional_recursion, reason = "it is the point")]
pub fn even(n: u64) -> u64 {
    odd(n.wrapping_add(STEP.load(Relaxed)))
}

#[inline(never)]
fn odd(n: u64) -> u64 {
    even(n.wrapping_mul(STEP.load(Relaxed)))
}

/// Copies a block without end.
pub fn copies(from: &[u8], to: &Lock<Vec<u8>>) {
    let mut to = to.lock();
    while black_box(true) {
        to.copy_from_slice(black_box(from));
    }
}

/// Takes a lock that it holds already.
pub fn deadlock(queue: &Lock<Fifo>) {
    let once = queue.lock();
    let twice = queue.lock();
    black_box((once.len(), twice.len()));
}

/// Takes each lock of a list while it holds those before it.
pub fn many_locks(locks: &[Lock<u64>]) {
    let guards: Vec<_> = locks.iter().map(Lock::lock).collect();
    black_box(guards.len());
}

/// Takes a lock, and forgets its guard.
pub fn kept_lock(lock: &Lock<u64>) {
    core::mem::forget(lock.lock());
}

/// Takes two locks, in opposite orders on even and odd CPUs. Waits in between for the other CPU to
/// hold its first lock.
pub fn cycle(locks: &[Lock<u64>; 2], waiting_with: &[AtomicU64; 2], cpu: Cpu) {
    let own = cpu.index() & 1;
    let mut first = locks[own].lock();
    waiting_with[own].store(1, Relaxed);
    // Short beside the stall limit, as no task runs here meanwhile. The next pick tries again.
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
