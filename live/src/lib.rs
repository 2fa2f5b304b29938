// SPDX-License-Identifier: GPL-2.0-only
//! Live update of a stock kernel's own scheduler: what `baton live` does. `docs/live.md` says what
//! that is for.
//!
//! The scheduler is compiled anew from the kernel's source, and its objects are compared with the
//! kernel that runs ([`identity`]). The objects tell what a module can replace ([`boundary`]).
//! Those of a changed scheduler pass the gates ([`gates`]), are rewritten so that they use the
//! kernel's own data ([`extract`]), and become a module ([`build`]), which is loaded and unloaded
//! ([`running`]).
//! Everything else of Baton works without this crate, and nothing depends on it but the command
//! line.
#![forbid(unsafe_code)]

pub mod boundary;
pub mod btf;
pub mod build;
pub mod code;
pub mod elf;
pub mod extract;
pub mod gates;
pub mod graph;
pub mod identity;
mod image;
pub mod klp;
mod package;
pub mod pairs;
mod prepare;
mod process;
pub mod running;
pub mod sites;
pub mod vmlinux;

pub use prepare::Prepared;
