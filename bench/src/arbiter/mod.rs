// SPDX-License-Identifier: GPL-2.0-only
//! Two processes whose demand for cores changes: in turn, one has many requests and the other few.
//! This is section 5.6 of Enoki, after Arachne.
//!
//! Each request is a user-level thread that computes. The processes get their cores in one of three
//! ways:
//!
//! - from the policy `arbiter`;
//! - from a server that moves threads between cpusets, under the kernel's own scheduler;
//! - as kernel threads. Either each thread has its own queue, as in memcached (the paper's
//!   baseline), under the kernel's own scheduler and under sched_ext's example; or all share one
//!   queue; or there is one thread for each request.
//!
//! A guest that counts instructions has one stream of them for its four CPUs. A request therefore
//! computes by the clock of its CPU, so that the CPUs compute in parallel; only the work of the
//! kernel and the runtime is done one CPU after the other. One CPU is for the threads that generate
//! requests, and a load is a fraction of the capacity of the other three. The bounds are in
//! `judge`.

mod judge;

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use baton_sim::report::Histogram;
use rustix::process::{kill_process, Pid, Signal};
use serde::{Deserialize, Serialize};

use super::guest::{guest_with, report_of_guest};
use super::judged;
use super::subject::Subject;
use super::{Arguments, Bench};
use crate::threads::{now, Served, Step};
use baton_control::error::{Error, Result};
use baton_control::kernel;
use baton_control::modules::Search;
use baton_control::output::print_json;

/// The policy that is measured.
pub const POLICY: &str = "arbiter";
const CPUS: u32 = 4;
/// The cores that can be granted.
const CORES: u32 = CPUS - 1;
/// Kernel threads of a process in which each has its own queue: memcached's default.
const WORKERS: u32 = 4;
/// The time that a request computes, ns.
const WORK: u64 = 100_000;
/// The length of a phase, ns, and the number of phases.
const PHASE: u64 = 200_000_000;
const PHASES: usize = 10;
/// Runs of each point, each with new processes and other arrivals: EEVDF's tails differ from run to
/// run.
const RUNS: u64 = 3;
/// The demand of both processes together, per cent of the cores.
const LOADS: &[u64] = &[50, 70, 80];
/// The part of this demand that belongs to the busy process, per cent.
const BUSY: f64 = 70.0;
const SOCKET: &str = "/tmp/baton-arbiter.socket";

/// How the processes get their CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From the policy.
    Arbiter,
    /// From the server, with a socket and cpusets, under EEVDF.
    Cpusets,
    /// Kernel threads under EEVDF, on the same three CPUs. Each has its own queue, as memcached's
    /// threads have their own connections.
    Threads,
    /// The same under sched_ext's example.
    Scx,
    /// As many kernel threads as these CPUs, with one queue, for comparison.
    Pool,
    /// A kernel thread for each request, where the runtime has a user-level thread; on all four
    /// CPUs.
    Each,
}

impl Way {
    const ALL: [Way; 6] = [
        Way::Arbiter,
        Way::Threads,
        Way::Scx,
        Way::Cpusets,
        Way::Pool,
        Way::Each,
    ];

    fn name(self) -> &'static str {
        match self {
            Way::Arbiter => "arbiter",
            Way::Cpusets => "cpusets",
            Way::Threads => "threads",
            Way::Scx => "threads, scx_simple",
            Way::Pool => "threads, one queue",
            Way::Each => "threads, one each",
        }
    }

    /// The scheduler in charge.
    fn subject(self) -> Subject {
        match self {
            Way::Arbiter => Subject::Policy(POLICY.into()),
            Way::Scx => Subject::Scx {
                program: "scx_simple",
                options: &[],
            },
            _ => Subject::Eevdf,
        }
    }

    /// Per cent. One load is enough to show that far fewer requests are answered than arrive.
    fn loads(self) -> &'static [u64] {
        match self {
            Way::Each => &[judge::HIGH],
            _ => LOADS,
        }
    }
}

/// All runs of one way at one load. Times in us.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub way: Way,
    /// Per cent of the three cores.
    pub load: u64,
    /// Requests per second: those that arrived, and those that were answered. The time of the
    /// latter ends with the last answer.
    pub offered: f64,
    pub answered: f64,
    /// From the time when a request was due to its answer.
    pub p50: f64,
    pub p99: f64,
    pub cores: Option<Cores>,
}

/// Grants and reclaims of cores, of both processes together. Times in us.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cores {
    pub grants: u64,
    /// From the time when a core is requested and one is free until a thread runs on it.
    pub grant: [f64; 2],
    pub reclaims: u64,
    /// From the request that took a core from a process until the process returns it.
    pub reclaim: [f64; 2],
    /// The part of the time in which a core is free while one more is requested, per cent.
    pub unused: f64,
}

/// All measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The release of the kernel (`uname -r`).
    pub kernel: String,
    pub points: Vec<Point>,
}

/// The subjects whose files the guest needs.
fn subjects() -> Vec<Subject> {
    [Way::Arbiter, Way::Scx].map(Way::subject).into()
}

pub struct Arbiter;

impl Bench for Arbiter {
    fn cpus(&self) -> &'static [u32] {
        &[CPUS]
    }

    fn subjects(&self) -> Vec<Subject> {
        subjects()
    }

    fn has_quick_form(&self) -> bool {
        false
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        command(search, args)
    }
}

fn command(search: &Search, args: &Arguments) -> Result<ExitCode> {
    if args.here {
        return print_json(&here(search)?).map(|()| ExitCode::SUCCESS);
    }
    if !args.cpus.is_empty() || args.runs.is_some() || !args.subjects.is_empty() {
        return Err(Error::user(
            "bench arbiter has one run, in a guest with four CPUs",
            "leave --cpus, --runs and --subject out",
        ));
    }
    let found: Found = report_of_guest(args, CPUS, guest_with(&args.subjects())?)?;
    let verdicts = judge::verdicts(&found);
    let report = judged::Report {
        bench: "arbiter",
        kernel: &found.kernel,
        results: &found.points,
        verdicts: &verdicts,
    };
    let text = judge::text(&found, &verdicts);
    let all_hold = verdicts.iter().all(|verdict| verdict.holds);
    judged::end(args, &report, text, String::new, all_hold)
}

/// Measures all ways on this machine.
fn here(search: &Search) -> Result<Found> {
    kernel::require_root("putting a scheduler in charge")?;
    check_cpus(std::thread::available_parallelism().map_or(1, |n| n.get() as u32))?;
    let mut found = Found {
        kernel: kernel::release(),
        points: Vec::new(),
    };
    for way in Way::ALL {
        way.subject().measure(search, || {
            let _server = (way == Way::Cpusets).then(Program::server).transpose()?;
            for &load in way.loads() {
                let runs = (0..RUNS)
                    .map(|number| run(way, load, number))
                    .collect::<Result<Vec<_>>>()?;
                let point = point(way, load, &runs);
                eprintln!("baton: {}", words(&point));
                found.points.push(point);
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// One CPU is for the threads that generate requests, and the bounds are for the three others.
fn check_cpus(cpus: u32) -> Result<()> {
    match cpus {
        CPUS => Ok(()),
        _ => Err(Error::user(
            format!("this machine has {cpus} CPUs, but bench arbiter needs {CPUS}"),
            "use a machine with that many CPUs, or a guest (without --here)",
        )),
    }
}

/// Another process of this program. Dropping this value ends the process with SIGTERM, so that it
/// can clean up.
struct Program(Child);

impl Program {
    fn start(arguments: &[String]) -> Result<Self> {
        let own =
            std::env::current_exe().map_err(|e| Error::file("looking for this program", &e))?;
        let mut command = Command::new(own);
        command
            .arg("threads")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
            .spawn()
            .map(Self)
            .map_err(|e| Error::file("starting this program again", &e))
    }

    fn server() -> Result<Self> {
        let _ = std::fs::remove_file(SOCKET);
        let server = Self::start(&["arbiter".into(), SOCKET.into()])?;
        if kernel::wait_until(Duration::from_secs(10), || Ok(Path::new(SOCKET).exists()))? {
            Ok(server)
        } else {
            Err(Error::environment(
                "the server of cores does not listen on its socket",
                "its messages are above",
            ))
        }
    }

    fn served(mut self) -> Result<Served> {
        let Some(mut out) = self.0.stdout.take() else {
            return Err(Error::baton("a server has no output"));
        };
        let mut text = String::new();
        std::io::Read::read_to_string(&mut out, &mut text)
            .map_err(|e| Error::file("reading the report of a server", &e))?;
        serde_json::from_str(&text).map_err(|e| {
            Error::environment(
                format!("the report of a server is invalid ({e}): {text}"),
                "its messages are above",
            )
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A process that has ended keeps its pid until it is waited for.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Describes a point, for the progress on standard error.
fn words(point: &Point) -> String {
    let Point {
        way,
        load,
        offered,
        answered,
        p50,
        p99,
        cores,
    } = point;
    let mut text = format!(
        "{}, load {load} %: {answered:.0} of {offered:.0} requests a second answered, \
         p50 {p50:.0}, p99 {p99:.0} us",
        way.name()
    );
    if let Some(Cores {
        grants,
        grant,
        reclaims,
        reclaim,
        unused,
    }) = cores
    {
        text += &format!(
            "; {grants} cores granted after p50 {:.0}, p99 {:.0} us, {reclaims} given back after \
             p50 {:.0}, p99 {:.0} us, one unused and requested in {unused:.1} % of the time",
            grant[0], grant[1], reclaim[0], reclaim[1]
        );
    }
    text
}

/// A run: its begin, and the reports of the processes.
type Run = (u64, [Served; 2]);

fn run(way: Way, load: u64, number: u64) -> Result<Run> {
    let begin = now() + 300_000_000;
    let all = load as f64 / 100.0 * f64::from(CORES) * 1e9 / WORK as f64;
    let (many, few) = (all * BUSY / 100.0, all * (100.0 - BUSY) / 100.0);
    let both = [0usize, 1].map(|which| {
        let rates: Vec<_> = (0..PHASES)
            .map(|phase| if phase % 2 == which { many } else { few }.to_string())
            .collect();
        let mut arguments: Vec<String> = ["serve", "--on"].map(Into::into).into();
        arguments.push(match way {
            Way::Arbiter => "policy".into(),
            Way::Cpusets => format!("socket --socket {SOCKET}"),
            Way::Threads | Way::Scx => "threads --apart --dealt".into(),
            Way::Pool => "threads --apart".into(),
            Way::Each => "threads --each".into(),
        });
        let most = if matches!(way, Way::Threads | Way::Scx) {
            WORKERS
        } else {
            CORES
        };
        arguments.push(format!(
            "--most {most} --begin {begin} --phase {PHASE} --work {WORK}"
        ));
        arguments.push(format!("--seed {}", number * 2 + which as u64));
        arguments.push(format!("--rates {}", rates.join(",")));
        let arguments: Vec<_> = arguments
            .iter()
            .flat_map(|some| some.split(' '))
            .map(String::from)
            .collect();
        Program::start(&arguments)
    });
    let [one, other] = both;
    let served = [one?, other?].map(Program::served);
    let [one, other] = served;
    Ok((begin, [one?, other?]))
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn point(way: Way, load: u64, runs: &[Run]) -> Point {
    const DURATION: u64 = PHASE * PHASES as u64;
    let (mut latencies, mut took) = (Histogram::default(), 0);
    for (begin, served) in runs {
        served
            .iter()
            .flat_map(|one| &one.latencies)
            .for_each(|&ns| latencies.record(ns));
        let end = served.iter().map(|one| one.end).max().unwrap_or(0);
        took += end.saturating_sub(*begin).max(DURATION);
    }
    let times = latencies.percentiles();
    let mut grants = Grants::default();
    runs.iter()
        .for_each(|(begin, served)| grants.add(*begin, begin + DURATION, served));
    let cores = matches!(way, Way::Arbiter | Way::Cpusets).then(|| grants.cores());
    Point {
        way,
        load,
        offered: times.count as f64 * 1e9 / (DURATION * runs.len() as u64) as f64,
        answered: times.count as f64 * 1e9 / took as f64,
        p50: us(times.p50),
        p99: us(times.p99),
        cores,
    }
}

/// Statistics of the histories of cores. Times in ns.
#[derive(Default)]
struct Grants {
    grant: Histogram,
    reclaim: Histogram,
    unused: u64,
    time: u64,
}

impl Grants {
    /// Adds the histories of two processes, counted between two times.
    fn add(&mut self, begin: u64, end: u64, served: &[Served; 2]) {
        let mut steps: Vec<_> = served
            .iter()
            .enumerate()
            .flat_map(|(who, one)| one.steps.iter().map(move |&(when, step)| (when, who, step)))
            .collect();
        steps.sort_by_key(|&(when, ..)| when);
        self.time += end - begin;
        let mut asked: [Vec<u64>; 2] = Default::default();
        let (mut wanted, mut has, mut leaving) = ([0u32; 2], [0u32; 2], [Vec::new(), Vec::new()]);
        let (mut last_request, mut free_since, mut since) = (begin, 0, begin);
        for (when, who, step) in steps {
            // The interval that ends with this step, limited to the time that counts.
            let (from, until) = (since.clamp(begin, end), when.clamp(begin, end));
            let waits = (0..2).any(|who| has[who] < wanted[who]) && has.iter().sum::<u32>() < CORES;
            self.unused += if waits { until - from } else { 0 };
            since = when;
            match step {
                Step::Requested(cores) => {
                    last_request = when;
                    let more = cores.saturating_sub(wanted[who]);
                    asked[who].extend((0..more).map(|_| when));
                    let fewer = wanted[who].saturating_sub(cores) as usize;
                    let left = asked[who].len().saturating_sub(fewer);
                    asked[who].truncate(left);
                    wanted[who] = cores;
                }
                Step::Granted => {
                    has[who] += 1;
                    if !asked[who].is_empty() {
                        let since = asked[who].remove(0).max(free_since);
                        if when >= begin {
                            self.grant.record(when - since);
                        }
                    }
                }
                Step::Reclaimed => leaving[who].push(last_request),
                Step::Parked => {
                    free_since = if has.iter().sum::<u32>() == CORES {
                        when
                    } else {
                        free_since
                    };
                    has[who] = has[who].saturating_sub(1);
                    // At the end the processes park without being told to.
                    if let Some(since) = leaving[who].pop().filter(|_| (begin..end).contains(&when))
                    {
                        self.reclaim.record(when - since);
                    }
                    if has[who] < wanted[who] && when < end {
                        asked[who].push(when);
                    }
                }
            }
        }
    }

    fn cores(&self) -> Cores {
        let of = |times: &Histogram| {
            let times = times.percentiles();
            (times.count, [us(times.p50), us(times.p99)])
        };
        let ((grants, grant), (reclaims, reclaim)) = (of(&self.grant), of(&self.reclaim));
        Cores {
            grants,
            grant,
            reclaims,
            reclaim,
            unused: self.unused as f64 * 100.0 / self.time as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_for_four_cpus() {
        assert_eq!(check_cpus(4), Ok(()));
        for cpus in [2, 8] {
            assert!(check_cpus(cpus)
                .unwrap_err()
                .what
                .starts_with(&format!("this machine has {cpus} CPUs")));
        }
    }

    #[test]
    fn progress_is_in_words() {
        let point = |cores| Point {
            way: Way::Arbiter,
            load: 60,
            offered: 1000.4,
            answered: 999.6,
            p50: 110.0,
            p99: 410.5,
            cores,
        };
        let plain =
            "arbiter, load 60 %: 1000 of 1000 requests a second answered, p50 110, p99 410 us";
        assert_eq!(words(&point(None)), plain);
        let cores = Cores {
            grants: 20,
            grant: [5.0, 9.4],
            reclaims: 18,
            reclaim: [7.0, 30.0],
            unused: 1.25,
        };
        let more =
            "; 20 cores granted after p50 5, p99 9 us, 18 given back after p50 7, p99 30 us, \
                    one unused and requested in 1.2 % of the time";
        assert_eq!(words(&point(Some(cores))), format!("{plain}{more}"));
    }

    #[test]
    fn what_histories_come_to() {
        use Step::*;
        const MS: u64 = 1_000_000;
        let of = |steps: &[(u64, Step)]| Served {
            steps: steps.iter().map(|&(ms, step)| (ms * MS, step)).collect(),
            ..Served::default()
        };
        let one = of(&[
            (1, Requested(3)),
            (2, Granted),
            (2, Granted),
            (3, Granted),
            (12, Reclaimed),
            (14, Parked),
        ]);
        let other = of(&[
            (10, Requested(1)),
            (15, Granted),
            (50, Requested(2)),
            (60, Requested(1)),
        ]);
        let mut grants = Grants::default();
        grants.add(0, 100 * MS, &[one, other]);
        let cores = grants.cores();
        assert_eq!((cores.grants, cores.reclaims), (4, 1));
        // Grants took 1, 1, 2 and 1 ms: for the last, a core is free only from 14 ms on. The
        // reclaim took from 10 to 14 ms. A histogram's values have three digits.
        let near = |value: f64, expected: f64| {
            assert!(
                (value / expected - 1.0).abs() < 0.01,
                "{value}, not {expected}"
            )
        };
        near(cores.grant[0], 1_000.0);
        near(cores.grant[1], 2_000.0);
        near(cores.reclaim[1], 4_000.0);
        // From 1 to 3 and from 14 to 15; at all other times every core is in use.
        near(cores.unused, 3.0);
    }
}
