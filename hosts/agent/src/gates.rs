// SPDX-License-Identifier: GPL-2.0-only
//! Locks of CPUs, by which agents make one call of a kind at a time.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::host::Patience;

/// A lock for each CPU. The CPU's own agent waits for it. Any other leaves the work to that agent,
/// or to the one that holds the lock.
pub(crate) struct Gates(Vec<AtomicBool>);

/// A gate that is held.
pub(crate) struct Held<'a>(&'a AtomicBool);

impl Gates {
    pub fn new(cpus: usize) -> Self {
        Self((0..cpus).map(|_| AtomicBool::new(false)).collect())
    }

    /// The CPU's gate, unless another thread holds it.
    pub fn try_enter(&self, cpu: usize) -> Option<Held<'_>> {
        let gate = &self.0[cpu];
        (!gate.swap(true, SeqCst)).then(|| Held(gate))
    }

    /// Waits for the CPU's gate.
    pub fn enter(&self, cpu: usize) -> Held<'_> {
        let mut patience = Patience::default();
        loop {
            if let Some(held) = self.try_enter(cpu) {
                return held;
            }
            patience.turn();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}
