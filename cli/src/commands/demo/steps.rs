// SPDX-License-Identifier: GPL-2.0-only
//! The list of steps, and how one is told: its number, its reason, and the commands that a reader
//! would type.

use std::ops::Range;
use std::path::Path;
use std::process::Command;

use super::kernel;
use super::pace::{Pace, HEADING};
use crate::commands::print;
use baton_control::error::{Error, Result};
use baton_control::modules::Search;

/// The exit code of a command that found a fault of a policy.
const FAULT: i32 = 4;

/// The steps before those that need a kernel, these, and those after them.
pub const BEFORE_KERNEL: Range<usize> = 0..2;
pub const IN_KERNEL: Range<usize> = 2..5;
pub const ON_DESK: Range<usize> = 5..6;

/// Where the modules of the running kernel are.
pub struct Stage<'a> {
    pub search: &'a Search,
    /// The value of --modules.
    pub modules: Option<&'a Path>,
}

pub struct Step {
    title: &'static str,
    why: &'static str,
    /// Each begins with `baton`.
    pub commands: Vec<String>,
    run: fn(&Stage, &[String]) -> Result<()>,
}

pub struct Story(Vec<Step>);

impl Story {
    /// `recording` is the file of the crash.
    pub fn new(recording: &Path) -> Self {
        let recording = recording.display();
        let step = |title, why, commands: &[&str], run| Step {
            title,
            why,
            commands: commands.iter().map(ToString::to_string).collect(),
            run,
        };
        Self(vec![
            step(
                "simulate a policy",
                "wfq, in safe Rust, on 64 simulated CPUs: the same run each time, without a kernel",
                &["baton sim wfq -w hackbench --topology 2x16x2 --duration 200ms"],
                run_all,
            ),
            step(
                "find a planted bug",
                "faulty keeps the token of a task that leaves it; the checker tries orders of \
                 events until one shows that",
                &["baton check faulty --options fault=stale,after=0"],
                find_fault,
            ),
            step(
                "compare schedulers in a stock kernel",
                "EEVDF, scx_simple and wfq in turn schedule every task of one boot; the table has \
                 three short benches, this command is the first in full",
                &["baton bench pipe --subject eevdf --subject scx_simple --subject wfq"],
                kernel::compare,
            ),
            step(
                "upgrade the policy under load",
                "a new version takes over the state while hackbench runs: the blackout is the \
                 time for which CPUs were held",
                &["baton load wfq --all", "baton upgrade wfq"],
                kernel::upgrade,
            ),
            step(
                "let a policy crash",
                "faulty reads beyond an array in its 200th wakeup; hackbench goes on, and the \
                 flight recorder has the calls before the crash",
                &[
                    "baton switch wfq faulty --options fault=index,after=200",
                    "baton record -p faulty --flight 4",
                    &format!("baton fault save {recording}"),
                ],
                kernel::crash,
            ),
            step(
                "replay the crash on the desk",
                "the recording is fed to the same policy without a kernel, up to the source line; \
                 --gdb stops a debugger there",
                &[&format!("baton replay {recording}")],
                run_all,
            ),
        ])
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells some of the steps.
    pub fn tell(&self, stage: &Stage, range: Range<usize>, pace: Pace) -> Result<()> {
        for (index, step) in self.0.iter().enumerate() {
            if !range.contains(&index) {
                continue;
            }
            pace.wait()
                .map_err(|e| Error::file("reading standard input", &e))?;
            print(self.heading(index, step))?;
            (step.run)(stage, &step.commands)?;
        }
        Ok(())
    }

    fn heading(&self, index: usize, step: &Step) -> String {
        let commands = step.commands.iter();
        let commands: String = commands.map(|line| format!("  $ {line}\n")).collect();
        format!(
            "\n{HEADING}{} of {}: {}\n  {}\n{commands}\n",
            index + 1,
            self.len(),
            step.title,
            step.why
        )
    }
}

fn run_all(stage: &Stage, commands: &[String]) -> Result<()> {
    commands.iter().try_for_each(|line| stage.run(line))
}

fn find_fault(stage: &Stage, commands: &[String]) -> Result<()> {
    commands
        .iter()
        .try_for_each(|line| match stage.code(line)? {
            FAULT => Ok(()),
            0 => Err(Error::baton(format!(
                "`{line}` should have found the bug, and did not"
            ))),
            code => Err(failed(line, code)),
        })
}

fn failed(line: &str, code: i32) -> Error {
    Error::environment(
        format!("`{line}` failed (exit code {code}); its message is above"),
        "do as it says, and start the demo again",
    )
}

impl Stage<'_> {
    /// Runs a command, as a process of its own. Returns its exit code.
    fn code(&self, line: &str) -> Result<i32> {
        let own =
            std::env::current_exe().map_err(|e| Error::file("looking for this program", &e))?;
        let mut command = Command::new(&own);
        command.args(line.split(' ').skip(1));
        if let Some(modules) = self.modules {
            command.env("BATON_MODULES", modules);
        }
        let status = command
            .status()
            .map_err(|e| Error::file(format!("running {}", own.display()), &e))?;
        Ok(status.code().unwrap_or(1))
    }

    /// Runs a command that has to succeed.
    pub fn run(&self, line: &str) -> Result<()> {
        match self.code(line)? {
            0 => Ok(()),
            code => Err(failed(line, code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn a_reader_could_type_the_commands() {
        let story = Story::new(Path::new("/cache/demo/fault.rec"));
        for step in &story.0 {
            assert!(!step.commands.is_empty(), "{}", step.title);
            for line in &step.commands {
                let parsed = Cli::try_parse_from(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
            }
        }
    }

    #[test]
    fn each_step_is_told_once() {
        let story = Story::new(Path::new("x"));
        let told = BEFORE_KERNEL.chain(IN_KERNEL).chain(ON_DESK);
        assert!(told.eq(0..story.len()));
        let heading = story.heading(5, &story.0[5]);
        assert!(
            heading.starts_with("\nstep 6 of 6: replay")
                && heading.contains("\n  $ baton replay x\n"),
            "{heading}"
        );
    }
}
