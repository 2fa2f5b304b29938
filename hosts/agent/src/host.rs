// SPDX-License-Identifier: GPL-2.0-only
//! The functions that a policy in an agent calls.
//!
//! They answer from the enclave's memory, which the kernel keeps up to date. An answer may be
//! outdated when the transaction arrives; the kernel then refuses it.

use std::cell::{Cell, RefCell};
use std::hint::spin_loop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use Ordering::{Acquire, Relaxed, Release};

use baton_abi::{BatonFaultKind, BatonHint, BatonReplyAnswer, BATON_MAX_LOCKS};
use baton_native::{NativeHost, Panic, Recording, Table};
use rustix::thread::gettid;

use crate::agent::Agent;
use crate::record::{self, Tape};

/// How long the thread that holds a lock may run until a call that waits for the lock is abandoned.
/// The time is that of the kernel (kernel/bpf/rqspinlock.c), where a holder is not preempted. Here
/// it is, and the policy is not at fault for the time in which other tasks have the holder's CPU.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// Turns of a wait for another thread until this one gives way: the other may need this CPU.
const TURNS: u32 = 1000;

/// What the functions need of the agent.
pub(crate) struct Services {
    pub agent: Agent,
    /// CPUs that are offline as far as the policy has heard: also one that is back, until the
    /// policy hears of that, and the CPU of a global agent.
    pub offline: Vec<AtomicBool>,
    /// CPUs that the policy has claimed, or for which it has not been asked since they ran a task:
    /// a CPU that idles is the policy's to claim once a pick has given it nothing.
    pub claimed: Vec<AtomicBool>,
    /// The recording, if calls are recorded.
    pub tape: Option<Tape>,
    /// When each CPU's timer expires, ns of the monotonic clock; 0 if it is not armed.
    pub timers: Vec<AtomicU64>,
}

impl Services {
    pub fn new(agent: Agent) -> Self {
        let (cpus, own) = (agent.nr_cpus(), agent.polls_on());
        Self {
            agent,
            tape: None,
            offline: (0..cpus)
                .map(|cpu| AtomicBool::new(own == Some(cpu)))
                .collect(),
            claimed: (0..cpus).map(|_| AtomicBool::new(true)).collect(),
            timers: (0..cpus).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The functions, as a policy gets them.
    pub fn table(&self) -> &'static Table {
        match self.tape {
            Some(_) => &record::TABLE,
            None => &TABLE,
        }
    }

    /// May the policy use the CPU, as far as it has heard?
    fn is_known(&self, cpu: usize) -> bool {
        let offline = self.offline.get(cpu);
        offline.is_some_and(|offline| !offline.load(Relaxed))
    }

    pub fn is_online(&self, cpu: usize) -> bool {
        // A global agent's own CPU is not known.
        self.is_known(cpu) && self.agent.is_of_enclave(cpu)
    }

    pub fn may_run(&self, slot: u32, cpu: usize) -> bool {
        self.is_known(cpu) && self.agent.could_run(slot, cpu)
    }

    pub fn is_idle(&self, cpu: usize) -> bool {
        self.is_online(cpu) && !self.claimed[cpu].load(Relaxed) && self.agent.is_idle(cpu)
    }

    fn claim(&self, cpu: usize) -> bool {
        self.is_idle(cpu) && !self.claimed[cpu].swap(true, Relaxed)
    }
}

/// A fault of the call under way on this thread.
pub(crate) struct Fault {
    pub kind: BatonFaultKind,
    pub file: String,
    pub line: u32,
    pub message: String,
}

/// The addresses of the locks that the call holds, in the order of taking them.
struct Held {
    count: Cell<usize>,
    addresses: [Cell<usize>; BATON_MAX_LOCKS],
}

impl Held {
    const fn new() -> Self {
        Self {
            count: Cell::new(0),
            addresses: [const { Cell::new(0) }; BATON_MAX_LOCKS],
        }
    }

    fn contains(&self, address: usize) -> bool {
        let held = &self.addresses[..self.count.get()];
        held.iter().any(|lock| lock.get() == address)
    }

    /// Adds a lock. There is room: see [`lock_slowly`].
    fn push(&self, address: usize) {
        let count = self.count.get();
        self.addresses[count].set(address);
        self.count.set(count + 1);
    }

    fn last(&self) -> Option<usize> {
        let last = self.count.get().checked_sub(1)?;
        Some(self.addresses[last].get())
    }

    /// Removes the last lock, and returns it.
    fn pop(&self) -> Option<usize> {
        let last = self.last()?;
        self.count.set(self.count.get() - 1);
        Some(last)
    }
}

thread_local! {
    static SERVICES: Cell<*const Services> = const { Cell::new(ptr::null()) };
    /// The CPU on whose behalf the policy is called.
    static CPU: Cell<usize> = const { Cell::new(0) };
    static HELD: Held = const { Held::new() };
    static FAULT: RefCell<Option<Fault>> = const { RefCell::new(None) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Runs calls of a policy on this thread.
#[inline]
pub(crate) fn enter<R>(services: &Services, cpu: usize, call: impl FnOnce() -> R) -> R {
    let outer = SERVICES.replace(services);
    CPU.set(cpu);
    let result = call();
    SERVICES.set(outer);
    result
}

/// The fault of the call that was just abandoned on this thread. Releases its locks.
pub(crate) fn take_fault() -> Option<Fault> {
    release_all();
    FAULT.take()
}

/// Does the call that has just returned still hold a lock? Releases it.
#[inline]
pub(crate) fn forgot_a_lock() -> bool {
    let held = HELD.with(|held| held.count.get() != 0);
    if held {
        release_all();
    }
    held
}

fn release_all() {
    while let Some(address) = HELD.with(Held::pop) {
        // SAFETY: Mutual-exclusion. The lock was taken in the call that ends here, and the policy's
        // locks exist for that call.
        unsafe { &*(address as *const AtomicU32) }.store(0, Release);
    }
}

/// Random numbers of this thread begin anew, at the time of the next one.
pub(crate) fn reset_random() {
    RANDOM.set(0);
}

fn set_fault(kind: BatonFaultKind, message: &str) {
    FAULT.set(Some(Fault {
        kind,
        file: String::new(),
        line: 0,
        message: message.into(),
    }));
}

/// The call under way is to be abandoned.
fn fail(kind: BatonFaultKind, message: &str) -> bool {
    set_fault(kind, message);
    AgentHost::note_failure(kind);
    false
}

/// Does this thread execute the code of an agent's policy? It changes nothing, so a signal handler
/// may call it.
pub fn is_in_policy() -> bool {
    !SERVICES.get().is_null()
}

pub(crate) fn with<R>(f: impl FnOnce(&Services) -> R) -> R {
    // SAFETY: On-stack. Policies are called only inside `enter`, whose services outlive the call.
    f(unsafe { SERVICES.get().as_ref() }.expect("a policy is called by a runner"))
}

/// Takes a lock, if the call may have it and gets it in time.
#[cold]
#[inline(never)]
fn lock_slowly(word: &AtomicU32) -> bool {
    let address = ptr::from_ref(word) as usize;
    if HELD.with(|held| held.contains(address)) {
        return fail(
            BatonFaultKind::Deadlock,
            "the lock is held by this call already",
        );
    }
    if HELD.with(|held| held.count.get()) >= BATON_MAX_LOCKS {
        return fail(
            BatonFaultKind::Deadlock,
            "a call may hold at most 31 locks at once",
        );
    }
    wait_for(word)
        || fail(
            BatonFaultKind::LockTimeout,
            "a call ran for 250 ms and did not release the lock",
        )
}

/// Takes a lock, unless the thread that holds it runs for longer than [`LOCK_TIMEOUT`] and does not
/// release it.
fn wait_for(word: &AtomicU32) -> bool {
    let mut patience = Patience::default();
    let mut seen = None;
    while !AgentHost::try_lock(word) {
        if !patience.turn() {
            continue;
        }
        let holder = word.load(Relaxed);
        let Some(ran) = cpu_time_of(holder) else {
            continue;
        };
        match seen {
            Some((of, since)) if of == holder => {
                if ran.saturating_sub(since) > LOCK_TIMEOUT {
                    return false;
                }
            }
            _ => seen = Some((holder, ran)),
        }
    }
    true
}

/// A wait for another thread, which is short unless that thread was preempted.
#[derive(Default)]
pub(crate) struct Patience {
    turns: u32,
}

impl Patience {
    /// Passes a little time. True if this thread gave way.
    pub fn turn(&mut self) -> bool {
        self.turns += 1;
        if self.turns < TURNS {
            spin_loop();
            return false;
        }
        self.turns = 0;
        // An agent whose CPU went offline runs where another one may spin.
        thread::yield_now();
        true
    }
}

/// For how long a thread of this process has run. `None` if there is no such thread.
fn cpu_time_of(thread: u32) -> Option<Duration> {
    // include/uapi/linux/time.h has no name for it; include/linux/posix-timers_types.h has:
    // CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED. A thread 0 would be the caller.
    const OF_THREAD: i32 = 4 | 2;

    if thread == 0 {
        return None;
    }
    let clock = !(thread as i32) << 3 | OF_THREAD;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: On-stack. The kernel writes to `time` alone.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) } != 0;
    (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The number of this thread.
fn own_thread() -> u32 {
    thread_local! {
        static OWN: Cell<u32> = const { Cell::new(0) };
    }

    match OWN.get() {
        0 => {
            let own = gettid().as_raw_nonzero().get() as u32;
            OWN.set(own);
            own
        }
        own => own,
    }
}

pub(crate) struct AgentHost;

impl NativeHost for AgentHost {
    fn lock(word: &AtomicU32) -> bool {
        // Most calls hold one lock at a time, and find it free.
        let is_first = HELD.with(|held| held.count.get() == 0);
        (is_first && Self::try_lock(word)) || lock_slowly(word)
    }

    fn try_lock(word: &AtomicU32) -> bool {
        let is_taken = word
            .compare_exchange(0, own_thread(), Acquire, Relaxed)
            .is_ok();
        if is_taken {
            HELD.with(|held| held.push(ptr::from_ref(word) as usize));
        }
        is_taken
    }

    fn unlock(word: &AtomicU32) -> bool {
        let address = ptr::from_ref(word) as usize;
        let is_last = HELD.with(|held| held.last() == Some(address) && held.pop().is_some());
        if !is_last {
            return fail(
                BatonFaultKind::Deadlock,
                "locks must be released in the reverse order of taking them",
            );
        }
        word.store(0, Release);
        true
    }

    fn token_dropped(token: u64) -> bool {
        let slot = (token as u32).wrapping_sub(1);
        let is_lost = with(|services| {
            slot < services.agent.nr_slots() && services.agent.task(slot).token == token
        });
        if is_lost {
            // A recording has the token before the failure.
            set_fault(
                BatonFaultKind::LostTask,
                "a Schedulable was dropped: its task would never have run again",
            );
        }
        !is_lost
    }

    fn panicked(panic: Panic) {
        let kind = if panic.is_out_of_memory() {
            BatonFaultKind::OutOfMemory
        } else {
            BatonFaultKind::Panic
        };
        FAULT.set(Some(Fault {
            kind,
            file: panic.file,
            line: panic.line,
            message: panic.message,
        }));
        Self::note_failure(kind);
    }

    fn now() -> u64 {
        with(|services| services.agent.now())
    }

    fn random() -> u64 {
        // xorshift64, as in hosts/kernel/host.c; never 0
        let mut x = RANDOM.get();
        if x == 0 {
            x = Self::now() | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        RANDOM.set(x);
        x
    }

    fn arm_timer(after_ns: u64) {
        let at = Self::now().saturating_add(after_ns).max(1);
        with(|services| services.timers[CPU.get()].store(at, Relaxed));
    }

    fn cancel_timer() {
        with(|services| services.timers[CPU.get()].store(0, Relaxed));
    }

    fn may_run(slot: u32, cpu: i32) -> bool {
        with(|services| usize::try_from(cpu).is_ok_and(|cpu| services.may_run(slot, cpu)))
    }

    fn cpu_online(cpu: i32) -> bool {
        with(|services| usize::try_from(cpu).is_ok_and(|cpu| services.is_online(cpu)))
    }

    fn cpu_idle(cpu: i32) -> bool {
        with(|services| usize::try_from(cpu).is_ok_and(|cpu| services.is_idle(cpu)))
    }

    fn any_idle() -> bool {
        with(|services| (0..services.agent.nr_cpus()).any(|cpu| services.is_idle(cpu)))
    }

    fn claim_idle(cpu: i32) -> bool {
        with(|services| usize::try_from(cpu).is_ok_and(|cpu| services.claim(cpu)))
    }

    fn reply(slot: u32, tag: u32, words: [u64; 6]) -> u32 {
        let reply = BatonHint {
            tag,
            thread: 0,
            words,
        };
        let answer = with(|services| services.agent.reply(slot, &reply));
        answer.unwrap_or(BatonReplyAnswer::NoQueue) as u32
    }
}

/// The functions for runs without a recording; `record::TABLE` adds the recording.
static TABLE: Table = Table::of::<AgentHost>();

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Instant;

    /// Does a call get a lock, whose holder does something in between?
    fn gets_a_lock_of(holder: impl Fn() + Sync) -> bool {
        let (word, is_held) = (AtomicU32::new(0), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(AgentHost::try_lock(&word));
                is_held.wait();
                holder();
                word.store(0, Release);
            });
            is_held.wait();
            wait_for(&word)
        })
    }

    /// Twice the time is on the safe side of the kernel's accounting by ticks.
    const LONG: Duration = Duration::from_millis(500);

    #[test]
    fn a_holder_that_does_not_run_is_not_at_fault() {
        assert!(gets_a_lock_of(|| thread::sleep(LONG)));
    }

    #[test]
    fn a_holder_that_runs_for_too_long_is_at_fault() {
        let begun = Instant::now();
        let run = || {
            let own = own_thread();
            while cpu_time_of(own).is_some_and(|ran| ran < LONG) {
                spin_loop();
            }
        };
        assert!(!gets_a_lock_of(run));
        assert!(begun.elapsed() >= LOCK_TIMEOUT);
    }

    #[test]
    fn no_thread_has_no_time() {
        assert_eq!(cpu_time_of(0), None);
        assert!(cpu_time_of(own_thread()).is_some());
    }
}
