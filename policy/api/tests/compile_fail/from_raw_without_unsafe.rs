// SPDX-License-Identifier: GPL-2.0-only
//! Only a host makes a `Schedulable`: the function for it is unsafe.
#![forbid(unsafe_code)]

use baton::Schedulable;

fn main() {
    let _ = Schedulable::from_raw(1 << 32 | 1);
}
