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

/// With nothing in it where nobody asked for a history.
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
