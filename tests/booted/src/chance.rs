// SPDX-License-Identifier: GPL-2.0-only
//! Numbers that look random, and are the same for the same seed.

/// Xorshift random numbers.
pub struct Chance(u32);

impl Chance {
    pub fn of(seed: u32) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9) | 1)
    }

    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }
}
