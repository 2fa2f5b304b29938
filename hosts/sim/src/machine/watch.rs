// SPDX-License-Identifier: GPL-2.0-only
//! Looks for stalled, stranded and lost tasks, periodically and at the end of a run.

use super::{Machine, Next};

impl Machine<'_> {
    /// The watch of `hosts/kernel/watch.c`.
    pub(super) fn watch(&mut self) {
        self.queue.push(self.now + self.watch_period(), Next::Watch);
        let mut ctx = baton_core::plain_ctx(self.now);
        if let Some(slot) = self.core.find_stall(self.now, self.config.stall) {
            let here = self.enter(0);
            self.core.judge_stall((), here, &mut ctx, slot);
        }
        self.core.rescue_stranded();
        self.core.relieve();
        self.settle(0, &ctx);
    }

    fn watch_period(&self) -> u64 {
        (self.config.stall / 4).clamp(10_000_000, 500_000_000)
    }

    /// Looks for lost tasks at the end of a run, which may come before the watch would find them.
    /// The calls of policies here are neither counted nor recorded.
    pub fn judge_all(&mut self) {
        let host = self.host();
        if !host.reports.borrow().is_empty() {
            return;
        }
        let (tape, calls, events) = (host.tape.take(), host.calls.get(), self.stats.events);
        let here = self.enter(0);
        self.core.judge_all(
            (),
            here,
            &mut baton_core::plain_ctx(self.now),
            self.watch_period(),
        );
        let host = self.host();
        host.tape.replace(tape);
        host.calls.set(calls);
        self.stats.events = events;
    }
}
