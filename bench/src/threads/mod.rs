// SPDX-License-Identifier: GPL-2.0-only
//! Programs that `baton bench` measures: two user-level threads that wake each other, a server
//! whose demand changes, and a key-value server.

mod kv;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::time::Duration;

use baton_runtime::{channel, server, Arbiter, Event, Options, Runtime};
use baton_sim::rng::Rng;
use rustix::process::getppid;
use rustix::thread::{
    clock_nanosleep_absolute, sched_setaffinity, sched_yield, set_current_timer_slack, CpuSet,
};
use rustix::time::{clock_gettime, ClockId, Timespec};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use baton_control::error::{Error, Result};
use baton_control::output::{print, print_json};

#[derive(clap::Subcommand, Debug)]
pub enum Threads {
    /// Let two user-level threads send each other a word, on one core of the policy `arbiter`.
    Pipe {
        /// Number of round trips.
        #[arg(long)]
        loops: u32,
    },
    /// Let two threads of one CPU yield it to each other.
    Yield {
        /// Number of calls of each.
        #[arg(long)]
        loops: u32,
    },
    /// Make system calls that do nothing (getppid).
    Calls {
        /// Their number.
        #[arg(long)]
        loops: u32,
    },
    /// Grant cores by means of cpusets, until a signal ends the program.
    Arbiter {
        /// Path of the socket to listen on.
        socket: PathBuf,
    },
    /// Answer the requests of an open loop.
    Serve(Serve),
    /// Keep values by their keys, over TCP.
    Kv(kv::Kv),
}

/// The cores that user-level threads run on.
#[derive(clap::Args, Debug)]
pub struct On {
    /// Source of the cores: the policy, the server at --socket, or kernel threads on any CPU.
    #[arg(long = "on")]
    who: Who,
    #[arg(long, required_if_eq("who", "socket"))]
    socket: Option<PathBuf>,
    /// Largest number of activations or kernel threads.
    #[arg(long)]
    most: u32,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Policy,
    Socket,
    Threads,
}

impl On {
    fn arbiter(&self) -> Option<Arbiter> {
        match (self.who, &self.socket) {
            (Who::Policy, _) => Some(Arbiter::Hints),
            (Who::Socket, Some(socket)) => Some(Arbiter::Socket(socket.clone())),
            _ => None,
        }
    }
}

#[derive(clap::Args, Debug)]
pub struct Serve {
    #[command(flatten)]
    pub on: On,
    /// Start time, ns of CLOCK_MONOTONIC.
    #[arg(long)]
    pub begin: u64,
    /// Length of a phase, ns.
    #[arg(long)]
    pub phase: u64,
    /// Requests per second in each phase.
    #[arg(long, value_delimiter = ',')]
    pub rates: Vec<f64>,
    /// CPU time of a request, ns.
    #[arg(long)]
    pub work: u64,
    /// Run the kernel threads on all CPUs but the first, where the requests are generated.
    #[arg(long)]
    pub apart: bool,
    /// Give each kernel thread its own queue, and distribute requests at random. Without it, all
    /// threads share one queue.
    #[arg(long)]
    pub dealt: bool,
    /// Start a kernel thread for each request instead, on any CPU.
    #[arg(long, conflicts_with_all = ["apart", "dealt"])]
    pub each: bool,
    /// Seed of the arrivals.
    #[arg(long)]
    pub seed: u64,
}

/// A step in the history of a process's cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Requested(u32),
    Granted,
    Reclaimed,
    Parked,
}

/// The report of a server.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Served {
    /// From the time when a request was due to its answer, ns.
    pub latencies: Vec<u64>,
    /// When the last request was answered, ns of CLOCK_MONOTONIC.
    pub end: u64,
    pub steps: Vec<(u64, Step)>,
}

pub fn command(args: &Threads) -> Result<ExitCode> {
    match args {
        Threads::Pipe { loops } => pipe(*loops)?,
        Threads::Yield { loops } => yields(*loops)?,
        Threads::Calls { loops } => calls(*loops)?,
        Threads::Arbiter { socket } => {
            let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
            let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|e| {
                Error::environment(format!("signals cannot be received: {e}"), "try again")
            })?;
            let until = || {
                signals.forever().next();
            };
            server::serve(socket, cpus, until).map_err(|e| match e.kind() {
                ErrorKind::ResourceBusy => {
                    Error::user(e.to_string(), "connect to its socket, or end it first")
                }
                _ => Error::file(
                    format!("granting cores by cpusets at {}", socket.display()),
                    &e,
                ),
            })?;
        }
        Threads::Serve(args) => print_json(&serve(args)?)?,
        Threads::Kv(args) => kv::serve(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn start(options: Options) -> Result<Runtime> {
    Runtime::start(options).map_err(|why| {
        Error::environment(
            why.to_string(),
            "run it under the policy: baton run -p arbiter; with --most 64 or less",
        )
    })
}

/// The time of an operation, as `perf bench sched pipe` prints it.
fn print_time(took: u64, operations: f64) -> Result<()> {
    print(format!("{} usecs/op\n", took as f64 / 1e3 / operations))
}

/// Two threads that yield. Where the scheduler has another task run at each, that is a switch.
fn yields(loops: u32) -> Result<()> {
    let both = Barrier::new(2);
    let turns = || {
        both.wait();
        let begin = now();
        (0..loops).for_each(|_| sched_yield());
        now() - begin
    };
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(turns);
        (turns(), second.join())
    });
    let second = second.map_err(|_| Error::baton("a thread of the bench panicked"))?;
    print_time(first.max(second), 2.0 * f64::from(loops))
}

/// System calls that do nothing.
fn calls(loops: u32) -> Result<()> {
    let begin = now();
    for _ in 0..loops {
        let _ = getppid();
    }
    print_time(now() - begin, f64::from(loops))
}

fn pipe(loops: u32) -> Result<()> {
    let runtime = start(Options::of(Arbiter::Hints, 1))?;
    let (there, from_there) = channel(1);
    let (back, from_back) = channel(1);
    let begin = now();
    let echo = runtime.spawn(move || {
        std::iter::from_fn(|| from_there.receive()).try_for_each(|word: u32| back.send(word))
    });
    let caller = runtime
        .spawn(move || (0..loops).all(|n| there.send(n).is_ok() && from_back.receive() == Some(n)));
    let is_right = caller.join().unwrap_or(false) && matches!(echo.join(), Ok(Ok(())));
    let took = now() - begin;
    runtime.end();
    if is_right {
        print_time(took, f64::from(loops))
    } else {
        Err(Error::baton(
            "the words that came back are not those that were sent",
        ))
    }
}

/// The time, ns of CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn sleep_until(when: u64) {
    let time = Timespec {
        tv_sec: (when / 1_000_000_000) as i64,
        tv_nsec: (when % 1_000_000_000) as i64,
    };
    while now() < when {
        // After a signal, the loop looks at the time again.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &time);
    }
}

type Latencies = Arc<Mutex<Vec<u64>>>;

/// Computes until the thread has had this much CPU time, ns, in any number of instructions. Where
/// CPUs share one stream of instructions, each such thread still has the speed of a whole CPU: QEMU
/// switches to the next CPU at a spin hint.
fn compute_for(time: u64) {
    let spent = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let (end, mut left) = (spent() + time, time);
    while left != 0 {
        let until = now() + left;
        while now() < until {
            std::hint::spin_loop();
        }
        left = end.saturating_sub(spent());
    }
}

fn answer(work: u64, due: u64, latencies: &Latencies) {
    compute_for(work);
    latencies
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(now() - due);
}

fn serve(args: &Serve) -> Result<Served> {
    // The default timer slack would delay requests.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    let latencies = Latencies::default();
    let work = args.work;
    let steps = match args.on.arbiter() {
        Some(arbiter) => {
            let runtime = start(Options {
                history: true,
                ..Options::of(arbiter, args.on.most)
            })?;
            arrivals(args, |due| {
                let latencies = Arc::clone(&latencies);
                drop(runtime.spawn(move || answer(work, due, &latencies)));
            });
            runtime.end()
        }
        None if args.each => {
            each(args, &latencies);
            Vec::new()
        }
        None => {
            let (queues, threads) = if args.dealt {
                (args.on.most, 1)
            } else {
                (1, args.on.most)
            };
            let pools: Vec<_> = (0..queues)
                .map(|_| Pool::new(threads, work, &latencies, args.apart))
                .collect();
            if args.apart {
                run_on(0..1);
            }
            let mut chance = Rng::new(args.seed, 1);
            arrivals(args, |due| {
                pools[chance.below(queues.into()) as usize].give(Some(due))
            });
            pools.into_iter().for_each(Pool::end);
            Vec::new()
        }
    };
    let step = |event| match event {
        Event::Requested(cores) => Step::Requested(cores),
        Event::Granted => Step::Granted,
        Event::Reclaimed => Step::Reclaimed,
        Event::Parked => Step::Parked,
    };
    let steps = steps
        .into_iter()
        .map(|(when, event)| (when, step(event)))
        .collect();
    let latencies = std::mem::take(&mut *latencies.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Served {
        latencies,
        end: now(),
        steps,
    })
}

/// Poisson arrivals at the rate of each phase. Late requests are given at once.
fn arrivals(args: &Serve, mut give: impl FnMut(u64)) {
    let mut chance = Rng::new(args.seed, 0);
    for (number, rate) in (0u64..).zip(&args.rates) {
        let (begin, end) = (
            args.begin + number * args.phase,
            args.begin + (number + 1) * args.phase,
        );
        let mut due = begin;
        loop {
            due += chance.exponential((1e9 / rate) as u64);
            if due >= end {
                break;
            }
            sleep_until(due);
            give(due);
        }
    }
}

/// Binds the calling thread to these CPUs. It has no effect if the machine has none of them.
fn run_on(cpus: std::ops::Range<usize>) {
    let mut set = CpuSet::new();
    cpus.for_each(|cpu| set.set(cpu));
    let _ = sched_setaffinity(None, &set);
}

/// Answers with a kernel thread for each request, whose stack has the size of a user-level
/// thread's.
fn each(args: &Serve, latencies: &Latencies) {
    let (to, from) = std::sync::mpsc::channel::<()>();
    let work = args.work;
    arrivals(args, |due| loop {
        let (latencies, live) = (Arc::clone(latencies), to.clone());
        let thread = move || {
            answer(work, due, &latencies);
            drop(live);
        };
        if std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(thread)
            .is_ok()
        {
            break;
        }
        // The limit of threads is reached: wait until some have ended.
        std::thread::sleep(Duration::from_millis(1));
    });
    drop(to);
    // This returns when all threads have dropped their senders.
    let _ = from.recv();
}

/// Kernel threads with one queue.
struct Pool {
    queue: Arc<(Mutex<VecDeque<Option<u64>>>, Condvar)>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Pool {
    fn new(threads: u32, work: u64, latencies: &Latencies, is_apart: bool) -> Self {
        let queue = Arc::<(Mutex<VecDeque<Option<u64>>>, Condvar)>::default();
        let thread = |_| {
            let (queue, latencies) = (Arc::clone(&queue), Arc::clone(latencies));
            std::thread::spawn(move || {
                if is_apart {
                    run_on(1..CpuSet::MAX_CPU);
                }
                loop {
                    let mut waiting = queue.0.lock().unwrap_or_else(PoisonError::into_inner);
                    while waiting.is_empty() {
                        waiting = queue
                            .1
                            .wait(waiting)
                            .unwrap_or_else(PoisonError::into_inner);
                    }
                    let first = waiting.pop_front().flatten();
                    drop(waiting);
                    let Some(due) = first else { return };
                    answer(work, due, &latencies);
                }
            })
        };
        let threads = (0..threads).map(thread).collect();
        Self { queue, threads }
    }

    /// Adds a request. None ends one thread.
    fn give(&self, due: Option<u64>) {
        self.queue
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(due);
        self.queue.1.notify_one();
    }

    fn end(self) {
        self.threads.iter().for_each(|_| self.give(None));
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
