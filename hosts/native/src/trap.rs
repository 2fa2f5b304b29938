// SPDX-License-Identifier: GPL-2.0-only
//! Containment of crashes: what a policy does that would end the process. Examples are an overflow
//! of the stack, an invalid memory access, a division by zero and an abort. Here they end only what
//! [`contained`] runs.
//!
//! [`contained`] runs its function on a separate stack. The processor reports the crash as a
//! signal. The handler abandons that stack: it makes the thread continue where `contained` would
//! return. The frames on the abandoned stack stay there, like those of a thread that sleeps
//! indefinitely. Nothing returns to them, and they are never freed. Calls cost no more than without
//! containment.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, ptr};

/// The cause of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The stack has overflowed.
    StackOverflow,
    /// An invalid access to memory at this address (SIGSEGV, SIGBUS).
    BadAddress(usize),
    /// A division by zero, or one whose result overflows (SIGFPE).
    Division,
    /// An invalid instruction (SIGILL): `__builtin_trap()`, and what C does not define
    /// (hosts/native/build.sh).
    Instruction,
    /// abort() was called (SIGABRT).
    Abort,
    /// The call ran for too long ([`end_endless`]).
    Endless,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StackOverflow => f.write_str(
                "the call used up its stack (the kernel grants 4096 bytes); is there a recursion?",
            ),
            Self::BadAddress(at) => write!(
                f,
                "memory at {at:#x} was used, and is not there to be used so"
            ),
            Self::Division => {
                f.write_str("a division by zero, or one whose result has no place")
            }
            Self::Instruction => f.write_str(
                "a trap: BUG(), or what C does not define (an index behind an array, a shift that is \
                 too wide)",
            ),
            Self::Endless => f.write_str("the call was ended, as it went on and on"),
            Self::Abort => f.write_str("the call ended the process: abort()"),
        }
    }
}

/// Size of the stack: more than an ordinary thread has. Only the part in use takes memory.
const STACK: usize = 16 << 20;

/// Size of the guard below the stack, to detect overflow. It is larger than the largest step of a
/// function that probes each page.
const GUARD: usize = 1 << 20;

/// A function may use so many bytes below the stack pointer without moving it, and a push or a call
/// writes directly below it.
const RED_ZONE: usize = 128;

/// Distance below the stack pointer within which a fault counts as an overflow, for the stack of a
/// coroutine in the contained code, whose guards are not known here.
const NEAR: usize = 64 << 10;

/// Size of the handler's stack, above the stack.
const SIGNAL_STACK: usize = 64 << 10;

const SIGNALS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
    ENDLESS,
];

/// Ignored by default.
const ENDLESS: i32 = libc::SIGURG;

/// The state of [`contained`], for the handler.
struct Running {
    /// Where the stack's guard begins.
    guard: usize,
    /// The stack pointer to return to.
    way_out: Cell<usize>,
    crash: Cell<Option<Crash>>,
    is_policy: fn() -> bool,
}

thread_local! {
    static RUNNING: Cell<*const Running> = const { Cell::new(ptr::null()) };
    /// The instruction of the last crash; 0 if there was none.
    static CRASHED_AT: Cell<usize> = const { Cell::new(0) };
}

/// The source line of the last crash on this thread, if the policy was built with debug
/// information. `None` for a call that ran for too long. Within a function of the C library for
/// policies, it is the policy's own line from which that function was called.
pub fn place_of_crash() -> Option<(String, u32)> {
    let at = CRASHED_AT.get();
    if at == 0 {
        return None;
    }
    let mut places = Vec::new();
    // What is expected is the address of the next instruction.
    backtrace::resolve((at + 1) as *mut c_void, |symbol| {
        if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
            places.push((file.to_string_lossy().into_owned(), line));
        }
    });
    // Innermost first: what is inlined comes before what it is inlined into.
    let own = places.iter().find(|(file, _)| !file.contains("policy/c/"));
    own.or(places.first()).cloned()
}

/// Runs `f` and returns its result, or the crash that ended it. A crash is contained only while
/// `is_policy` returns true. `is_policy` is called in the signal handler, and may only read state.
/// On `Err` the caller must not free anything that `f` made, or that it borrowed for the policy, as
/// the policy may have been changing it.
pub fn contained<F: FnOnce() -> R, R>(is_policy: fn() -> bool, f: F) -> Result<R, Crash> {
    let Some(stack) = Stack::new() else {
        return Ok(f());
    };
    set_handlers();
    let running = Running {
        guard: stack.base,
        way_out: Cell::new(0),
        crash: Cell::new(None),
        is_policy,
    };
    let mut job = Job {
        f: Some(f),
        result: None,
    };
    CRASHED_AT.set(0);
    let before = RUNNING.replace(&running);
    let signal_stack = stack.for_signals();
    // SAFETY: Own-stack. The function gets the job that it was instantiated for. Both live until it
    // has returned or is abandoned.
    unsafe {
        on_stack(
            run::<F, R>,
            ptr::from_mut(&mut job).cast(),
            stack.top(),
            running.way_out.as_ptr(),
        )
    };
    drop(signal_stack);
    RUNNING.set(before);
    if let Some(crash) = running.crash.get() {
        // The stack stays as it was left.
        std::mem::forget(stack);
        return Err(crash);
    }
    match job.result.expect("it came to its end") {
        Ok(result) => Ok(result),
        Err(cause) => resume_unwind(cause),
    }
}

/// Ends what [`contained`] runs on this thread, as a signal would. Returns if nothing is contained.
pub fn give_up(crash: Crash) {
    // SAFETY: Own-stack. The `Running` lives in a frame of this thread until its function is over.
    if let Some(running) = unsafe { RUNNING.get().as_ref() } {
        running.crash.set(Some(crash));
        // SAFETY: Own-stack. `on_stack` noted the stack pointer, and its caller waits. Nothing
        // returns to the abandoned frames.
        unsafe { leave_to(running.way_out.get()) }
    }
}

/// Ends what [`contained`] runs on another thread, if that thread is in a policy now. The thread
/// must not be in the system's allocator.
pub fn end_endless<T>(thread: &JoinHandle<T>) {
    // SAFETY: Own-handler. The thread has not been joined, as its handle exists.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), ENDLESS) };
}

/// A limit of the CPU time of what [`contained`] runs on this thread, until this is dropped.
pub struct Limit {
    state: Arc<LimitState>,
    watch: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct LimitState {
    is_over: AtomicBool,
    is_reached: AtomicBool,
}

impl Limit {
    /// With a limit from now on. At twice the limit the thread is ended, as by [`end_endless`].
    pub fn new(limit: Duration) -> Self {
        let state = Arc::<LimitState>::default();
        let of_watch = state.clone();
        // SAFETY: Own-handler. It has no conditions.
        let thread = unsafe { libc::pthread_self() };
        let begin = cpu_time(thread);
        let watch = move || {
            while !of_watch.is_over.load(SeqCst) {
                std::thread::park_timeout(limit / 8);
                let used = cpu_time(thread).saturating_sub(begin);
                if used >= limit {
                    of_watch.is_reached.store(true, SeqCst);
                }
                if used >= 2 * limit && !of_watch.is_over.load(SeqCst) {
                    // SAFETY: Own-handler. The thread waits for this one before it ends.
                    unsafe { libc::pthread_kill(thread, ENDLESS) };
                }
            }
        };
        Self {
            state,
            watch: Some(std::thread::spawn(watch)),
        }
    }

    /// Is the time used up? Asked where the thread may be in the system's allocator next.
    pub fn is_reached(&self) -> bool {
        self.state.is_reached.load(SeqCst)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.state.is_over.store(true, SeqCst);
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            // It does not panic.
            let _ = watch.join();
        }
    }
}

/// The CPU time that this thread has used.
pub fn cpu_time_here() -> Duration {
    // SAFETY: Own-handler. It has no conditions.
    cpu_time(unsafe { libc::pthread_self() })
}

/// The CPU time that a thread has used; zero when it is over.
pub fn cpu_time_of<T>(thread: &JoinHandle<T>) -> Duration {
    cpu_time(thread.as_pthread_t())
}

/// The same. The thread exists, or has not been joined.
fn cpu_time(thread: libc::pthread_t) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: Own-handler. The caller says that the thread exists, or has not been joined. Both
    // variables are local.
    let failed = unsafe {
        libc::pthread_getcpuclockid(thread, &raw mut clock) != 0
            || libc::clock_gettime(clock, &raw mut time) != 0
    };
    if failed {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Job<F, R> {
    f: Option<F>,
    result: Option<std::thread::Result<R>>,
}

extern "C" fn run<F: FnOnce() -> R, R>(job: *mut c_void) {
    // SAFETY: Own-stack. `contained` passes its own job, which no other code uses meanwhile.
    let job = unsafe { &mut *job.cast::<Job<F, R>>() };
    // A panic must not unwind from one stack to another.
    job.result = job.f.take().map(|f| catch_unwind(AssertUnwindSafe(f)));
}

/// Calls `f(data)` on the stack that ends at `top`, after storing the stack pointer in `way_out`.
/// Returns when `f` does, or through [`leave`].
///
/// # Safety
/// Own-stack: there is room below `top`, no other code uses the stack, and `f` may be called with
/// `data`.
#[unsafe(naked)]
unsafe extern "C" fn on_stack(
    f: extern "C" fn(*mut c_void),
    data: *mut c_void,
    top: usize,
    way_out: *mut usize,
) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rcx], rsp",
        "mov rbx, rsp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsp, rdx",
        "call rax",
        "mov rsp, rbx",
        "jmp {leave}",
        leave = sym leave,
    )
}

/// The end of [`on_stack`], entered with the stack pointer that it stored. The handler makes the
/// thread continue here.
#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!("pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp", "ret")
}

/// Switches from this stack to the given stack pointer.
///
/// # Safety
/// Own-stack: [`on_stack`] stored it, and has not returned.
#[unsafe(naked)]
unsafe extern "C" fn leave_to(way_out: usize) -> ! {
    naked_asm!("mov rsp, rdi", "jmp {leave}", leave = sym leave)
}

/// A guard, the stack, and a stack for the handler.
struct Stack {
    base: usize,
}

impl Stack {
    const WHOLE: usize = GUARD + STACK + SIGNAL_STACK;

    fn new() -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: Own-stack. New memory, at a place that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Self::WHOLE,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        let stack = Self {
            base: base as usize,
        };
        // SAFETY: Own-stack. The lowest part of the new mapping, which is not in use.
        let guarded = unsafe { libc::mprotect(base, GUARD, libc::PROT_NONE) };
        (guarded == 0).then_some(stack)
    }

    fn top(&self) -> usize {
        self.base + GUARD + STACK
    }

    fn for_signals(&self) -> SignalStack {
        let new = libc::stack_t {
            ss_sp: self.top() as *mut c_void,
            ss_flags: 0,
            ss_size: SIGNAL_STACK,
        };
        let mut old = libc::stack_t {
            ss_sp: ptr::null_mut(),
            ss_flags: libc::SS_DISABLE,
            ss_size: 0,
        };
        // SAFETY: Own-stack. It is the last part of this mapping, which no other code uses until
        // the old signal stack is restored.
        unsafe { libc::sigaltstack(&new, &mut old) };
        SignalStack(old)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: Own-stack. `new` mapped it, and the function that ran on it has returned.
        unsafe { libc::munmap(self.base as *mut c_void, Self::WHOLE) };
    }
}

/// The thread's previous signal stack, restored on drop.
struct SignalStack(libc::stack_t);

impl Drop for SignalStack {
    fn drop(&mut self) {
        // SAFETY: Own-stack. It is the signal stack that the thread had before.
        unsafe { libc::sigaltstack(&self.0, ptr::null_mut()) };
    }
}

/// The handlers that were installed before.
static OLD: OnceLock<Vec<libc::sigaction>> = OnceLock::new();

/// Installs the handlers. Done each time, as a coroutine library may have installed its own since.
fn set_handlers() {
    // SAFETY: Own-handler. All zeros is an empty mask and no handler.
    let empty = || unsafe { std::mem::zeroed::<libc::sigaction>() };
    OLD.get_or_init(|| {
        let look = |signal| {
            let mut old = empty();
            // SAFETY: Own-handler. No new handler is given, so nothing changes.
            unsafe { libc::sigaction(signal, ptr::null(), &mut old) };
            old
        };
        SIGNALS.map(look).into()
    });
    let mut new = empty();
    new.sa_sigaction = on_signal as extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    for signal in SIGNALS {
        // SAFETY: Own-handler. The handler has the type that SA_SIGINFO requires, and is
        // async-signal-safe.
        unsafe { libc::sigaction(signal, &new, ptr::null_mut()) };
    }
}

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: Own-handler. The `Running` lives in a frame of this thread until its function is
    // over.
    let running = unsafe { RUNNING.get().as_ref() };
    let Some(running) = running.filter(|running| (running.is_policy)()) else {
        return not_ours(signal);
    };
    // SAFETY: Own-handler. The kernel passes both, valid until the handler returns.
    let (at, context) = unsafe {
        (
            (*info).si_addr() as usize,
            &mut *context.cast::<libc::ucontext_t>(),
        )
    };
    let registers = &mut context.uc_mcontext.gregs;
    // A call without an end is ended anywhere in its loop.
    if signal != ENDLESS {
        CRASHED_AT.set(registers[libc::REG_RIP as usize] as usize);
    }
    let stack = registers[libc::REG_RSP as usize] as usize;
    let is_near = at <= stack + RED_ZONE && stack.saturating_sub(at) < NEAR;
    running.crash.set(Some(match signal {
        libc::SIGSEGV | libc::SIGBUS
            if is_near || (running.guard..running.guard + GUARD).contains(&at) =>
        {
            Crash::StackOverflow
        }
        libc::SIGSEGV | libc::SIGBUS => Crash::BadAddress(at),
        libc::SIGFPE => Crash::Division,
        libc::SIGILL => Crash::Instruction,
        ENDLESS => Crash::Endless,
        _ => Crash::Abort,
    }));
    registers[libc::REG_RIP as usize] = leave as unsafe extern "C" fn() as usize as i64;
    registers[libc::REG_RSP as usize] = running.way_out.get() as i64;
    // Clear the direction flag, as every function expects.
    registers[libc::REG_EFL as usize] &= !(1 << 10);
}

/// Restores the previous handler, so that the instruction faults again under it.
fn not_ours(signal: i32) {
    if signal == ENDLESS {
        return;
    }
    let place = SIGNALS.iter().position(|&other| other == signal);
    let old = place.and_then(|place| OLD.get().and_then(|old| old.get(place)));
    // SAFETY: Own-handler. The process had it before.
    old.map(|old| unsafe { libc::sigaction(signal, old, ptr::null_mut()) });
}
