// SPDX-License-Identifier: GPL-2.0-only
//! The arguments of a method as hosts in Rust pass them.

use crate::{BatonHint, BatonTask, BatonWake};

/// An argument of a policy's method.
#[derive(Clone, Copy)]
pub enum Arg<'t> {
    /// A number or token.
    Word(u64),
    /// The task.
    Task(&'t BatonTask),
    /// The wakeup.
    Wake(&'t BatonWake),
    /// The hint.
    Hint(&'t BatonHint),
}

impl Arg<'_> {
    /// The argument as the C interface passes it: a number, or the address of a structure.
    #[inline(always)]
    pub fn word(self) -> u64 {
        match self {
            Self::Word(word) => word,
            Self::Task(task) => core::ptr::from_ref(task) as u64,
            Self::Wake(wake) => core::ptr::from_ref(wake) as u64,
            Self::Hint(hint) => core::ptr::from_ref(hint) as u64,
        }
    }
}
