// SPDX-License-Identifier: GPL-2.0-only
//! The simulator: a deterministic machine on which policies run as they are.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod rng;
pub mod topology;
pub mod trace;
pub mod world;
