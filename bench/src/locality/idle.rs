// SPDX-License-Identifier: GPL-2.0-only
//! The idle states of this machine's CPUs: its own, or those of the simulator's tables in a guest,
//! which has none.

use std::fs;

use baton_sim::idle::{IdleState, TABLES};

use crate::programs::IDLE;
use baton_control::error::Result;
use baton_control::kernel;

const MODULE: &str = "baton_idle";

/// The idle states that can be measured: the given tables in a guest, otherwise those of the
/// machine, by the name of its driver.
pub fn choices(tables: &[&str]) -> Vec<String> {
    let driver =
        fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or_default();
    match driver.trim() {
        "" | "none" => tables.iter().map(|table| table.to_string()).collect(),
        driver => vec![driver.into()],
    }
}

/// Idle states that stay set until this value is dropped.
pub struct IdleStates {
    is_loaded: bool,
}

impl IdleStates {
    pub fn set(choice: &str) -> Result<Self> {
        let states = TABLES
            .iter()
            .find(|(name, _)| *name == choice)
            .map_or(&[][..], |(_, states)| states);
        if !states.is_empty() {
            kernel::load_module(&IDLE.find(&format!("{MODULE}.ko"))?, &parameters(states))?;
        }
        Ok(Self {
            is_loaded: !states.is_empty(),
        })
    }

    /// Resets the idle states, and reports an error, which a drop cannot.
    pub fn reset(mut self) -> Result<()> {
        if std::mem::take(&mut self.is_loaded) {
            kernel::unload_module(MODULE)
        } else {
            Ok(())
        }
    }
}

impl Drop for IdleStates {
    fn drop(&mut self) {
        if self.is_loaded {
            let _ = kernel::unload_module(MODULE);
        }
    }
}

/// The parameters of the module (bench/idle/baton_idle.c).
fn parameters(states: &[IdleState]) -> String {
    let list =
        |of: &dyn Fn(&IdleState) -> String| states.iter().map(of).collect::<Vec<_>>().join(",");
    let us = |ns: u64| (ns / 1_000).to_string();
    let (names, exits) = (
        list(&|state| state.name.into()),
        list(&|state| us(state.exit_latency)),
    );
    format!(
        "name={names} exit_us={exits} residency_us={}",
        list(&|state| us(state.target_residency))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_gets_the_table() {
        let skx = TABLES.iter().find(|(name, _)| *name == "skx").unwrap().1;
        assert_eq!(
            parameters(skx),
            "name=C1,C1E,C6 exit_us=2,10,133 residency_us=2,20,600"
        );
    }
}
