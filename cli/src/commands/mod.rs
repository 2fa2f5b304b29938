// SPDX-License-Identifier: GPL-2.0-only
//! A module for each command. Its function carries the command out and returns the exit code.

pub mod agent;
mod apply;
mod attach;
pub mod attr;
mod build;
pub mod check;
pub mod demo;
mod doctor;
pub mod enclave;
mod fmt;
pub mod hints;
pub mod live;
mod load;
pub mod monitor;
mod new;
mod order;
mod pages;
mod partition;
mod prove;
pub mod record;
pub mod replay;
mod report;
mod run;
pub mod sim;
mod status;
mod switch;
pub mod torture;
pub mod trace;
mod unload;
mod upgrade;
pub mod vm;
mod what_if;

use std::process::ExitCode;

use crate::cli::{Cli, Command, Fault, VmCommand};
use baton_control::error::{Error, Result};
use baton_control::modules::Search;
use baton_control::output::{print, print_json};

/// `baton lsp`.
fn lsp() -> Result<ExitCode> {
    baton_lsp::serve().map_err(|why| {
        let what = format!("the editor's messages could not be read: {why}");
        Error::user(
            what,
            "start `baton lsp` from an editor: docs/language/README.md",
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

pub fn run(cli: Cli) -> Result<ExitCode> {
    let search = Search::new(cli.modules.as_deref());
    match cli.command {
        Command::Doctor { output } => doctor::doctor(&search, output.json),
        Command::New(args) => new::new(&args),
        Command::Build(args) => build::build(&args),
        Command::Fmt(args) => fmt::fmt(&args),
        Command::Prove(args) => prove::prove(&args),
        Command::Lsp => lsp(),
        Command::Load(args) => load::command(&search, &args),
        Command::Unload(args) => unload::command(&args),
        Command::Upgrade(args) => upgrade::upgrade(&search, &args),
        Command::Switch(args) => switch::command(&search, &args),
        Command::Order(args) => order::command(&args),
        Command::Hints { command } => hints::command(&command),
        Command::Attr { command } => attr::command(&command),
        Command::Apply(args) => apply::apply(&search, &args),
        Command::Export { output } => apply::export(output),
        Command::Share(args) => partition::share(&args),
        Command::Partition { command } => partition::command(&command),
        Command::Rollback(args) => upgrade::rollback(&args),
        Command::List { output } => status::list(output.json),
        Command::Status { output } => status::status(output.json),
        Command::Monitor(args) => monitor::monitor(&search, &args),
        Command::Attach(args) => attach::attach(&search, &args),
        Command::Detach(args) => attach::detach(&search, &args),
        Command::Run(args) => run::run(&search, &args),
        Command::Agent { command } => agent::command(&search, &command),
        Command::Enclave { command } => enclave::command(&search, &command),
        Command::Live { command } => live::command(&command),
        Command::Vm {
            command: VmCommand::Run(args),
        } => vm::run(&args),
        Command::Bench(args) => baton_bench::command(&search, &args),
        Command::Demo(args) => demo::demo(&search, cli.modules.as_deref(), &args),
        Command::Torture(args) => torture::torture(&args),
        Command::Record(args) => record::record(&args),
        Command::Fault(Fault::Save(args)) => record::save_fault(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Report(args) => report::command(&args),
        Command::Check(args) => check::check(&args),
        Command::Replay(args) => replay::command(&args),
        Command::Trace { command } => trace::command(&command),
        Command::Threads(args) => baton_bench::threads::command(&args),
        Command::Man(args) => pages::man(&args),
        Command::Completions { shell } => pages::completions(shell),
    }
}
