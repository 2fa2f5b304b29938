// SPDX-License-Identifier: GPL-2.0-only
//! Scaling of times for a guest. Its CPU is slow: a context switch is thousands of instructions of
//! a nanosecond each. Slices and the nominal times of requests are longer there by one factor, and
//! measured times are divided by it for display.

use std::fs;
use std::path::Path;

use super::{subject::Subject, Arguments};
use baton_control::error::{Error, Result};

/// The factor. It makes a context switch a small part of a slice.
pub const FACTOR: u64 = 16;
/// The slice of `shinjuku`, ns.
pub const SLICE: u64 = 10_000;
/// EEVDF's slice.
const BASE_SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";

/// The factor by which times are longer here: 1 if the clock counts no instructions.
pub fn factor(args: &Arguments) -> u64 {
    if args.icount {
        FACTOR
    } else {
        1
    }
}

/// How many of these CPUs compute at once. CPUs that count instructions share one stream of them.
pub fn at_once(args: &Arguments, cpus: u32) -> f64 {
    f64::from(if args.icount { 1 } else { cpus })
}

/// Converts a measured time to the time that it models, us.
pub fn us(ns: u64, factor: u64) -> f64 {
    (ns as f64 / factor as f64).round() / 1e3
}

/// The times of policies that are scaled, with their usual values, us.
const TIMES: &[(&str, &[(&str, u64)])] = &[
    (
        "arbiter",
        &[("within", 10_000), ("turn", 4_000), ("slice", 20_000)],
    ),
    ("central", &[("slice", 20_000)]),
    ("fifo", &[("slice", 20_000)]),
    ("locality", &[("slice", 20_000)]),
    ("shinjuku", &[("slice", SLICE / 1_000), ("turn", 4_000)]),
    ("wfq", WFQ),
];

/// The times of `wfq`.
const WFQ: &[(&str, u64)] = &[
    ("period", 12_000),
    ("min_slice", 3_000),
    ("credit", 500),
    ("light_slice", 500),
    ("look", 200_000),
    ("granularity", 500),
    ("protection", 250),
];

/// The options that scale a subject's times.
pub fn options(subject: &Subject) -> Option<String> {
    let (_, times) = TIMES.iter().find(|(policy, _)| subject.name() == *policy)?;
    let longer = times
        .iter()
        .map(|(option, us)| format!("{option}={}us", us * FACTOR));
    Some(longer.collect::<Vec<_>>().join(","))
}

/// Scales EEVDF's slice by the factor until this value is dropped.
pub struct BaseSlice(String);

impl BaseSlice {
    pub fn longer() -> Result<Self> {
        let path = Path::new(BASE_SLICE);
        let usual = fs::read_to_string(path)
            .map_err(|e| Error::file(format!("reading {BASE_SLICE}"), &e))?;
        let ns: u64 = usual
            .trim()
            .parse()
            .map_err(|_| Error::baton(format!("{BASE_SLICE} is not a number: {usual}")))?;
        fs::write(path, (ns * FACTOR).to_string())
            .map_err(|e| Error::file(format!("writing {BASE_SLICE}"), &e))?;
        Ok(Self(usual))
    }
}

impl Drop for BaseSlice {
    fn drop(&mut self) {
        let _ = fs::write(BASE_SLICE, self.0.trim());
    }
}
