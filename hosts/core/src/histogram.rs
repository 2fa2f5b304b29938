// SPDX-License-Identifier: GPL-2.0-only
//! Histograms of durations. Each power of two has `1 << bits` classes of equal width, and below the
//! first of these powers each value has a class of its own.

/// The class of a duration, ns.
pub const fn class_of(ns: u64, bits: u32) -> usize {
    if ns < 1 << bits {
        return ns as usize;
    }
    let power = ns.ilog2();
    let first = ((power - bits + 1) as usize) << bits;
    first + ((ns >> (power - bits)) & ((1 << bits) - 1)) as usize
}

/// The longest duration in a class, ns.
pub const fn longest_of(class: usize, bits: u32) -> u64 {
    let (next, width) = (class as u64 + 1, 1 << bits);
    if next <= width {
        next - 1
    } else {
        ((width + next % width) << (next / width - 1)) - 1
    }
}

/// The duration that this percentage of all does not exceed, ns, rounded up to the longest of its
/// class. `None` if the histogram is empty.
pub fn percentile(counts: &[u64], bits: u32, percent: u64) -> Option<u64> {
    let count: u64 = counts.iter().sum();
    let mut left = (count * percent).div_ceil(100);
    let class = counts.iter().position(|&count| {
        left = left.saturating_sub(count);
        left == 0
    });
    (count != 0).then_some(longest_of(class?, bits))
}
