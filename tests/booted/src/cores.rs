// SPDX-License-Identifier: GPL-2.0-only
//! Cores that the policy `arbiter` grants to real processes with user-level threads, on four CPUs:
//! with cooperative and uncooperative processes, and while the policy is upgraded or recorded.

use crate::{
    hints::said,
    record::{is_whole, Recorder},
    tool::{baton, check, is_well, Load},
    Case,
};
use arbiter::{Hint, Reply};
use baton_hints::{Queue, Thread};
use baton_replay::{replay, End, Options};
use baton_runtime::{sleep, spawn, yield_now, Arbiter, Runtime};
use rustix::process::{kill_process, Pid, Signal};
use rustix::thread::{gettid, sched_getcpu};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc, Arc,
    },
    thread,
    time::{Duration, Instant},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("arbiter: cores are granted and reclaimed", granted()),
        case!("arbiter: cores come with work, and go with it", followed()),
        case!("arbiter: a process that returns no core loses it", kept()),
        case!("arbiter: a runtime that is one too many is told", crowded()),
        case!(
            "arbiter: a runtime outlives the thread that started it",
            outlived()
        ),
        case!(
            "the server of cores: by cpusets, which go with it",
            served()
        ),
        case!("arbiter: a killed process's cores are others'", killed()),
        case!(
            "arbiter: upgrades under processes with cores, and its end",
            exchanged()
        ),
        case!("arbiter: recorded with hints, and replayed", recorded()),
    ]
}

const RECORDING: &str = "/tmp/cores";
const SOCKET: &str = "/tmp/cores.socket";
const GROUP: &str = "/sys/fs/cgroup/baton-arbiter";
/// Messages to a client that follows its work: the begin and the end of a time with much work.
const BURST: &str = "burst";
const REST: &str = "rest";
/// Timeout of an expected state: the guest is slow, and its CPUs share one stream of instructions.
const A_WHILE: Duration = Duration::from_secs(10);

type Cpus = BTreeSet<u32>;

/// The CPUs that threads have used since the last reset.
#[derive(Default)]
struct Seen(AtomicU64);

impl Seen {
    fn here(&self) {
        self.0.fetch_or(1 << (sched_getcpu() % 64), Relaxed);
    }

    /// The CPUs that running threads use in a period long enough for each of them to be seen.
    fn look(&self) -> Vec<u32> {
        self.0.store(0, Relaxed);
        thread::sleep(Duration::from_millis(60));
        let seen = self.0.load(Relaxed);
        (0..64).filter(|cpu| seen & (1 << cpu) != 0).collect()
    }
}

/// The client's side of the tests below. After each line of its input it prints the CPUs that its
/// threads are on, until the input ends.
pub fn client(args: &[String]) -> ExitCode {
    let cores = args.get(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let acted = match args.first().map(String::as_str) {
        Some("work") => work(Arbiter::Hints, cores),
        Some("work-by-socket") => work(Arbiter::Socket(SOCKET.into()), cores),
        Some("follow") => follow(cores),
        Some("keep") => keep(cores),
        _ => Err("no such client".into()),
    };
    match acted {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn answer(seen: &Seen, mut heed: impl FnMut(&str)) -> Result<(), String> {
    println!("ready");
    for line in std::io::stdin().lines() {
        heed(&line.map_err(|e| e.to_string())?);
        let cpus: Vec<_> = seen.look().iter().map(u32::to_string).collect();
        println!("{}", cpus.join(","));
    }
    Ok(())
}

/// A runtime that wants this many cores, with more threads than cores.
fn work(arbiter: Arbiter, cores: u32) -> Result<(), String> {
    let options = baton_runtime::Options {
        least: cores,
        ..baton_runtime::Options::of(arbiter, cores)
    };
    let runtime = Runtime::start(options).map_err(|e| e.to_string())?;
    let (seen, stop) = (Arc::<Seen>::default(), Arc::<AtomicBool>::default());
    let threads: Vec<_> = (0..3 * cores)
        .map(|_| {
            let (seen, stop) = (seen.clone(), stop.clone());
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    seen.here();
                    // Some threads are created and end all the time.
                    let _ = spawn(|| std::hint::black_box(1)).join();
                    yield_now();
                }
            })
        })
        .collect();
    answer(&seen, |_| ())?;
    stop.store(true, Relaxed);
    threads
        .into_iter()
        .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned()))?;
    runtime.end();
    Ok(())
}

/// A runtime that requests cores according to its work. Between [`BURST`] and [`REST`] it has more
/// work than this many cores can do, otherwise little.
fn follow(cores: u32) -> Result<(), String> {
    let runtime = Runtime::start(baton_runtime::Options::of(Arbiter::Hints, cores))
        .map_err(|e| e.to_string())?;
    let (seen, stop, busy) = (
        Arc::<Seen>::default(),
        Arc::<AtomicBool>::default(),
        Arc::<AtomicBool>::default(),
    );
    let always = {
        let (seen, stop) = (seen.clone(), stop.clone());
        runtime.spawn(move || {
            while !stop.load(Relaxed) {
                seen.here();
                sleep(Duration::from_millis(1));
            }
        })
    };
    let burst = || {
        for _ in 0..3 * cores {
            let (seen, busy) = (seen.clone(), busy.clone());
            drop(runtime.spawn(move || {
                while busy.load(Relaxed) {
                    seen.here();
                    (0..20_000u32).for_each(|n| {
                        std::hint::black_box(n);
                    });
                    yield_now();
                }
            }));
        }
    };
    answer(&seen, |line| match line {
        BURST => {
            busy.store(true, Relaxed);
            burst();
        }
        REST => busy.store(false, Relaxed),
        _ => {}
    })?;
    stop.store(true, Relaxed);
    busy.store(false, Relaxed);
    always.join().map_err(|_| "a thread panicked".to_owned())?;
    runtime.end();
    Ok(())
}

/// Activations that compute and ignore all messages.
fn keep(cores: u32) -> Result<(), String> {
    let leader = gettid().as_raw_nonzero().get() as u32;
    let seen = Arc::<Seen>::default();
    for _ in 0..cores {
        let seen = seen.clone();
        thread::spawn(move || -> Result<(), String> {
            let mut queue = Queue::<Hint, Reply>::open("arbiter", 16).map_err(|e| e.to_string())?;
            queue
                .send_now(&Hint::Join {
                    leader: Thread::of_id(leader),
                })
                .map_err(|e| e.to_string())?;
            queue
                .send_now(&Hint::Request { level: 0, cores })
                .map_err(|e| e.to_string())?;
            while !matches!(
                queue.wait(A_WHILE).map_err(|e| e.to_string())?,
                Some(Reply::Granted { .. })
            ) {}
            loop {
                seen.here();
            }
        });
    }
    answer(&seen, |_| ())
}

/// A process that is killed when the value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // A process that has ended is not killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client process.
struct Process {
    child: Killed,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Process {
    fn start(kind: &str, cores: u32) -> Result<Self, String> {
        let mut command = Command::new("/usr/bin/baton-booted");
        command
            .args(["--cores", kind, &cores.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Killed(command.spawn().map_err(|e| e.to_string())?);
        let from = BufReader::new(child.0.stdout.take().ok_or("a process without an output")?);
        let mut process = Self {
            to: child.0.stdin.take(),
            from,
            child,
        };
        let said = process.hear()?;
        check(said == "ready", || format!("{kind} says {said:?}"))?;
        Ok(process)
    }

    fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(|e| e.to_string())?;
        Ok(line.trim().to_owned())
    }

    /// The CPUs that its threads are on.
    fn cpus(&mut self) -> Result<Cpus, String> {
        self.say("")
    }

    /// Sends this word, then returns the CPUs as above.
    fn say(&mut self, word: &str) -> Result<Cpus, String> {
        let to = self.to.as_mut().ok_or("a process without an input")?;
        to.write_all(format!("{word}\n").as_bytes())
            .map_err(|e| format!("the process is gone: {e}"))?;
        let said = self.hear()?;
        let cpus: Result<_, _> = said
            .split(',')
            .filter(|part| !part.is_empty())
            .map(str::parse)
            .collect();
        cpus.map_err(|e| format!("{said:?}: {e}"))
    }

    /// Lets all its threads end.
    fn end(mut self) -> Result<(), String> {
        drop(self.to.take());
        let ended = self.child.0.wait().map_err(|e| e.to_string())?;
        check(ended.success(), || format!("a process ended with {ended}"))
    }
}

/// Waits until the processes have this many CPUs each, with none in common, then checks once more
/// that this is stable.
fn become_so(processes: &mut [&mut Process], counts: &[usize]) -> Result<Vec<Cpus>, String> {
    let end = Instant::now() + A_WHILE;
    let mut before = false;
    loop {
        let cpus = processes
            .iter_mut()
            .map(|process| process.cpus())
            .collect::<Result<Vec<_>, _>>()?;
        let all: Cpus = cpus.iter().flatten().copied().collect();
        let is_so = cpus.iter().map(BTreeSet::len).eq(counts.iter().copied())
            && all.len() == counts.iter().sum::<usize>();
        if is_so && before {
            return Ok(cpus);
        }
        check(Instant::now() < end, || {
            format!("{counts:?} CPUs are to be theirs, and they are on {cpus:?}")
        })?;
        before = is_so;
    }
}

fn load() -> Result<(), String> {
    baton(&["load", "arbiter", "--all"]).map(|_| ())
}

/// Three of the four CPUs can be granted; the fourth is shared by all.
fn granted() -> Result<(), String> {
    load()?;
    let mut one = Process::start("work", 3)?;
    become_so(&mut [&mut one], &[3])?;
    let mut other = Process::start("work", 3)?;
    become_so(&mut [&mut one, &mut other], &[2, 1])?;
    let load = Load::hackbench(1, 20)?;
    let mut third = Process::start("work", 1)?;
    become_so(&mut [&mut one, &mut other, &mut third], &[1, 1, 1])?;
    load.end()?;
    one.end()?;
    become_so(&mut [&mut other, &mut third], &[2, 1])?;
    third.end()?;
    become_so(&mut [&mut other], &[3])?;
    other.end()?;
    is_well("arbiter")
}

/// The number of cores follows the amount of work.
fn followed() -> Result<(), String> {
    load()?;
    let mut one = Process::start("follow", 3)?;
    become_so(&mut [&mut one], &[1])?;
    one.say(BURST)?;
    become_so(&mut [&mut one], &[3])?;
    one.say(REST)?;
    become_so(&mut [&mut one], &[1])?;
    // Another process gets the cores that the first has given back.
    let mut other = Process::start("work", 2)?;
    become_so(&mut [&mut one, &mut other], &[1, 2])?;
    one.end()?;
    other.end()?;
    is_well("arbiter")
}

/// A process that keeps a reclaimed core loses it. Its activation continues as a plain task, on the
/// CPU shared by all.
fn kept() -> Result<(), String> {
    load()?;
    let mut keeper = Process::start("keep", 3)?;
    become_so(&mut [&mut keeper], &[3])?;
    let mut other = Process::start("work", 1)?;
    let cpus = become_so(&mut [&mut keeper, &mut other], &[3, 1])?;
    check(cpus[0].contains(&0), || {
        format!("the one that lost its core is not on CPU 0: {cpus:?}")
    })?;
    keeper.end()?;
    other.end()?;
    is_well("arbiter")
}

/// The server runs without any policy.
fn served() -> Result<(), String> {
    let server = Command::new("baton")
        .args(["threads", "arbiter", SOCKET])
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut server = Killed(server);
    let end = Instant::now() + A_WHILE;
    while !is_there(SOCKET) {
        check(Instant::now() < end, || "the server does not listen".into())?;
        thread::sleep(Duration::from_millis(10));
    }
    let mut one = Process::start("work-by-socket", 3)?;
    become_so(&mut [&mut one], &[3])?;
    let second = ["threads", "arbiter", "/tmp/second.socket"];
    crate::tool::baton_fails(&second, "another server of cores runs")?;
    become_so(&mut [&mut one], &[3])?;
    let cpuset = fs::read_to_string(format!("{GROUP}/shared/cpuset.cpus"))
        .map_err(|e| format!("no cpuset: {e}"))?;
    check(cpuset.trim() == "0", || {
        format!("plain threads have {cpuset:?}")
    })?;
    kill_process(Pid::from_child(&server.0), Signal::TERM).map_err(|e| e.to_string())?;
    let ended = server.0.wait().map_err(|e| e.to_string())?;
    check(ended.success(), || format!("the server ended with {ended}"))?;
    check(!is_there(GROUP) && !is_there(SOCKET), || {
        "its cgroup or its socket stays".into()
    })?;
    check(!one.cpus()?.is_empty(), || {
        "nothing of the process runs without the server".into()
    })?;
    one.end()
}

fn is_there(path: &str) -> bool {
    fs::exists(path).unwrap_or(true)
}

fn crowded() -> Result<(), String> {
    load()?;
    let start = || {
        Runtime::start(baton_runtime::Options::of(Arbiter::Hints, 1)).map_err(|why| why.to_string())
    };
    let mut runtimes = (0..::arbiter::MAX_PROCESSES)
        .map(|_| start())
        .collect::<Result<Vec<_>, _>>()?;
    let said = start().err().unwrap_or_default();
    check(said.contains("it takes no more runtimes"), || {
        format!("it starts, or says {said:?}")
    })?;
    let answer = runtimes[0].spawn(|| 7).join();
    check(answer.is_ok_and(|number| number == 7), || {
        "the first runtime does not go on".into()
    })?;
    runtimes.pop().ok_or("no runtime")?.end();
    start()?.end();
    runtimes.into_iter().for_each(|runtime| drop(runtime.end()));
    is_well("arbiter")
}

/// A thread starts a runtime and ends, while another runtime has all cores. The thread's activation
/// waits for a core, and gets one when the other runtime ends.
fn outlived() -> Result<(), String> {
    load()?;
    let start = |options| Runtime::start(options).map_err(|why| why.to_string());
    let three = baton_runtime::Options {
        least: 3,
        ..baton_runtime::Options::of(Arbiter::Hints, 3)
    };
    let before = start(three)?;
    let later = baton_runtime::Options {
        level: 1,
        ..baton_runtime::Options::of(Arbiter::Hints, 1)
    };
    let runtime = thread::spawn(move || start(later))
        .join()
        .map_err(|_| "a thread panicked")??;
    let (to, answer) = mpsc::channel();
    drop(runtime.spawn(move || to.send(7)));
    check(
        answer.recv_timeout(Duration::from_millis(100)).is_err(),
        || "it runs without a core".into(),
    )?;
    before.end();
    check(answer.recv_timeout(A_WHILE) == Ok(7), || {
        "nothing of the runtime runs".into()
    })?;
    runtime.end();
    is_well("arbiter")
}

fn killed() -> Result<(), String> {
    load()?;
    let mut rest = Process::start("work", 3)?;
    for kind in ["work", "keep", "work"] {
        let mut victim = Process::start(kind, 1)?;
        become_so(&mut [&mut rest, &mut victim], &[2, 1])?;
        // Dropping the value kills the process with SIGKILL.
        drop(victim);
        become_so(&mut [&mut rest], &[3])?;
    }
    rest.end()?;
    is_well("arbiter")
}

fn exchanged() -> Result<(), String> {
    load()?;
    let mut one = Process::start("work", 3)?;
    become_so(&mut [&mut one], &[3])?;
    for _ in 0..4 {
        baton(&["upgrade", "arbiter"])?;
        become_so(&mut [&mut one], &[3])?;
    }
    // The last version knows the requests made to the first version, and receives new ones.
    let mut other = Process::start("work", 1)?;
    become_so(&mut [&mut one, &mut other], &[2, 1])?;
    baton(&["upgrade", "arbiter"])?;
    other.end()?;
    become_so(&mut [&mut one], &[3])?;
    baton(&["switch", "arbiter", "fifo"])?;
    check(!one.cpus()?.is_empty(), || {
        "nothing of the process runs without the arbiter".into()
    })?;
    one.end()?;
    is_well("fifo")
}

fn recorded() -> Result<(), String> {
    load()?;
    let mut one = Process::start("work", 3)?;
    become_so(&mut [&mut one], &[3])?;
    let recorder = Recorder::start("arbiter", RECORDING, &[])?;
    let mut other = Process::start("work", 1)?;
    become_so(&mut [&mut one, &mut other], &[2, 1])?;
    other.end()?;
    become_so(&mut [&mut one], &[3])?;
    let (status, summary, errors) = recorder.end()?;
    check(status.success(), || format!("{status}: {errors}"))?;
    one.end()?;
    let recording = is_whole(RECORDING, &summary)?;
    let (hints, replies) = said(&recording);
    // The other process sends a join, a request and its end; the first is told to park and is
    // granted a core again.
    check(hints >= 3 && replies >= 3, || {
        format!("{hints} hints and {replies} replies are recorded")
    })?;
    for single in [true, false] {
        let policy = baton_linked::arbiter();
        let outcome = replay(
            &recording,
            policy,
            &Options {
                single,
                ..Options::default()
            },
        )?;
        check(
            outcome.end == End::Whole && outcome.events == outcome.all,
            || format!("{outcome:?}"),
        )?;
    }
    is_well("arbiter")
}
