// SPDX-License-Identifier: GPL-2.0-only
//! `secure_vm`: tasks of two control groups never run on the hardware threads of one core at once.
//!
//! The kernel's own trace of context switches says what ran when. The tasks of a group have its
//! name.

use std::{
    collections::VecDeque,
    fs,
    hint::black_box,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, sleep, Builder},
    time::{Duration, Instant},
};

use crate::{
    agents::{ended_well, Running},
    switches::{Switch, Switches},
    tool::{baton, check, is_well},
    Case,
};

const GROUPS: [&str; 3] = ["vm0", "vm1", "vm2"];
/// The name of the scheduler, and of its enclave.
const NAME: &str = "secure_vm";

/// Cases for eight CPUs, two for each core.
pub fn cases() -> Vec<Case> {
    vec![case!(
        "enclave: groups that never share a core",
        stay_apart(3)
    )]
}

/// Runs three groups under `secure_vm` for so many seconds.
pub fn stay_apart(seconds: u64) -> Result<(), String> {
    let agent = Running::start(NAME, &[NAME])?;
    let groups: Vec<Machine> = GROUPS
        .into_iter()
        .map(|name| Machine::new(name, seconds))
        .collect::<Result<_, _>>()?;
    let done = AtomicBool::new(false);
    let found = thread::scope(|scope| -> Result<Found, String> {
        let trace = Switches::begin("vm")?;
        let reader = scope.spawn(|| judged(trace, &done));
        for mut group in groups {
            // Its main thread reads this line, and begins.
            drop(group.0.stdin.take());
            scope.spawn(move || group.0.wait());
        }
        let mut left = seconds;
        while left > 0 && !reader.is_finished() {
            let part = left.min(60);
            sleep(Duration::from_secs(part));
            left -= part;
            println!("{} of {seconds} s", seconds - left);
        }
        done.store(true, Relaxed);
        reader.join().map_err(|_| "the reader panicked")?
    });
    // If the scheduler was stopped, the groups were not kept apart after that.
    is_well(NAME)?;
    let found = found?;
    println!("{found:?}");
    // In each second, groups change and share cores many times.
    let least = 20 * seconds;
    let is_good = found.switches > 10 * least
        && found.changes > least
        && found.shared > least
        && found.of_group.iter().all(|switches| *switches > least);
    check(is_good, || format!("the load was no test: {found:?}"))?;
    agent.signal("-INT")?;
    ended_well(agent)
}

/// A process in a control group of its own, and in the enclave. It begins when its input ends.
struct Machine(Child);

impl Machine {
    fn new(name: &str, seconds: u64) -> Result<Self, String> {
        let group = format!("/sys/fs/cgroup/{name}");
        fs::create_dir_all(&group).map_err(|e| format!("{group}: {e}"))?;
        let child = Command::new("baton-booted")
            .args(["--machine", name, &seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut machine = Self(child);
        // It has its name.
        let output = machine.0.stdout.take().ok_or("it has no output")?;
        BufReader::new(output)
            .read_line(&mut String::new())
            .map_err(|e| e.to_string())?;
        let pid = machine.0.id().to_string();
        let procs = format!("{group}/cgroup.procs");
        fs::write(&procs, &pid).map_err(|e| format!("{procs}: {e}"))?;
        baton(&["attach", NAME, "--pid", &pid])?;
        Ok(machine)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of a group: threads that always run, and threads that sleep in between.
pub fn machine(name: &str, seconds: u64) -> Result<(), String> {
    fs::write("/proc/self/comm", name).map_err(|e| e.to_string())?;
    println!("ready");
    std::io::stdin()
        .read_line(&mut String::new())
        .map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let is_over = || begun.elapsed() > Duration::from_secs(seconds);
    let work = |ms| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(ms) {
            (0..1000).for_each(|i| {
                black_box(i);
            });
        }
    };
    thread::scope(|scope| {
        for i in 0..5_u64 {
            let run = move || {
                while !is_over() {
                    work(2);
                    if i >= 2 {
                        sleep(Duration::from_millis(i));
                    }
                }
            };
            Builder::new()
                .name(name.into())
                .spawn_scoped(scope, run)
                .map_err(|e| e.to_string())?;
        }
        Ok(())
    })
}

/// What the trace showed.
#[derive(Debug, Default)]
struct Found {
    /// Context switches to or from a task of a group.
    switches: u64,
    /// Times that a group came to a core after another one.
    changes: u64,
    /// Times that a task came to a core on whose other thread one of its group ran.
    shared: u64,
    of_group: [u64; GROUPS.len()],
}

/// Judges the switches until `done`.
fn judged(mut trace: Switches, done: &AtomicBool) -> Result<Found, String> {
    let mut judge = Judge::new()?;
    while !done.load(Relaxed) {
        trace.round(|switch| judge.take(&switch))?;
        sleep(Duration::from_millis(10));
    }
    trace.end()?;
    trace.round(|switch| judge.take(&switch))?;
    trace.rest(|switch| judge.take(&switch))?;
    Ok(judge.found)
}

/// How many switches of a core are shown with a breach.
const RECENT: usize = 24;

/// Judges switches in their order.
struct Judge {
    /// By CPU: the other thread of its core.
    siblings: Vec<usize>,
    /// By CPU: the group that runs.
    running: Vec<Option<usize>>,
    /// By the core's first CPU: the group that ran there last.
    last: Vec<Option<usize>>,
    /// By the core's first CPU: its last switches, to explain a breach.
    recent: Vec<VecDeque<Switch>>,
    /// The time of the last switch.
    time: u64,
    found: Found,
}

impl Judge {
    fn new() -> Result<Self, String> {
        let cpus = thread::available_parallelism().map_or(0, usize::from);
        let sibling = |cpu: usize| -> Result<usize, String> {
            let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let text = fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
            let numbers = text.trim().split([',', '-']).map(str::parse);
            let numbers: Vec<usize> = numbers
                .collect::<Result<_, _>>()
                .map_err(|e| format!("{file}: {e}"))?;
            check(numbers.len() == 2, || format!("not two threads: {text}"))?;
            Ok(numbers[0] + numbers[1] - cpu)
        };
        Ok(Self {
            siblings: (0..cpus).map(sibling).collect::<Result<_, _>>()?,
            running: vec![None; cpus],
            last: vec![None; cpus],
            recent: vec![VecDeque::new(); cpus],
            time: 0,
            found: Found::default(),
        })
    }

    fn take(&mut self, switch: &Switch) -> Result<(), String> {
        let &Switch { time, cpu, .. } = switch;
        check(time >= self.time, || {
            format!("a switch at {time} came after one at {}", self.time)
        })?;
        self.time = time;
        let group = GROUPS.iter().position(|group| *group == switch.next);
        let sibling = self.siblings[cpu];
        let recent = &mut self.recent[cpu.min(sibling)];
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(switch.clone());
        self.found.switches += 1;
        self.running[cpu] = group;
        let Some(group) = group else {
            return Ok(());
        };
        self.found.of_group[group] += 1;
        if let Some(other) = self.running[sibling] {
            check(other == group, || {
                let (here, there) = (GROUPS[group], GROUPS[other]);
                let recent = &self.recent[cpu.min(sibling)];
                format!(
                    "at {time}, {here} runs on CPU {cpu} beside {there} on CPU {sibling}; the \
                     core's last switches: {recent:?}"
                )
            })?;
            self.found.shared += 1;
        }
        let last = self.last[cpu.min(sibling)].replace(group);
        self.found.changes += u64::from(last.is_some_and(|last| last != group));
        Ok(())
    }
}
