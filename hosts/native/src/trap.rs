// SPDX-License-Identifier: GPL-2.0-only
//! What a policy does that would end the process: it uses up the stack, uses memory that is not
//! there, divides by zero, aborts. Here that ends what [`contained`] runs, and nothing else.
//!
//! [`contained`] runs it on a stack of its own. The processor's complaint comes as a signal; its
//! handler leaves that stack for good, by going on where `contained` would come back to. What is on
//! it stays there, as that of a thread which sleeps for ever: it is never gone back to, and never
//! freed. So calls cost nothing more than before.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, ptr};

/// What came to an end so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The stack is used up.
    StackOverflow,
    /// Memory at this address was used, and is not there or not to be used so (SIGSEGV, SIGBUS).
    BadAddress(usize),
    /// An integer was divided by zero, or the result has no place (SIGFPE).
    Division,
    /// The processor knows no such instruction (SIGILL): `__builtin_trap()`, `BUG()`.
    Instruction,
    /// abort() was called (SIGABRT).
    Abort,
    /// It was going on for too long ([`end_endless`]).
    Endless,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const OOPS: &str = "(in the kernel an oops, which nothing contains)";
        match self {
            Self::StackOverflow => f.write_str(
                "the call used up its stack (the kernel grants 4096 bytes); is there a recursion?",
            ),
            Self::BadAddress(at) => write!(
                f,
                "memory at {at:#x} was used, and is not there to be used so {OOPS}"
            ),
            Self::Division => write!(
                f,
                "a division by zero, or one whose result has no place {OOPS}"
            ),
            Self::Instruction => write!(f, "a trap, or an instruction that there is not {OOPS}"),
            Self::Endless => write!(
                f,
                "the call was ended, as it went on and on (in the kernel nothing ends a loop)"
            ),
            Self::Abort => f.write_str("the call ended the process: abort()"),
        }
    }
}

/// What is granted; more than an ordinary thread has. Only what is used takes memory.
const STACK: usize = 16 << 20;

/// Below it, for what is used up. More than the largest step of a function that looks at each page.
const GUARD: usize = 1 << 20;

/// Around the stack pointer, on the stack of a coroutine of what is contained: whose guards are is
/// not known here.
const NEAR: usize = 64 << 10;

/// For the handler, above the stack.
const SIGNAL_STACK: usize = 64 << 10;

const SIGNALS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
    ENDLESS,
];

/// Ignored by who does not ask for it.
const ENDLESS: i32 = libc::SIGURG;

/// What [`contained`] runs, for the handler.
struct Running {
    /// Where the stack's guard begins.
    guard: usize,
    /// Stack pointer to go back to.
    way_out: Cell<usize>,
    crash: Cell<Option<Crash>>,
    is_policy: fn() -> bool,
}

thread_local! {
    static RUNNING: Cell<*const Running> = const { Cell::new(ptr::null()) };
}

/// Runs `f`; its result, or what ended it. Only what happens while `is_policy` is true ends it so;
/// that is asked in the handler of a signal, and may do no more than look. Who gets an `Err` may
/// free nothing that `f` made or has borrowed for what it calls, as the policy may have been in the
/// midst of changing it.
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
    let before = RUNNING.replace(&running);
    let signal_stack = stack.for_signals();
    // SAFETY: Own-stack. The function gets the job that it is made for; both live until it is over
    // or left for good.
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
        // What is on the stack is as it was left.
        std::mem::forget(stack);
        return Err(crash);
    }
    match job.result.expect("it came to its end") {
        Ok(result) => Ok(result),
        Err(cause) => resume_unwind(cause),
    }
}

/// Ends what [`contained`] runs on this thread, as a signal would. Comes back if nothing is
/// contained.
pub fn give_up(crash: Crash) {
    // SAFETY: Own-stack. What is running lives in a frame of this thread's until it is over.
    if let Some(running) = unsafe { RUNNING.get().as_ref() } {
        running.crash.set(Some(crash));
        // SAFETY: Own-stack. The stack pointer was noted by `on_stack`, whose caller waits; what is
        // left is never gone back to.
        unsafe { leave_to(running.way_out.get()) }
    }
}

/// Ends what [`contained`] runs on another thread, if that is in a policy just now. It must not be
/// in the system's allocator then.
pub fn end_endless<T>(thread: &JoinHandle<T>) {
    // SAFETY: Own-handler. The thread has not been joined, as its handle is there.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), ENDLESS) };
}

/// CPU time that a thread has had; zero when it is over.
pub fn cpu_time_of<T>(thread: &JoinHandle<T>) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: Own-handler. The thread has not been joined, as its handle is there; both places are
    // this function's.
    let failed = unsafe {
        libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut clock) != 0
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
    // SAFETY: Own-stack. `contained` gives its own, which nobody else uses meanwhile.
    let job = unsafe { &mut *job.cast::<Job<F, R>>() };
    // Nothing unwinds from one stack to another.
    job.result = job.f.take().map(|f| catch_unwind(AssertUnwindSafe(f)));
}

/// Calls `f(data)` on the stack that ends at `top`, noting the way out. Comes back when `f` does,
/// or by [`leave`].
///
/// # Safety
/// Own-stack: there is room below `top`, nobody else uses it, and `f` may be called with `data`.
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

/// The end of [`on_stack`], with the stack pointer that it noted. The handler has the thread go on
/// here.
#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!("pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp", "ret")
}

/// Leaves the stack for that of this stack pointer.
///
/// # Safety
/// Own-stack: [`on_stack`] noted it, and has not come back.
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
        // SAFETY: Own-stack. The lowest part of what was just made, in which nothing is.
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
        // SAFETY: Own-stack. It is this stack's last part, which nobody else uses, until the old
        // one is back.
        unsafe { libc::sigaltstack(&new, &mut old) };
        SignalStack(old)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: Own-stack. It was made by `new`, and what ran on it has come to its end.
        unsafe { libc::munmap(self.base as *mut c_void, Self::WHOLE) };
    }
}

/// The thread's own stack for handlers, which it gets back.
struct SignalStack(libc::stack_t);

impl Drop for SignalStack {
    fn drop(&mut self) {
        // SAFETY: Own-stack. It is what the thread had before.
        unsafe { libc::sigaltstack(&self.0, ptr::null_mut()) };
    }
}

/// The handlers that there were before ours.
static OLD: OnceLock<Vec<libc::sigaction>> = OnceLock::new();

/// Sets our handlers; each time, as a library of coroutines may have set its own since.
fn set_handlers() {
    // SAFETY: Own-handler. All zeros is an empty mask and no handler.
    let empty = || unsafe { std::mem::zeroed::<libc::sigaction>() };
    OLD.get_or_init(|| {
        let look = |signal| {
            let mut old = empty();
            // SAFETY: Own-handler. No new one is given: nothing is changed.
            unsafe { libc::sigaction(signal, ptr::null(), &mut old) };
            old
        };
        SIGNALS.map(look).into()
    });
    let mut new = empty();
    new.sa_sigaction = on_signal as extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    for signal in SIGNALS {
        // SAFETY: Own-handler. The handler has the type that SA_SIGINFO asks for, and does what a
        // handler may.
        unsafe { libc::sigaction(signal, &new, ptr::null_mut()) };
    }
}

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: Own-handler. What is running lives in a frame of this thread's until it is over.
    let running = unsafe { RUNNING.get().as_ref() };
    let Some(running) = running.filter(|running| (running.is_policy)()) else {
        return not_ours(signal);
    };
    // SAFETY: Own-handler. The kernel gives both, valid until the handler returns.
    let (at, context) = unsafe {
        (
            (*info).si_addr() as usize,
            &mut *context.cast::<libc::ucontext_t>(),
        )
    };
    let registers = &mut context.uc_mcontext.gregs;
    let is_near = (registers[libc::REG_RSP as usize] as usize).abs_diff(at) < NEAR;
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
    // Strings are copied upwards, as every function expects.
    registers[libc::REG_EFL as usize] &= !(1 << 10);
}

/// Puts the handler from before back, and has what was complained of happen again.
fn not_ours(signal: i32) {
    if signal == ENDLESS {
        return;
    }
    let place = SIGNALS.iter().position(|&other| other == signal);
    let old = place.and_then(|place| OLD.get().and_then(|old| old.get(place)));
    // SAFETY: Own-handler. It was the process's before.
    old.map(|old| unsafe { libc::sigaction(signal, old, ptr::null_mut()) });
}
