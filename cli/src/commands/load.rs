// SPDX-License-Identifier: GPL-2.0-only
//! `baton load`.

use std::process::ExitCode;

use crate::cli::Load;
use baton_control::error::Result;
use baton_control::load;
use baton_control::modules::Search;

pub fn command(search: &Search, args: &Load) -> Result<ExitCode> {
    let device = load::load(search, &args.policy, &(&args.how).into())?;
    let tasks = match (args.how.all || device.core()?.all != 0, args.how.all) {
        (true, true) => "it has every normal task of the machine",
        (true, false) => {
            "give it tasks: baton attach, baton run (every other normal task is Baton's, too)"
        }
        (false, _) => "give it tasks: baton attach, baton run",
    };
    eprintln!("baton: {} is running; {tasks}", args.policy);
    Ok(ExitCode::SUCCESS)
}
