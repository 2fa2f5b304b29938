// SPDX-License-Identifier: GPL-2.0-only
//! The tool's access to the kernel. `device`, `kernel` and `shim` access it, `cgroups` and `tasks`
//! assign tasks, and `latency` measures. `status` and `report` present the state to users, `error`
//! the failures. The command line is not here but in the crate `cli`.

pub mod cgroups;
pub mod cpulist;
pub mod device;
pub mod error;
pub mod kernel;
pub mod latency;
pub mod names;
pub mod report;
pub mod shim;
pub mod status;
pub mod tasks;
