// SPDX-License-Identifier: GPL-2.0-only
//! `baton`: builds, loads, watches and tries out scheduling policies. See `cli` for the commands
//! and `commands` for what they do; `device`, `kernel` and `shim` are the ways into the kernel,
//! `status` and `report` the way out to people.

mod artefacts;
mod cgroups;
mod cli;
mod commands;
mod config;
mod cpulist;
mod device;
mod error;
mod kernel;
mod latency;
mod names;
mod report;
mod shim;
mod status;
mod tasks;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    commands::run(cli).unwrap_or_else(|error| {
        eprintln!("baton: {error}");
        error.exit_code()
    })
}
