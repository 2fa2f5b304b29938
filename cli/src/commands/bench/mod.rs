// SPDX-License-Identifier: GPL-2.0-only
//! `baton bench`: schedulers beside each other, all in the same boot, each in charge of every task
//! of the machine.
//!
//! Times on shared machines are noise, so the default is a guest that counts instructions: there 1
//! ns of its clock is one instruction executed, and a difference of one per cent means something.
//! This command boots that guest once for each number of CPUs and runs itself there with `--here`.

mod arbiter;
pub mod fairness;
mod fidelity;
pub mod loads;
mod locality;
mod memcached;
mod pipe;
mod programs;
mod record;
pub mod report;
mod rocksdb;
mod sim;
mod simulate;
mod slow;
pub mod subject;
mod upgrade;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use baton_vm::{FileIn, Outcome, Vm};
use clap::ValueEnum;
use serde::de::DeserializeOwned;

use super::vm::{guest_files, vm_error};
use super::{print, print_json};
use baton_build::Search;
use baton_control::error::{Error, Result};
use baton_control::kernel;
use programs::{EXAMPLES, PROGRAMS};
use report::{entries, median, Report, Series};
use subject::Subject;

const HACKBENCH: (u32, u32) = (1, 200);
/// Policies that must hold the bounds of `fairness`.
const FAIR: &[&str] = &["wfq"];
const REPORT_IN_GUEST: &str = "/tmp/report.json";
/// For one boot. Half a minute is usual for the boot alone, on a busy machine more.
const TIMEOUT: Duration = Duration::from_secs(1800);

#[derive(clap::Args, Debug)]
pub struct Bench {
    /// What to measure.
    pub what: What,
    /// Count instructions. Default in a guest; with --here it says that this machine's clock does.
    #[arg(long)]
    pub icount: bool,
    /// Numbers of CPUs, with one guest for each. [default: 1,2; memcached: 1; fairness: 4; upgrade:
    /// 1,2,4,8; sim: 1 to 4096]
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with = "here",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: Vec<u32>,
    /// Runs of each subject. [default: pipe 6, hackbench 4, fairness 2, upgrade 200, fidelity 3,
    /// memcached 3, record 10, sim 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// For a first look: a tenth of the runs, in no more than two guests.
    #[arg(long, conflicts_with = "runs")]
    pub quick: bool,
    /// Only this subject: eevdf, scx_simple, "scx_simple -f", scx_central, scx_userland, or a
    /// policy. May be repeated.
    #[arg(long = "subject", value_name = "NAME", value_parser = Subject::parse)]
    pub subjects: Vec<Subject>,
    /// rocksdb, locality: write a page with a figure.
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    pub page: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Measure on this machine and not in a guest: every normal task of it changes schedulers.
    #[arg(long)]
    pub here: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Two processes that wake each other (perf bench sched pipe). Exit code 1 when a policy does
    /// not hold its bound.
    Pipe,
    /// Many processes that send each other messages (hackbench).
    Hackbench,
    /// Hogs that share CPUs by their weights. Exit code 1 when wfq does not hold a bound.
    Fairness,
    /// Versions of a policy that take each other's place: how long tasks have no scheduler.
    Upgrade,
    /// The simulator beside a booted kernel. Exit code 1 when a number is out of its bound without
    /// a reason.
    Fidelity,
    /// Short requests beside long ones, simulated and in a booted kernel. Exit code 1 when shinjuku
    /// does not hold a bound.
    Rocksdb,
    /// A memcached under an open loop like Facebook's ETC pool.
    Memcached,
    /// Threads that wake each other, with and without hints, simulated and in a booted kernel. Exit
    /// code 1 when locality does not hold a bound.
    Locality,
    /// Two processes whose demand for cores changes, in a booted kernel with four CPUs. Exit code 1
    /// when arbiter does not hold a bound.
    Arbiter,
    /// What recording costs: pipe and hackbench under wfq, recorded, not recorded, and built
    /// without recording.
    Record,
    /// What the simulator costs, on this machine: events per second, and memory per task.
    Sim,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Pipe => "pipe",
            What::Hackbench => "hackbench",
            What::Fairness => "fairness",
            What::Upgrade => "upgrade",
            What::Fidelity => "fidelity",
            What::Rocksdb => "rocksdb",
            What::Memcached => "memcached",
            What::Locality => "locality",
            What::Arbiter => "arbiter",
            What::Record => "record",
            What::Sim => "sim",
        }
    }

    fn usual_runs(self) -> u32 {
        match self {
            // EEVDF's own runs on 2 CPUs differ by 5 %.
            What::Pipe => 6,
            What::Hackbench => 4,
            What::Fairness => 2,
            What::Upgrade => 200,
            What::Fidelity | What::Memcached => 3,
            What::Rocksdb | What::Locality => 1,
            What::Arbiter => 1,
            What::Record => 10,
            What::Sim => 3,
        }
    }

    fn usual_cpus(self) -> Vec<u32> {
        match self {
            What::Pipe | What::Hackbench | What::Fidelity | What::Record => vec![1, 2],
            What::Fairness => vec![fairness::CPUS],
            What::Upgrade => vec![1, 2, 4, 8],
            // Busy CPUs would share one stream of instructions, and who is woken would wait for his
            // CPU's turn.
            What::Rocksdb | What::Memcached => vec![1],
            What::Arbiter => vec![4],
            What::Locality | What::Sim => Vec::new(),
        }
    }
}

impl Bench {
    fn runs(&self) -> u32 {
        let usual = self.what.usual_runs();
        self.runs.unwrap_or(if self.quick {
            (usual / 10).max(1)
        } else {
            usual
        })
    }

    /// One guest for each.
    fn guests(&self) -> Vec<u32> {
        let usual = || {
            self.what
                .usual_cpus()
                .into_iter()
                .take(if self.quick { 2 } else { usize::MAX })
        };
        if self.cpus.is_empty() {
            usual().collect()
        } else {
            self.cpus.clone()
        }
    }

    fn subjects(&self) -> Vec<Subject> {
        match (self.subjects.is_empty(), self.what) {
            (false, _) => self.subjects.clone(),
            (true, What::Sim | What::Record) => vec![Subject::Policy("wfq".into())],
            (true, What::Fairness) => vec![Subject::Eevdf, Subject::Policy("wfq".into())],
            (true, What::Fidelity) => ["fifo", "wfq"]
                .map(|name| Subject::Policy(name.into()))
                .into(),
            (true, What::Upgrade) => upgrade::subjects(),
            (true, What::Rocksdb) => rocksdb::subjects(),
            (true, What::Memcached) => memcached::subjects(),
            (true, What::Locality) => locality::subjects(),
            (true, What::Arbiter) => arbiter::subjects(),
            (true, What::Pipe) => Subject::usual()
                .into_iter()
                .chain([Subject::Policy(arbiter::POLICY.into())])
                .collect(),
            (true, _) => Subject::usual(),
        }
    }
}

pub fn command(search: &Search, args: &Bench) -> Result<ExitCode> {
    check_page(args)?;
    check_quick(args)?;
    if args.what == What::Fidelity {
        return fidelity::command(search, args);
    }
    if args.what == What::Rocksdb {
        return rocksdb::command(search, args);
    }
    if args.what == What::Locality {
        return locality::command(search, args);
    }
    if args.what == What::Arbiter {
        return arbiter::command(search, args);
    }
    let is_here = args.here || args.what == What::Sim;
    let (report, code) = if is_here {
        here(search, args)?
    } else {
        in_guests(args)?
    };
    match args.json {
        true => print_json(&report)?,
        false => print(report::text(&report))?,
    }
    Ok(code)
}

/// A page is asked for of those alone that write one.
fn check_page(args: &Bench) -> Result<()> {
    match args.what {
        What::Rocksdb | What::Locality => Ok(()),
        _ if args.page.is_none() => Ok(()),
        what => Err(Error::user(
            format!("bench {} writes no page", what.name()),
            "leave --page out (--json has all numbers); bench rocksdb and bench locality write one",
        )),
    }
}

/// Nor is one run shortened.
fn check_quick(args: &Bench) -> Result<()> {
    match args.what {
        What::Rocksdb | What::Locality | What::Arbiter if args.quick => Err(Error::user(
            format!(
                "bench {} has no quick form: it is one run, that ends when its bounds are judged",
                args.what.name()
            ),
            "leave --quick out",
        )),
        _ => Ok(()),
    }
}

/// Boots a guest for each number of CPUs, and puts their reports together.
fn in_guests(args: &Bench) -> Result<(Report, ExitCode)> {
    let mut files_in = guest_with(&args.subjects())?;
    if args.what == What::Record {
        files_in.extend(record::files(&args.subjects())?);
    }
    if args.what == What::Memcached {
        files_in.extend(PROGRAMS.for_guest(&["etc"])?);
    }
    let tools: &[&str] = match args.what {
        What::Pipe => &["perf"],
        What::Record => &["perf", "hackbench"],
        What::Hackbench | What::Upgrade => &["hackbench"],
        What::Memcached => &["memcached"],
        What::Fairness
        | What::Fidelity
        | What::Rocksdb
        | What::Locality
        | What::Arbiter
        | What::Sim => &[],
    };
    let (mut whole, mut code) = (None::<Report>, ExitCode::SUCCESS);
    for cpus in args.guests() {
        eprintln!("baton: booting a guest with {cpus} CPUs that counts instructions");
        let vm = Vm {
            cpus,
            icount: Some(0),
            command: guest_command(args),
            tools: tools.iter().map(|t| t.to_string()).collect(),
            files_in: files_in.clone(),
            // Thousands of tasks need theirs.
            memory_mb: if args.what == What::Upgrade {
                4000
            } else {
                1024
            },
            files_out: vec![REPORT_IN_GUEST.into()],
            timeout: TIMEOUT,
            ..Default::default()
        };
        let outcome = vm.run(&mut std::io::stderr()).map_err(vm_error)?;
        let report: Report = report_of(&outcome, args.what)?;
        if outcome.exit_code != 0 {
            code = ExitCode::from(outcome.exit_code as u8);
        }
        match &mut whole {
            None => whole = Some(report),
            Some(whole) => whole.results.extend(report.results),
        }
    }
    if let (What::Fairness, Some(whole)) = (args.what, &mut whole) {
        let (results, holds) = fairness::simulated::measure_all(&args.subjects(), FAIR)?;
        whole.results.extend(results);
        if !holds {
            code = ExitCode::FAILURE;
        }
    }
    let report = whole.ok_or_else(|| {
        Error::user(
            "there is no number of CPUs to measure with",
            "give --cpus 1,2",
        )
    })?;
    Ok((report, code))
}

/// Boots one guest for a bench that has a report of its own, and gives that.
fn report_of_guest<T: DeserializeOwned>(
    args: &Bench,
    cpus: u32,
    files_in: Vec<FileIn>,
) -> Result<T> {
    eprintln!("baton: booting a guest with {cpus} CPUs that counts instructions");
    let vm = Vm {
        cpus,
        icount: Some(0),
        command: guest_command(args),
        tools: Vec::new(),
        files_in,
        files_out: vec![REPORT_IN_GUEST.into()],
        timeout: TIMEOUT,
        ..Default::default()
    };
    let outcome = vm.run(&mut std::io::stderr()).map_err(vm_error)?;
    report_of(&outcome, args.what)
}

/// What a guest measured. Without it the fault is whose the program in the guest says it is: its
/// exit code is that of [`Error`], and its last words name the policy.
fn report_of<T: DeserializeOwned>(outcome: &Outcome, what: What) -> Result<T> {
    const POLICY: u8 = 4;
    let file = outcome.files.get(REPORT_IN_GUEST);
    if let Some(report) = file.and_then(|file| serde_json::from_slice(file).ok()) {
        return Ok(report);
    }
    let output = String::from_utf8_lossy(&outcome.output);
    let policy = output
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("at fault: the policy "));
    match policy.filter(|_| outcome.exit_code == i32::from(POLICY)) {
        Some(policy) => Err(Error::policy(
            policy,
            format!(
                "the policy {policy} failed in the guest, so there are no numbers; its fault \
                is above"
            ),
            format!("mend it, and try it alone with: baton vm run -p {policy} --all -- hackbench"),
        )),
        None => Err(Error::environment(
            format!(
                "the guest measured nothing (exit code {}); its messages are \
                above",
                outcome.exit_code
            ),
            format!(
                "do as they say, or see more with: baton vm run -- baton bench {} \
                --here",
                what.name()
            ),
        )),
    }
}

/// What a guest needs for these subjects, built first when missing or stale.
pub fn guest_with(subjects: &[Subject]) -> Result<Vec<FileIn>> {
    let policies = subjects
        .iter()
        .filter_map(Subject::policy)
        .collect::<Result<Vec<_>>>()?;
    let mut files = guest_files(&policies)?;
    if subjects.iter().any(|s| matches!(s, Subject::Scx { .. })) {
        files.extend(EXAMPLES.for_guest(&["scx_simple", "scx_central", "scx_userland"])?);
    }
    Ok(files)
}

/// Standard error is the guest's console, so the report goes into a file.
fn guest_command(args: &Bench) -> Vec<String> {
    let subjects: String = args
        .subjects()
        .iter()
        .map(|s| format!(" --subject '{}'", s.name()))
        .collect();
    let runs = if args.quick {
        "--quick".into()
    } else {
        format!("--runs {}", args.runs())
    };
    let bench = format!(
        "baton bench {} --here --icount --json {runs}{subjects}",
        args.what.name()
    );
    [
        "sh".into(),
        "-c".into(),
        format!("{bench} >{REPORT_IN_GUEST}"),
    ]
    .into()
}

/// Measures on this machine.
fn here(search: &Search, args: &Bench) -> Result<(Report, ExitCode)> {
    if args.what != What::Sim {
        kernel::require_root("putting a scheduler in charge")?;
    }
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let (results, code) = match args.what {
        What::Pipe => pipe::measure(search, args, cpus)?,
        What::Hackbench => {
            let (metric, unit, scale) = match args.icount {
                true => ("instructions", "instructions", 1.0),
                false => ("time", "s", 1e9),
            };
            let (groups, loops) = HACKBENCH;
            let hackbench = |run: Run| loads::hackbench(groups, run.size(loops));
            let series = compare(search, args, |_, run| hackbench(run).map(|ns| ns / scale))?;
            (
                entries(cpus, metric, unit, &series, true),
                ExitCode::SUCCESS,
            )
        }
        What::Fairness => fair(search, args, cpus)?,
        What::Upgrade => {
            let unit = if args.icount { "instructions" } else { "ns" };
            (
                upgrade::measure(search, cpus, args, unit)?,
                ExitCode::SUCCESS,
            )
        }
        What::Record => (record::measure(search, args, cpus)?, ExitCode::SUCCESS),
        What::Memcached => (memcached::measure(search, args, cpus)?, ExitCode::SUCCESS),
        What::Sim => return Ok((sim::bench(args)?, ExitCode::SUCCESS)),
        What::Fidelity | What::Rocksdb | What::Locality | What::Arbiter => {
            return Err(Error::baton("this bench has a report of its own"))
        }
    };
    let machine = if args.icount {
        "QEMU that counts instructions".into()
    } else {
        processor()
    };
    Ok((
        Report {
            bench: args.what.name().into(),
            kernel: kernel::release(),
            machine,
            results,
        },
        code,
    ))
}

/// The processor's name.
fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("a processor without a name", |(_, name)| name.trim())
        .into()
}

/// What a run is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    /// To fill caches and let queues settle; its number is thrown away.
    WarmUp,
    Measured,
}

impl Run {
    fn size(self, whole: u32) -> u32 {
        match self {
            Run::WarmUp => whole / 5,
            Run::Measured => whole,
        }
    }
}

/// Gives each subject two turns, and the first (by default the baseline) one more at the end, so
/// that drift of the machine shows as spread and not as a difference.
fn compare(
    search: &Search,
    args: &Bench,
    measure: impl Fn(&Subject, Run) -> Result<f64>,
) -> Result<Vec<Series>> {
    let subjects = args.subjects();
    let runs = args.runs();
    let mut series: Vec<_> = subjects
        .iter()
        .map(|s| Series {
            subject: s.name(),
            values: Vec::with_capacity(runs as usize),
        })
        .collect();
    let (first_half, second_half) = (runs.div_ceil(2), runs / 2);
    for (turns, share) in [
        (&subjects[..], first_half),
        (&subjects[..], second_half),
        (&subjects[..1], first_half),
    ] {
        if share == 0 {
            continue;
        }
        for (subject, series) in turns.iter().zip(&mut series) {
            let start = Instant::now();
            let values = subject.measure(search, || {
                measure(subject, Run::WarmUp)?;
                (0..share)
                    .map(|_| measure(subject, Run::Measured))
                    .collect::<Result<Vec<_>>>()
            })?;
            eprintln!(
                "baton: {:<15} {:>12.0} (median of {}; {:.1} s of the clock here)",
                series.subject,
                median(&values),
                values.len(),
                start.elapsed().as_secs_f64()
            );
            series.values.extend(values);
        }
    }
    Ok(series)
}

/// Measures how fair the subjects are, and judges those that must be.
fn fair(search: &Search, args: &Bench, cpus: u32) -> Result<(Vec<report::Entry>, ExitCode)> {
    if cpus < fairness::CPUS {
        return Err(Error::user(
            format!(
                "this machine has {cpus} CPUs, and the tests of fairness need {}",
                fairness::CPUS
            ),
            "use a larger one, or a guest (without --here)",
        ));
    }
    let (mut results, mut code) = (Vec::new(), ExitCode::SUCCESS);
    let speed = fairness::Speed::calibrate();
    for subject in args.subjects() {
        let measured = subject.measure(search, || {
            fairness::TESTS
                .iter()
                .map(|test| {
                    (0..args.runs())
                        .map(|_| (test.measure)(speed))
                        .collect::<Result<Vec<_>>>()
                })
                .collect::<Result<Vec<_>>>()
        })?;
        for (test, values) in fairness::TESTS.iter().zip(measured) {
            let judged = FAIR.contains(&subject.name().as_str());
            let broken = judged && !values.iter().all(|value| test.holds(*value));
            if broken {
                code = ExitCode::FAILURE;
            }
            let verdict = match (judged, broken) {
                (false, _) => "for comparison",
                (true, false) => "holds",
                (true, true) => "DOES NOT HOLD",
            };
            let shown: Vec<_> = values.iter().map(|v| format!("{v:.3}")).collect();
            let _ = writeln!(
                std::io::stderr(),
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
            results.extend(entries(cpus, test.metric, test.unit, &series, false));
        }
    }
    Ok((results, code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn bench(arguments: &str) -> Bench {
        match Cli::parse_from(["baton", "bench"].into_iter().chain(arguments.split(' '))).command {
            Command::Bench(bench) => bench,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_guest_without_a_report_has_its_fault_named() {
        let end = |exit_code, output: &str, report: &str| {
            let files = [(REPORT_IN_GUEST.to_string(), report.as_bytes().to_vec())];
            let output = output.replace('\n', "\r\n").into_bytes();
            let outcome = Outcome {
                exit_code,
                output,
                kernel_log: String::new(),
                complaints: Vec::new(),
                files: files.into(),
            };
            report_of::<Vec<u32>>(&outcome, What::Pipe)
        };
        // As the program in the guest says it, a policy that is not at fault before.
        let said = |policy: &str| Error::policy(policy, "it faulted", "look").to_string();
        let fault = end(
            4,
            &format!("baton: {}\nbaton: {}\n", said("a"), said("faulty")),
            "",
        )
        .unwrap_err();
        assert_eq!(
            fault.blame,
            baton_control::error::Blame::Policy("faulty".into())
        );
        assert!(fault.what.contains("faulty failed in the guest"), "{fault}");
        for (exit_code, output) in [(4, String::new()), (3, said("wfq")), (0, String::new())] {
            let fault = end(exit_code, &output, "no report").unwrap_err();
            assert_eq!(
                fault.blame,
                baton_control::error::Blame::Environment,
                "{fault}"
            );
        }
        assert_eq!(end(1, "", "[1, 2]"), Ok(vec![1, 2]));
    }

    #[test]
    fn a_page_is_asked_for_where_there_is_one() {
        for what in What::value_variants() {
            let arguments = format!("{} --page /tmp/page", what.name());
            let has_one = matches!(what, What::Rocksdb | What::Locality);
            match check_page(&bench(&arguments)) {
                Ok(()) => assert!(has_one, "{arguments}"),
                Err(e) => assert!(
                    !has_one && e.what == format!("bench {} writes no page", what.name()),
                    "{e}"
                ),
            }
            assert_eq!(check_page(&bench(what.name())), Ok(()));
        }
    }

    #[test]
    fn a_quick_bench_is_a_tenth() {
        let check = |arguments: &str, runs: u32, guests: &[u32]| {
            let bench = bench(arguments);
            assert_eq!(
                (bench.runs(), &bench.guests()[..]),
                (runs, guests),
                "{arguments}"
            );
        };
        check("upgrade --quick", 20, &[1, 2]);
        check("pipe --quick", 1, &[1, 2]);
        check("record --quick --cpus 4", 1, &[4]);
        check("record", 10, &[1, 2]);
        check_quick(&bench("upgrade --quick")).unwrap();
        assert!(check_quick(&bench("rocksdb --quick"))
            .unwrap_err()
            .to_string()
            .contains("no quick form"));
    }

    #[test]
    fn times_are_longer_where_instructions_are_counted() {
        let check = |arguments: &str, expected: u64| {
            assert_eq!(slow::factor(&bench(arguments)), expected, "{arguments}")
        };
        check("rocksdb --here --icount", slow::FACTOR);
        check("rocksdb --here", 1);
        let at_once = |arguments: &str| slow::at_once(&bench(arguments), 4);
        assert_eq!(
            (
                at_once("memcached --here --icount"),
                at_once("memcached --here")
            ),
            (1.0, 4.0)
        );
        assert_eq!(
            (slow::us(16_000, slow::FACTOR), slow::us(16_000, 1)),
            (1.0, 16.0)
        );
    }
}
