// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask COMMAND`: tasks on the repository itself.

mod booted;
mod chart;
mod check;
mod clients;
mod edges;
mod figures;
mod files;
mod header;
mod kernels;
mod language;
mod linked;
mod matrix;
mod pages;
mod proofs;
mod python;
mod rules;
mod safety;
mod sanitized;
mod sizes;
mod steps;
mod turns;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

const USAGE: &str = "\
usage: cargo xtask COMMAND
  check    formatting, lints and the house rules: what must hold before a change is handed in
  test     check, then all tests
  booted [TIMES [WORD]]
           only the tests in booted kernels, each TIMES times in a row; with WORD, only those of
           that group or with WORD in their name
  hostile SECONDS
           hostile clients of hint queues in a booted kernel under load, for SECONDS
  attributes SECONDS
           hostile clients of a policy's attributes, likewise
  hogs SECONDS
           1500 endless loops of one user in a booted kernel, beside a service under a policy, for
           SECONDS
  agents SECONDS TIMES
           in booted kernels under load: a hostile agent for SECONDS, TIMES agents that end, TIMES
           upgrades in an agent, and for SECONDS groups of tasks that never share a core
  loops    endless loops in each method of a policy, and in policies without polls
  matrix   the whole matrix of faults in booted kernels; writes the table of docs/faults.md
  turns    how often the loops of each policy turn in a call on a machine of 4096 CPUs
  monkey SEED TIMES
           TIMES commands of baton in a booted kernel, each killed at a random moment
  sanitized [KIND]
           booted tests on kernels that look for mistakes in Baton's own kernel code: kasan, kcsan
  flavours
           a few booted tests on the other flavours of the root file system's kernel
  kernels  fetches the kernels of Debian's archive, tries each, and writes the table of \
  docs/kernel-policy.md
  policies writes the list of policies for tests, tests/linked, anew from their manifests
  language writes the policies in Rust that are made from policies/*/*.baton anew
  programs TIMES
           compares the compiler and the interpreter of Baton's language on TIMES random programs
  header   writes policy/c/baton.h, policy/python/baton_abi.py and hosts/native/c/table.h anew
  figures  draws docs/policies/figures anew from the tables of the pages";

/// The error of a command: lines for the user that describe the problem and its remedy.
type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command: Box<dyn Fn(&Path) -> Result> =
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["check"] => Box::new(check::check),
            ["test"] => Box::new(steps::test),
            ["policies"] => Box::new(linked::write),
            ["language"] => Box::new(language::write),
            ["programs", times] => Box::new(move |root| language::programs(root, times)),
            ["header"] => Box::new(header::write),
            ["kernels"] => Box::new(kernels::all),
            ["turns"] => Box::new(turns::measure),
            ["matrix"] => Box::new(matrix::whole),
            ["loops"] => Box::new(booted::loops),
            ["monkey", seed, times] => Box::new(move |root| booted::monkey(root, seed, times)),
            ["sanitized"] => Box::new(|root| sanitized::run(root, None)),
            ["sanitized", kind] => Box::new(move |root| sanitized::run(root, Some(kind))),
            ["flavours"] => Box::new(kernels::all_flavours),
            ["figures"] => Box::new(figures::write),
            ["booted"] => Box::new(|root| booted::some(root, "1", "")),
            ["booted", times] => Box::new(move |root| booted::some(root, times, "")),
            ["booted", times, word] => Box::new(move |root| booted::some(root, times, word)),
            ["agents", seconds, times] => {
                Box::new(move |root| booted::agents(root, seconds, times))
            }
            ["attributes", seconds] => Box::new(move |root| booted::attributes(root, seconds)),
            ["hogs", seconds] => Box::new(move |root| booted::hogs(root, seconds)),
            ["hostile", seconds] => Box::new(move |root| booted::hostile(root, seconds)),
            ["help" | "--help" | "-h"] => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        };
    match root().and_then(|root| command(&root)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository. Cargo gives the path of this package at run time: the path it was
/// compiled under may belong to another clone.
fn root() -> Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .ok_or("xtask must be run by cargo: cargo xtask COMMAND")?;
    let package = PathBuf::from(package);
    package
        .parent()
        .map(PathBuf::from)
        .ok_or_else(|| "xtask lies at the root of the file system".into())
}
