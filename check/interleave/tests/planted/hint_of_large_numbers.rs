// SPDX-License-Identifier: GPL-2.0-only
//! A hint fails for certain numbers, which are too large to be drawn at random.

use crate::base::{Base, Planted, Variant};
use baton::{Ctx, Hints, Task};

pub struct Bug(Base);

impl Variant for Bug {
    fn new(env: &baton::Env<'_>) -> Self {
        Self(Base::new(env))
    }
    fn base(&self) -> &Base {
        &self.0
    }
}

baton::message! {
    pub enum Hint, version 1 {
        Deadline { us: u64, kind: u8 } = 77,
    }
}

impl Hints for Planted<Bug> {
    type Hint = Hint;
    type Reply = Hint;

    fn hint(&self, _: &Ctx<'_>, _: &Task, hint: Hint) {
        let Hint::Deadline { us, kind } = hint;
        assert!(
            us % 1_000 != 7 || kind != 3,
            "a deadline of {us} us of kind {kind}"
        );
    }
}

baton::policy!(Planted<Bug>, hints);
