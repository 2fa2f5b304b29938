// SPDX-License-Identifier: GPL-2.0-only
//! The seam between the policy API (`baton`) and the host that runs a policy.
//!
//! Policies never see this crate: they use the exports of `baton`, which forbids unsafe code.
//! Everything that needs unsafe code or differs between hosts is here:
//!
//! - [`Schedulable`], which only a host can create ([`Schedulable::from_raw`] is unsafe);
//! - [`Links`] and [`Parking`], where run queues keep a `Schedulable` without allocating;
//! - [`RawLock`], the host's lock;
//! - the functions behind `baton::Ctx` ([`host`]).
//!
//! In the kernel (`target_os = "none"`) the host is a set of C functions of `baton.ko`, called
//! directly. Elsewhere it is a table of functions ([`host::Table`]), installed per thread. Without
//! a table, a plain stand-in serves unit tests.
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

extern crate alloc;
#[cfg(not(target_os = "none"))]
extern crate std;

#[cfg_attr(target_os = "none", path = "host_kernel.rs")]
#[cfg_attr(not(target_os = "none"), path = "host_native.rs")]
pub mod host;
mod links;
mod lock;
mod schedulable;

pub use links::{Link, Links, Parking, NIL};
pub use lock::RawLock;
pub use schedulable::Schedulable;
