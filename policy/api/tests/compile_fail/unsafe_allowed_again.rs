// SPDX-License-Identifier: GPL-2.0-only
//! What the first line forbids cannot be allowed further down.
#![forbid(unsafe_code)]

#[allow(unsafe_code)]
fn peek(at: *const u8) -> u8 {
    unsafe { *at }
}

fn main() {
    let _ = peek;
}
