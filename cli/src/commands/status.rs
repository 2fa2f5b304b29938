// SPDX-License-Identifier: GPL-2.0-only
//! `baton list` and `baton status`.

use std::process::ExitCode;

use super::{print, print_json};
use baton_control::device::Device;
use baton_control::error::Result;
use baton_control::status::Status;
use baton_control::{report, shim};

pub fn list(json: bool) -> Result<ExitCode> {
    let policies = read()?.policies;
    if json {
        print_json(&policies)?
    } else {
        print(report::list(&policies))?
    }
    Ok(ExitCode::SUCCESS)
}

pub fn status(json: bool) -> Result<ExitCode> {
    let status = read()?;
    if json {
        print_json(&status)?
    } else {
        print(report::status(&status))?
    }
    if !json && status.core.is_some_and(|core| !core.attached) && shim::is_pinned() {
        eprintln!(
            "baton: the kernel has ejected the shim; its log says why (dmesg | grep sched_ext)."
        );
        eprintln!("baton: `baton load POLICY` attaches it again");
    }
    Ok(ExitCode::SUCCESS)
}

/// The present state; empty if the core is not loaded.
fn read() -> Result<Status> {
    Device::open_if_loaded()?.map_or_else(|| Ok(Status::default()), |device| Status::read(&device))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts get the same lists whether the core is loaded or not.
    #[test]
    fn without_the_core_all_lists_are_empty() {
        let json = serde_json::to_value(Status::default()).unwrap();
        let names = ["policies", "partitions", "cgroups", "cpus", "faults"];
        for name in names {
            assert_eq!(json[name], serde_json::json!([]), "{name}");
        }
        assert!(json["core"].is_null());
        assert_eq!(
            json.as_object().map(serde_json::Map::len),
            Some(names.len() + 1)
        );
        assert!(
            !report::list(&[]).contains("NaN") && !report::status(&Status::default()).is_empty()
        );
    }
}
