// SPDX-License-Identifier: GPL-2.0-only
//! Load weights by nice value, as in the kernel's `sched_prio_to_weight` (kernel/sched/core.c):
//! each step is a factor of about 1.25, which is 10 % of a CPU between two tasks.

/// Weight at nice 0.
pub const NICE_0: u32 = 1024;

const TABLE: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// The weight of a nice value. A value outside -20..=19 is clamped.
#[inline]
pub fn of_nice(nice: i32) -> u32 {
    TABLE[(nice.clamp(-20, 19) + 20) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_falls_by_a_quarter_a_step() {
        for nice in -20..19 {
            let ratio = f64::from(of_nice(nice)) / f64::from(of_nice(nice + 1));
            assert!((1.17..1.33).contains(&ratio), "nice {nice}: {ratio}");
        }
        assert_eq!(
            (of_nice(0), of_nice(-100), of_nice(100)),
            (NICE_0, 88761, 15)
        );
    }
}
