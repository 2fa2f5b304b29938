// SPDX-License-Identifier: GPL-2.0-only
//! Benches that judge what they measured: bounds, verdicts, and the end of such a bench.

use std::fs;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use baton_control::error::{Error, Result};
use baton_control::output::{print, print_json};

/// Where something was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Simulator,
    Kernel,
}

impl Place {
    /// The name in a table.
    pub fn name(self) -> String {
        match self {
            Place::Simulator => "simulator",
            Place::Kernel => "kernel",
        }
        .into()
    }
}

/// The bound of a value.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    Least(f64),
    Most(f64),
}

impl Bound {
    /// Does the value hold the bound? No number holds none.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Bound::Least(least) => value >= least,
            Bound::Most(most) => value <= most,
        }
    }

    /// The bound in a table.
    pub fn text(self) -> String {
        match self {
            Bound::Least(least) => format!("{least} or more"),
            Bound::Most(most) => format!("{most} or less"),
        }
    }
}

/// A value as it is reported: three digits after the point.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// A verdict in a table.
pub fn verdict(holds: bool) -> &'static str {
    if holds {
        "holds"
    } else {
        "DOES NOT HOLD"
    }
}

/// The report of a bench, as JSON.
#[derive(Serialize, Debug)]
pub struct Report<'a, Row, Verdict> {
    pub bench: &'static str,
    /// The release of the kernel (`uname -r`).
    pub kernel: &'a str,
    pub results: &'a [Row],
    pub verdicts: &'a [Verdict],
}

/// Refuses arguments that would change what a bench with one fixed run measures.
pub fn refuse_runs(args: &Arguments, what: &str) -> Result<()> {
    if args.cpus.is_empty() && args.runs.is_none() {
        return Ok(());
    }
    Err(Error::user(
        format!("bench {} has {what}", args.what.name()),
        "leave --cpus and --runs out",
    ))
}

/// Ends a bench: writes the page, if one was asked for, prints the report, and fails when a bound
/// does not hold.
pub fn end(
    args: &Arguments,
    report: &impl Serialize,
    text: String,
    page: impl FnOnce() -> String,
    all_hold: bool,
) -> Result<ExitCode> {
    if let Some(path) = &args.page {
        fs::write(path, page())
            .map_err(|e| Error::file(format!("writing {}", path.display()), &e))?;
    }
    if args.json {
        print_json(report)?;
    } else {
        print(text)?;
    }
    Ok(if all_hold {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_holds_no_bound() {
        for bound in [Bound::Least(1.0), Bound::Most(1.0)] {
            assert!(bound.holds(1.0) && !bound.holds(f64::NAN), "{bound:?}");
        }
        assert!(!Bound::Least(1.0).holds(0.9) && !Bound::Most(1.0).holds(1.1));
    }
}
