// SPDX-License-Identifier: GPL-2.0-only
//! And a policy has no unsafe code, as its first line says (`cargo xtask check` sees to that line).
#![forbid(unsafe_code)]

use baton::Schedulable;

fn main() {
    let _ = unsafe { Schedulable::from_raw(1 << 32 | 1) };
}
