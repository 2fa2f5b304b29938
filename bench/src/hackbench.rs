// SPDX-License-Identifier: GPL-2.0-only
//! Hackbench: many processes that send each other messages.

use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::report::entries;
use crate::table::{self, compare, Measured, Run, Table};
use crate::{loads, Bench};
use baton_control::error::Result;
use baton_control::modules::Search;

/// Groups of processes, and messages from each sender to each receiver.
pub const SIZE: (u32, u32) = (1, 200);

pub struct Hackbench;

impl Bench for Hackbench {
    fn runs(&self) -> u32 {
        4
    }

    fn cpus(&self) -> &'static [u32] {
        &[1, 2]
    }

    fn run(&self, search: &Search, args: &Arguments) -> Result<ExitCode> {
        table::run(self, search, args)
    }
}

impl Table for Hackbench {
    fn tools(&self) -> &'static [&'static str] {
        &["hackbench"]
    }

    fn measure(&self, search: &Search, args: &Arguments, cpus: u32) -> Result<Measured> {
        let (metric, unit, scale) = if args.icount {
            ("instructions", "instructions", 1.0)
        } else {
            ("time", "s", 1e9)
        };
        let (groups, loops) = SIZE;
        let hackbench = |run: Run| loads::hackbench(groups, run.size(loops));
        let series = compare(search, args, |_, run| hackbench(run).map(|ns| ns / scale))?;
        Ok(entries(cpus, metric, unit, &series, true).into())
    }
}
