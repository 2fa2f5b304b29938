// SPDX-License-Identifier: GPL-2.0-only
//! A crowd: one user's tasks, in numbers that could keep all other tasks waiting. The tasks belong
//! to no policy, so the fallback schedules them all.

use crate::{
    tool::{baton, check, is_well, must, sched_ext_state, stress},
    Case,
};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!("a user's 1500 hogs beside a policy of root's", hogs(6)),
        case!("a fault under 2000 tasks of users", fault(3)),
    ]
}

const HOGS: u32 = 1500;

/// Starts processes one after the other: first some that sleep, and work for a moment every few
/// seconds, then the hogs. Each takes class SCHED_EXT by itself while it runs, which needs no
/// privilege.
const PROGRAM: &str = "
import os, sys, time
sleepers, hogs, users = map(int, sys.argv[1:])
for number in range(sleepers + hogs):
    if os.fork() == 0:
        os.setuid(65534 - number % users)
        os.sched_setscheduler(0, 7, os.sched_param(0))
        while number >= sleepers: pass
        while True: time.sleep(2 + number % 7)
print('there', flush=True)
sys.stdin.read()
";

struct Crowd(Child);

impl Crowd {
    fn start(sleepers: u32, hogs: u32, users: u32) -> Result<Self, String> {
        let mut command = Command::new("/usr/bin/python3");
        command
            .args(["-S", "-c", PROGRAM])
            .args([sleepers, hogs, users].map(|number| number.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .process_group(0)
            .spawn()
            .map_err(|e| e.to_string())?;
        let said = child.stdout.take().ok_or("no output")?;
        let crowd = Self(child);
        let mut line = String::new();
        BufReader::new(said)
            .read_line(&mut line)
            .map_err(|e| e.to_string())?;
        check(line.trim() == "there", || {
            "the hogs were not all started".into()
        })?;
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Upper limit of the 99th percentile of the wakeup waits of a task of root's policy, ms.
const LIMIT: f64 = 100.0;

/// Runs a service of root's under a policy beside a crowd for this many seconds.
pub fn hogs(seconds: u64) -> Result<(), String> {
    baton(&["load", "fifo"])?;
    let crowd = Crowd::start(0, HOGS, 1)?;
    let service = [
        "run",
        "-p",
        "fifo",
        "--",
        "/usr/bin/baton-booted",
        "--service",
        &seconds.to_string(),
    ];
    let before = others()?;
    let said = baton(&service)?;
    let after = others()?;
    drop(crowd);
    println!("{}", said.trim());
    println!("{}", used(&before, &after));
    let p99 = said.lines().filter_map(|line| {
        line.split("p99 ")
            .nth(1)?
            .split(' ')
            .next()?
            .parse::<f64>()
            .ok()
    });
    let p99: Vec<f64> = p99.collect();
    check(
        p99.len() == TASKS.len() && p99.iter().all(|wait| *wait < LIMIT),
        || format!("waits: {said}"),
    )?;
    is_well("fifo")?;
    check(sched_ext_state() == "enabled", || {
        format!("sched_ext is {}", sched_ext_state())
    })
}

type Threads = BTreeMap<u32, (String, u64)>;

/// The threads outside SCHED_EXT, by number: the name, and the CPU time in ticks. These threads run
/// before those of SCHED_EXT.
fn others() -> Result<Threads, String> {
    let mut found = BTreeMap::new();
    for process in std::fs::read_dir("/proc")
        .map_err(|e| e.to_string())?
        .flatten()
    {
        let threads = std::fs::read_dir(process.path().join("task"))
            .into_iter()
            .flatten()
            .flatten();
        for thread in threads {
            let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else {
                continue;
            };
            let Some((start, rest)) = stat.rsplit_once(')') else {
                continue;
            };
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let number = |field: usize| {
                fields
                    .get(field - 3)
                    .and_then(|text| text.parse::<u64>().ok())
                    .unwrap_or(0)
            };
            let (pid, name) = start.split_once(" (").unwrap_or((start, ""));
            if number(41) != 7 {
                let pid = pid.parse().unwrap_or(0);
                found.insert(pid, (name.to_owned(), number(14) + number(15)));
            }
        }
    }
    Ok(found)
}

/// The ten of those that used most CPU time.
fn used(before: &Threads, after: &Threads) -> String {
    let mut used: Vec<_> = after
        .iter()
        .map(|(thread, (name, ticks))| {
            let earlier = before.get(thread).map_or(0, |(_, ticks)| *ticks);
            (ticks.saturating_sub(earlier), name)
        })
        .collect();
    used.sort_by(|a, b| b.cmp(a));
    let used: Vec<_> = used
        .iter()
        .take(10)
        .map(|(ticks, name)| format!("{name} {ticks}"))
        .collect();
    format!("ticks of other classes: {}", used.join(", "))
}

/// The limit of the kernel's watchdog for a waiting task, and for its own thread.
const WATCHDOG: Duration = Duration::from_secs(30);

/// The policy of all tasks fails, and the fallback schedules the crowd and all other tasks, among
/// them the kernel's threads. After this many seconds the hogs end. The other tasks stay until the
/// limit of the kernel's watchdog has passed.
pub fn fault(seconds: u64) -> Result<(), String> {
    const TASKS: u32 = 2000;
    const USERS: u32 = 8;
    let complaints = || complaints().map(|lines| lines.len());
    let before = complaints()?;
    baton(&["load", "faulty", "--all", "--options", "fault=index"])?;
    let begin = Instant::now();
    // Not all are hogs, as each started hog delays the start of the next.
    let sleepers = Crowd::start(TASKS - HOGS / 5, 0, USERS)?;
    let hogs = Crowd::start(0, HOGS / 5, USERS)?;
    let (waits, hogs_begin) = (kernel_waits()?, Instant::now());
    while hogs_begin.elapsed() < Duration::from_secs(seconds) {
        let before = Instant::now();
        thread::sleep(Duration::from_millis(100));
        let late = before.elapsed();
        check(late < Duration::from_secs(2), || {
            format!("root's own task slept 100 ms, and {late:?} passed")
        })?;
    }
    let (waited, runs) = waited_since(&waits, &kernel_waits()?);
    drop(hogs);
    let mean = Duration::from_nanos(waited / runs.max(1));
    println!("kernel threads waited {mean:?} before each of {runs} runs");
    // The time of a hog's slice in progress, but not of a hog of each user.
    check(runs > 0 && mean < Duration::from_millis(10), || {
        format!("a kernel thread waits for {mean:?}")
    })?;
    thread::sleep(WATCHDOG.saturating_sub(begin.elapsed()) + Duration::from_secs(5));
    drop(sleepers);
    let lines = self::complaints()?;
    check(lines.len() == before, || {
        format!("the kernel's log: {}", lines.join("; "))
    })?;
    check(sched_ext_state() == "enabled", || {
        format!("sched_ext is {}", sched_ext_state())
    })?;
    stress(&["--switch", "2", "--timeout", "1"])
}

/// The kernel's messages about tasks that do not run.
fn complaints() -> Result<Vec<String>, String> {
    const WORDS: [&str; 5] = [
        "watchdog",
        "runnable task stall",
        "rcu: INFO",
        "soft lockup",
        "blocked for more than",
    ];
    let log = must("dmesg", &[])?;
    Ok(log
        .lines()
        .filter(|line| WORDS.iter().any(|word| line.contains(word)))
        .map(str::to_owned)
        .collect())
}

/// For each kernel thread of normal class, by its number: how long it has waited for a CPU, ns, and
/// how often it got one.
type Waits = BTreeMap<u32, (u64, u64)>;

fn kernel_waits() -> Result<Waits, String> {
    let mut waits = Waits::new();
    for process in std::fs::read_dir("/proc")
        .map_err(|e| e.to_string())?
        .flatten()
    {
        let read = |name: &str| std::fs::read_to_string(process.path().join(name));
        let (Ok(stat), Ok(schedstat)) = (read("stat"), read("schedstat")) else {
            continue;
        };
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        // Fields 4 and 41: the parent, which is kthreadd, and the policy.
        if fields.get(1) == Some(&"2") && fields.get(38) == Some(&"0") {
            let number = |at: usize| {
                schedstat
                    .split_whitespace()
                    .nth(at)
                    .and_then(|text| text.parse::<u64>().ok())
            };
            let pid = process.file_name().to_string_lossy().parse().unwrap_or(0);
            waits.insert(pid, (number(1).unwrap_or(0), number(2).unwrap_or(0)));
        }
    }
    Ok(waits)
}

/// The total change for the threads that are in both: workers come and go.
fn waited_since(before: &Waits, after: &Waits) -> (u64, u64) {
    let both = after
        .iter()
        .filter_map(|(pid, after)| before.get(pid).map(|before| (before, after)));
    both.fold((0, 0), |(waited, runs), (before, after)| {
        (
            waited + after.0.saturating_sub(before.0),
            runs + after.1.saturating_sub(before.1),
        )
    })
}

/// The service's tasks: the sleep and the work of each, ms.
const TASKS: [(u64, u64); 4] = [(10, 0), (20, 1), (50, 5), (5, 1)];

/// The service: prints the wait of each of its tasks after its wakeups.
pub fn service(seconds: u64) -> Result<(), String> {
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    let tasks = TASKS.map(|(sleeps, works)| {
        thread::spawn(move || {
            let (sleeps, works) = (Duration::from_millis(sleeps), Duration::from_millis(works));
            let mut waits = Vec::new();
            while Instant::now() < end {
                let due = Instant::now() + sleeps;
                thread::sleep(sleeps);
                let woken = Instant::now();
                let wait = woken - due.min(woken);
                if wait.as_secs_f64() * 1e3 > LIMIT {
                    let cpu = rustix::thread::sched_getcpu();
                    println!(
                        "at {:.1} s, on CPU {cpu}: {} ms",
                        start.elapsed().as_secs_f64(),
                        wait.as_millis()
                    );
                }
                waits.push(wait);
                while woken.elapsed() < works {}
            }
            waits.sort();
            waits
        })
    });
    for ((sleeps, works), task) in TASKS.into_iter().zip(tasks) {
        let waits = task.join().map_err(|_| "a thread panicked")?;
        check(waits.len() > 20, || {
            format!("a task ran {} times only", waits.len())
        })?;
        let at = |percent: usize| {
            waits[(waits.len() * percent / 100).min(waits.len() - 1)].as_secs_f64() * 1e3
        };
        println!(
            "{} wakeups, every {sleeps} ms to work for {works} ms: p50 {:.2} p99 {:.2} max {:.2} \
             ms",
            waits.len(),
            at(50),
            at(99),
            at(100)
        );
    }
    Ok(())
}
