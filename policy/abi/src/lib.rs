// SPDX-License-Identifier: GPL-2.0-only
//! The C interface of Baton between the BPF shim, the core module, a policy module and the control
//! device. `policy/c/baton.h` is generated from this crate (`cargo xtask header`); a test fails
//! when it is stale.
//!
//! All types named `Baton...` are plain data of fixed size, little-endian, with no padding that is
//! read. [`Arg`] is the only one that C does not see. Times are nanoseconds of the kernel's
//! scheduler clock. CPUs have the kernel's numbers.
#![no_std]
#![forbid(unsafe_code)]

mod agent;
mod arg;
mod control;
mod hints;
mod methods;
mod policy;
mod requests;

pub use agent::*;
pub use arg::*;
pub use control::*;
pub use hints::*;
pub use methods::*;
pub use policy::*;
pub use requests::*;

/// Version of everything in this crate. A policy module built for another version is refused at
/// registration.
pub const BATON_ABI: u32 = 7;

/// Longest name of a policy, with the terminating NUL.
pub const BATON_NAME_LEN: usize = 32;

/// Longest option string of a policy, with the terminating NUL.
pub const BATON_OPTIONS_LEN: usize = 256;

/// Maximum number of policies registered at once.
pub const BATON_MAX_POLICIES: usize = 16;
