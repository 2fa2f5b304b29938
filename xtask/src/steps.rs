// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask test`, and how a step of it, or of the check, is run.

use crate::{check, clients, kernels, Result};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// Its name, and what does it to the repository at a path.
pub type Step = (&'static str, fn(&Path) -> Result);

/// The steps of `cargo xtask test`, in order: the first that fails ends it.
const TEST_STEPS: &[Step] = &[
    ("check", check::check),
    ("tests on this machine", workspace_tests),
    ("tests in a booted kernel", booted_tests),
    ("its other flavours", kernels::flavours),
];

/// The policies that the booted tests load.
const BOOTED_POLICIES: [&str; 16] = [
    "faulty",
    "faulty-c",
    "fifo",
    "wfq",
    "cfs-like",
    "eevdf-like",
    "central",
    "shinjuku",
    "fifo-c",
    "template",
    "relay-v1",
    "relay-v2",
    "witness",
    "echo",
    "arbiter",
    "locality",
];

/// The guests: each test is for one of them.
const BOOTED_GUESTS: [&[&str]; 3] = [
    &["--cpus", "2"],
    &["--cpus", "4"],
    // One that has systemd, and applies a configuration as it boots.
    &[
        "--systemd",
        "--in",
        "packaging/baton.service:/etc/systemd/system/baton.service",
        "--in",
        "tests/booted/multi-user.conf:/etc/systemd/system/multi-user.target.d/baton.conf",
        "--in",
        "tests/booted/baton.toml:/etc/baton.toml",
    ],
];

/// How often each booted test is run in a row by `make test`; `make containment` runs them 20 times.
const BOOTED_REPEAT: &str = "1";

/// The program of the booted tests, in a guest.
pub const BOOTED_PROGRAM: &str = "/usr/bin/baton-booted";

/// `cargo xtask test`: what `make test` runs.
pub fn test(root: &Path) -> Result {
    run_all("test", TEST_STEPS, root)
}

fn workspace_tests(root: &Path) -> Result {
    cargo(root, &["test", "--workspace"])
}

fn booted_tests(root: &Path) -> Result {
    booted(root, BOOTED_REPEAT, "")
}

/// `cargo xtask booted [REPEAT [WORD]]`: the tests that run in a booted kernel (tests/booted), in guests that count instructions, so
/// that its clock does not depend on what else this machine does. An instruction is 4 ns: a slow machine, on which the tests that wait
/// for its clock to pass end sooner.
pub fn booted(root: &Path, repeat: &str, word: &str) -> Result {
    // For a machine that is busy with other things: alone, once takes some ten minutes, and each time more two.
    let timeout = (3600 + 600 * repeat.parse().unwrap_or(1)).to_string();
    let built = Built::new(root)?;
    for machine in BOOTED_GUESTS {
        let machine = [&["--icount=2", "--timeout", &timeout], machine].concat();
        built.in_guest(&machine, &[BOOTED_PROGRAM, "--repeat", repeat, word])?;
    }
    Ok(())
}

/// `cargo xtask hostile SECONDS`: hostile clients of hint queues are at work so long, with load beside them, by this machine's clock.
pub fn hostile(root: &Path, seconds: &str) -> Result {
    for_seconds(root, "--hostile", seconds)
}

/// `cargo xtask hogs SECONDS`: a user's hogs are there so long beside a service of root's, by this machine's clock.
pub fn hogs(root: &Path, seconds: &str) -> Result {
    for_seconds(root, "--hogs", seconds)
}

fn for_seconds(root: &Path, what: &str, seconds: &str) -> Result {
    let timeout = seconds.parse::<u64>().map_err(|e| format!("{seconds}: {e}; it takes a number of seconds"))? + 600;
    let machine = ["--cpus", "2", "--timeout", &timeout.to_string()];
    Built::new(root)?.in_guest(&machine, &[BOOTED_PROGRAM, what, seconds])
}

/// What the booted tests need, built.
pub struct Built<'a> {
    root: &'a Path,
    target: PathBuf,
    /// The programs of other languages that are clients of hint queues, and where they go in a guest.
    clients: Vec<(PathBuf, String)>,
}

impl<'a> Built<'a> {
    pub fn new(root: &'a Path) -> Result<Self> {
        cargo(root, &["build", "--release", "--package", "baton-cli", "--package", "baton-booted"])?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let target = target.join("release");
        Ok(Built { root, clients: clients::files(root, &target)?, target })
    }

    /// Boots a guest, with these options of `baton vm run`, and runs a command in it.
    fn in_guest(&self, machine: &[&str], command: &[&str]) -> Result {
        let status = self.guest(machine, &BOOTED_POLICIES, command).status();
        let status = status.map_err(|e| cannot_run("baton vm run", &e))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the booted tests failed ({status}); see above"))
        }
    }

    /// The command that boots a guest with these policies.
    pub fn guest(&self, machine: &[&str], policies: &[&str], command: &[&str]) -> Command {
        let mut tool = Command::new(self.target.join("baton"));
        tool.args(["vm", "run", "--memory", "2000"]).args(machine);
        tool.args(policies.iter().flat_map(|policy| ["--with", policy]));
        tool.arg("--in").arg(format!("{}:{BOOTED_PROGRAM}", self.target.join("baton-booted").display()));
        tool.args(self.clients.iter().flat_map(|(host, guest)| ["--in".into(), format!("{}:{guest}", host.display())]));
        tool.args(["--in", "/usr/bin/strace:/usr/bin/strace"]);
        tool.arg("--").args(command).current_dir(self.root);
        tool
    }
}

/// Runs steps one by one, saying which, and how long each took.
pub fn run_all(name: &str, steps: &[Step], root: &Path) -> Result {
    for (index, (step, run)) in steps.iter().enumerate() {
        println!("== {name} {}/{}: {step}", index + 1, steps.len());
        let start = Instant::now();
        run(root).map_err(|message| format!("{message}\n== {name}: FAILED in {step}"))?;
        println!("== {name} {}/{}: {step}: ok, {:.1} s", index + 1, steps.len(), start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Runs cargo with its output where ours goes.
pub fn cargo(root: &Path, arguments: &[&str]) -> Result {
    let shown = format!("cargo {}", arguments.join(" "));
    let status = cargo_command(root, arguments).status().map_err(|e| cannot_run(&shown, &e))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{shown}` failed ({status}); see above"))
    }
}

/// Runs cargo and returns what it printed.
pub fn cargo_output(root: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let shown = format!("cargo {}", arguments.join(" "));
    let output = cargo_command(root, arguments).output().map_err(|e| cannot_run(&shown, &e))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("`{shown}` failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

fn cargo_command(root: &Path, arguments: &[&str]) -> Command {
    // The cargo that runs this, which names itself.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root);
    command
}

/// The message when a program could not even be started.
pub fn cannot_run(shown: &str, error: &std::io::Error) -> String {
    format!("cannot run `{shown}`: {error}; it must be installed and in PATH (vm/enter has all that is needed)")
}
