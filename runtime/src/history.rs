// SPDX-License-Identifier: GPL-2.0-only
//! The history of requests for cores.

use parking_lot::Mutex;

/// An event of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The process asked for this many cores in total.
    Requested(u32),
    /// An activation got a core, and runs on it.
    Granted,
    /// An activation saw that it must give its core back.
    Reclaimed,
    /// An activation gave its core back, or will do so now.
    Parked,
}

/// All events with their times, ns of CLOCK_MONOTONIC.
pub type History = Vec<(u64, Event)>;

/// `None` if no history was requested.
pub(crate) struct Log(Option<Mutex<History>>);

impl Log {
    pub fn new(is_kept: bool) -> Self {
        Self(is_kept.then(Mutex::default))
    }

    pub fn note(&self, event: Event) {
        let Some(history) = &self.0 else { return };
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        history.lock().push((now, event));
    }

    pub fn take(&self) -> History {
        self.0
            .as_ref()
            .map(|history| std::mem::take(&mut *history.lock()))
            .unwrap_or_default()
    }
}
