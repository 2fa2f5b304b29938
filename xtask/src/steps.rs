// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask test`, and the execution of its steps and those of the check.

use crate::{booted, check, Result};
use std::{ffi::OsString, path::Path, process::Command, time::Instant};

/// A step's name, and the function that performs it on the repository at a path.
pub type Step = (&'static str, fn(&Path) -> Result);

/// The steps of `cargo xtask test`, in order. The first that fails ends it.
const TEST_STEPS: &[Step] = &[
    ("check", check::check),
    ("tests on this machine", workspace_tests),
    ("tests in booted kernels", booted::all),
];

/// `cargo xtask test`: what `make test` runs.
pub fn test(root: &Path) -> Result {
    run_all("test", TEST_STEPS, root)
}

/// All programs of tests, also after one that failed: a run shows all that is wrong.
fn workspace_tests(root: &Path) -> Result {
    cargo(root, &["test", "--workspace", "--no-fail-fast"])
}

/// Runs steps one by one, and prints each step and its duration.
pub fn run_all(name: &str, steps: &[Step], root: &Path) -> Result {
    for (index, (step, run)) in steps.iter().enumerate() {
        println!("== {name} {}/{}: {step}", index + 1, steps.len());
        let start = Instant::now();
        run(root).map_err(|message| format!("{message}\n== {name}: FAILED in {step}"))?;
        println!(
            "== {name} {}/{}: {step}: ok, {:.1} s",
            index + 1,
            steps.len(),
            start.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Runs cargo with its output on this program's output.
pub fn cargo(root: &Path, arguments: &[&str]) -> Result {
    cargo_with(root, arguments, &[])
}

/// The same with variables in its environment.
pub fn cargo_with(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result {
    let shown = format!("cargo {}", arguments.join(" "));
    let status = cargo_command(root, arguments)
        .envs(variables.iter().copied())
        .status()
        .map_err(|e| cannot_run(&shown, &e))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{shown}` failed ({status}); see above"))
    }
}

/// Runs cargo and returns its output.
pub fn cargo_output(root: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let shown = format!("cargo {}", arguments.join(" "));
    let output = cargo_command(root, arguments)
        .output()
        .map_err(|e| cannot_run(&shown, &e))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!(
            "`{shown}` failed ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

fn cargo_command(root: &Path, arguments: &[&str]) -> Command {
    // The cargo that runs this program; it sets this variable.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root);
    command
}

/// The message for a program that could not be started.
pub fn cannot_run(shown: &str, error: &std::io::Error) -> String {
    format!(
        "cannot run `{shown}`: {error}; it must be installed and in PATH (vm/enter has all \
        that is needed)"
    )
}
