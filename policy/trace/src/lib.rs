// SPDX-License-Identifier: GPL-2.0-only
//! The format of recordings: every input of a policy and every answer, in the order of each CPU,
//! with stamps that tell how the CPUs' orders fit together. Written by the kernel host and the
//! simulator, read by replay and the tool; `docs/formats/trace.md`.
//!
//! In the kernel there are events ([`Codec`]) and blocks ([`Recorder`]) only: no allocation, no
//! panic, no lock. Files are for user space.
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
