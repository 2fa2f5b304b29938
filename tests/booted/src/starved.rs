// SPDX-License-Identifier: GPL-2.0-only
//! An agent of a CPU that a task of a higher class keeps from it.

use std::{io::Read, process::Stdio};

use crate::{
    agents::{begin, load, Running},
    tool::{baton, check, Hog},
    Case,
};

pub fn cases() -> Vec<Case> {
    vec![case!(
        "agent: kept from its CPU by a higher class",
        starved()
    )]
}

/// The report blames the machine and not the policy, and the load comes to its end.
fn starved() -> Result<(), String> {
    baton(&["enclave", "create", "poor"])?;
    let mut agent = Running::start_with("poor", &["--per-cpu", "fifo"], Stdio::piped())?;
    let load = begin(&load("poor", ["1", "500"]))?;
    agent.wait_for("poor", |enclave| enclave["picks"].as_u64() > Some(100))?;
    let hog = Hog::normal(Some("1"))?;
    agent.wait_for("poor", |enclave| enclave["agent"].is_null())?;
    drop(hog);
    let ended = agent.0.wait().map_err(|e| e.to_string())?;
    let mut report = String::new();
    if let Some(mut errors) = agent.0.stderr.take() {
        errors
            .read_to_string(&mut report)
            .map_err(|e| e.to_string())?;
    }
    let words = ["agent starved", "at fault  this machine", "other tasks"];
    let is_good = ended.code() == Some(3) && words.iter().all(|word| report.contains(word));
    check(is_good, || {
        format!("the agent ended with {ended}: {report}")
    })?;
    // The policy stopped while it ran, for which the machine is to blame here, too.
    let load = load.wait_with_output().map_err(|e| e.to_string())?;
    check(load.status.code() == Some(3), || {
        let errors = String::from_utf8_lossy(&load.stderr);
        format!("the load ended with {}: {errors}", load.status)
    })?;
    baton(&["enclave", "destroy", "poor"]).map(drop)
}
