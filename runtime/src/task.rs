// SPDX-License-Identifier: GPL-2.0-only
//! User-level threads: their states, how they wait and how they are woken.

use crate::fiber::{self, Fiber, Pause};
use crate::pool::Shared;
use crate::sync::JoinHandle;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// It runs, or is in a queue.
const READY: u8 = 0;
/// It waits for a wakeup.
const PARKED: u8 = 1;
/// It was woken before it waited.
const WOKEN: u8 = 2;

/// A user-level thread.
///
/// ```text
///         gave way (worker)            wake
///  READY ------------------> PARKED ---------> READY, into a queue
///    |  wake                                     ^
///    +------> WOKEN -----------------------------+  gave way (worker)
/// ```
pub(crate) struct Task {
    pub shared: Arc<Shared>,
    state: AtomicU8,
    body: Mutex<Body>,
}

/// The function of a thread.
pub(crate) enum Body {
    /// It has no stack before it first runs, so that threads that have not begun cost little.
    New(Box<dyn FnOnce() + Send>),
    Begun(Fiber),
    Over,
}

/// The state of a kernel thread of the runtime.
pub(crate) struct Here {
    /// The runtime of this worker, for comparison. A process may have several runtimes.
    of: *const Shared,
    pub index: usize,
    /// The user-level thread that runs, or ran last.
    pub current: RefCell<Option<Arc<Task>>>,
    /// The thread that runs before the queue. No other worker can take it, so it is used only while
    /// no other activation has a core.
    pub next: Cell<Option<Arc<Task>>>,
    /// Is a user-level thread running? If not, the worker is looking for the next one, and takes
    /// what is put into its queue.
    pub is_inside: Cell<bool>,
}

thread_local! {
    /// Leaked, so that access needs no registration and no count. Some bytes of each worker are
    /// never freed.
    static HERE: Cell<Option<&'static Here>> = const { Cell::new(None) };
}

/// The state of this kernel thread. Looked up each time: a user-level thread may be on another
/// kernel thread after it has given way.
#[inline(never)]
pub(crate) fn here() -> Option<&'static Here> {
    HERE.get()
}

/// The state of this kernel thread, if it is a worker of that runtime.
#[inline]
pub(crate) fn here_of(shared: &Shared) -> Option<&'static Here> {
    here().filter(|here| ptr::eq(here.of, shared))
}

/// Makes this kernel thread a worker of that runtime while the function runs.
pub(crate) fn as_worker(of: &Shared, index: usize, function: impl FnOnce(&Here)) {
    let (current, next, is_inside) = (RefCell::new(None), Cell::new(None), Cell::new(false));
    let here: &'static Here = Box::leak(Box::new(Here {
        of,
        index,
        current,
        next,
        is_inside,
    }));
    HERE.set(Some(here));
    function(here);
    here.current.take();
    HERE.set(None);
}

/// The calling user-level thread.
#[inline]
pub(crate) fn current() -> Option<Arc<Task>> {
    here().and_then(|here| here.current.borrow().clone())
}

impl Task {
    /// The function must not unwind.
    pub fn new(shared: Arc<Shared>, function: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            shared,
            state: AtomicU8::new(READY),
            body: Mutex::new(Body::New(Box::new(function))),
        })
    }

    /// Runs it until it gives way. Called by a worker that has taken it from a queue.
    pub fn run(self: Arc<Self>, here: &Here) {
        here.current.replace(Some(Arc::clone(&self)));
        let mut place = self.body.lock();
        here.is_inside.set(true);
        let paused = match &mut *place {
            Body::Begun(fiber) => fiber.resume(),
            body => self.begin(body),
        };
        here.is_inside.set(false);
        let Some(pause) = paused else {
            let body = std::mem::replace(&mut *place, Body::Over);
            drop(place);
            return self.shared.ended(body);
        };
        // From here on a waker puts it into a queue again.
        drop(place);
        if pause == Pause::Yield {
            return Arc::clone(&self.shared).put(here.index, self);
        }
        if self
            .state
            .compare_exchange(READY, PARKED, SeqCst, SeqCst)
            .is_err()
        {
            self.goes_on(here);
        }
    }

    /// Queues a thread that was woken before it waited.
    #[cold]
    fn goes_on(self: Arc<Self>, here: &Here) {
        self.state.store(READY, SeqCst);
        Arc::clone(&self.shared).put_first(here.index, self);
    }

    /// Runs it on a stack, if there is memory for one. If not, it tries again in its next turn,
    /// when other threads may have ended.
    #[inline(never)]
    fn begin(&self, body: &mut Body) -> Option<Pause> {
        let Some(stack) = self.shared.stack() else {
            return Some(Pause::Yield);
        };
        if let Body::New(function) = std::mem::replace(body, Body::Over) {
            *body = Body::Begun(Fiber::new(stack, function));
        }
        match body {
            Body::Begun(fiber) => fiber.resume(),
            _ => None,
        }
    }

    /// Wakes the thread, now or when it next waits.
    pub fn wake(self: Arc<Self>) {
        while self
            .state
            .compare_exchange(PARKED, READY, SeqCst, SeqCst)
            .is_err()
        {
            if self.state.compare_exchange(READY, WOKEN, SeqCst, SeqCst) != Err(PARKED) {
                return;
            }
        }
        // The previous holder of `next` goes to the queue.
        let behind = match here_of(&self.shared).filter(|_| self.shared.is_alone()) {
            Some(here) => here.next.replace(Some(self)),
            None => Some(self),
        };
        if let Some(task) = behind {
            Arc::clone(&task.shared).push(task);
        }
    }
}

/// A waiting thread: a user-level thread, or a kernel thread that is no worker.
pub(crate) enum Waiter {
    User(Arc<Task>),
    Kernel(Thread),
}

impl Waiter {
    /// The calling thread.
    pub fn current() -> Self {
        match current() {
            Some(task) => Self::User(task),
            None => Self::Kernel(thread::current()),
        }
    }

    /// Are both the same thread?
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::User(one), Self::User(other)) => Arc::ptr_eq(one, other),
            (Self::Kernel(one), Self::Kernel(other)) => one.id() == other.id(),
            _ => false,
        }
    }

    pub fn wake(self) {
        match self {
            Self::User(task) => task.wake(),
            Self::Kernel(thread) => thread.unpark(),
        }
    }
}

/// The threads that wait for something, in the order of arrival, each once. Usually there is at
/// most one, for which nothing is moved.
#[derive(Default)]
pub(crate) struct Waiters {
    first: Option<Waiter>,
    /// Empty if there is no first one.
    rest: VecDeque<Waiter>,
}

impl Waiters {
    /// Adds the caller, unless it is there already.
    #[inline]
    pub fn join(&mut self) {
        let current = Waiter::current();
        match &self.first {
            None => self.first = Some(current),
            Some(_) => self.join_others(current),
        }
    }

    #[cold]
    fn join_others(&mut self, current: Waiter) {
        if !self
            .first
            .iter()
            .chain(&self.rest)
            .any(|waiter| waiter.is(&current))
        {
            self.rest.push_back(current);
        }
    }

    /// Removes the caller, so that it takes no other thread's wakeup.
    #[inline]
    pub fn leave(&mut self) {
        if self.first.is_some() {
            self.remove();
        }
    }

    #[cold]
    fn remove(&mut self) {
        let current = Waiter::current();
        self.rest.retain(|waiter| !waiter.is(&current));
        if self
            .first
            .as_ref()
            .is_some_and(|waiter| waiter.is(&current))
        {
            self.next();
        }
    }

    /// Removes and returns the first one.
    #[inline]
    pub fn next(&mut self) -> Option<Waiter> {
        let first = self.first.take();
        if first.is_some() {
            self.first = self.rest.pop_front();
        }
        first
    }

    /// Wakes all of them.
    pub fn wake_all(self) {
        self.first
            .into_iter()
            .chain(self.rest)
            .for_each(Waiter::wake);
    }
}

/// Waits until the calling thread is woken. Returns at once if it was woken since it last waited.
/// Spurious returns are possible.
#[inline]
pub(crate) fn wait() {
    if !fiber::give_way(Pause::Block) {
        thread::park();
    }
}

/// Spawns a user-level thread in the runtime of the calling one.
///
/// # Panics
/// If the caller is no user-level thread (others use [`crate::Runtime::spawn`]).
pub fn spawn<T: Send + 'static>(function: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let task = current().expect("spawn is for user-level threads; others have Runtime::spawn");
    task.shared.spawn(function)
}

/// Lets other user-level threads of this core run first. A kernel thread calls the system's yield.
pub fn yield_now() {
    if !fiber::give_way(Pause::Yield) {
        thread::yield_now();
    }
}

/// Sleeps for at least `time`. The core runs other threads meanwhile.
pub fn sleep(time: Duration) {
    let Some(task) = current() else {
        return thread::sleep(time);
    };
    let until = Instant::now() + time;
    while Instant::now() < until {
        task.shared.timers.add(until, Arc::clone(&task));
        wait();
    }
}
