// SPDX-License-Identifier: GPL-2.0-only
//! The format of recordings. A recording holds every input and every answer of a policy in the
//! order of each CPU, with stamps that relate the orders of different CPUs. The kernel host and the
//! simulator write recordings; replay and the tool read them. See `docs/formats/trace.md`.
//!
//! The kernel uses events ([`Codec`]) and blocks ([`Recorder`]) only: no allocation, no panic, no
//! lock. Files exist in user space only.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod block;
mod codec;
mod event;
#[cfg(not(target_os = "none"))]
mod file;
#[cfg(not(target_os = "none"))]
mod follow;
#[cfg(not(target_os = "none"))]
mod mark;
#[cfg(not(target_os = "none"))]
mod merge;
#[cfg(not(target_os = "none"))]
mod words;

pub use block::{last_stamp, BlockHead, Kind, Recorder, BLOCK_SIZE, HEAD_SIZE};
pub use codec::{Codec, Malformed, MAX_EVENT};
pub use event::{About, Call, Carried, Event, Question, Return};
#[cfg(not(target_os = "none"))]
pub use file::{
    Checkpoint, Damage, FileWriter, Header, Item, Items, OpenError, Recording, Stream, VERSION,
};
#[cfg(not(target_os = "none"))]
pub use follow::{Follow, Step};
#[cfg(not(target_os = "none"))]
pub use mark::Mark;
#[cfg(not(target_os = "none"))]
pub use merge::{Merged, Told};
#[cfg(not(target_os = "none"))]
pub use words::{fault_name, method_name, Words};
