// SPDX-License-Identifier: GPL-2.0-only
//! Histograms of durations.

use baton_core::histogram::{class_of, longest_of, percentile};

#[test]
fn classes_border_on_each_other() {
    for bits in [2, 6] {
        for class in 0..1000_usize.min(60 << bits) {
            let longest = longest_of(class, bits);
            let found = (class_of(longest, bits), class_of(longest + 1, bits));
            assert_eq!(found, (class, class + 1), "{longest} ns, {bits} bits");
        }
    }
}

/// A class of `bits` bits is at most that part of its durations wide, so a percentile is at most so
/// much too long.
#[test]
fn a_percentile_is_at_most_a_quarter_too_long() {
    for ns in (1..2_000_000).step_by(777) {
        let longest = longest_of(class_of(ns, 2), 2);
        assert!(longest >= ns && longest - ns <= ns / 4, "{ns}: {longest}");
    }
}

#[test]
fn percentiles_count_from_the_shortest() {
    let mut counts = [0; 200];
    counts[class_of(1_000, 2)] = 99;
    counts[class_of(5_000_000, 2)] = 1;
    let longest = |ns| Some(longest_of(class_of(ns, 2), 2));
    assert_eq!(percentile(&counts, 2, 50), longest(1_000));
    assert_eq!(percentile(&counts, 2, 99), longest(1_000));
    assert_eq!(percentile(&counts, 2, 100), longest(5_000_000));
    assert_eq!(percentile(&[0; 200], 2, 50), None);
    assert_eq!(percentile(&[], 2, 50), None);
}
