// SPDX-License-Identifier: GPL-2.0-only
//! The host of a policy that runs in user space: a table of functions, installed per thread by the
//! simulator, a checker or a test.
//!
//! The policy may be a library of its own, with its own copy of this crate and of the standard
//! library: so the functions are C's, nothing unwinds through them, and a call that is to be
//! abandoned is unwound on this side ([`abandon`]).

use core::sync::atomic::{AtomicU32, Ordering};
use std::{boxed::Box, cell::Cell, panic, ptr, string::String, thread};

/// What a host gives a policy. The functions of this module call those of the table that is
/// installed on the thread. All are called on that thread, inside a call of the policy.
#[repr(C)]
pub struct Table {
    /// Takes a lock. False when that cannot be: the call is abandoned.
    pub lock: extern "C" fn(word: *const AtomicU32) -> bool,
    /// Takes a lock if it is free.
    pub try_lock: extern "C" fn(word: *const AtomicU32) -> bool,
    /// Releases a lock. False when it is not the one taken last: the call is abandoned.
    pub unlock: extern "C" fn(word: *const AtomicU32) -> bool,
    /// A policy dropped a `Schedulable`. False when that lost a task: the call is abandoned.
    pub token_dropped: extern "C" fn(token: u64) -> bool,
    /// The policy has panicked: the call is being abandoned. File and message are UTF-8, not
    /// terminated, valid during the call.
    pub panicked: extern "C" fn(
        file: *const u8,
        file_len: usize,
        line: u32,
        message: *const u8,
        message_len: usize,
    ),
    /// The time, ns.
    pub now: extern "C" fn() -> u64,
    /// A random number.
    pub random: extern "C" fn() -> u64,
    /// Sets this CPU's timer of this policy, ns from now.
    pub arm_timer: extern "C" fn(after_ns: u64),
    /// Stops this CPU's timer of this policy.
    pub cancel_timer: extern "C" fn(),
    /// A value was read that others change without a lock; the answer is what the policy gets.
    pub read: extern "C" fn(value: u64) -> u64,
    /// May the task in this slot run on that CPU now?
    pub may_run: extern "C" fn(slot: u32, cpu: i32) -> bool,
    /// Is the CPU online?
    pub cpu_online: extern "C" fn(cpu: i32) -> bool,
    /// Is the CPU idle, and not claimed by anyone?
    pub cpu_idle: extern "C" fn(cpu: i32) -> bool,
    /// May any CPU be idle?
    pub any_idle: extern "C" fn() -> bool,
    /// Claims an idle CPU; false when it was not idle or another was first.
    pub claim_idle: extern "C" fn(cpu: i32) -> bool,
    /// Memory is asked for: may there be some?
    pub has_memory: extern "C" fn() -> bool,
    /// Replies to a task, with six words; the answer is `BatonReplyAnswer`.
    pub reply: extern "C" fn(slot: u32, tag: u32, words: *const [u64; 6]) -> u32,
    /// An atomic of the policy's own is about to be used. Only a policy that was built for the
    /// checker says so.
    pub atomic: Option<extern "C" fn()>,
}

std::thread_local! {
    static TABLE: Cell<*const Table> = const { Cell::new(ptr::null()) };
    /// Calls under way. More than one where a host's CPUs are coroutines of one thread: then they
    /// do not end in the order of their beginnings.
    static IN_CALL: Cell<u32> = const { Cell::new(0) };
}

/// Installs a host on this thread, or none, and returns the one before. No call is under way: one
/// that was left for good does not count.
pub fn install(table: Option<&'static Table>) -> Option<&'static Table> {
    IN_CALL.set(0);
    let before = TABLE.replace(table.map_or(ptr::null(), ptr::from_ref));
    // SAFETY: Installed. Only this function writes it, from a reference that lives for ever.
    unsafe { before.as_ref() }
}

#[inline]
fn table() -> Option<&'static Table> {
    // SAFETY: Installed. As above.
    unsafe { TABLE.get().as_ref() }
}

/// What unwinds when a host ends a call.
struct Abandoned;

/// Ends the call under way.
#[cold]
fn abandon() {
    // One that is being unwound already is.
    if !thread::panicking() {
        panic::resume_unwind(Box::new(Abandoned));
    }
}

/// Makes one call of a policy; `None` when it was abandoned: it panicked, which the host has been
/// told, or the host ended it.
#[inline]
pub fn guard<R>(call: impl FnOnce() -> R) -> Option<R> {
    IN_CALL.set(IN_CALL.get() + 1);
    let result = panic::catch_unwind(panic::AssertUnwindSafe(call));
    IN_CALL.set(IN_CALL.get() - 1);
    result.ok()
}

/// Has panics inside [`guard`] told to the host, not to the terminal. Once for each copy of this
/// crate.
pub fn report_panics() {
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let Some(table) = table().filter(|_| IN_CALL.get() != 0) else {
            return others(info);
        };
        let (file, line) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
        let message = info.payload_as_str().unwrap_or("");
        (table.panicked)(
            file.as_ptr(),
            file.len(),
            line,
            message.as_ptr(),
            message.len(),
        );
    }));
}

/// Takes a lock. Without a host it spins.
pub fn lock(word: &AtomicU32) {
    match table() {
        Some(table) if (table.lock)(word) => {}
        Some(_) => abandon(),
        None => {
            while !try_lock(word) {
                thread::yield_now();
            }
        }
    }
}

/// Takes a lock if it is free.
pub fn try_lock(word: &AtomicU32) -> bool {
    match table() {
        Some(table) => (table.try_lock)(word),
        None => word
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok(),
    }
}

/// Releases a lock.
pub fn unlock(word: &AtomicU32) {
    match table() {
        Some(table) if (table.unlock)(word) => {}
        Some(_) => abandon(),
        None => word.store(0, Ordering::Release),
    }
}

/// A policy dropped a `Schedulable`. Without a host that is a panic.
pub fn token_dropped(token: u64) {
    if thread::panicking() {
        return;
    }
    match table() {
        Some(table) if (table.token_dropped)(token) => {}
        Some(_) => abandon(),
        None => {
            panic!(
                "a Schedulable was dropped: slot {}, generation {}",
                (token as u32).wrapping_sub(1),
                token >> 32
            )
        }
    }
}

/// The time, ns; 0 without a host.
#[inline]
pub fn now() -> u64 {
    table().map_or(0, |table| (table.now)())
}

/// A random number; 0 without a host.
pub fn random() -> u64 {
    table().map_or(0, |table| (table.random)())
}

/// Passes on a value that was read without a lock.
#[inline]
pub fn read(value: u64) -> u64 {
    table().map_or(value, |table| (table.read)(value))
}

/// Sets this CPU's timer of this policy, ns from now.
pub fn arm_timer(after_ns: u64) {
    if let Some(table) = table() {
        (table.arm_timer)(after_ns);
    }
}

/// Stops this CPU's timer of this policy.
pub fn cancel_timer() {
    if let Some(table) = table() {
        (table.cancel_timer)();
    }
}

/// May the task in this slot run on that CPU now? Without a host it may.
#[inline]
pub fn may_run(slot: u32, cpu: i32) -> bool {
    table().is_none_or(|table| (table.may_run)(slot, cpu))
}

/// Is the CPU online? Without a host it is.
#[inline]
pub fn cpu_online(cpu: i32) -> bool {
    table().is_none_or(|table| (table.cpu_online)(cpu))
}

/// Is the CPU idle, and not claimed by anyone? Without a host it is not.
#[inline]
pub fn cpu_idle(cpu: i32) -> bool {
    table().is_some_and(|table| (table.cpu_idle)(cpu))
}

/// May any CPU be idle? Without a host none is.
#[inline]
pub fn any_idle() -> bool {
    table().is_some_and(|table| (table.any_idle)())
}

/// Claims an idle CPU; false when it was not idle or another was first.
#[inline]
pub fn claim_idle(cpu: i32) -> bool {
    table().is_some_and(|table| (table.claim_idle)(cpu))
}

/// May there be memory? For the allocator of the policy's library.
pub fn has_memory() -> bool {
    // An allocator is asked on threads that end, too.
    let table = TABLE.try_with(Cell::get).unwrap_or(ptr::null());
    let is_in_call = IN_CALL.try_with(Cell::get).is_ok_and(|calls| calls != 0);
    // SAFETY: Installed. As in `table`.
    unsafe { table.as_ref() }
        .filter(|_| is_in_call)
        .is_none_or(|table| (table.has_memory)())
}

/// Replies to a task. Without a host nobody has a queue.
pub fn reply(slot: u32, tag: u32, words: &[u64; 6]) -> u32 {
    table().map_or(1, |table| (table.reply)(slot, tag, words))
}

/// An atomic of the policy's own is about to be used.
pub fn atomic() {
    if let Some(atomic) = table().and_then(|table| table.atomic) {
        atomic();
    }
}

/// A panic of a policy.
pub struct Panic {
    /// Where: the source file as the compiler has it, and the line.
    pub file: String,
    pub line: u32,
    pub message: String,
}

impl Panic {
    /// Did an allocation fail that cannot? These are the words of Rust's library then, and the
    /// place is in the library.
    pub fn is_out_of_memory(&self) -> bool {
        self.message.starts_with("memory allocation of ")
    }
}

/// A host of policies in user space, as safe functions: [`Table::of`] makes its table. They have no
/// `self`, as the policy calls C functions: an implementation finds the call by the thread. What
/// each function is asked stands at its place in [`Table`].
pub trait NativeHost {
    /// Must an atomic of a policy's own be announced? Only policies that were built for the checker
    /// do that.
    const SEES_ATOMICS: bool = false;

    fn lock(word: &AtomicU32) -> bool;
    fn try_lock(word: &AtomicU32) -> bool;
    fn unlock(word: &AtomicU32) -> bool;
    fn token_dropped(token: u64) -> bool;
    fn panicked(panic: Panic);
    fn now() -> u64;
    fn random() -> u64;
    fn arm_timer(after_ns: u64);
    fn cancel_timer();
    fn read(value: u64) -> u64 {
        value
    }
    fn may_run(slot: u32, cpu: i32) -> bool;
    fn cpu_online(cpu: i32) -> bool;
    fn cpu_idle(cpu: i32) -> bool;
    fn any_idle() -> bool;
    fn claim_idle(cpu: i32) -> bool;
    fn has_memory() -> bool {
        true
    }
    /// The answer is `BatonReplyAnswer`.
    fn reply(slot: u32, tag: u32, words: [u64; 6]) -> u32;
    fn atomic() {}
}

impl Table {
    /// The table of a host.
    pub const fn of<H: NativeHost>() -> Self {
        Self {
            lock: from_c::lock::<H>,
            try_lock: from_c::try_lock::<H>,
            unlock: from_c::unlock::<H>,
            token_dropped: from_c::token_dropped::<H>,
            panicked: from_c::panicked::<H>,
            now: from_c::now::<H>,
            random: from_c::random::<H>,
            arm_timer: from_c::arm_timer::<H>,
            cancel_timer: from_c::cancel_timer::<H>,
            read: from_c::read::<H>,
            may_run: from_c::may_run::<H>,
            cpu_online: from_c::cpu_online::<H>,
            cpu_idle: from_c::cpu_idle::<H>,
            any_idle: from_c::any_idle::<H>,
            claim_idle: from_c::claim_idle::<H>,
            has_memory: from_c::has_memory::<H>,
            reply: from_c::reply::<H>,
            atomic: match H::SEES_ATOMICS {
                true => Some(from_c::atomic::<H>),
                false => None,
            },
        }
    }
}

/// What a table holds: the functions of a host behind those of C. All that is a pointer there is
/// handled here.
mod from_c {
    use super::{AtomicU32, NativeHost, Panic, String};

    macro_rules! plain {
        ($($name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
            $(pub extern "C" fn $name<H: NativeHost>($($argument: $type),*) $(-> $answer)? {
                H::$name($($argument),*)
            })*
        };
    }

    macro_rules! about_a_lock {
        ($($name:ident)*) => {
            $(pub extern "C" fn $name<H: NativeHost>(word: *const AtomicU32) -> bool {
                // SAFETY: Host-call. It is a lock of the policy's, which lives during the call.
                H::$name(unsafe { &*word })
            })*
        };
    }

    about_a_lock!(lock try_lock unlock);

    plain! {
        token_dropped(token: u64) -> bool;
        now() -> u64;
        random() -> u64;
        arm_timer(after_ns: u64);
        cancel_timer();
        read(value: u64) -> u64;
        may_run(slot: u32, cpu: i32) -> bool;
        cpu_online(cpu: i32) -> bool;
        cpu_idle(cpu: i32) -> bool;
        any_idle() -> bool;
        claim_idle(cpu: i32) -> bool;
        has_memory() -> bool;
        atomic();
    }

    pub extern "C" fn panicked<H: NativeHost>(
        file: *const u8,
        file_len: usize,
        line: u32,
        message: *const u8,
        message_len: usize,
    ) {
        let text = |at: *const u8, len: usize| {
            // SAFETY: Host-call. The policy's side gives texts that live during the call.
            let bytes = unsafe { core::slice::from_raw_parts(at, len) };
            String::from_utf8_lossy(bytes).into_owned()
        };
        H::panicked(Panic {
            file: text(file, file_len),
            line,
            message: text(message, message_len),
        });
    }

    pub extern "C" fn reply<H: NativeHost>(slot: u32, tag: u32, words: *const [u64; 6]) -> u32 {
        // SAFETY: Host-call. The policy's side gives words that live during the call.
        H::reply(slot, tag, unsafe { *words })
    }
}
