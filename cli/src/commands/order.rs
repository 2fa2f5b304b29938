// SPDX-License-Identifier: GPL-2.0-only
//! `baton order`: the order in which policies are asked.

use std::process::ExitCode;

use rustix::io::Errno;

use super::{print, print_json};
use crate::cli::Order;
use baton_control::device::{text, Device};
use baton_control::error::{Error, Result};
use baton_control::kernel::{self, Lock};

pub fn command(args: &Order) -> Result<ExitCode> {
    let device = Device::open()?;
    if !args.first.is_empty() {
        kernel::require_root("setting the order of policies")?;
        let _lock = Lock::take()?;
        let loaded: Vec<String> = device
            .policies()?
            .iter()
            .map(|info| text(&info.name))
            .collect();
        if let Some(unknown) = args.first.iter().find(|name| !loaded.contains(name)) {
            return Err(Error::user(
                format!("no policy {unknown} is loaded"),
                "see which policies are: baton order",
            ));
        }
        device.set_order(&args.first).map_err(|errno| match errno {
            Errno::NOENT => Error::user(
                "one of the policies was unloaded meanwhile",
                "see which policies are: baton order",
            ),
            other => Error::baton(format!("the order was not set: {other}")),
        })?;
    }
    let order: Vec<String> = device
        .policies()?
        .iter()
        .map(|info| text(&info.name))
        .collect();
    if args.output.json {
        print_json(&order)?
    } else {
        print(
            order
                .iter()
                .map(|name| format!("{name}\n"))
                .collect::<String>(),
        )?
    }
    Ok(ExitCode::SUCCESS)
}
