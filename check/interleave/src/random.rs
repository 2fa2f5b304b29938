// SPDX-License-Identifier: GPL-2.0-only
//! Reproducible random numbers.

use std::cell::Cell;

/// SplitMix64: any seed is good, and the streams of neighbouring seeds are unrelated.
pub struct Random(Cell<u64>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    pub fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True with probability 1 / `times`.
    pub fn once_in(&self, times: usize) -> bool {
        self.below(times) == 0
    }
}
