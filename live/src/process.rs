// SPDX-License-Identifier: GPL-2.0-only
//! Programs that this crate runs.

use std::io::Write;
use std::process::{Command, Stdio};

use baton_control::error::{Error, Result};

/// Where the programs are.
const ROOT: &str = "run baton inside Baton's Debian root: ./baton, or vm/enter baton ...";

/// Runs a program to its end; all that it prints goes to standard error. `doing` names the purpose,
/// as in "unpacking the source".
///
/// # Errors
/// The program is not there, or failed.
pub fn run(command: &mut Command, doing: &str) -> Result<()> {
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    let status = command.status().map_err(|e| missing(command, doing, &e))?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(command, doing, status))
    }
}

/// Runs a program that reads `input` and returns what it printed on standard output.
///
/// # Errors
/// The program is not there, or failed.
pub fn filter(command: &mut Command, input: &[u8], doing: &str) -> Result<Vec<u8>> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| missing(command, doing, &e))?;
    let stdin = child.stdin.take();
    let done = std::thread::scope(|threads| {
        // The program's exit code tells whether it could read.
        threads.spawn(move || stdin.map(|mut to| to.write_all(input)));
        child.wait_with_output()
    });
    let done = done.map_err(|e| Error::file(doing, &e))?;
    if done.status.success() {
        Ok(done.stdout)
    } else {
        Err(failed(command, doing, done.status))
    }
}

fn missing(command: &Command, doing: &str, error: &std::io::Error) -> Error {
    let program = command.get_program().display();
    Error::environment(
        format!("{doing}: {program} cannot be started: {error}"),
        ROOT,
    )
}

fn failed(command: &Command, doing: &str, status: std::process::ExitStatus) -> Error {
    let program = command.get_program().display();
    Error::environment(
        format!("{doing}: {program} failed ({status}); its messages are above"),
        "mend what the first one names, and try again",
    )
}
