// SPDX-License-Identifier: GPL-2.0-only
//! `baton list` and `baton status`.

use std::process::ExitCode;

use super::{print, print_json};
use crate::device::Device;
use crate::error::Result;
use crate::status::Status;
use crate::{report, shim};

pub fn list(json: bool) -> Result<ExitCode> {
    let policies = match Device::open_if_loaded()? {
        Some(device) => Status::read(&device)?.policies,
        None => Vec::new(),
    };
    match json {
        true => print_json(&policies)?,
        false => print(report::list(&policies))?,
    }
    Ok(ExitCode::SUCCESS)
}

pub fn status(json: bool) -> Result<ExitCode> {
    let status = Device::open_if_loaded()?.map(|device| Status::read(&device)).transpose()?;
    match (&status, json) {
        (_, true) => print_json(&status)?,
        (None, false) => print("Baton's core is not loaded; `baton load POLICY` loads it\n")?,
        (Some(status), false) => {
            print(report::status(status))?;
            if !status.core.attached && shim::is_pinned() {
                eprintln!("baton: the kernel has thrown the shim out; its log says why (dmesg | grep sched_ext).");
                eprintln!("baton: `baton load POLICY` attaches it again");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
