// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask test`, and how a step of it, or of the check, is run.

use crate::{check, clients, Result};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// Its name, and what does it to the repository at a path.
pub type Step = (&'static str, fn(&Path) -> Result);

/// The steps of `cargo xtask test`, in order: the first that fails ends it.
const TEST_STEPS: &[Step] =
    &[("check", check::check), ("tests on this machine", workspace_tests), ("tests in a booted kernel", booted_tests)];

/// The policies that the booted tests load.
const BOOTED_POLICIES: [&str; 14] = [
    "faulty", "fifo", "wfq", "cfs-like", "central", "shinjuku", "fifo-c", "template", "relay-v1", "relay-v2",
    "witness", "echo", "arbiter", "locality",
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
    cargo(root, &["build", "--release", "--package", "baton-cli", "--package", "baton-booted"])?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("release");
    let clients = clients::files(root, &target)?;
    for machine in BOOTED_GUESTS {
        booted_guest(root, &target, machine, &clients, repeat, word)?;
    }
    Ok(())
}

fn booted_guest(
    root: &Path,
    target: &Path,
    machine: &[&str],
    files: &[(PathBuf, String)],
    repeat: &str,
    word: &str,
) -> Result {
    let guest = "/usr/bin/baton-booted";
    let mut tool = Command::new(target.join("baton"));
    // For a machine that is busy with other things: alone, once takes some ten minutes, and each time more two.
    let timeout = 3600 + 600 * repeat.parse().unwrap_or(1);
    tool.args(["vm", "run", "--icount=2", "--memory", "2000", "--timeout", &timeout.to_string()]).args(machine);
    tool.args(BOOTED_POLICIES.iter().flat_map(|policy| ["--with", policy]));
    tool.arg("--in").arg(format!("{}:{guest}", target.join("baton-booted").display()));
    tool.args(files.iter().flat_map(|(host, guest)| ["--in".into(), format!("{}:{guest}", host.display())]));
    tool.args(["--in", "/usr/bin/strace:/usr/bin/strace"]);
    tool.args(["--", guest, "--repeat", repeat, word]).current_dir(root);
    let status = tool.status().map_err(|e| cannot_run("baton vm run", &e))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the booted tests failed ({status}); see above"))
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
