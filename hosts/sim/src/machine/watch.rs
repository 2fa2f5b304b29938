// SPDX-License-Identifier: GPL-2.0-only
//! What is looked for from time to time, and at the end: tasks that wait for too long, and tasks
//! that are stranded or lost.

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

    /// The run is over, perhaps before the watch could notice that a task is lost. What policies
    /// are asked now is no part of the run.
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
