// SPDX-License-Identifier: GPL-2.0-only
//! Statistics of a recording.

use std::collections::BTreeMap;
use std::fmt;

use baton_abi::{BATON_PICK_KEEP, BATON_PICK_NONE, BATON_SELECT_DIRECT};
use baton_trace::{
    fault_name, method_name, Event, Follow, Item, Mark, Recording, Return, Step, Stream,
};
use serde::Serialize;

/// Number of intervals into which the recorded time is divided for the queue length.
const PARTS: u64 = 60;

#[derive(Serialize, Default)]
pub struct Stats {
    policy: String,
    version: u32,
    options: String,
    host: String,
    cpus: usize,
    duration_ns: u64,
    events: u64,
    calls: u64,
    bytes: u64,
    bytes_per_event: f64,
    lost_events: u64,
    missing_blocks: u64,
    damaged_places: usize,
    /// Positions at which a replay can begin (--from).
    checkpoints: Vec<Checkpoint>,
    /// By method: the number of calls, in total and by calling CPU.
    methods: BTreeMap<&'static str, Calls>,
    /// The answers of calls; for a call with a fault, its end.
    answers: BTreeMap<String, u64>,
    /// Times from a wakeup to the pick.
    wakeup: Times,
    /// Wakeups that put the task directly on a CPU.
    direct: u64,
    tasks: Vec<Task>,
    queue: Queue,
    locks: Vec<Lock>,
}

#[derive(Serialize)]
struct Checkpoint {
    /// Number of the event after it.
    event: u64,
    /// Time of the next call since the first call, ns.
    at_ns: u64,
    /// Size of the policy's state.
    bytes: usize,
}

#[derive(Serialize, Default)]
struct Calls {
    calls: u64,
    by_cpu: BTreeMap<u16, u64>,
}

#[derive(Serialize, Default)]
struct Task {
    pid: u32,
    nice: i32,
    /// CPU time within the recording.
    runtime_ns: u64,
    wakeup: Times,
}

#[derive(Serialize, Default)]
struct Queue {
    max: u64,
    mean: f64,
    /// Mean length in each interval.
    over_time: Vec<f64>,
}

#[derive(Serialize)]
struct Lock {
    id: u64,
    taken: u64,
    busy: u64,
}

#[derive(Serialize, Default)]
struct Times {
    count: u64,
    mean_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Times {
    fn of(mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        let Some(&max_ns) = all.last() else {
            return Self::default();
        };
        let at = |percent: usize| all[(all.len() - 1) * percent / 100];
        let mean_ns =
            (all.iter().map(|&ns| u128::from(ns)).sum::<u128>() / all.len() as u128) as u64;
        Self {
            count: all.len() as u64,
            mean_ns,
            p50_ns: at(50),
            p90_ns: at(90),
            p99_ns: at(99),
            max_ns,
        }
    }
}

/// Data about a task that is collected from the events.
#[derive(Default)]
struct Known {
    nice: i32,
    first_runtime: u64,
    last_runtime: u64,
    waits: Vec<u64>,
}

#[derive(Default)]
struct Gatherer {
    /// By slot: the time at which the task was queued, and whether it was woken.
    queued: BTreeMap<u32, (u64, bool)>,
    /// By slot and process id.
    known: BTreeMap<(u32, u32), Known>,
    direct: u64,
    /// Times at which the length of the queues changed, with the new length.
    lengths: Vec<(u64, u64)>,
}

impl Gatherer {
    fn step(&mut self, follow: &Follow, step: Step) {
        let leaves = match step {
            Step::Queued { slot, woken } => {
                self.queued.insert(slot, (follow.now, woken));
                None
            }
            Step::Taken { slot } => Some((slot, false)),
            Step::Runs { slot, picked, .. } => {
                self.direct += u64::from(!picked);
                Some((slot, picked))
            }
            Step::Idle { .. } => return,
        };
        if let Some((slot, picked)) = leaves {
            if let Some((since, _)) = self
                .queued
                .remove(&slot)
                .filter(|(_, woken)| *woken && picked)
            {
                let pid = follow.tasks.get(&slot).map_or(0, |task| task.pid);
                self.known
                    .entry((slot, pid))
                    .or_default()
                    .waits
                    .push(follow.now - since);
            }
        }
        let length = self.queued.len() as u64;
        match self.lengths.last_mut() {
            Some(last) if last.0 == follow.now => last.1 = length,
            _ => self.lengths.push((follow.now, length)),
        }
    }

    fn queue(&self, end: u64) -> Queue {
        let mut sums = vec![0u128; PARTS as usize];
        let ends = self.lengths.iter().skip(1).map(|(at, _)| *at).chain([end]);
        for (&(from, length), to) in self.lengths.iter().zip(ends) {
            let mut at = from;
            while at < to {
                let part = (u128::from(at) * u128::from(PARTS) / u128::from(end)) as u64;
                let stop =
                    (u128::from(part + 1) * u128::from(end)).div_ceil(u128::from(PARTS)) as u64;
                let stop = stop.clamp(at + 1, to.max(at + 1)).min(to);
                sums[part as usize] += u128::from(stop - at) * u128::from(length);
                at = stop;
            }
        }
        let all = end.max(1) as f64;
        Queue {
            max: self
                .lengths
                .iter()
                .map(|(_, length)| *length)
                .max()
                .unwrap_or(0),
            mean: sums.iter().sum::<u128>() as f64 / all,
            over_time: sums
                .iter()
                .map(|&sum| sum as f64 / all * PARTS as f64)
                .collect(),
        }
    }
}

impl Stats {
    pub fn of(recording: &Recording) -> Self {
        let header = &recording.header;
        let mut stats = Self {
            policy: header.policy.clone(),
            version: header.version,
            options: header.options.clone(),
            host: header.host.clone(),
            cpus: header.nr_cpus(),
            bytes: recording.streams.iter().map(Stream::bytes).sum(),
            damaged_places: recording.damage.len(),
            ..Self::default()
        };
        let (mut follow, mut gatherer) = (Follow::new(recording), Gatherer::default());
        let mut locks: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for told in recording.merged() {
            let event = match told.item {
                Item::Event(event) => event,
                Item::Gap { lost, blocks } => {
                    stats.lost_events += lost;
                    stats.missing_blocks += blocks;
                    continue;
                }
                Item::Malformed => {
                    stats.damaged_places += 1;
                    continue;
                }
            };
            stats.events += 1;
            match &event {
                Event::Call(call) => {
                    stats.calls += 1;
                    let calls = stats.methods.entry(method_name(call.method)).or_default();
                    calls.calls += 1;
                    *calls.by_cpu.entry(told.cpu).or_default() += 1;
                    if let Some(task) = call.about.task() {
                        let fresh = Known {
                            first_runtime: task.runtime,
                            ..Known::default()
                        };
                        let known = gatherer.known.entry((task.slot, task.pid)).or_insert(fresh);
                        known.nice = task.nice;
                        known.last_runtime = known.last_runtime.max(task.runtime);
                    }
                }
                Event::Return(end) => {
                    let method = follow.call(told.cpu).map_or(0, |call| call.method);
                    answer(method, end)
                        .inspect(|what| *stats.answers.entry((*what).into()).or_default() += 1);
                }
                Event::Abandoned { kind, .. } => {
                    *stats
                        .answers
                        .entry(format!("abandoned: {}", fault_name(*kind)))
                        .or_default() += 1;
                }
                Event::Lock { id, .. } => locks.entry(*id).or_default().0 += 1,
                Event::Busy { id } => locks.entry(*id).or_default().1 += 1,
                _ => {}
            }
            follow.event(told.cpu, &event, |follow, step| gatherer.step(follow, step));
        }
        let checkpoint = |mark: Mark| Checkpoint {
            event: mark.number,
            at_ns: mark.now.saturating_sub(recording.begin()),
            bytes: recording.checkpoints[mark.index].state.len(),
        };
        stats.checkpoints = recording.marks().into_iter().map(checkpoint).collect();
        stats.duration_ns = follow.now;
        stats.bytes_per_event = stats.bytes as f64 / stats.events.max(1) as f64;
        stats.queue = gatherer.queue(follow.now);
        stats.direct = gatherer.direct;
        stats.wakeup = Times::of(
            gatherer
                .known
                .values()
                .flat_map(|known| known.waits.iter().copied())
                .collect(),
        );
        let tasks = gatherer.known.into_iter().map(|((_, pid), known)| Task {
            pid,
            nice: known.nice,
            runtime_ns: known.last_runtime.saturating_sub(known.first_runtime),
            wakeup: Times::of(known.waits),
        });
        stats.tasks = tasks.collect();
        stats
            .tasks
            .sort_by_key(|task| std::cmp::Reverse(task.runtime_ns));
        stats.locks = locks
            .into_iter()
            .map(|(id, (taken, busy))| Lock { id, taken, busy })
            .collect();
        stats
            .locks
            .sort_by_key(|lock| std::cmp::Reverse(lock.taken));
        stats
    }
}

fn answer(method: u8, end: &Return) -> Option<&'static str> {
    Some(match (method_name(method), end.answer) {
        ("select_task_rq", answer) if answer & BATON_SELECT_DIRECT != 0 => {
            "select_task_rq: run at once"
        }
        ("select_task_rq", _) => "select_task_rq: queue",
        ("pick_next_task", BATON_PICK_NONE) => "pick_next_task: nothing",
        ("pick_next_task", BATON_PICK_KEEP) => "pick_next_task: goes on",
        ("pick_next_task", _) => "pick_next_task: a task",
        ("newly_idle", BATON_PICK_NONE) => "newly_idle: nothing",
        ("newly_idle", _) => "newly_idle: a task",
        _ => return None,
    })
}

/// Number of tasks and locks that are printed.
const SHOWN: usize = 20;

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
        writeln!(
            f,
            "{} version {} on {}: {} CPUs, {} ms",
            self.policy,
            self.version,
            self.host,
            self.cpus,
            ms(self.duration_ns)
        )?;
        writeln!(
            f,
            "{} events, {} calls, {:.1} bytes an event; {} events lost, {} blocks missing, {} \
             places damaged\n",
            self.events,
            self.calls,
            self.bytes_per_event,
            self.lost_events,
            self.missing_blocks,
            self.damaged_places
        )?;
        if !self.checkpoints.is_empty() {
            writeln!(
                f,
                "{:<24}{:>12}{:>12}",
                "CHECKPOINT BEFORE EVENT", "AT, ms", "BYTES"
            )?;
            for point in self.checkpoints.iter().take(SHOWN) {
                writeln!(
                    f,
                    "{:<24}{:>12}{:>12}",
                    point.event,
                    ms(point.at_ns),
                    point.bytes
                )?;
            }
            if let Some(more) = self
                .checkpoints
                .len()
                .checked_sub(SHOWN)
                .filter(|more| *more > 0)
            {
                writeln!(f, "and {more} checkpoints more (--json has all)")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "{:<24}{:>12}  by CPU", "METHOD", "CALLS")?;
        for (name, calls) in &self.methods {
            let by_cpu: Vec<String> = calls
                .by_cpu
                .iter()
                .map(|(cpu, calls)| format!("{cpu}:{calls}"))
                .collect();
            writeln!(f, "{name:<24}{:>12}  {}", calls.calls, by_cpu.join(" "))?;
        }
        writeln!(f)?;
        for (what, count) in &self.answers {
            writeln!(f, "{what:<36}{count:>12}")?;
        }
        let line = |name: &str, ran: String, times: &Times| {
            let Times {
                count,
                mean_ns,
                p50_ns,
                p90_ns,
                p99_ns,
                max_ns,
            } = times;
            let [mean, p50, p90, p99, max] =
                [mean_ns, p50_ns, p90_ns, p99_ns, max_ns].map(|ns| ms(*ns));
            format!("{name:<12}{ran:>14}{count:>10}{mean:>10}{p50:>10}{p90:>10}{p99:>10}{max:>10}")
        };
        writeln!(
            f,
            "\nFrom wakeup to pick, ms; {} more wakeups went straight to a CPU",
            self.direct
        )?;
        let [task, ran, picks, mean, p50, p90, p99, max] =
            ["TASK", "RAN", "WAKEUPS", "MEAN", "P50", "P90", "P99", "MAX"];
        writeln!(
            f,
            "{task:<12}{ran:>14}{picks:>10}{mean:>10}{p50:>10}{p90:>10}{p99:>10}{max:>10}"
        )?;
        writeln!(
            f,
            "{}",
            line(
                "all",
                ms(self.tasks.iter().map(|task| task.runtime_ns).sum()),
                &self.wakeup
            )
        )?;
        for task in self.tasks.iter().take(SHOWN) {
            writeln!(
                f,
                "{}",
                line(&task.pid.to_string(), ms(task.runtime_ns), &task.wakeup)
            )?;
        }
        if let Some(more) = self.tasks.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            writeln!(f, "and {more} tasks more (--json has all)")?;
        }
        writeln!(
            f,
            "\nTasks that wait with the policy: {:.2} on average, {} at most",
            self.queue.mean, self.queue.max
        )?;
        writeln!(f, "{}", bars(&self.queue))?;
        writeln!(f, "\n{:<20}{:>12}{:>12}", "LOCK", "TAKEN", "BUSY")?;
        for lock in self.locks.iter().take(SHOWN) {
            writeln!(
                f,
                "{:<20}{:>12}{:>12}",
                format!("{:#x}", lock.id),
                lock.taken,
                lock.busy
            )?;
        }
        Ok(())
    }
}

/// The length of the queues over time.
fn bars(queue: &Queue) -> String {
    let most = queue.over_time.iter().copied().fold(1e-9, f64::max);
    let bar = |length: &f64| {
        ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][((length / most * 8.0) as usize).min(7)]
    };
    queue.over_time.iter().map(bar).collect()
}
