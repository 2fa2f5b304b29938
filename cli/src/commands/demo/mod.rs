// SPDX-License-Identifier: GPL-2.0-only
//! `baton demo`: the life of a policy in six steps. It is simulated, checked, compared with the
//! kernel's own scheduler, upgraded, and crashes; and the crash is replayed. The steps that need a
//! kernel run in one boot of a guest.

mod guest;
mod kernel;
mod pace;
mod steps;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use baton_control::error::{Error, Result};
use baton_control::modules::{cache, Search};

use pace::Pace;
use steps::{Stage, Story, BEFORE_KERNEL, IN_KERNEL, ON_DESK};

#[derive(clap::Args, Debug)]
pub struct Demo {
    /// Wait for Enter before each step.
    #[arg(long)]
    pub step: bool,
    /// Use this machine and not a guest. All of its normal tasks change schedulers, and one of the
    /// schedulers fails on purpose.
    #[arg(long)]
    pub here: bool,
    /// This machine is the guest: only the steps that need a kernel.
    #[arg(long, hide = true, conflicts_with_all = ["step", "here"])]
    pub in_guest: bool,
}

/// The directory of the recording that the demo leaves, below the cache.
const DIRECTORY: &str = "demo";

/// `modules` is the value of --modules, which the steps' commands get, too.
pub fn demo(search: &Search, modules: Option<&Path>, args: &Demo) -> Result<ExitCode> {
    if args.step && !std::io::stdin().is_terminal() {
        return Err(Error::user(
            "--step waits for Enter before each step, but standard input is not a terminal",
            "start it from a terminal, or leave out --step",
        ));
    }
    let stage = Stage { search, modules };
    if args.in_guest {
        let story = Story::new(Path::new(guest::RECORDING));
        story.tell(&stage, IN_KERNEL, Pace::Straight)?;
        return Ok(ExitCode::SUCCESS);
    }
    let pace = Pace::new(args.step);
    let start = Instant::now();
    let directory = cache().join(DIRECTORY);
    std::fs::create_dir_all(&directory)
        .map_err(|e| Error::file(format!("making {}", directory.display()), &e))?;
    let recording = directory.join("fault.rec");
    let story = Story::new(&recording);
    if args.here {
        baton_control::kernel::require_root("putting a scheduler in charge")?;
        story.tell(&stage, 0..story.len(), pace)?;
    } else {
        if let Some(note) = baton_vm::tested::note() {
            say(&note);
        }
        let files = guest::files()?;
        story.tell(&stage, BEFORE_KERNEL, pace)?;
        let code = guest::run(files, &recording, pace)?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
        story.tell(&stage, ON_DESK, pace)?;
    }
    say(&format!(
        "all {} steps in {:.0} s; docs/tutorial.md goes on from here",
        story.len(),
        start.elapsed().as_secs_f64()
    ));
    Ok(ExitCode::SUCCESS)
}

fn say(text: &str) {
    eprintln!("baton demo: {text}");
}
