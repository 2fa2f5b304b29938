// SPDX-License-Identifier: GPL-2.0-only
//! There is no blank `Schedulable`.
#![forbid(unsafe_code)]

use baton::Schedulable;

fn main() {
    let _ = <Schedulable as Default>::default();
}
