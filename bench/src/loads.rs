// SPDX-License-Identifier: GPL-2.0-only
//! The loads, and the results that they print.

use std::process::{Command, Stdio};

use baton_control::error::{Error, Result};

/// The time per operation of `perf bench sched pipe`, in which two processes send each other one
/// word `loops` times. In ns.
pub fn pipe(loops: u32) -> Result<f64> {
    let text = output(
        "perf",
        &["bench", "sched", "pipe", "-l", &loops.to_string()],
    )?;
    pipe_time(&text).ok_or_else(|| not_understood("perf bench sched pipe", &text))
}

/// The same for two user-level threads, on a core that the policy in charge grants. In ns.
pub fn threads_pipe(loops: u32) -> Result<f64> {
    threads("pipe", loops)
}

/// The time of a yield of two threads to each other. In ns.
pub fn yields(loops: u32) -> Result<f64> {
    threads("yield", loops)
}

/// The time of a system call that does nothing. In ns.
pub fn calls(loops: u32) -> Result<f64> {
    threads("calls", loops)
}

/// The time of an operation of `baton threads`, in ns.
fn threads(what: &str, loops: u32) -> Result<f64> {
    let own = std::env::current_exe().map_err(|e| Error::file("looking for this program", &e))?;
    let text = output(
        &own.display().to_string(),
        &["threads", what, "--loops", &loops.to_string()],
    )?;
    pipe_time(&text).ok_or_else(|| not_understood(&format!("baton threads {what}"), &text))
}

/// The time of `hackbench`: `groups` times 20 senders and 20 receivers, where each sender sends
/// `loops` messages to each receiver. In ns.
pub fn hackbench(groups: u32, loops: u32) -> Result<f64> {
    let text = output(
        "hackbench",
        &["-g", &groups.to_string(), "-l", &loops.to_string()],
    )?;
    hackbench_time(&text).ok_or_else(|| not_understood("hackbench", &text))
}

fn pipe_time(text: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_suffix(" usecs/op"))?;
    line.trim().parse::<f64>().ok().map(|us| us * 1e3)
}

fn hackbench_time(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Time: "))?;
    line.trim().parse::<f64>().ok().map(|s| s * 1e9)
}

/// Runs a program, and returns its output if it succeeds.
pub fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let result = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| {
            Error::environment(
            format!("{program} cannot be run: {e}"),
            "install it (Debian: linux-perf, rt-tests), or measure in a guest (without --here), \
             which has it",
        )
        })?;
    if !result.status.success() {
        return Err(Error::environment(
            format!(
                "{program} failed ({}): {}",
                result.status,
                String::from_utf8_lossy(&result.stderr).trim()
            ),
            "run the command alone to see why",
        ));
    }
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

fn not_understood(program: &str, text: &str) -> Error {
    Error::environment(
        format!("{program} printed no time: {}", text.trim()),
        "use the version of Debian testing, as the guest does",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perf_prints() {
        let check = |text: &str, expected: Option<f64>| assert_eq!(pipe_time(text), expected);
        let whole =
            "# Running 'sched/pipe' benchmark:\n# Executed 10000 pipe operations between two \
             processes\n\n     \
                     Total time: 0.104 [sec]\n\n      10.420600 usecs/op\n           95963 \
                     ops/sec\n";
        check(whole, Some(10420.6));
        check("     Total time: 0.104 [sec]\n", None);
        check("", None);
    }

    #[test]
    fn what_hackbench_prints() {
        let check = |text: &str, expected: Option<f64>| assert_eq!(hackbench_time(text), expected);
        check(
            "Running in process mode with 2 groups using 40 file descriptors each (== 80 \
             tasks)\nTime: 1.25\n",
            Some(1.25e9),
        );
        check("Time: x\n", None);
        check("", None);
    }

    #[test]
    fn programs_that_fail() {
        assert_eq!(output("echo", &["a"]).unwrap(), "a\n");
        assert!(output("false", &[])
            .unwrap_err()
            .to_string()
            .contains("false failed"));
        assert!(output("/nonexistent/program", &[])
            .unwrap_err()
            .to_string()
            .contains("cannot be run"));
    }
}
