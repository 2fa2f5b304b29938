// SPDX-License-Identifier: GPL-2.0-only
//! Random numbers: one seed gives one sequence, on every machine.

use rand_xoshiro::{
    rand_core::{RngCore, SeedableRng},
    Xoshiro256PlusPlus,
};

/// A sequence of random numbers. Floating point uses only the four operations and `libm`, so
/// results are the same to the bit on every machine.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The sequence of a seed. The number `of` distinguishes sequences that share a seed.
    pub fn new(seed: u64, of: u64) -> Self {
        // One step of splitmix64 makes the sequences of adjacent numbers unrelated.
        let mut mixed = seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed ^ (mixed >> 31)))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, or 0 if `end` is 0. Its bias is below 2^-32 for `end` below 2^32.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True once in `times` calls on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from an exponential distribution with this mean: the time between independent
    /// arrivals.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        (-libm::log(1.0 - self.unit()) * mean as f64) as u64
    }
}
