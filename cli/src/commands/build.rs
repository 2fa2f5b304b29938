// SPDX-License-Identifier: GPL-2.0-only
//! `baton build`.

use std::process::ExitCode;

use crate::cli::Build;
use baton_build::{Policy, Target};
use baton_control::error::Result;
use baton_control::modules::{module_of, CORE, SHIM};

pub fn build(args: &Build) -> Result<ExitCode> {
    args.kernel
        .as_deref()
        .inspect(|release| baton_build::build_for(release));
    if args.allow_unsafe {
        baton_build::allow_unsafe();
    }
    let policies = args
        .policies
        .iter()
        .map(|text| Policy::find(text))
        .collect::<Result<Vec<_>>>()?;
    let out = if policies.is_empty() {
        Target::Core.build()?
    } else {
        Target::Core.ensure()?
    };
    for policy in &policies {
        Target::Policy(policy).build()?;
        eprintln!("baton: {}", out.join(module_of(&policy.name)).display());
    }
    if policies.is_empty() {
        eprintln!(
            "baton: {}\nbaton: {}",
            out.join(CORE).display(),
            out.join(SHIM).display()
        );
    }
    Ok(ExitCode::SUCCESS)
}
