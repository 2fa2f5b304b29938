// SPDX-License-Identifier: GPL-2.0-only
//! What became of requests for cores.

use parking_lot::Mutex;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The process asked for so many cores, all in all.
    Requested(u32),
    /// It got one, and runs on it.
    Granted,
    /// It saw that one is to be given back.
    Reclaimed,
    /// It gave one back, or is about to.
    Parked,
}

/// All that happened, with when: ns of CLOCK_MONOTONIC.
pub type History = Vec<(u64, Event)>;

#[derive(Default)]
pub(crate) struct Log(Mutex<History>);

impl Log {
    pub fn note(&self, event: Event) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        self.0.lock().push((now, event));
    }

    pub fn take(&self) -> History {
        std::mem::take(&mut self.0.lock())
    }
}
