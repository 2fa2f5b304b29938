// SPDX-License-Identifier: GPL-2.0-only
//! `baton unload`.

use std::process::ExitCode;

use crate::cli::Unload;
use baton_control::error::Result;
use baton_control::unload::unload;

pub fn command(args: &Unload) -> Result<ExitCode> {
    // Clap asks for a policy or --everything.
    unload(args.policy.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
