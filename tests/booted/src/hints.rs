// SPDX-License-Identifier: GPL-2.0-only
//! Hints: correct, faulty, hostile and dead applications, and a policy that answers.

use crate::{
    hostile, record,
    tool::{baton, bind, check, is_well, must, Hog, Load},
    Case,
};
use baton_hints::{Message, NotSent, OpenError, Queue, Raw, Thread, Type};
use baton_trace::{About, Event, Item, Recording};
use echo::{Hint, Reply};
use rustix::{
    process::getppid,
    thread::{gettid, sched_getcpu},
};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc, Arc,
    },
    thread,
    time::{Duration, Instant},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("hints: seen before a sleep and before a wakeup", on_time()),
        case!(
            "hints: sent and answered without a system call",
            without_calls()
        ),
        case!("hints: one cache line goes each way", lines()),
        case!("hints: a full ring is told, and nothing is lost", full()),
        case!("hints: what is refused, and counted", refused()),
        case!("hints: replies that are not read", unread()),
        case!("hints: other types, and other mistakes", mistakes()),
        case!("hints: clients that are killed", killed()),
        case!("hints: recorded", recorded()),
        case!("hints: threads that share one share a CPU", together()),
        case!("hints: a home for a thread that is in the kernel", homes()),
        case!("hints: the examples of docs/hints.md", examples()),
        case!(
            "hints: the client in C",
            in_language("/usr/bin/baton-hints-c", &[])
        ),
        case!(
            "hints: the client in Python",
            in_language("/usr/bin/python3", &["-S", "/usr/lib/baton/hints.py"])
        ),
    ]
}

pub type Echo = Queue<Hint, Reply>;

pub const A_WHILE: Duration = Duration::from_secs(5);

pub fn load() -> Result<(), String> {
    baton(&["load", "echo", "--all"]).map(|_| ())
}

pub fn open() -> Result<Echo, String> {
    Queue::open("echo", 16).map_err(|e| e.to_string())
}

/// The calling thread, as a hint names it.
pub fn this_thread() -> Thread {
    Thread::of_id(gettid().as_raw_nonzero().get() as u32)
}

/// Opens a queue, sends a hint to a policy, waits for a reply, and closes the queue.
pub fn say<H: Message, R: Message>(policy: &str, hint: &H) -> Result<(), String> {
    let mut queue = Queue::<H, R>::open(policy, 16).map_err(|e| e.to_string())?;
    queue.send(hint).map_err(|e| e.to_string())?;
    let reply = queue.wait(A_WHILE).map_err(|e| e.to_string())?;
    check(reply.is_some(), || format!("{policy} does not answer"))
}

pub fn ping(number: u64) -> Hint {
    Hint::Ping { number, times: 1 }
}

/// Asks the policy, and returns the number of hints that it has received.
pub fn heard(queue: &mut Echo, number: u64) -> Result<u64, String> {
    queue.send_now(&ping(number)).map_err(|e| e.to_string())?;
    match queue.receive() {
        Some(Reply::Pong {
            number: same,
            heard,
        }) if same == number => Ok(heard),
        other => Err(format!("the answer to {number} is {other:?}")),
    }
}

fn on_time() -> Result<(), String> {
    load()?;
    let mut queue = Echo::open("echo", 64).map_err(|e| e.to_string())?;
    // The file descriptor must be of no use to a child that inherits it.
    let maps = fs::read_to_string("/proc/self/smaps").map_err(|e| e.to_string())?;
    let flags = maps
        .split("/dev/baton-hints")
        .nth(1)
        .and_then(|rest| rest.split("VmFlags:").nth(1));
    let flags = flags.and_then(|rest| rest.lines().next()).unwrap_or("");
    check(flags.contains(" dc") && flags.contains(" dd"), || {
        format!("a child would have the mapping: {flags}")
    })?;
    for number in 0..50 {
        queue.send(&ping(number)).map_err(|e| e.to_string())?;
        thread::sleep(Duration::from_millis(2));
        check(queue.receive().is_some(), || {
            format!("hint {number} was not seen before the sleep")
        })?;
    }
    // The hints are read in poll() itself, and they are more than are read at one event. Otherwise
    // they would be read only at the wakeup at the timeout.
    let before = Instant::now();
    for number in 0..50 {
        let sent = (0..20).try_for_each(|_| queue.send(&Hint::Ping { number, times: 0 }));
        sent.and_then(|()| queue.send(&ping(number)))
            .map_err(|e| e.to_string())?;
        let reply = queue.wait(A_WHILE).map_err(|e| e.to_string())?;
        check(reply.is_some(), || format!("no reply to {number}"))?;
    }
    check(before.elapsed() < A_WHILE, || {
        format!("50 replies took {:?}", before.elapsed())
    })?;
    let (to, from) = mpsc::channel::<()>();
    let sleeper = thread::spawn(move || from.iter().count());
    for number in 0..50 {
        thread::sleep(Duration::from_millis(20));
        queue.send(&ping(number)).map_err(|e| e.to_string())?;
        to.send(()).map_err(|e| e.to_string())?;
        check(queue.receive().is_some(), || {
            format!("hint {number} was not seen before the wakeup")
        })?;
    }
    drop(to);
    check(sleeper.join().is_ok_and(|count| count == 50), || {
        "the sleeper was not woken".into()
    })?;
    is_well("echo")
}

/// The client's side of the tests below.
pub fn client(args: &[String]) -> ExitCode {
    let acted = match args.first().map(String::as_str) {
        Some("without-calls") => rounds(),
        Some("open") => open().map(|queue| hold(queue, args.get(1).is_some())),
        Some("insist") => insist(args.get(1).and_then(|entries| entries.parse().ok())),
        Some("flood") => flood(),
        Some("rounds") => answered(100),
        Some("hostile") => hostile::without_end(args.get(1).map_or("", String::as_str)),
        Some("name") => name(args.get(1).and_then(|id| id.parse().ok())),
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

/// Sends pings that are answered one by one, whenever the policy hears of them.
fn answered(rounds: u64) -> Result<(), String> {
    let mut queue = open()?;
    for number in 0..rounds {
        queue.send(&ping(number)).map_err(|e| e.to_string())?;
        let reply = queue.wait(A_WHILE).map_err(|e| e.to_string())?;
        let is_it = matches!(reply, Some(Reply::Pong { number: said, .. }) if said == number);
        check(is_it, || format!("the reply to {number} is {reply:?}"))?;
    }
    let first = Hint::First {
        thread: this_thread(),
        yes: true,
    };
    queue.send(&first).map_err(|e| e.to_string())?;
    let reply = queue.wait(A_WHILE).map_err(|e| e.to_string())?;
    check(matches!(reply, Some(Reply::Noted { .. })), || {
        format!("the reply about a thread is {reply:?}")
    })
}

/// Opens and closes a queue of this many entries repeatedly, and continues when it is refused.
fn insist(entries: Option<u32>) -> Result<(), String> {
    let entries = entries.ok_or("how many entries?")?;
    let opened = (0..300)
        .filter(|_| Echo::open("echo", entries).is_ok())
        .count();
    println!("{opened}");
    Ok(())
}

pub fn start(args: &[&str], user: u32) -> Result<Child, String> {
    let mut command = Command::new("/usr/bin/baton-booted");
    command
        .arg("--hints")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if user != 0 {
        command.uid(user).gid(user);
    }
    command.spawn().map_err(|e| e.to_string())
}

/// Runs a client. Returns whether it succeeded, and its output.
pub fn run(args: &[&str], user: u32) -> Result<(bool, String), String> {
    let output = start(args, user)?
        .wait_with_output()
        .map_err(|e| e.to_string())?;
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    ))
}

const ROUNDS: u64 = 100;

/// Runs between two calls of getppid, which the test looks for. At the tick the policy reads the
/// ring.
fn rounds() -> Result<(), String> {
    let mut queue = open()?;
    let _ = getppid();
    for number in 0..ROUNDS {
        queue.send(&ping(number)).map_err(|e| e.to_string())?;
        while queue.receive().is_none() {
            std::hint::spin_loop();
        }
    }
    let _ = getppid();
    Ok(())
}

/// The clients in all languages: each makes [`ROUNDS`] rounds between two calls of getppid, without
/// any other call.
fn without_calls() -> Result<(), String> {
    const TRACE: &str = "/tmp/calls";
    const PROGRAMS: [&[&str]; 3] = [
        &["/usr/bin/baton-booted", "--hints", "without-calls"],
        &["/usr/bin/baton-hints-c", "without-calls"],
        &[
            "/usr/bin/python3",
            "-S",
            "/usr/lib/baton/hints.py",
            "without-calls",
        ],
    ];
    load()?;
    for program in PROGRAMS {
        let mut queue = open()?;
        let before = heard(&mut queue, 0)?;
        must("strace", &[&["-f", "-o", TRACE], program].concat())?;
        let rounds = heard(&mut queue, 1)? - before - 1;
        let trace = fs::read_to_string(TRACE).map_err(|e| format!("{TRACE}: {e}"))?;
        let parts: Vec<_> = trace.split_inclusive("getppid()").collect();
        check(parts.len() == 3, || {
            format!("{program:?}: not two calls of getppid: {trace}")
        })?;
        // The rest of the first call's line, and the second's.
        let between = parts[1].lines().count() - 2;
        check(between == 0 && rounds >= ROUNDS, || {
            format!(
                "{program:?}: in {rounds} rounds {between} calls: {}",
                parts[1]
            )
        })?;
    }
    is_well("echo")
}

/// Checks which cache lines each side writes, as the other side has to fetch those. A write of the
/// same value would not be seen. Before each round, garbage is therefore written to everything that
/// may be changed: all but the sequences, and the word that tells whether the queue is open.
fn lines() -> Result<(), String> {
    const ENTRIES: usize = 16;
    const WORDS: usize = 16;
    load()?;
    let mut queue = open()?;
    let look = |queue: &Echo| {
        queue
            .memory()
            .iter()
            .map(|word| word.load(Relaxed))
            .collect::<Vec<_>>()
    };
    let changed = |before: &[u32], after: &[u32]| {
        let lines = before.chunks(WORDS).zip(after.chunks(WORDS)).enumerate();
        lines
            .filter(|(_, (before, after))| before != after)
            .map(|(line, _)| line)
            .collect::<Vec<_>>()
    };
    let (mut garbage, mut undisturbed) = (0x9e37_79b9_u32, 0);
    for round in 0..3 * ENTRIES {
        for (place, word) in queue
            .memory()
            .iter()
            .enumerate()
            .filter(|(place, _)| place % WORDS != 0)
        {
            garbage = garbage
                .wrapping_mul(1_664_525)
                .wrapping_add(1_013_904_223 ^ place as u32);
            word.store(garbage, Relaxed);
        }
        let before = look(&queue);
        queue.send(&ping(round as u64)).map_err(|e| e.to_string())?;
        let sent = look(&queue);
        thread::sleep(Duration::from_millis(2));
        let answered = look(&queue);
        check(queue.receive().is_some(), || {
            format!("no reply in round {round}")
        })?;
        let seen = [
            changed(&before, &sent),
            changed(&sent, &answered),
            changed(&answered, &look(&queue)),
        ];
        let (hint, reply) = (1 + round % ENTRIES, 1 + ENTRIES + round % ENTRIES);
        // A tick may come before the sleep.
        let [said, heard, read] = &seen;
        let both: BTreeSet<_> = said.iter().chain(heard).copied().collect();
        check(
            both == BTreeSet::from([hint, reply]) && *read == [reply],
            || format!("round {round}: {seen:?}"),
        )?;
        undisturbed += usize::from(*said == [hint] && *heard == [hint, reply]);
    }
    check(undisturbed > ENTRIES, || {
        format!("only {undisturbed} rounds were undisturbed")
    })?;
    is_well("echo")
}

fn full() -> Result<(), String> {
    load()?;
    let mut queue = open()?;
    let before = heard(&mut queue, 0)?;
    let (mut sent, mut was_full) = (0, 0);
    while sent < 20_000 {
        match queue.send(&Hint::Ping {
            number: sent,
            times: 0,
        }) {
            Ok(()) => sent += 1,
            Err(NotSent::Full) => {
                was_full += 1;
                thread::yield_now();
            }
            Err(other) => return Err(other.to_string()),
        }
    }
    let after = heard(&mut queue, 1)?;
    check(was_full > 0 && after == before + sent + 1, || {
        format!(
            "{was_full} times full; of {sent} hints {} were heard",
            after - before - 1
        )
    })?;
    is_well("echo")
}

/// Arbitrary data, as if it were of the right type.
#[derive(Clone, Copy)]
pub struct Wild(pub Raw);

impl Message for Wild {
    const TYPE: Type = Type {
        layout: 0,
        ..Hint::TYPE
    };
    const THREADS: usize = 1;

    fn encode(&self) -> Raw {
        self.0
    }

    fn decode(raw: &Raw) -> Option<Self> {
        Some(Self(*raw))
    }
}

fn refused() -> Result<(), String> {
    use baton_hints::Answer;
    load()?;
    let mut queue = Queue::<Wild, Reply>::open("echo", 16).map_err(|e| e.to_string())?;
    let raw = |tag, thread, word| {
        Wild(Raw {
            tag,
            thread,
            words: [word, 0, 0, 0, 0, 0],
        })
    };
    let me = gettid().as_raw_nonzero().get() as u32;
    let other = Hog::plain()?;
    let expect = |what: &str, hint: Wild, expected: Result<(), NotSent>| {
        let got = queue.send_now(&hint);
        check(got == expected, || format!("{what}: {got:?}"))
    };
    expect(
        "a tag that there is not",
        raw(77, 0, 0),
        Err(NotSent::Refused(Answer::Malformed)),
    )?;
    expect(
        "a truth that is neither",
        raw(2, me, 2),
        Err(NotSent::Refused(Answer::Malformed)),
    )?;
    expect(
        "no thread where one is needed",
        raw(2, 0, 1),
        Err(NotSent::Refused(Answer::Malformed)),
    )?;
    // Only the superuser may without a grant for that.
    let other: u32 = other.pid().parse().map_err(|_| "a process id")?;
    expect("another process's thread", raw(2, other, 1), Ok(()))?;
    expect(
        "a thread that there is not",
        raw(2, 4_000_000, 1),
        Err(NotSent::Refused(Answer::Thread)),
    )?;
    expect("my own", raw(2, me, 1), Ok(()))?;
    for whose in ["another process's", "my own"] {
        check(matches!(queue.receive(), Some(Reply::Noted { .. })), || {
            format!("{whose} thread was not noted")
        })?;
    }
    let before = queue.refused();
    for _ in 0..5 {
        queue.send(&raw(77, 0, 0)).map_err(|e| e.to_string())?;
    }
    thread::sleep(Duration::from_millis(5));
    check(queue.refused() == before + 5, || {
        format!("{} are refused, not 5", queue.refused() - before)
    })?;
    drop(queue);
    let (to, from) = mpsc::channel();
    let (stop, stopped) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let _ = to.send(gettid().as_raw_nonzero().get() as u32);
        let _ = stopped.recv();
    });
    let other_id = from.recv().map_err(|e| e.to_string())?;
    let queue = open()?;
    let said = queue.send_now(&Hint::First {
        thread: Thread::of_id(other_id),
        yes: true,
    });
    check(said == Ok(()), || {
        format!("another thread of mine is refused: {said:?}")
    })?;
    drop(stop);
    let _ = other.join();
    is_well("echo")
}

fn unread() -> Result<(), String> {
    load()?;
    let mut queue = open()?;
    queue
        .send_now(&Hint::Ping {
            number: 1,
            times: 20,
        })
        .map_err(|e| e.to_string())?;
    check(queue.lost() == 4, || {
        format!("{} replies are lost, not 4", queue.lost())
    })?;
    let read = std::iter::from_fn(|| queue.receive()).count();
    check(read == 16, || format!("{read} replies can be read, not 16"))?;
    heard(&mut queue, 2).map(|_| ())
}

fn mistakes() -> Result<(), String> {
    load()?;
    let refused = |opened: Result<Echo, OpenError>, expected: &str| match opened {
        Err(why) if why.to_string().contains(expected) => Ok(()),
        Err(why) => Err(format!("{why}, not {expected}")),
        Ok(_) => Err(format!("opened, not {expected}")),
    };
    refused(Queue::open("nobody", 16), "no policy of that name")?;
    refused(Queue::open("echo", 17), "no power of two")?;
    refused(Queue::open("echo", 8192), "too large")?;
    let swapped = Queue::<Reply, Hint>::open("echo", 16)
        .map(|_| ())
        .map_err(|e| e.to_string());
    check(
        swapped
            .as_ref()
            .is_err_and(|why| why.contains("another type")),
        || format!("swapped types: {swapped:?}"),
    )?;
    let queue = open()?;
    refused(Queue::open("echo", 16), "a queue already")?;
    drop(queue);
    open()?;
    baton(&["load", "fifo"])?;
    refused(
        Queue::open("fifo", 16),
        "no policy of that name runs and takes hints",
    )?;
    is_well("echo")
}

/// Prints the result of a hint that names this thread, or another process's, by its id as seen by
/// this process.
fn name(other: Option<u32>) -> Result<(), String> {
    let mut queue = open()?;
    let id = other.unwrap_or_else(|| gettid().as_raw_nonzero().get() as u32);
    let said = queue.send_now(&Hint::First {
        thread: Thread::of_id(id),
        yes: true,
    });
    println!("{said:?} {:?}", queue.receive());
    Ok(())
}

/// Holds a queue until its input ends, and prints the reason for its closing. With `another`, a
/// second thread holds a queue, too.
fn hold(queue: Echo, another: bool) {
    let second = another
        .then(|| thread::spawn(|| open().err()).join().ok().flatten())
        .flatten();
    println!("open {}", second.unwrap_or_default());
    let mut queue = queue;
    let _ = queue.wait(Duration::from_secs(60));
    println!("{:?}", queue.end());
}

/// Sends without end, by the ring and by calls, from several threads.
fn flood() -> Result<(), String> {
    let threads: Vec<_> = (0..4)
        .map(|number| {
            thread::spawn(move || -> Result<(), String> {
                let mut queue = open()?;
                loop {
                    for _ in 0..200 {
                        let _ = queue.send(&Hint::Ping { number, times: 3 });
                    }
                    while queue.receive().is_some() {}
                    queue.send_now(&ping(number)).map_err(|e| e.to_string())?;
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
}

fn killed() -> Result<(), String> {
    load()?;
    let load = Load::hackbench(1, 200)?;
    for round in 0..20 {
        let mut child = start(&["flood"], 0)?;
        thread::sleep(Duration::from_millis(20 + 7 * round));
        let ended = child.try_wait().map_err(|e| e.to_string())?;
        child.kill().map_err(|e| e.to_string())?;
        child.wait().map_err(|e| e.to_string())?;
        check(ended.is_none(), || {
            format!("the client ended by itself: {ended:?}")
        })?;
    }
    load.end()?;
    let mut queue = open()?;
    heard(&mut queue, 1)?;
    is_well("echo")
}

/// Two groups of two threads that sleep often, under `locality`.
fn together() -> Result<(), String> {
    const ROUNDS: usize = 40;
    baton(&["load", "locality", "--all"])?;
    let mut queue = Queue::<locality::Hint, locality::Reply>::open("locality", 16)
        .map_err(|e| e.to_string())?;
    let (said, ids) = mpsc::channel();
    let start = Arc::new(AtomicBool::new(false));
    let (mut homes, mut threads) = (Vec::new(), Vec::new());
    for group in [1, 1, 2, 2] {
        let (said, start) = (said.clone(), start.clone());
        threads.push(thread::spawn(move || {
            let _ = said.send(gettid().as_raw_nonzero().get() as u32);
            let pause = || thread::sleep(Duration::from_millis(2));
            while !start.load(Relaxed) {
                pause();
            }
            let round = |_| {
                pause();
                sched_getcpu() as i32
            };
            (0..ROUNDS).map(round).collect::<Vec<_>>()
        }));
        let id = ids.recv().map_err(|e| e.to_string())?;
        queue
            .send_now(&locality::Hint::Group {
                thread: Thread::of_id(id),
                group,
            })
            .map_err(|e| e.to_string())?;
        let Some(locality::Reply::Home { cpu }) = queue.receive() else {
            return Err("no reply".into());
        };
        homes.push(cpu);
    }
    start.store(true, Relaxed);
    check(homes == [0, 0, 1, 1], || format!("homes are {homes:?}"))?;
    for (home, thread) in homes.into_iter().zip(threads) {
        let cpus = thread.join().map_err(|_| "a thread panicked".to_owned())?;
        // The home may be crowded for a moment.
        let at_home = cpus.iter().filter(|&&cpu| cpu == home).count();
        check(at_home * 10 >= ROUNDS * 9, || {
            format!("a thread whose home is {home} was on {cpus:?}")
        })?;
    }
    is_well("locality")
}

/// A thread joins groups of `locality` while it gives way without end. Nearly all of that time, a
/// BPF program disables its migration, which is no reason to choose its current CPU as its home.
fn homes() -> Result<(), String> {
    const ROUNDS: usize = 300;
    baton(&["load", "locality", "--all"])?;
    let mut queue = Queue::<locality::Hint, locality::Reply>::open("locality", 16)
        .map_err(|e| e.to_string())?;
    let mut join = |thread, group| {
        let thread = Thread::of_id(thread);
        queue
            .send_now(&locality::Hint::Group { thread, group })
            .map_err(|e| e.to_string())?;
        match queue.receive() {
            Some(locality::Reply::Home { cpu }) => Ok(cpu),
            None => Err("no reply".to_owned()),
        }
    };
    let me = gettid().as_raw_nonzero().get() as u32;
    let taken = join(me, 1)?;
    let end = Arc::new(AtomicBool::new(false));
    let (said, ids) = mpsc::channel();
    let restless = thread::spawn({
        let end = end.clone();
        move || {
            let _ = said.send(gettid().as_raw_nonzero().get() as u32);
            while !end.load(Relaxed) {
                thread::yield_now();
            }
        }
    });
    let id = ids.recv().map_err(|e| e.to_string())?;
    // The other thread then runs on the CPU that is taken.
    bind(&[1 - taken as usize])?;
    let homes = (0..ROUNDS).map(|_| {
        let home = join(id, 2)?;
        join(id, 0)?;
        Ok(home)
    });
    let homes: Result<Vec<i32>, String> = homes.collect();
    end.store(true, Relaxed);
    restless.join().map_err(|_| "a thread panicked")?;
    let wrong = homes?.into_iter().filter(|&home| home == taken).count();
    check(wrong == 0, || {
        format!("{wrong} of {ROUNDS} homes are on the CPU that is home to another group")
    })?;
    is_well("locality")
}

/// The examples for users: each sends one hint to `echo`, and prints the answer.
fn examples() -> Result<(), String> {
    const PROGRAMS: [&[&str]; 3] = [
        &["/usr/bin/baton-example-rust"],
        &["/usr/bin/baton-example-c"],
        &["/usr/bin/python3", "-S", "/usr/lib/baton/echo.py"],
    ];
    load()?;
    for words in PROGRAMS {
        let said = must(words[0], &words[1..])?;
        check(said == "7\n", || format!("{words:?} prints {said:?}"))?;
    }
    is_well("echo")
}

fn in_language(program: &str, arguments: &[&str]) -> Result<(), String> {
    load()?;
    let said = must(program, arguments)?;
    check(said.is_empty(), || said.clone())?;
    is_well("echo")
}

fn recorded() -> Result<(), String> {
    const FILE: &str = "/tmp/hints";
    load()?;
    let recorder = thread::spawn(|| {
        baton(&[
            "record", "-p", "echo", "-o", FILE, "--for", "1500ms", "--json",
        ])
    });
    thread::sleep(Duration::from_millis(700));
    let mut queue = open()?;
    for number in 0..100 {
        queue.send(&ping(number)).map_err(|e| e.to_string())?;
        let reply = queue.wait(A_WHILE).map_err(|e| e.to_string())?;
        check(reply.is_some(), || format!("no reply to {number}"))?;
    }
    let summary = recorder
        .join()
        .map_err(|_| "a thread panicked".to_owned())??;
    let summary = serde_json::from_str(&summary).map_err(|e| format!("{e}: {summary}"))?;
    let recording = record::is_whole(FILE, &summary)?;
    let (hints, replies) = said(&recording);
    check(hints >= 100 && hints == replies, || {
        format!("{hints} hints and {replies} replies are recorded, of 100")
    })
}

/// Counts the hints and replies of a recording.
pub fn said(recording: &Recording) -> (usize, usize) {
    let items = || recording.streams.iter().flat_map(|stream| stream.items());
    let is_hint = |item: &Item| matches!(item, Item::Event(Event::Call(call)) if matches!(call.about, About::Hint(..)));
    let is_reply = |item: &Item| matches!(item, Item::Event(Event::Reply { .. }));
    (
        items().filter(is_hint).count(),
        items().filter(is_reply).count(),
    )
}
