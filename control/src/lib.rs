// SPDX-License-Identifier: GPL-2.0-only
//! Administration of a running Baton. `device`, `kernel`, `modules` and `shim` reach the kernel;
//! `load`, `unload` and `exchange` bring policies, remove them and replace them; `cgroups` and
//! `tasks` assign tasks to policies; `recording`, `latency`, `cores` and `monitor` measure;
//! `status`, `report` and `output` show; `error` is what can go wrong. The command line is in
//! `cli`.

pub mod cgroups;
pub mod cores;
pub mod cpulist;
pub mod device;
pub mod enclaves;
pub mod error;
pub mod exchange;
pub mod kernel;
pub mod latency;
mod lines;
pub mod load;
pub mod modules;
pub mod monitor;
pub mod names;
pub mod output;
mod probe;
pub mod recording;
pub mod report;
pub mod shim;
pub mod status;
pub mod tasks;
pub mod unload;
