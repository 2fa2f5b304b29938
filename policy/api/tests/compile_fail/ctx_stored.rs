// SPDX-License-Identifier: GPL-2.0-only
//! A `Ctx` cannot be kept beyond the call: its powers end with it.
#![forbid(unsafe_code)]

use baton::Ctx;
use core::cell::Cell;

struct Keeper<'a> {
    kept: Cell<Option<&'a Ctx<'a>>>,
}

impl Keeper<'_> {
    fn task_tick(&self, ctx: &Ctx<'_>) {
        self.kept.set(Some(ctx));
    }
}

fn main() {
    let _ = Keeper::task_tick;
}
