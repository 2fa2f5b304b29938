// SPDX-License-Identifier: GPL-2.0-only
//! A `Ctx` cannot be handed out of the call either.
#![forbid(unsafe_code)]

use baton::Ctx;

fn leak<'a>(ctx: &Ctx<'a>) -> &'static Ctx<'a> {
    ctx
}

fn main() {
    let _ = leak;
}
