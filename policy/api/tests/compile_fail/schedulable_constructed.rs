// SPDX-License-Identifier: GPL-2.0-only
//! A policy cannot write a `Schedulable` down.
#![forbid(unsafe_code)]

use baton::Schedulable;
use core::num::NonZeroU32;

fn forge(slot: u32, generation: NonZeroU32) -> Schedulable {
    Schedulable { slot, generation }
}

fn main() {
    let _ = forge;
}
