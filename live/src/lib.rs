// SPDX-License-Identifier: GPL-2.0-only
//! Live update of a stock kernel's own scheduler: what `baton live` does. `docs/live.md` says what
//! that is for.
//!
//! The scheduler is compiled anew from the kernel's source, and its objects are compared with the
//! kernel that runs ([`identity`]). The objects tell what a module can replace ([`boundary`]).
//! Everything else of Baton works without this crate, and nothing depends on it but the command
//! line.
#![forbid(unsafe_code)]

pub mod boundary;
pub mod code;
pub mod elf;
pub mod graph;
pub mod identity;
mod image;
mod package;
mod prepare;
mod process;
pub mod vmlinux;

pub use prepare::Prepared;
