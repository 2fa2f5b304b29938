// SPDX-License-Identifier: GPL-2.0-only
//! The host of a policy that runs in user space: a table of functions, installed per thread by the
//! simulator, a checker or a test.
//!
//! The policy may be a separate library, with its own copy of this crate and of the standard
//! library. The functions are therefore C functions, nothing unwinds through them, and a call that
//! is to be abandoned is unwound on this side ([`abandon`]).

use core::ffi::c_char;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::{boxed::Box, cell::Cell, panic, ptr, string::String, thread};

/// The functions that a host provides to a policy. The functions of this module call those of the
/// table installed on the thread. All are called on that thread, inside a call of the policy.
#[repr(C)]
pub struct Table {
    /// Takes a lock. Returns false when that is impossible; the call is then abandoned.
    pub lock: extern "C" fn(word: *const AtomicU32) -> bool,
    /// Takes a lock if it is free.
    pub try_lock: extern "C" fn(word: *const AtomicU32) -> bool,
    /// Releases a lock. Returns false when it is not the one taken last; the call is then
    /// abandoned.
    pub unlock: extern "C" fn(word: *const AtomicU32) -> bool,
    /// Reports that a policy dropped a `Schedulable`. Returns false when a task was lost; the call
    /// is then abandoned.
    pub token_dropped: extern "C" fn(token: u64) -> bool,
    /// Reports that the policy has panicked; the call is being abandoned. File and message are
    /// UTF-8, not terminated, and valid during the call.
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
    /// Arms this policy's timer on this CPU, ns from now.
    pub arm_timer: extern "C" fn(after_ns: u64),
    /// Cancels this policy's timer on this CPU.
    pub cancel_timer: extern "C" fn(),
    /// Reports a value that was read and that other CPUs change without a lock. Returns the value
    /// for the policy.
    pub read: extern "C" fn(value: u64) -> u64,
    /// May the task in this slot run on that CPU now?
    pub may_run: extern "C" fn(slot: u32, cpu: i32) -> bool,
    /// Is the CPU online?
    pub cpu_online: extern "C" fn(cpu: i32) -> bool,
    /// Is the CPU idle and unclaimed?
    pub cpu_idle: extern "C" fn(cpu: i32) -> bool,
    /// May any CPU be idle?
    pub any_idle: extern "C" fn() -> bool,
    /// Claims an idle CPU; false when it was not idle or was already claimed.
    pub claim_idle: extern "C" fn(cpu: i32) -> bool,
    /// May an allocation succeed?
    pub has_memory: extern "C" fn() -> bool,
    /// Replies to a task, with six words. Returns a `BatonReplyAnswer`.
    pub reply: extern "C" fn(slot: u32, tag: u32, words: *const [u64; 6]) -> u32,
    /// Reports a change of a thread's state that was refused (policy/c/events.h). The texts are
    /// UTF-8, NUL-terminated, and valid during the call. `line` is 0 if none is known.
    pub refused: extern "C" fn(
        pid: u32,
        handler: *const c_char,
        from: *const c_char,
        to: *const c_char,
        line: u32,
        why: *const c_char,
    ),
    /// Reports a change of a thread's state that was made, with texts as above; `line` is 0 if the
    /// library made it. Absent in hosts that do not ask.
    pub changed: Option<
        extern "C" fn(
            pid: u32,
            handler: *const c_char,
            from: *const c_char,
            to: *const c_char,
            line: u32,
        ),
    >,
    /// Announces the use of one of the policy's own atomics. Only a policy that was built for the
    /// checker calls this.
    pub atomic: Option<extern "C" fn()>,
}

std::thread_local! {
    static TABLE: Cell<*const Table> = const { Cell::new(ptr::null()) };
    /// Number of calls in progress. There can be several if the CPUs of a host are coroutines of
    /// one thread; the order in which they end is then arbitrary.
    static IN_CALL: Cell<u32> = const { Cell::new(0) };
}

/// Installs a host on this thread, or none, and returns the previous one. No call may be in
/// progress; a call that was left for good does not count.
pub fn install(table: Option<&'static Table>) -> Option<&'static Table> {
    IN_CALL.set(0);
    let before = TABLE.replace(table.map_or(ptr::null(), ptr::from_ref));
    // SAFETY: Installed. Only this function writes it, from a `'static` reference.
    unsafe { before.as_ref() }
}

#[inline]
fn table() -> Option<&'static Table> {
    // SAFETY: Installed. As above.
    unsafe { TABLE.get().as_ref() }
}

/// Payload of the unwinding when a host ends a call.
struct Abandoned;

/// Abandons the call in progress.
#[cold]
fn abandon() {
    // A call that is already being unwound needs nothing.
    if !thread::panicking() {
        panic::resume_unwind(Box::new(Abandoned));
    }
}

/// Makes one call of a policy. Returns `None` when the call was abandoned: it panicked, which was
/// reported to the host, or the host ended it.
#[inline]
pub fn guard<R>(call: impl FnOnce() -> R) -> Option<R> {
    IN_CALL.set(IN_CALL.get() + 1);
    let result = panic::catch_unwind(panic::AssertUnwindSafe(call));
    IN_CALL.set(IN_CALL.get() - 1);
    result.ok()
}

/// Is this thread inside [`guard`]?
pub fn is_in_call() -> bool {
    IN_CALL.get() != 0
}

/// Reports panics inside [`guard`] to the host instead of the terminal. Must be called once for
/// each copy of this crate.
pub fn report_panics() {
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let Some(table) = table().filter(|_| is_in_call()) else {
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
        None => spin(word),
    }
}

/// Takes a lock without a host. Out of line, as the calls of a host are many.
#[cold]
#[inline(never)]
fn spin(word: &AtomicU32) {
    while !try_lock(word) {
        thread::yield_now();
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

/// Reports that a policy dropped a `Schedulable`. Without a host, this panics.
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

/// Passes a value that was read without a lock through the host.
#[inline]
pub fn read(value: u64) -> u64 {
    table().map_or(value, |table| (table.read)(value))
}

/// Arms this policy's timer on this CPU, ns from now.
pub fn arm_timer(after_ns: u64) {
    if let Some(table) = table() {
        (table.arm_timer)(after_ns);
    }
}

/// Cancels this policy's timer on this CPU.
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

/// Is the CPU idle and unclaimed? Without a host it is not.
#[inline]
pub fn cpu_idle(cpu: i32) -> bool {
    table().is_some_and(|table| (table.cpu_idle)(cpu))
}

/// May any CPU be idle? Without a host none is.
#[inline]
pub fn any_idle() -> bool {
    table().is_some_and(|table| (table.any_idle)())
}

/// Claims an idle CPU; false when it was not idle or was already claimed.
#[inline]
pub fn claim_idle(cpu: i32) -> bool {
    table().is_some_and(|table| (table.claim_idle)(cpu))
}

/// May an allocation succeed? For the allocator of the policy's library.
pub fn has_memory() -> bool {
    // The allocator is also called on threads that are ending.
    let table = TABLE.try_with(Cell::get).unwrap_or(ptr::null());
    let is_in_call = IN_CALL.try_with(Cell::get).is_ok_and(|calls| calls != 0);
    // SAFETY: Installed. As in `table`.
    unsafe { table.as_ref() }
        .filter(|_| is_in_call)
        .is_none_or(|table| (table.has_memory)())
}

/// Replies to a task. Without a host, no task has a queue.
pub fn reply(slot: u32, tag: u32, words: &[u64; 6]) -> u32 {
    table().map_or(1, |table| (table.reply)(slot, tag, words))
}

/// Announces the use of one of the policy's own atomics.
pub fn atomic() {
    if let Some(atomic) = table().and_then(|table| table.atomic) {
        atomic();
    }
}

/// A panic of a policy.
pub struct Panic {
    /// Source file, as the compiler names it, and line.
    pub file: String,
    pub line: u32,
    pub message: String,
}

impl Panic {
    /// Did an infallible allocation fail? The message is then that of Rust's library, and the
    /// location is in the library.
    pub fn is_out_of_memory(&self) -> bool {
        self.message.starts_with("memory allocation of ")
    }
}

/// A change of the state of a thread in a policy in C by events (`policy/c/events.h`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub pid: u32,
    /// The policy's handler.
    pub handler: String,
    /// Names of states.
    pub from: String,
    pub to: String,
    /// Of the policy's source; 0 if the library makes the change, or none is known.
    pub line: u32,
}

/// A change that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongMove {
    pub change: Change,
    pub why: String,
}

impl fmt::Display for WrongMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change {
            pid,
            handler,
            from,
            to,
            line,
        } = &self.change;
        write!(f, "{handler}: thread {pid}, {from} to {to}")?;
        if *line != 0 {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// A host of policies in user space, as safe functions. [`Table::of`] creates its table. The
/// functions have no `self`, as the policy calls C functions; an implementation finds the current
/// call by the thread. The fields of [`Table`] document the functions.
pub trait NativeHost {
    /// Must a policy announce the use of its own atomics? Only policies that were built for the
    /// checker do.
    const SEES_ATOMICS: bool = false;
    /// Does it want to know of each change of a thread's state?
    const SEES_CHANGES: bool = false;

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
    /// Returns a `BatonReplyAnswer`.
    fn reply(slot: u32, tag: u32, words: [u64; 6]) -> u32;
    fn refused(wrong: WrongMove) {
        let _ = wrong;
    }
    fn changed(change: Change) {
        let _ = change;
    }
    fn atomic() {}
}

impl Table {
    /// Creates the table of a host.
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
            refused: from_c::refused::<H>,
            changed: if H::SEES_CHANGES {
                Some(from_c::changed::<H>)
            } else {
                None
            },
            atomic: if H::SEES_ATOMICS {
                Some(from_c::atomic::<H>)
            } else {
                None
            },
        }
    }
}

/// The C functions of a table, which call those of a host. All pointers are handled here.
mod from_c {
    use super::{c_char, AtomicU32, Change, NativeHost, Panic, String, WrongMove};
    use core::ffi::CStr;

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
                // SAFETY: Host-call. It points to a lock of the policy, which lives during the
                // call.
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

    /// A text of the policy's side.
    fn text(at: *const c_char) -> String {
        // SAFETY: Host-call. The policy's side gives terminated texts that live during the call.
        let text = unsafe { CStr::from_ptr(at) };
        text.to_string_lossy().into_owned()
    }

    pub extern "C" fn changed<H: NativeHost>(
        pid: u32,
        handler: *const c_char,
        from: *const c_char,
        to: *const c_char,
        line: u32,
    ) {
        H::changed(Change {
            pid,
            handler: text(handler),
            from: text(from),
            to: text(to),
            line,
        });
    }

    pub extern "C" fn refused<H: NativeHost>(
        pid: u32,
        handler: *const c_char,
        from: *const c_char,
        to: *const c_char,
        line: u32,
        why: *const c_char,
    ) {
        H::refused(WrongMove {
            change: Change {
                pid,
                handler: text(handler),
                from: text(from),
                to: text(to),
                line,
            },
            why: text(why),
        });
    }

    pub extern "C" fn reply<H: NativeHost>(slot: u32, tag: u32, words: *const [u64; 6]) -> u32 {
        // SAFETY: Host-call. The policy's side gives words that live during the call.
        H::reply(slot, tag, unsafe { *words })
    }
}
