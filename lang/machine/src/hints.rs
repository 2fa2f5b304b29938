// SPDX-License-Identifier: GPL-2.0-only
//! Hints: what programs can say of threads.

use baton::{message, Ctx, Hints, Message, Task};

use crate::core::Seen;
use crate::rules::Rules;
use crate::thread::Thread;
use crate::{Machine, Named};

/// A policy that takes hints.
pub trait Hinted: Rules {
    /// The type of the hints.
    type Hint: Message;

    /// The thread that a hint is about.
    fn named(hint: &Self::Hint) -> Named;

    /// Accepts the hint about this thread. It changes nothing but attributes of the thread: no lock
    /// is held, and another call about the thread may be in progress. Returns false if a value is
    /// not in its range.
    fn hint(
        &self,
        seen: &Seen<'_, '_, Self>,
        thread: Thread<'_, Self::Thread>,
        hint: Self::Hint,
    ) -> bool;
}

message! {
    /// The answer to a hint that was not accepted.
    pub enum Reply, version 1 {
        /// A value of the hint with this tag was not in its range.
        OutOfRange {
            /// The tag of the hint.
            tag: u32,
        } = 1,
    }
}

impl<R: Hinted> Hints for Machine<R> {
    type Hint = R::Hint;
    type Reply = Reply;

    fn hint(&self, ctx: &Ctx<'_>, from: &Task, hint: R::Hint) {
        let slot = R::named(&hint).slot();
        let seen = Seen {
            machine: self,
            ctx,
            slot: Some(slot),
            from: from.cpu,
        };
        let tag = hint.encode().tag;
        if !self.rules.hint(&seen, self.thread(slot), hint) {
            // A program that does not read its replies has no use for this one either.
            let _ = ctx.reply::<Self>(from.slot, &Reply::OutOfRange { tag });
        }
    }
}
