// SPDX-License-Identifier: GPL-2.0-only
//! `baton switch`: gives all tasks of a policy to another one. At no time do they run under the
//! fallback or the kernel's own scheduler.
//!
//! If the command is killed before the request, the new policy is loaded without tasks; if after
//! it, the old one is. Repeating the command completes the switch, or reports what is missing.

use std::process::ExitCode;

use rustix::io::Errno;
use serde::Serialize;

use super::{print, print_json};
use crate::cli::Switch;
use baton_control::device::Device;
use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};
use baton_control::modules::Search;
use baton_control::{load, unload};

#[derive(Serialize)]
struct Done<'a> {
    from: &'a str,
    to: &'a str,
    /// How long CPUs were held, ns.
    held_ns: u64,
}

pub fn command(search: &Search, args: &Switch) -> Result<ExitCode> {
    kernel::require_root("switching policies")?;
    let lock = Lock::take()?;
    let (from, to) = (args.from.as_str(), args.to.as_str());
    if from == to {
        return Err(Error::user(
            format!("{from} has its tasks already"),
            "name two policies: baton switch FROM TO",
        ));
    }
    let device = Device::open()?;
    if device.policy(from)?.is_none() {
        return Err(Error::user(
            format!("no policy {from} is loaded"),
            "see which policies are: baton list",
        ));
    }
    let how = load::Options {
        options: args.options.clone(),
        module: args.module.clone(),
        ..Default::default()
    };
    load::prepare(search, &device, to, &how)?;
    let held_ns = device
        .switch(from, to)
        .map_err(|errno| not_switched(from, to, errno))?;
    if !args.keep {
        unload::remove_named(&device, from)?;
    }
    drop(lock);
    if args.output.json {
        print_json(&Done { from, to, held_ns })?
    } else {
        print(format!(
            "{to} has all tasks of {from}; CPUs were held for {:.1} us\n",
            held_ns as f64 / 1e3
        ))?
    }
    Ok(ExitCode::SUCCESS)
}

fn not_switched(from: &str, to: &str, errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Error::user(
            format!("{from} or {to} was unloaded meanwhile"),
            "see baton list, and try again",
        ),
        Errno::NODEV => Error::user(
            format!("{from} or {to} is not running, so there is nothing to switch"),
            "baton status says why",
        ),
        Errno::XDEV => Error::user(
            format!("{to} is in a partition that {from} is not in"),
            "take it out first: baton partition destroy",
        ),
        other => Error::baton(format!("{from} was not switched to {to}: {other}")),
    }
}
