// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's side: requests to a real RocksDB (bench/programs/rocksdb.c), and the batch program
//! as processes.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use baton_sim::threads::{self, Plan, Speed};
use rustix::process::{setpriority_process, Pid};
use serde::Deserialize;

use super::{Found, Place, Point, Saturation, BATCH, LONG, MEAN, OVERLOAD, SHORT};
use crate::fidelity::costs::ring;
use crate::loads::output;
use crate::programs::PROGRAMS;
use crate::slow;
use crate::subject::{check_policy, Subject};
use crate::Arguments;
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};
use baton_control::modules::Search;
use baton_control::{load, tasks, unload};

/// Per cent of EEVDF's capacity.
const LOADS: &[u64] = &[50, 70, 80];
/// The length of a run, ns.
const DURATION: u64 = 8_000_000_000;
const TICK: u64 = 4_000_000;

/// Measures all subjects on this machine. The capacity of the first determines the loads.
pub fn measure(search: &Search, args: &Arguments) -> Result<Found> {
    kernel::require_root("putting a scheduler in charge")?;
    let factor = slow::factor(args);
    let _slice = args.icount.then(slow::BaseSlice::longer).transpose()?;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let overload = OVERLOAD * slow::at_once(args, cpus);
    let speed = Speed::calibrate();
    let mut found = Found {
        kernel: kernel::release(),
        ..Found::default()
    };
    let mut whole = None;
    for subject in args.subjects() {
        subject.measure_with(
            search,
            slow::options(&subject).filter(|_| args.icount),
            || {
                if whole.is_none() {
                    found.switch = hop(speed)?;
                }
                let busy = run(overload, factor)?.computed as f64 / DURATION as f64;
                let whole = *whole.get_or_insert(busy);
                let answered = busy * 1e9 / MEAN;
                eprintln!(
                    "baton: {}: {answered:.0} requests in a second can be answered",
                    subject.name()
                );
                found.saturations.push(Saturation {
                    place: Place::Kernel,
                    subject: subject.name(),
                    answered,
                });
                for &load in LOADS {
                    let needed = whole * load as f64 / 100.0;
                    found.points.push(point(
                        &subject,
                        load,
                        whole,
                        &run(needed, factor)?,
                        factor,
                        None,
                    ));
                    // Only where there is an order of policies, or nice values.
                    if matches!(subject, Subject::Eevdf | Subject::Policy(_)) {
                        let (ran, share) = beside(search, &subject, || run(needed, factor))?;
                        found
                            .points
                            .push(point(&subject, load, whole, &ran, factor, Some(share)));
                    }
                }
                Ok(())
            },
        )?;
    }
    Ok(found)
}

/// The output of the program.
#[derive(Deserialize)]
struct Ran {
    answered: u64,
    /// CPU time of requests, ns.
    computed: u64,
    gets: Gets,
}

/// Latencies of GET, ns.
#[derive(Deserialize)]
struct Gets {
    p50: u64,
    p99: u64,
    p999: u64,
}

/// One run of requests that need this many CPUs.
fn run(load: f64, factor: u64) -> Result<Ran> {
    let [short, long] = [SHORT, LONG].map(|ns| (ns * factor).to_string());
    let gap = (MEAN * factor as f64 / load).to_string();
    let duration = DURATION.to_string();
    let words = [
        "--nice",
        "-20",
        "--gap",
        &gap,
        "--short",
        &short,
        "--long",
        &long,
        "--duration",
        &duration,
    ];
    let program = PROGRAMS.find("rocksdb")?;
    let text = output(&program.display().to_string(), &words)?;
    serde_json::from_str(&text)
        .map_err(|e| Error::baton(format!("{} printed {text}: {e}", program.display())))
}

fn point(
    subject: &Subject,
    load: u64,
    whole: f64,
    ran: &Ran,
    factor: u64,
    batch_share: Option<f64>,
) -> Point {
    let [p50, p99, p999] =
        [ran.gets.p50, ran.gets.p99, ran.gets.p999].map(|ns| slow::us(ns, factor));
    let point = Point {
        place: Place::Kernel,
        subject: subject.name(),
        batch: batch_share.is_some(),
        load,
        offered: whole * load as f64 / 100.0 * 1e9 / MEAN,
        answered: ran.answered as f64 * factor as f64 * 1e9 / DURATION as f64,
        p50,
        p99,
        p999,
        batch_share,
    };
    let beside = batch_share.map_or(String::new(), |share| {
        format!(", beside a batch program with {share:.1} % of the CPU time")
    });
    eprintln!(
        "baton: {}, load {load} %: {:.0} requests a second answered, p50 {:.0}, p99 {:.0}, p99.9 \
         {:.0} us{beside}",
        point.subject, point.answered, point.p50, point.p99, point.p999
    );
    point
}

/// The time from one thread to the next, with the wakeup and two system calls, ns.
fn hop(speed: Speed) -> Result<u64> {
    const SHORT_RUN: u64 = 100_000_000;
    let plan = Plan {
        seed: 1,
        duration: SHORT_RUN,
        speed,
        align: TICK,
    };
    let ran = threads::run(ring(2), plan, |_| ()).map_err(|why| {
        Error::environment(
            format!("threads cannot run on this machine: {why}"),
            "measure in a guest (without --here)",
        )
    })?;
    let hops: u64 = ran.iter().map(|group| group.done).sum();
    Ok(SHORT_RUN / hops.max(1))
}

/// Runs beside a batch program, whose policy is the last in the order. Also returns the batch
/// program's share of all CPU time, per cent.
fn beside<T>(
    search: &Search,
    subject: &Subject,
    run: impl FnOnce() -> Result<T>,
) -> Result<(T, f64)> {
    let policy = match subject {
        Subject::Policy(name) if name != BATCH => Some(BATCH),
        _ => None,
    };
    if let Some(policy) = policy {
        drop(load::load(search, policy, &load::Options::default())?);
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let hogs = (0..cpus)
        .map(|_| Hog::start())
        .collect::<Result<Vec<_>>>()?;
    for hog in hogs.iter().filter(|_| policy.is_some()) {
        let _lock = Lock::take()?;
        tasks::give_all(&Device::open()?, BATCH, || Ok(vec![hog.0.id()]))?;
    }
    let used = || hogs.iter().map(Hog::cpu_time).sum::<Result<u64>>();
    let (began, begin) = (used()?, Instant::now());
    let result = run()?;
    let all = begin.elapsed().as_nanos() as f64 * cpus as f64;
    let share = (used()? - began) as f64 * 100.0 / all;
    drop(hogs);
    if let Some(policy) = policy {
        check_policy(policy)?;
        unload::one(policy)?;
    }
    Ok((result, share))
}

/// A process of the lowest priority that always wants a CPU. It ends when this value is dropped.
struct Hog(Child);

impl Hog {
    fn start() -> Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null());
        let child = command.spawn().map_err(|e| Error::file("running sh", &e))?;
        let pid = Pid::from_child(&child);
        let hog = Self(child);
        setpriority_process(Some(pid), 19)
            .map_err(|e| Error::file("giving sh a nice value", &e.into()))?;
        Ok(hog)
    }

    /// CPU time of the process, ns.
    fn cpu_time(&self) -> Result<u64> {
        let path = format!("/proc/{}/schedstat", self.0.id());
        let text =
            fs::read_to_string(&path).map_err(|e| Error::file(format!("reading {path}"), &e))?;
        let first = text.split(' ').next().and_then(|word| word.parse().ok());
        first.ok_or_else(|| Error::baton(format!("{path} does not begin with a time: {text}")))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
