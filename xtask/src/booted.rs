// SPDX-License-Identifier: GPL-2.0-only
//! Runs the tests of a booted kernel (tests/booted): builds what they need, and boots their guests
//! in parallel.

use crate::{
    clients, kernels, matrix,
    steps::{cannot_run, cargo},
    Result,
};
use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

/// A guest of the booted tests.
struct Guest {
    name: &'static str,
    /// Options of `baton vm run`.
    machine: &'static [&'static str],
    /// The part of the tests for such a machine that it runs: `--part` of the program.
    part: &'static str,
}

/// The policies that tests run as agents, and those in C, whose recordings are replayed.
const AGENTS: [&str; 13] = [
    "central",
    "central_c",
    "cfs_c",
    "echo",
    "faulty",
    "fifo",
    "fifo_c",
    "global_fifo",
    "locality",
    "rusty_c",
    "shinjuku",
    "wfq",
    "witness",
];

/// The guests, the longest first. Each test is for one kind of machine. The tests for two CPUs, by
/// far the most, are divided between two guests.
const GUESTS: [Guest; 5] = [
    Guest {
        name: "2 CPUs, first half",
        machine: &["--cpus", "2"],
        part: "1/2",
    },
    Guest {
        name: "2 CPUs, second half",
        machine: &["--cpus", "2"],
        part: "2/2",
    },
    Guest {
        name: "4 CPUs",
        machine: &["--cpus", "4"],
        part: "1/1",
    },
    Guest {
        name: "8 CPUs",
        machine: &["--topology", "1x4x2"],
        part: "1/1",
    },
    // A guest that runs systemd, and applies a configuration as it boots.
    Guest {
        name: "systemd",
        machine: &[
            "--systemd",
            "--in",
            "packaging/baton.service:/etc/systemd/system/baton.service",
            "--in",
            "tests/booted/multi-user.conf:/etc/systemd/system/multi-user.target.d/baton.conf",
            "--in",
            "tests/booted/baton.toml:/etc/baton.toml",
        ],
        part: "1/1",
    },
];

/// Guests count instructions, so that their clock does not depend on other load of this machine. An
/// instruction takes 4 ns: the guest is a slow machine, on which tests that wait for its clock end
/// sooner.
pub const ICOUNT: &str = "--icount=2";

/// Path of the booted tests' program in a guest.
pub const PROGRAM: &str = "/usr/bin/baton-booted";

/// The last step of `cargo xtask test`: each booted test once, and a few of them on the kernel's
/// other flavours.
pub fn all(root: &Path) -> Result {
    let built = Built::new(root)?;
    let mut jobs = guests(&built, "1", "");
    jobs.push(without_polls(&built));
    jobs.push(matrix::some(&built));
    for release in kernels::flavours(root)? {
        let name = format!("kernel {release}");
        let built = &built;
        jobs.push(Job {
            name,
            run: Box::new(move || kernels::must_pass(built, &release)),
        });
    }
    judged(&side_by_side(jobs))
}

/// `cargo xtask booted [REPEAT [WORD]]`: runs the tests whose name contains WORD, or that belong to
/// that group, REPEAT times in a row.
pub fn some(root: &Path, repeat: &str, word: &str) -> Result {
    let done = side_by_side(guests(&Built::new(root)?, repeat, word));
    judged(&done)?;
    if done.iter().all(|done| is_none(&done.end)) {
        return Err(format!(
            "no booted test and no group has '{word}' in its name"
        ));
    }
    Ok(())
}

/// Did a guest have no test to run?
fn is_none(end: &Result<String>) -> bool {
    end.as_ref().is_ok_and(|line| line.starts_with("0 passed"))
}

fn guests<'a>(built: &'a Built<'_>, repeat: &'a str, word: &'a str) -> Vec<Job<'a>> {
    // Long enough for a busy machine.
    let timeout = (3600 + 600 * repeat.parse().unwrap_or(1)).to_string();
    let job = |guest: &'a Guest| {
        let machine = [&[ICOUNT, "--timeout", timeout.as_str()], guest.machine].concat();
        let command = [PROGRAM, "--repeat", repeat, "--part", guest.part, word];
        let command = built.guest(&machine, &built.policies, &command);
        Job {
            name: guest.name.into(),
            run: Box::new(move || tested(guest.name, command)),
        }
    };
    GUESTS.iter().map(job).collect()
}

/// Endless loops of policies without polls, which NMIs end.
fn without_polls<'a>(built: &'a Built<'_>) -> Job<'a> {
    let machine = [ICOUNT, "--timeout", "1200", "--cpus", "2", "--watchdog"];
    let policies = ["faulty", "faulty_c", "wfq"];
    let mut command = built.guest(&machine, &policies, &[PROGRAM, "--without-polls", "1"]);
    command.env("BATON_WITHOUT", "polls");
    Job {
        name: "policies without polls".into(),
        run: Box::new(move || tested("policies without polls", command)),
    }
}

/// `cargo xtask loops`: endless loops in each method, and in policies without polls.
pub fn loops(root: &Path) -> Result {
    let built = Built::new(root)?;
    let machine = [ICOUNT, "--timeout", "3600", "--cpus", "2"];
    let command = built.guest(&machine, &matrix::POLICIES, &[PROGRAM, "--loops", "1"]);
    let job = Job {
        name: "endless loops".into(),
        run: Box::new(move || tested("endless loops", command)),
    };
    judged(&side_by_side(vec![job, without_polls(&built)]))
}

/// `cargo xtask hostile SECONDS`: runs hostile clients of hint queues under load for that long, by
/// this machine's clock.
pub fn hostile(root: &Path, seconds: &str) -> Result {
    for_seconds(root, "--hostile", seconds)
}

/// `cargo xtask attributes SECONDS`: the same for the attributes of a policy's threads.
pub fn attributes(root: &Path, seconds: &str) -> Result {
    for_seconds(root, "--attributes", seconds)
}

/// `cargo xtask hogs SECONDS`: runs a user's hogs beside a service of root's for that long, by this
/// machine's clock.
pub fn hogs(root: &Path, seconds: &str) -> Result {
    for_seconds(root, "--hogs", seconds)
}

/// `cargo xtask agents SECONDS TIMES`: runs a hostile agent under load for that long, by this
/// machine's clock, and then, by a clock that counts instructions, so many agents that end under
/// load, so many versions that replace each other in an agent, and for as many seconds groups of
/// tasks that never share a core.
pub fn agents(root: &Path, seconds: &str, times: &str) -> Result {
    for_seconds(root, "--hostile-agent", seconds)?;
    let built = Built::new(root)?;
    for (cpus, what, number) in [
        (["--cpus", "2"], "--kills", times),
        (["--cpus", "2"], "--upgrades", times),
        (["--topology", "1x4x2"], "--apart", seconds),
    ] {
        let machine = [&[ICOUNT, "--timeout", "7200"], &cpus[..]].concat();
        let command = built.guest(&machine, &built.policies, &[PROGRAM, what, number]);
        tested(what, command)?;
    }
    Ok(())
}

/// `cargo xtask monkey SEED TIMES`: kills so many commands at random.
pub fn monkey(root: &Path, seed: &str, times: &str) -> Result {
    let built = Built::new(root)?;
    let machine = [ICOUNT, "--timeout", "7200", "--cpus", "2"];
    let command = [PROGRAM, "--monkey", seed, times];
    let command = built.guest(&machine, &built.policies, &command);
    tested("commands killed at random", command).map(drop)
}

fn for_seconds(root: &Path, what: &str, seconds: &str) -> Result {
    let timeout = seconds.parse::<u64>();
    let timeout =
        timeout.map_err(|e| format!("{seconds}: {e}; it takes a number of seconds"))? + 600;
    let machine = ["--cpus", "2", "--timeout", &timeout.to_string()];
    let built = Built::new(root)?;
    let command = built.guest(&machine, &built.policies, &[PROGRAM, what, seconds]);
    tested(what, command).map(drop)
}

/// Runs the tests of a guest, and returns their closing line.
pub fn tested(name: &str, command: Command) -> Result<String> {
    let shown = Shown::of(name, command)?;
    if shown.status.success() {
        Ok(shown.counted().unwrap_or_default().to_owned())
    } else {
        Err(format!(
            "the booted tests failed ({})\n{}",
            shown.status,
            shown.findings()
        ))
    }
}

/// The built artefacts that the booted tests need.
pub struct Built<'a> {
    root: &'a Path,
    target: PathBuf,
    /// All policies, by their folders.
    pub policies: Vec<String>,
    /// The clients of hint queues in other languages, and their paths in a guest.
    clients: Vec<(PathBuf, String)>,
}

impl<'a> Built<'a> {
    pub fn new(root: &'a Path) -> Result<Self> {
        cargo(
            root,
            &[
                "build",
                "--release",
                "--package",
                "baton-cli",
                "--package",
                "baton-booted",
            ],
        )?;
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target
            .map_or_else(|| root.join("target"), PathBuf::from)
            .join("release");
        let policies = policies(root)?;
        // Built here, as guests that start together would wait for each other's builds.
        let mut build = Command::new(target.join("baton"));
        let build = build.arg("build").args(&policies).current_dir(root);
        let status = build.status().map_err(|e| cannot_run("baton build", &e))?;
        if !status.success() {
            return Err(format!("`baton build` failed ({status}); see above"));
        }
        Ok(Built {
            root,
            policies,
            clients: clients::files(root, &target)?,
            target,
        })
    }

    /// The command that boots a guest with these policies and options of `baton vm run`, and runs a
    /// command in it.
    pub fn guest(
        &self,
        machine: &[&str],
        policies: &[impl AsRef<str>],
        command: &[&str],
    ) -> Command {
        let mut tool = self.tool();
        tool.args(["vm", "run", "--memory", "2000"]).args(machine);
        tool.args(
            policies
                .iter()
                .flat_map(|policy| ["--with", policy.as_ref()]),
        );
        tool.args(AGENTS.iter().flat_map(|policy| ["--agent", policy]));
        let program = self.target.join("baton-booted");
        tool.arg("--in")
            .arg(format!("{}:{PROGRAM}", program.display()));
        for (host, guest) in &self.clients {
            tool.arg("--in").arg(format!("{}:{guest}", host.display()));
        }
        tool.args(["--in", "/usr/bin/strace:/usr/bin/strace"]);
        tool.arg("--").args(command);
        tool
    }

    /// The tool that was built.
    pub fn tool(&self) -> Command {
        let mut tool = Command::new(self.target.join("baton"));
        tool.current_dir(self.root);
        tool
    }
}

/// The folders of all policies: those that contain a crate or a file in C.
fn policies(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for place in ["policies", "policies/testing"] {
        let failed = |e: std::io::Error| format!("{place} cannot be read: {e}");
        for entry in root.join(place).read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_policy =
                ["Cargo.toml", &format!("{name}.c")].map(|file| entry.path().join(file));
            if is_policy.iter().any(|file| file.is_file()) {
                found.push(name);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A finished command, with its output.
pub struct Shown {
    pub status: ExitStatus,
    pub output: String,
    pub errors: String,
}

impl Shown {
    /// Runs a command, and prints its lines as they arrive, each with `name` before it.
    pub fn of(name: &str, mut command: Command) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| cannot_run("baton vm run", &e))?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let (output, errors) = thread::scope(|scope| {
            let output = scope.spawn(|| shown(name, output));
            (output.join().unwrap_or_default(), shown(name, errors))
        });
        let status = child
            .wait()
            .map_err(|e| format!("waiting for a guest: {e}"))?;
        Ok(Self {
            status,
            output,
            errors,
        })
    }

    /// The line that says how many tests passed.
    pub fn counted(&self) -> Option<&str> {
        self.output.lines().find(|line| line.contains(" passed, "))
    }

    /// A summary of a failure for the end of a long log: the failed tests, the guest's messages
    /// about their machine, and the last lines of its errors.
    pub fn findings(&self) -> String {
        const LAST: usize = 30;
        let failed = self
            .output
            .lines()
            .filter(|line| line.starts_with("FAILED  "));
        let errors: Vec<&str> = self.errors.lines().collect();
        let last = &errors[errors.len().saturating_sub(LAST)..];
        failed
            .chain(last.iter().copied())
            .map(|line| format!("  {}\n", line.trim_end()))
            .collect()
    }
}

/// Prints all lines, and returns them.
fn shown(name: &str, from: Option<impl Read>) -> String {
    let mut text = String::new();
    let Some(from) = from else { return text };
    for line in BufReader::new(from)
        .split(b'\n')
        .map_while(std::io::Result::ok)
    {
        let line = String::from_utf8_lossy(&line);
        println!("{name} | {}", line.trim_end_matches('\r'));
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// A job that is independent of all others, and returns a line about its result.
pub struct Job<'a> {
    pub name: String,
    pub run: Box<dyn FnOnce() -> Result<String> + Send + 'a>,
}

/// A finished job.
pub struct Done {
    pub name: String,
    pub end: Result<String>,
    pub seconds: f64,
}

/// Runs all jobs, as many at a time as this machine has CPUs, and returns their results in the
/// order of the jobs.
pub fn side_by_side(jobs: Vec<Job<'_>>) -> Vec<Done> {
    let workers = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(jobs.len());
    let jobs = Mutex::new(jobs.into_iter().enumerate());
    let done = Mutex::new(Vec::new());
    let work = || {
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some((place, Job { name, run })) = next() {
            println!("== {name}");
            let begin = Instant::now();
            let end = run();
            let seconds = begin.elapsed().as_secs_f64();
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((place, Done { name, end, seconds }));
        }
    };
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|&(place, _)| place);
    done.into_iter().map(|(_, done)| done).collect()
}

/// Prints the results of jobs, and fails if any job failed.
pub fn judged(done: &[Done]) -> Result {
    let mut failed = Vec::new();
    for Done { name, end, seconds } in done {
        match end {
            Ok(line) => println!("== {name}: {line}, {seconds:.1} s"),
            Err(why) => {
                println!("== {name}: FAILED, {seconds:.1} s");
                failed.push(format!("{name}: {why}"));
            }
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("\n"))
    }
}
