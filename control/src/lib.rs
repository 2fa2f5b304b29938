// SPDX-License-Identifier: GPL-2.0-only
//! What the tool has of the kernel: `device`, `kernel` and `shim` are the ways into it, `cgroups`
//! and `tasks` say whose a task is, `latency` measures; `status` and `report` are the way out to
//! people, `error` what can go wrong. No command line: that is `cli`.

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
