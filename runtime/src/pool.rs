// SPDX-License-Identifier: GPL-2.0-only
//! The runtime: its activations, their queues, and how they sleep. An activation is a kernel thread
//! that runs user-level threads, and is also called a worker. In this module, "thread" alone is a
//! user-level thread. A turn is one round of the loop in `Shared::run`, which runs at most one
//! thread.

use crate::arbiter::{ring, Arbiter, Office, Seat};
use crate::files::{Files, Watched};
use crate::history::{Event, History, Log};
use crate::load::{Interval, Load};
use crate::sync::{JoinHandle, Packet};
use crate::task::{as_worker, here_of, Body, Here, Task};
use crate::timer::Timers;
use corosensei::stack::DefaultStack;
use parking_lot::Mutex;
use rustix::event::{eventfd, EventfdFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU8, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Number of turns after which a worker reads the clock, and takes threads from the queues of other
/// activations before its own.
const LOOK_EVERY: u32 = 64;
/// Number of threads spawned or woken from outside the runtime after which every worker does the
/// same.
const ARRIVALS_EACH: u32 = 16;
/// Number of turns after which a worker checks files, and checks whether the arbiter wants its core
/// back. In such a turn the queue precedes the thread that was woken last.
const LISTEN_EVERY: u32 = 16;
/// Longest sleep of an idle activation while the runtime wants no more than `least` cores.
const REST: Duration = Duration::from_secs(1);
/// Maximum number of stacks that are kept for later threads. A stack that is kept still has its
/// pages. Mapping a new one takes some 7,000 instructions.
const SPARE_STACKS: usize = 1024;

/// Options of a runtime.
#[derive(Clone, Debug)]
pub struct Options {
    /// What grants cores.
    pub arbiter: Arbiter,
    /// The priority level of its requests, from 0 (highest) to 7 (lowest).
    pub level: u8,
    /// Minimum number of cores that it requests.
    pub least: u32,
    /// Maximum number of cores that it requests, and number of its kernel threads. With
    /// [`Arbiter::Hints`] at most 64.
    pub most: u32,
    /// Interval at which it computes the number of cores.
    pub interval: Duration,
    /// Size of a user-level thread's stack, bytes. A guard page follows it.
    pub stack: usize,
    /// Keep the history of requests for cores until the end ([`Runtime::end`]): 16 bytes for each
    /// event, without a limit.
    pub history: bool,
}

impl Options {
    /// A fixed number of kernel threads, without an arbiter.
    pub fn fixed(cores: u32) -> Self {
        let interval = Duration::from_millis(2);
        Self {
            arbiter: Arbiter::None,
            level: 0,
            least: cores,
            most: cores,
            interval,
            stack: 64 << 10,
            history: false,
        }
    }

    /// From one core to `most`, as this arbiter grants them.
    pub fn of(arbiter: Arbiter, most: u32) -> Self {
        Self {
            arbiter,
            least: 1,
            ..Self::fixed(most)
        }
    }
}

/// Why a runtime was not started.
#[derive(Debug)]
pub enum StartError {
    /// It would have no core, or `most` is less than `least`, or there is no such level.
    Options,
    /// The arbiter does not exist, or refuses the runtime.
    Arbiter(String),
    /// The kernel refuses a thread or an eventfd.
    System(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options => f.write_str(
                "a runtime has at least one core, at most so many as at least or more, and a level \
                 from 0 to 7",
            ),
            Self::Arbiter(why) => write!(f, "the arbiter grants no cores: {why}"),
            Self::System(why) => write!(f, "the kernel gives no thread: {why}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The activation waits for a core.
const PARKED: u8 = 0;
/// The activation runs threads, or looks for threads to run.
const BUSY: u8 = 1;
/// The activation sleeps, and keeps its core.
const IDLE: u8 = 2;

/// The state of an activation that other threads access.
struct Core {
    queue: Mutex<VecDeque<Arc<Task>>>,
    length: AtomicUsize,
    state: AtomicU8,
    /// Set when the activation has added its work to the load. Cleared when the number of cores is
    /// computed.
    told: AtomicBool,
}

/// State that all activations share.
pub(crate) struct Shared {
    cores: Box<[Core]>,
    bells: Box<[OwnedFd]>,
    pub timers: Timers,
    pub files: Files,
    stacks: Mutex<Vec<DefaultStack>>,
    options: Options,
    /// User-level threads that have not ended.
    live: AtomicUsize,
    /// Number of threads that kernel threads other than workers put into queues.
    arrived: AtomicU32,
    /// Number of activations with a core, and number of those that sleep.
    with_core: AtomicUsize,
    idle: AtomicUsize,
    stop: AtomicBool,
    wanted: AtomicU32,
    /// Held while a request is made.
    requests: Mutex<()>,
    interval: Interval,
    load: Load,
    log: Log,
}

impl Shared {
    pub fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let packet = Packet::new();
        let to = Arc::clone(&packet);
        self.live.fetch_add(1, SeqCst);
        // Unwind safety: the thread that joins gets the panic, and nothing uses the function's
        // captured state afterwards.
        let run = move || {
            let outcome = catch_unwind(AssertUnwindSafe(function));
            // If no thread joins, the result is dropped here. That may panic, too.
            std::mem::forget(catch_unwind(AssertUnwindSafe(move || {
                to.fill(outcome);
                drop(to);
            })));
        };
        self.push(Task::new(Arc::clone(self), run));
        JoinHandle(packet)
    }

    /// A stack for a thread that begins, if there is memory for one.
    pub fn stack(&self) -> Option<DefaultStack> {
        let spare = self.stacks.lock().pop();
        spare.or_else(|| DefaultStack::new(self.options.stack).ok())
    }

    fn note_ready(&self) {
        let running = self
            .with_core
            .load(SeqCst)
            .saturating_sub(self.idle.load(SeqCst));
        self.load.are_ready(running + self.waiting());
    }

    /// Called when a thread's function has returned. Keeps its stack for a later thread.
    pub fn ended(&self, body: Body) {
        let mut stacks = self.stacks.lock();
        if let (Body::Begun(fiber), true) = (body, stacks.len() < SPARE_STACKS) {
            stacks.push(fiber.into_stack());
        }
        drop(stacks);
        if self.live.fetch_sub(1, SeqCst) == 1 && self.stop.load(SeqCst) {
            self.bells.iter().for_each(ring);
        }
    }

    /// Does exactly one activation have a core?
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.with_core.load(SeqCst) == 1
    }

    /// Puts a thread into the queue of the calling activation or, if the caller is no activation,
    /// into the shortest queue. Wakes an activation that sleeps with its core to take the thread,
    /// unless the caller will take it itself.
    pub fn push(&self, task: Arc<Task>) {
        let takes_itself = match here_of(self) {
            Some(here) => {
                let before = self.cores[here.index].length.load(SeqCst);
                self.put(here.index, task);
                before == 0 && !here.is_inside.get()
            }
            None => {
                self.put(self.shortest(), task);
                self.arrived.fetch_add(1, Relaxed);
                false
            }
        };
        self.note_ready();
        if !takes_itself {
            self.call_idle();
        }
    }

    /// Wakes one activation that sleeps with its core.
    pub fn call_idle(&self) {
        if self.idle.load(SeqCst) == 0 {
            return;
        }
        for (core, bell) in self.cores.iter().zip(&self.bells) {
            // Of several concurrent callers only one wakes this activation.
            if core
                .state
                .compare_exchange(IDLE, BUSY, SeqCst, SeqCst)
                .is_ok()
            {
                return ring(bell);
            }
        }
    }

    /// Puts a thread into an activation's queue.
    #[inline]
    pub fn put(&self, index: usize, task: Arc<Task>) {
        let core = &self.cores[index];
        let mut queue = core.queue.lock();
        queue.push_back(task);
        core.length.store(queue.len(), SeqCst);
    }

    /// Puts a thread into an activation's queue, before all others.
    pub fn put_first(&self, index: usize, task: Arc<Task>) {
        let core = &self.cores[index];
        let mut queue = core.queue.lock();
        queue.push_front(task);
        core.length.store(queue.len(), SeqCst);
    }

    #[inline]
    fn take(&self, index: usize) -> Option<Arc<Task>> {
        let core = &self.cores[index];
        if core.length.load(SeqCst) == 0 {
            return None;
        }
        let mut queue = core.queue.lock();
        let task = queue.pop_front();
        core.length.store(queue.len(), SeqCst);
        task
    }

    /// The activation with a core that has the shortest queue.
    fn shortest(&self) -> usize {
        let with_core = self
            .cores
            .iter()
            .enumerate()
            .filter(|(_, core)| core.state.load(SeqCst) != PARKED);
        with_core
            .min_by_key(|(_, core)| core.length.load(SeqCst))
            .map_or(0, |(index, _)| index)
    }

    fn waiting(&self) -> usize {
        self.cores.iter().map(|core| core.length.load(SeqCst)).sum()
    }

    /// The next thread for an activation: from its own queue, else from another's. With
    /// `others_first` the order is reversed. It may be that no other activation serves those
    /// queues.
    fn next(&self, index: usize, others_first: bool) -> Option<Arc<Task>> {
        let count = self.cores.len();
        let others = || (1..count).find_map(|step| self.take((index + step) % count));
        if others_first {
            others().or_else(|| self.take(index))
        } else {
            self.take(index).or_else(others)
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(SeqCst) && self.live.load(SeqCst) == 0
    }

    /// The body of an activation: waits for a core, runs threads until the core must be given back,
    /// and repeats this until the runtime ends.
    fn work(&self, here: &Here, seat: &mut dyn Seat) {
        let index = here.index;
        seat.request(self.wanted.load(SeqCst));
        while seat.wait(&self.bells[index], &|| self.is_over()) {
            self.log.note(Event::Granted);
            self.cores[index].state.store(BUSY, SeqCst);
            self.with_core.fetch_add(1, SeqCst);
            self.run(here, seat);
            self.with_core.fetch_sub(1, SeqCst);
            self.cores[index].state.store(PARKED, SeqCst);
            // Its queued threads go to other activations.
            for _ in 0..self.cores[index].length.load(SeqCst) {
                self.take(index)
                    .into_iter()
                    .for_each(|task| self.put(self.shortest(), task));
                self.call_idle();
            }
            // Another activation must wait for files and timers now.
            self.call_idle();
            self.log.note(Event::Parked);
        }
    }

    /// Runs threads until the core must be given back, or the runtime ends.
    fn run(&self, here: &Here, seat: &mut dyn Seat) {
        let index = here.index;
        // `turn` is the number of turns. The load includes the work up to the turn `told` and the
        // time `since`. `arrived` is the count of arrivals at the last look at the clock, in units
        // of `ARRIVALS_EACH`.
        let (mut turn, mut told) = (0u32, 0);
        let (mut since, mut arrived) = (Instant::now(), 0);
        loop {
            turn = turn.wrapping_add(1);
            let listens = turn.is_multiple_of(LISTEN_EVERY);
            self.timers.wake_due();
            if listens {
                self.files.look();
            }
            let first = here.next.take();
            let first = match first {
                // Threads that wake each other hand this core over on this path, which takes few
                // instructions.
                Some(task) if !listens => {
                    self.leave_to_others(index);
                    task.run(here);
                    continue;
                }
                first => first,
            };
            let has_arrivals = || self.arrived.load(Relaxed) / ARRIVALS_EACH != arrived;
            let looks = turn.is_multiple_of(LOOK_EVERY) || has_arrivals();
            if listens && seat.must_leave() {
                first.into_iter().for_each(|task| self.put(index, task));
                self.tell(
                    index,
                    since.elapsed(),
                    turn.wrapping_sub(told).wrapping_sub(1),
                );
                self.log.note(Event::Reclaimed);
                return;
            }
            if looks {
                let now = Instant::now();
                self.tell(index, now - since, turn.wrapping_sub(told).wrapping_sub(1));
                (since, told, arrived) = (
                    now,
                    turn.wrapping_sub(1),
                    self.arrived.load(Relaxed) / ARRIVALS_EACH,
                );
                self.think(now, seat);
            }
            match first {
                // In this turn the queue precedes the thread that was woken last.
                Some(task) if self.cores[index].length.load(SeqCst) != 0 => self.put(index, task),
                Some(task) => {
                    self.leave_to_others(index);
                    task.run(here);
                    continue;
                }
                None => {}
            }
            if let Some(task) = self.next(index, looks) {
                self.leave_to_others(index);
                task.run(here);
                continue;
            }
            if self.is_over() {
                return;
            }
            self.tell(
                index,
                since.elapsed(),
                turn.wrapping_sub(told).wrapping_sub(1),
            );
            if seat.must_leave() {
                self.log.note(Event::Reclaimed);
                return;
            }
            self.idle(index, seat);
            (since, told) = (Instant::now(), turn);
            self.cores[index].told.store(true, Relaxed);
            self.think(since, seat);
        }
    }

    fn tell(&self, index: usize, time: Duration, ran: u32) {
        self.load.worked(time, ran);
        self.cores[index].told.store(true, Relaxed);
    }

    /// Called before a thread runs, which may take arbitrarily long. Wakes an activation that
    /// sleeps with its core if there is other work, or a timer or file that no activation waits
    /// for.
    #[inline]
    fn leave_to_others(&self, index: usize) {
        if self.idle.load(SeqCst) == 0 {
            return;
        }
        if self.cores[index].length.load(SeqCst) != 0
            || self.timers.want_someone()
            || self.files.want_someone()
        {
            self.call_idle();
        }
    }

    /// Sleeps with the core until there may be work.
    fn idle(&self, index: usize, seat: &mut dyn Seat) {
        let state = &self.cores[index].state;
        state.store(IDLE, SeqCst);
        self.idle.fetch_add(1, SeqCst);
        // Work that arrives after the checks below finds this activation idle, and wakes it.
        let files = self.files.await_them();
        let timer = self.timers.await_first();
        if self.waiting() == 0 && !self.is_over() {
            let is_least = self.wanted.load(SeqCst) == self.options.least;
            let time = if is_least {
                REST
            } else {
                self.options.interval
            };
            seat.idle(
                &self.bells[index],
                files,
                timer.map_or(time, |timer| timer.min(time)),
            );
        }
        self.idle.fetch_sub(1, SeqCst);
        state.store(BUSY, SeqCst);
        if timer.is_some() {
            self.timers.leave();
        }
        if files.is_some() {
            self.files.leave();
            self.files.look();
        }
    }

    /// Computes how many cores are wanted, once in each interval, and requests a changed number.
    fn think(&self, now: Instant, seat: &mut dyn Seat) {
        self.note_ready();
        let Some(time) = self.interval.is_over(now) else {
            return;
        };
        // An activation that was busy for the whole interval, but added no work to the load, uses
        // its core.
        let is_silent =
            |core: &&Core| !core.told.swap(false, Relaxed) && core.state.load(SeqCst) == BUSY;
        let silent = self.cores.iter().filter(is_silent).count() as u32;
        let wanted = self
            .load
            .wanted(time, self.waiting())
            .max(silent)
            .clamp(self.options.least, self.options.most);
        // Only one activation makes a request at a time, because concurrent requests could arrive
        // in the wrong order. An activation that gives up here computes the number again soon.
        let Some(_turn) = self.requests.try_lock() else {
            return;
        };
        if wanted != self.wanted.swap(wanted, SeqCst) {
            self.log.note(Event::Requested(wanted));
            seat.request(wanted);
        }
    }
}

/// A running runtime. [`Runtime::end`] ends its kernel threads. If it is dropped without that call,
/// they continue.
pub struct Runtime {
    shared: Arc<Shared>,
    workers: Vec<thread::JoinHandle<()>>,
}

impl Runtime {
    /// Creates the activations and requests cores.
    pub fn start(options: Options) -> Result<Self, StartError> {
        if options.least == 0 || options.most < options.least || options.level > 7 {
            return Err(StartError::Options);
        }
        let system = StartError::System;
        let bell = |_| {
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|e| system(e.into()))
        };
        let bells: Box<[OwnedFd]> = (0..options.most).map(bell).collect::<Result<_, _>>()?;
        let office = Arc::new(Office::open(&options.arbiter, options.level, &bells)?);
        let core = |_| Core {
            queue: Mutex::default(),
            length: 0.into(),
            state: PARKED.into(),
            told: false.into(),
        };
        let shared = Arc::new(Shared {
            cores: (0..options.most).map(core).collect(),
            bells,
            timers: Timers::new(),
            files: Files::new().map_err(system)?,
            stacks: Mutex::default(),
            live: 0.into(),
            arrived: 0.into(),
            with_core: 0.into(),
            idle: 0.into(),
            stop: false.into(),
            wanted: options.least.into(),
            requests: Mutex::default(),
            interval: Interval::new(options.interval),
            load: Load::default(),
            log: Log::new(options.history),
            options,
        });
        shared.log.note(Event::Requested(shared.options.least));
        let (to, ready) = std::sync::mpsc::channel();
        let mut runtime = Self {
            shared,
            workers: Vec::new(),
        };
        for index in 0..runtime.shared.cores.len() {
            let (shared, office, to) =
                (Arc::clone(&runtime.shared), Arc::clone(&office), to.clone());
            let work = move || match office.seat(index) {
                Ok(mut seat) => {
                    let _ = to.send(None);
                    drop(to);
                    as_worker(&shared, index, |here| shared.work(here, &mut *seat));
                }
                Err(why) => drop(to.send(Some(why))),
            };
            match thread::Builder::new()
                .name(format!("activation-{index}"))
                .spawn(work)
            {
                Ok(worker) => runtime.workers.push(worker),
                Err(why) => {
                    runtime.end();
                    return Err(system(why));
                }
            }
        }
        drop(to);
        // The iteration ends when all activations have reported.
        match ready.iter().flatten().next() {
            None => Ok(runtime),
            Some(why) => {
                runtime.end();
                Err(why)
            }
        }
    }

    /// Spawns a user-level thread, from any kernel thread. It begins when there is memory for its
    /// stack.
    pub fn spawn<T: Send + 'static>(
        &self,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.shared.spawn(function)
    }

    /// Watches a file for user-level threads, from any kernel thread.
    ///
    /// # Errors
    /// If the kernel cannot watch the file: it is a regular file, or too many files are watched.
    pub fn watch<F: AsFd>(&self, file: F) -> std::io::Result<Watched<F>> {
        Watched::new(&self.shared, file)
    }

    /// Number of cores that it requests now.
    pub fn wanted(&self) -> u32 {
        self.shared.wanted.load(SeqCst)
    }

    /// Waits until all user-level threads have ended, and ends the activations. Returns the history
    /// of requests for cores, which is empty unless [`Options::history`] is set.
    pub fn end(self) -> History {
        self.shared.stop.store(true, SeqCst);
        self.shared.bells.iter().for_each(ring);
        for worker in self.workers {
            // A worker that panicked has reported it.
            let _ = worker.join();
        }
        self.shared.log.take()
    }
}
