// SPDX-License-Identifier: GPL-2.0-only
//! Whether CPU time is shared by weight: the equivalence tests of Enoki's appendix A.1, with CPU
//! hogs, which are threads that count to a fixed number. A calibration determines this number, so
//! that a test takes the same wall-clock time on every machine.

pub mod simulated;

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use rustix::thread::{sched_getcpu, sched_setaffinity, CpuSet};
use rustix::time::{clock_gettime, ClockId};

use super::judged::verdict;
use super::report::{entries, Series};
use super::subject::Subject;
use super::table::{self, Measured, Table};
use super::{Arguments, Bench};
use baton_control::error::{Error, Result};
use baton_control::modules::Search;

/// The kernel's weights of nice 0, 5 and 19.
const WEIGHT_0: f64 = 1024.0;
const WEIGHT_5: f64 = 335.0;
const WEIGHT_19: f64 = 15.0;

/// The time that a hog counts between two looks at the clock.
const CHUNK: Duration = Duration::from_micros(50);
/// A hog that was away for longer than this was scheduled out, not interrupted.
const AWAY: Duration = Duration::from_millis(1);
/// The CPUs of the test that moves a hog.
pub const CPUS: u32 = 4;

/// The policies that must hold the bounds.
const FAIR: &[&str] = &["wfq"];

pub struct Fairness;

impl Bench for Fairness {
    fn runs(&self) -> u32 {
        2
    }

    fn cpus(&self) -> &'static [u32] {
        &[CPUS]
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Eevdf, Subject::Policy("wfq".into())]
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::run(self, search, args)
    }
}

impl Table for Fairness {
    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
        measure(search, args, cpus)
    }

    fn beside(&self, args: &Arguments) -> Result<Measured> {
        simulated::measure_all(&args.subjects(), FAIR)
    }
}

/// Measures the subjects, and judges those that must be fair.
fn measure(search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
    if cpus < CPUS {
        return Err(Error::user(
            format!(
                "this machine has {cpus} CPUs, and the tests of fairness need {}",
                CPUS
            ),
            "use a larger one, or a guest (without --here)",
        ));
    }
    let mut found = Measured::default();
    let speed = Speed::calibrate();
    for subject in args.subjects() {
        let measured = subject.measure(search, || {
            TESTS
                .iter()
                .map(|test| {
                    (0..args.runs())
                        .map(|_| (test.measure)(speed))
                        .collect::<Result<Vec<_>>>()
                })
                .collect::<Result<Vec<_>>>()
        })?;
        for (test, values) in TESTS.iter().zip(measured) {
            let judged = FAIR.contains(&subject.name().as_str());
            let broken = judged && !values.iter().all(|value| test.holds(*value));
            found.broken |= broken;
            let verdict = if judged {
                verdict(!broken)
            } else {
                "for comparison"
            };
            let shown: Vec<_> = values.iter().map(|v| format!("{v:.3}")).collect();
            eprintln!(
                "baton: {}: {}: {} {}, bound {} to {}: {verdict}",
                subject.name(),
                test.what,
                shown.join(", "),
                test.unit,
                test.least,
                test.most
            );
            let series = [Series {
                subject: subject.name(),
                values,
            }];
            found
                .entries
                .extend(entries(cpus, test.metric, test.unit, &series, false));
        }
    }
    Ok(found)
}

/// A test, and the bound that a fair policy holds.
pub struct Test {
    pub metric: &'static str,
    pub unit: &'static str,
    pub what: &'static str,
    pub least: f64,
    pub most: f64,
    pub measure: fn(Speed) -> Result<f64>,
}

/// The tests. Each gives one number.
pub const TESTS: &[Test] = &[
    Test {
        metric: "finish_spread",
        unit: "percent",
        what: "five equal hogs on one CPU finish together: last minus first, of the whole time",
        least: 0.0,
        most: 2.0,
        measure: equal_hogs,
    },
    Test {
        metric: "nice_19_share",
        unit: "of its weight's share",
        what: "a hog of nice 19 beside four of nice 0 gets 15 / (4 * 1024 + 15) of their CPU",
        least: 0.97,
        most: 1.03,
        measure: nice_19,
    },
    Test {
        metric: "rejoin_spread",
        unit: "percent",
        what: "one hog per CPU, one of them forced onto another's CPU for a moment: longest wait \
            for a CPU minus shortest, of the whole time",
        least: 0.0,
        most: 2.0,
        measure: rejoin,
    },
    Test {
        metric: "machine_shares",
        unit: "percent",
        what: "six equal hogs on four CPUs get two thirds of a CPU each: the largest distance \
            from that",
        least: 0.0,
        most: 5.0,
        measure: six_on_four,
    },
    Test {
        metric: "mixed_shares",
        unit: "percent",
        what:
            "six hogs of nice 0, three of nice 19, and four tasks that sleep after each burst of \
            2 ms, on four CPUs: the largest distance of a task of nice 0 \
               from its due",
        least: 0.0,
        most: 10.0,
        measure: mixed,
    },
];

/// The wall-clock time of each test of shares over the machine.
const SHARED: Duration = Duration::from_secs(4);
/// The time that a task of the mix works, and the time that it then sleeps.
const BURST: Duration = Duration::from_millis(2);

impl Test {
    pub fn holds(&self, value: f64) -> bool {
        (self.least..=self.most).contains(&value)
    }
}

/// How far this machine counts in a given time, on a quiet CPU.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    per_ms: u64,
}

impl Speed {
    pub fn calibrate() -> Self {
        const SAMPLE: u64 = 500_000;
        let best = (0..5).map(|_| {
            let start = Instant::now();
            count(SAMPLE);
            start.elapsed()
        });
        let ns = best.min().map_or(1, |best| best.as_nanos().max(1));
        Self {
            per_ms: (u128::from(SAMPLE) * 1_000_000 / ns).max(1) as u64,
        }
    }

    fn work(self, time: Duration) -> u64 {
        self.per_ms * time.as_micros() as u64 / 1000
    }
}

fn count(n: u64) {
    for i in 0..n {
        black_box(i);
    }
}

/// Counts to `work`, and calls `each` once per chunk with the work done so far.
fn hog(speed: Speed, work: u64, mut each: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let chunk = speed.work(CHUNK).max(1);
    let mut done = 0;
    while done < work {
        count(chunk);
        done += chunk;
        each(done)?;
    }
    Ok(())
}

fn cpu_set(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.into_iter().for_each(|cpu| set.set(cpu));
    set
}

/// Binds the calling thread to CPUs.
pub fn bind(cpus: impl IntoIterator<Item = usize>) -> Result<()> {
    sched_setaffinity(None, &cpu_set(cpus)).map_err(|e| {
        Error::environment(
            format!("a thread cannot be bound to its CPU: {e}"),
            "use a machine with more CPUs",
        )
    })
}

/// Sets the nice value of the calling thread.
fn nice(value: i32) -> Result<()> {
    setpriority_process(None, value).map_err(|e| {
        Error::environment(
            format!("nice cannot be set to {value}: {e}"),
            "run this as root",
        )
    })
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

type Body<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;
/// The start and the end of a hog.
type Span = (Instant, Instant);

/// The time from the first finish to the last, in percent of the time from the first start to the
/// last finish.
fn spread(spans: &[Span]) -> f64 {
    let start = spans.iter().map(|s| s.0).min();
    let ends = (
        spans.iter().map(|s| s.1).min(),
        spans.iter().map(|s| s.1).max(),
    );
    match (start, ends) {
        (Some(start), (Some(first), Some(last))) => {
            100.0 * (last - first).as_secs_f64() / (last - start).as_secs_f64()
        }
        _ => f64::NAN,
    }
}

/// Runs each body in a thread of its own, all from the same moment on.
fn together(bodies: Vec<Body>, ready: impl Fn() -> Result<()> + Sync) -> Result<Vec<Span>> {
    let (barrier, ready) = (&Barrier::new(bodies.len()), &ready);
    thread::scope(|scope| {
        let threads: Vec<_> = bodies
            .into_iter()
            .map(|body| {
                scope.spawn(move || {
                    // A thread that fails here must not leave the others at the barrier.
                    let ready = ready();
                    barrier.wait();
                    ready?;
                    let start = Instant::now();
                    body().map(|()| (start, Instant::now()))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().map_err(|_| panicked())?)
            .collect()
    })
}

fn equal_hogs(speed: Speed) -> Result<f64> {
    let work = speed.work(Duration::from_millis(300));
    let bodies = (0..5)
        .map(|_| Box::new(move || hog(speed, work, |_| Ok(()))) as Body)
        .collect();
    together(bodies, || bind([0])).map(|spans| spread(&spans))
}

fn nice_19(speed: Speed) -> Result<f64> {
    let share = share(speed, 19, 4, Duration::from_millis(1500))?;
    Ok(share / (WEIGHT_19 / (4.0 * WEIGHT_0 + WEIGHT_19)))
}

/// The CPU share of a hog of nice 5 beside one of nice 0, in percent. Its weight predicts
/// [`NICE_5_SHARE`].
pub fn nice_5(speed: Speed) -> Result<f64> {
    share(speed, 5, 1, Duration::from_millis(400)).map(|share| 100.0 * share)
}

pub const NICE_5_SHARE: f64 = 100.0 * WEIGHT_5 / (WEIGHT_5 + WEIGHT_0);

/// The share of CPU time of a hog of nice `value` on one CPU with `others` of nice 0, until the
/// first of the others has counted for `time`.
///
/// The share is measured between the second and the last moment at which the hog returned to the
/// CPU (the time before the first covers the start of the hogs). The interval consists of whole
/// rounds of all hogs, so the share is exact after a few rounds. An interval with arbitrary ends
/// would need many: under EEVDF a slice of nice 19 comes about once a second. A hog that returned
/// fewer than four times gives 0.
fn share(speed: Speed, value: i32, others: usize, time: Duration) -> Result<f64> {
    let over = &AtomicBool::new(false);
    let returns = &Mutex::new(Vec::new());
    let work = speed.work(time);
    let mut bodies: Vec<Body> = vec![Box::new(move || {
        nice(value)?;
        let chunk = speed.work(CHUNK).max(1);
        let (mut found, mut last) = (Vec::new(), Instant::now());
        while !over.load(Relaxed) {
            count(chunk);
            let now = Instant::now();
            // Once the first other hog is done (`over`), the CPU is no longer shared by all of
            // them, so later returns do not count.
            if now - last > AWAY && !over.load(Relaxed) {
                found.push((now, cpu_time()));
            }
            last = now;
        }
        *returns.lock().map_err(|_| panicked())? = found;
        Ok(())
    })];
    for _ in 0..others {
        bodies.push(Box::new(move || {
            let result = hog(speed, work, |_| Ok(()));
            over.store(true, Relaxed);
            result
        }));
    }
    together(bodies, || bind([0]))?;
    let returns = returns.lock().map_err(|_| panicked())?;
    Ok(match returns[..] {
        [_, first, _, .., last] => {
            (last.1 - first.1).as_secs_f64() / (last.0 - first.0).as_secs_f64()
        }
        _ => 0.0,
    })
}

fn panicked() -> Error {
    Error::baton("a hog panicked")
}

/// The difference between the longest and the shortest wait for a CPU, in percent of the whole
/// time. On CPUs of equal speed, the wait decides when a hog finishes. The CPUs of a guest take
/// turns on one processor and are not equally fast, so the waits are compared.
fn rejoin(speed: Speed) -> Result<f64> {
    const FORCED: Duration = Duration::from_millis(20);
    let work = speed.work(Duration::from_millis(400));
    let cpus = 0..CPUS as usize;
    let (victim, waits) = (&AtomicUsize::new(usize::MAX), &Mutex::new(Vec::new()));
    let all = cpus.clone();
    let mut bodies: Vec<Body> = vec![Box::new(move || {
        let mut forced = None;
        hog(speed, work, |done| match forced {
            None if done > work / 4 && victim.load(Relaxed) != usize::MAX => {
                forced = Some(Some(Instant::now()));
                bind([victim.load(Relaxed)])
            }
            Some(Some(since)) if since.elapsed() > FORCED => {
                forced = Some(None);
                bind(all.clone())
            }
            _ => Ok(()),
        })
    })];
    bodies.push(Box::new(move || {
        hog(speed, work, |_| {
            victim.store(sched_getcpu(), Relaxed);
            Ok(())
        })
    }));
    for _ in 2..CPUS {
        bodies.push(Box::new(move || hog(speed, work, |_| Ok(()))));
    }
    let bodies = bodies.into_iter().map(|body| {
        Box::new(move || {
            let (start, ran) = (Instant::now(), cpu_time());
            body()?;
            let whole = start.elapsed().as_secs_f64();
            let waited = whole - (cpu_time() - ran).as_secs_f64();
            waits.lock().map_err(|_| panicked())?.push((whole, waited));
            Ok(())
        }) as Body
    });
    together(bodies.collect(), || bind(cpus.clone()))?;
    let waits = waits.lock().map_err(|_| panicked())?;
    let most = |f: fn(&(f64, f64)) -> f64| waits.iter().map(f).fold(f64::MIN, f64::max);
    Ok(100.0 * (most(|w| w.1) + most(|w| -w.1)) / most(|w| w.0))
}

/// A task of a mix.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Hog { nice: i32 },
    Burst,
}

/// Runs these tasks on [`CPUS`] CPUs for [`SHARED`]. Returns the CPU time of each, as a part of a
/// CPU.
fn mix(speed: Speed, kinds: &[Kind]) -> Result<Vec<f64>> {
    let had = &Mutex::new(vec![0.0; kinds.len()]);
    let bodies = kinds.iter().enumerate().map(|(at, &kind)| {
        Box::new(move || {
            let chunk = speed.work(CHUNK).max(1);
            if let Kind::Hog { nice: value } = kind {
                nice(value)?;
            }
            let (start, before) = (Instant::now(), cpu_time());
            while start.elapsed() < SHARED {
                match kind {
                    Kind::Hog { .. } => count(chunk),
                    Kind::Burst => {
                        let began = cpu_time();
                        while cpu_time() - began < BURST {
                            count(chunk);
                        }
                        thread::sleep(BURST);
                    }
                }
            }
            let part = (cpu_time() - before).as_secs_f64() / start.elapsed().as_secs_f64();
            had.lock().map_err(|_| panicked())?[at] = part;
            Ok(())
        }) as Body
    });
    together(bodies.collect(), || bind(0..CPUS as usize))?;
    let had = had.lock().map_err(|_| panicked())?;
    Ok(had.clone())
}

/// The largest distance from the due share, in percent of it, among the tasks for which `due` gives
/// one.
fn worst(had: &[f64], kinds: &[Kind], due: impl Fn(Kind) -> Option<f64>) -> f64 {
    let off = had
        .iter()
        .zip(kinds)
        .filter_map(|(had, &kind)| due(kind).map(|due| 100.0 * (had / due - 1.0).abs()));
    off.fold(0.0, f64::max)
}

fn six_on_four(speed: Speed) -> Result<f64> {
    let kinds = [Kind::Hog { nice: 0 }; 6];
    let had = mix(speed, &kinds)?;
    Ok(worst(&had, &kinds, |_| Some(f64::from(CPUS) / 6.0)))
}

fn mixed(speed: Speed) -> Result<f64> {
    let (heavy, light) = (Kind::Hog { nice: 0 }, Kind::Hog { nice: 19 });
    let mut kinds = [heavy; 13];
    kinds[6..9].fill(light);
    kinds[9..].fill(Kind::Burst);
    let had = mix(speed, &kinds)?;
    let (rate, wants) = rate_of_mix();
    Ok(worst(&had, &kinds, |kind| match kind {
        Kind::Burst => Some(rate * wants),
        kind => (kind == heavy).then_some(rate),
    }))
}

/// Let r be the part of a CPU that is due to a runnable task of nice 0. A burst then takes 1 / r
/// times as long as the sleep, so a task with bursts is runnable for 1 / (1 + r) of the time. r is
/// [`CPUS`] divided by the sum of the runnable weights (nice 0 counts 1), which depends on r: the
/// loop finds it. Returns r and 1 / (1 + r).
fn rate_of_mix() -> (f64, f64) {
    let mut rate = 1.0;
    for _ in 0..100 {
        let wanting = 6.0 + 3.0 * WEIGHT_19 / WEIGHT_0 + 4.0 / (1.0 + rate);
        rate = f64::from(CPUS) / wanting;
    }
    (rate, 1.0 / (1.0 + rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let kinds = [Kind::Burst, Kind::Hog { nice: 19 }];
        let due = |kind| (kind == Kind::Burst).then_some(0.5);
        assert!((worst(&[0.4, 0.0], &kinds, due) - 20.0).abs() < 1e-9);
        assert!((worst(&[0.6, 0.0], &kinds, due) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn what_a_mix_is_due() {
        let (rate, wants) = rate_of_mix();
        let all = rate * (6.0 + 3.0 * WEIGHT_19 / WEIGHT_0) + 4.0 * rate * wants;
        assert!((all - f64::from(CPUS)).abs() < 1e-6, "{all}");
        assert!((0.4..0.5).contains(&rate), "{rate}");
    }

    #[test]
    fn spreads() {
        let zero = Instant::now();
        let span = |start, end| {
            (
                zero + Duration::from_millis(start),
                zero + Duration::from_millis(end),
            )
        };
        let check = |spans: &[Span], expected: f64| {
            assert!((spread(spans) - expected).abs() < 1e-9, "{spans:?}")
        };
        check(&[span(0, 100), span(1, 98), span(5, 99)], 2.0);
        check(&[span(3, 7)], 0.0);
        assert!(spread(&[]).is_nan());
    }

    #[test]
    fn bounds() {
        let check = |metric: &str, value: f64, expected: bool| {
            let test = TESTS.iter().find(|t| t.metric == metric).unwrap();
            assert_eq!(test.holds(value), expected, "{metric} {value}");
        };
        check("finish_spread", 1.9, true);
        check("finish_spread", 2.1, false);
        check("finish_spread", f64::NAN, false);
        check("nice_19_share", 1.02, true);
        check("nice_19_share", 0.9, false);
        check("rejoin_spread", 50.0, false);
    }

    #[test]
    fn work_is_proportional_to_time() {
        let speed = Speed { per_ms: 1000 };
        assert_eq!(speed.work(Duration::from_millis(3)), 3000);
        assert_eq!(speed.work(CHUNK), 50);
        assert!(Speed::calibrate().per_ms > 0);
    }
}
