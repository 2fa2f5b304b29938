// SPDX-License-Identifier: GPL-2.0-only
//! A crowd: a user's tasks in such numbers that they could keep everybody else waiting. The tasks are of no policy, so the fallback has them all.

use crate::{
    tool::{baton, check, is_well, sched_ext_state, stress},
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
        case!("a fault under a user's 300 hogs", fault(3)),
    ]
}

const HOGS: u32 = 1500;
const NOBODY: u32 = 65534;

/// Starts one process after the other. Each takes class SCHED_EXT by itself, while it runs, as anyone may.
const PROGRAM: &str = "
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.sched_setscheduler(0, 7, os.sched_param(0))
        while True: pass
print('there', flush=True)
sys.stdin.read()
";

struct Crowd(Child);

impl Crowd {
    fn start(hogs: u32) -> Result<Self, String> {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-S", "-c", PROGRAM, &hogs.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.uid(NOBODY).gid(NOBODY).process_group(0).spawn().map_err(|e| e.to_string())?;
        let said = child.stdout.take().ok_or("no output")?;
        let crowd = Self(child);
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).map_err(|e| e.to_string())?;
        check(line.trim() == "there", || "the hogs were not all started".into())?;
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

/// Longest time that a task of root's policy may wait, at the 99th percentile of its wakeups, ms.
const LIMIT: f64 = 100.0;

/// A service of root's runs under a policy for so many seconds beside a crowd.
pub fn hogs(seconds: u64) -> Result<(), String> {
    baton(&["load", "fifo"])?;
    let crowd = Crowd::start(HOGS)?;
    let service = ["run", "-p", "fifo", "--", "/usr/bin/baton-booted", "--service", &seconds.to_string()];
    let before = others()?;
    let said = baton(&service)?;
    let after = others()?;
    drop(crowd);
    println!("{}", said.trim());
    println!("{}", used(&before, &after));
    let p99 = said.lines().filter_map(|line| line.split("p99 ").nth(1)?.split(' ').next()?.parse::<f64>().ok());
    let p99: Vec<f64> = p99.collect();
    check(p99.len() == TASKS.len() && p99.iter().all(|wait| *wait < LIMIT), || format!("waits: {said}"))?;
    is_well("fifo")?;
    check(sched_ext_state() == "enabled", || format!("sched_ext is {}", sched_ext_state()))
}

/// CPU time, ticks, of each thread that is not of SCHED_EXT, by its number and name: these go before those that are.
fn others() -> Result<BTreeMap<(u32, String), u64>, String> {
    let mut found = BTreeMap::new();
    for process in std::fs::read_dir("/proc").map_err(|e| e.to_string())?.flatten() {
        let threads = std::fs::read_dir(process.path().join("task")).into_iter().flatten().flatten();
        for thread in threads {
            let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { continue };
            let Some((start, rest)) = stat.rsplit_once(')') else { continue };
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            let (pid, name) = start.split_once(" (").unwrap_or((start, ""));
            if number(41) != 7 {
                found.insert((pid.parse().unwrap_or(0), name.to_owned()), number(14) + number(15));
            }
        }
    }
    Ok(found)
}

/// Of those the ten that used most.
fn used(before: &BTreeMap<(u32, String), u64>, after: &BTreeMap<(u32, String), u64>) -> String {
    let mut used: Vec<_> =
        after.iter().map(|(thread, ticks)| (ticks - before.get(thread).unwrap_or(&0).min(ticks), &thread.1)).collect();
    used.sort_by(|a, b| b.cmp(a));
    let used: Vec<_> = used.iter().take(10).map(|(ticks, name)| format!("{name} {ticks}")).collect();
    format!("ticks of other classes: {}", used.join(", "))
}

/// The policy of all tasks fails, and the fallback has the crowd and everybody else, the kernel's threads and the user's among them.
pub fn fault(seconds: u64) -> Result<(), String> {
    baton(&["load", "faulty", "--all", "--options", "fault=index"])?;
    // Fewer: each that is started is one more for the next to wait for.
    let crowd = Crowd::start(HOGS / 5)?;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        let before = Instant::now();
        thread::sleep(Duration::from_millis(100));
        let late = before.elapsed();
        check(late < Duration::from_secs(2), || format!("root's own task slept 100 ms, and {late:?} passed"))?;
    }
    drop(crowd);
    check(sched_ext_state() == "enabled", || format!("sched_ext is {}", sched_ext_state()))?;
    stress(&["--switch", "2", "--timeout", "1"])
}

/// The service's tasks: how long each sleeps, and then works, ms.
const TASKS: [(u64, u64); 4] = [(10, 0), (20, 1), (50, 5), (5, 1)];

/// The service: prints how long each of its tasks waited after its wakeups.
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
                    println!("at {:.1} s, on CPU {cpu}: {} ms", start.elapsed().as_secs_f64(), wait.as_millis());
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
        check(waits.len() > 20, || format!("a task ran {} times only", waits.len()))?;
        let at = |percent: usize| waits[(waits.len() * percent / 100).min(waits.len() - 1)].as_secs_f64() * 1e3;
        println!(
            "{} wakeups, every {sleeps} ms to work for {works} ms: p50 {:.2} p99 {:.2} max {:.2} ms",
            waits.len(),
            at(50),
            at(99),
            at(100)
        );
    }
    Ok(())
}
