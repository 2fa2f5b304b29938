// SPDX-License-Identifier: GPL-2.0-only
//! `secure_vm`: tasks of two control groups never run on the hardware threads of one core at once.
//!
//! The kernel's own trace of context switches says what ran when. The tasks of a group have its
//! name.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fs::{self, File},
    hint::black_box,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, sleep, Builder},
    time::{Duration, Instant},
};

use crate::{
    agents::{ended_well, Running},
    tool::{baton, check, is_well, must},
    Case,
};

const GROUPS: [&str; 3] = ["vm0", "vm1", "vm2"];
const TRACING: &str = "/sys/kernel/tracing";
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
        let trace = Trace::begin()?;
        let reader = scope.spawn(|| trace.read(&done));
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

/// The kernel's trace of context switches.
struct Trace {
    pipe: BufReader<File>,
}

fn set(file: &str, text: &str) -> Result<(), String> {
    let path = format!("{TRACING}/{file}");
    fs::write(&path, text).map_err(|e| format!("{path}: {e}"))
}

/// A switch: time, CPU, and the group of the next task.
type Switch = (u64, usize, Option<usize>);

impl Trace {
    fn begin() -> Result<Self, String> {
        if !fs::exists(format!("{TRACING}/trace_pipe")).unwrap_or(false) {
            must("mount", &["-t", "tracefs", "tracefs", TRACING])?;
        }
        // One that is the same on all CPUs, in a number without parts.
        set("trace_clock", "x86-tsc")?;
        set("buffer_size_kb", "8192")?;
        set(
            "events/sched/sched_switch/filter",
            "prev_comm ~ \"vm*\" || next_comm ~ \"vm*\"",
        )?;
        let pipe = format!("{TRACING}/trace_pipe");
        let file = rustix::fs::open(
            &*pipe,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK,
            rustix::fs::Mode::empty(),
        );
        let file = file.map_err(|e| format!("{pipe}: {e}"))?;
        set("events/sched/sched_switch/enable", "1")?;
        Ok(Self {
            pipe: BufReader::new(File::from(file)),
        })
    }

    /// Reads until `done`, and judges all switches by their time.
    ///
    /// A line costs about 0.3 ms in a guest that counts instructions, most of it in the kernel, so
    /// this thread holds a CPU nearly all the time. Its class precedes that of the agents: the
    /// agent of that CPU runs for 50 ms of each second. If it is held up while it has the lock of
    /// all agents, they leave messages unread, and the session ends. That takes some minutes.
    fn read(mut self, done: &AtomicBool) -> Result<Found, String> {
        let mut judge = Judge::new()?;
        // Events of several CPUs can come a little out of order.
        let mut held: BinaryHeap<Reverse<Switch>> = BinaryHeap::new();
        loop {
            let is_last = done.load(Relaxed);
            if is_last {
                set("events/sched/sched_switch/enable", "0")?;
            }
            let mut line = String::new();
            while self.pipe.read_line(&mut line).is_ok_and(|size| size > 0) {
                if let Some(switch) = parse(&line)? {
                    held.push(Reverse(switch));
                }
                line.clear();
                while held.len() > 10_000 {
                    judge.take(&mut held)?;
                }
            }
            if is_last {
                break;
            }
            sleep(Duration::from_millis(5));
        }
        while !held.is_empty() {
            judge.take(&mut held)?;
        }
        Ok(judge.found)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = set("events/sched/sched_switch/enable", "0");
    }
}

/// A line of the trace. None if it is no switch.
fn parse(line: &str) -> Result<Option<Switch>, String> {
    if line.contains("LOST") {
        return Err(format!("the trace has a gap: {line}"));
    }
    let bad = || format!("a line of the trace cannot be read: {line}");
    let Some((head, switch)) = line.split_once(": sched_switch: ") else {
        return Ok(None);
    };
    let (_, rest) = head.rsplit_once('[').ok_or_else(bad)?;
    let (cpu, rest) = rest.split_once(']').ok_or_else(bad)?;
    let time = rest.split_whitespace().last().ok_or_else(bad)?;
    let (_, next) = switch.split_once("next_comm=").ok_or_else(bad)?;
    let next = next.split(" next_pid=").next().ok_or_else(bad)?;
    Ok(Some((
        time.parse().map_err(|_| bad())?,
        cpu.parse().map_err(|_| bad())?,
        GROUPS.iter().position(|group| *group == next),
    )))
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
            found: Found::default(),
        })
    }

    fn take(&mut self, held: &mut BinaryHeap<Reverse<Switch>>) -> Result<(), String> {
        let Some(Reverse((time, cpu, group))) = held.pop() else {
            return Ok(());
        };
        let sibling = self.siblings[cpu];
        let recent = &mut self.recent[cpu.min(sibling)];
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back((time, cpu, group));
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
                     core's last switches (time, CPU, group): {recent:?}"
                )
            })?;
            self.found.shared += 1;
        }
        let last = self.last[cpu.min(sibling)].replace(group);
        self.found.changes += u64::from(last.is_some_and(|last| last != group));
        Ok(())
    }
}
