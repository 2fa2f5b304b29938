// SPDX-License-Identifier: GPL-2.0-only
//! `baton` builds, loads, observes and tests scheduling policies. Module `cli` defines the
//! commands, and `commands` implements them.

mod cli;
mod commands;
mod config;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    commands::run(cli).unwrap_or_else(|error| {
        eprintln!("baton: {error}");
        error.exit_code()
    })
}
