// SPDX-License-Identifier: GPL-2.0-only
//! Rings: messages arrive in order and only once, and a full ring is reported.

use baton_message::{
    ring::{is_ready, is_unread, put, take, Entry, Full},
    Raw,
};
use std::thread;

fn message(tag: u32) -> Raw {
    Raw {
        tag,
        thread: tag / 2,
        words: [u64::from(tag); 6],
    }
}

fn ring(entries: usize) -> Vec<Entry> {
    (0..entries).map(|_| Entry::default()).collect()
}

#[test]
fn full_and_empty() {
    let ring = ring(4);
    let (mut to, mut from) = (0, 0);
    // Through many laps, and through the wrap of the 32-bit sequences.
    for (lap, start) in [(0, 0), (1, 0), (2, (1 << 33) - 16)] {
        if start != 0 {
            (to, from) = (start, start);
            let of_lap = ((start / 4) as u32).wrapping_mul(2);
            ring.iter()
                .for_each(|entry| entry.scribble(of_lap, [0; 3], [0; 6]));
        }
        for _ in 0..9 {
            assert_eq!(take(&ring, &mut from), None, "lap {lap}");
            for tag in 0..4 {
                assert_eq!(put(&ring, &mut to, &message(tag)), Ok(()));
            }
            assert_eq!(put(&ring, &mut to, &message(9)), Err(Full));
            assert!(is_ready(&ring, from) && is_unread(&ring, to));
            for tag in 0..4 {
                assert_eq!(take(&ring, &mut from), Some(message(tag)));
            }
            assert!(!is_ready(&ring, from) && !is_unread(&ring, to));
        }
    }
}

#[test]
fn no_ring_is_full_and_empty() {
    assert_eq!(put(&[], &mut 0, &message(1)), Err(Full));
    assert_eq!(take(&[], &mut 0), None);
    assert!(!is_ready(&[], 0) && !is_unread(&[], 0) && !is_unread(&[], 1));
}

/// Two threads, one at each end.
#[test]
fn in_order_between_threads() {
    const MESSAGES: u32 = 100_000;
    let ring = ring(16);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut to = 0;
            for tag in 0..MESSAGES {
                while put(&ring, &mut to, &message(tag)).is_err() {
                    thread::yield_now();
                }
            }
        });
        let mut from = 0;
        for tag in 0..MESSAGES {
            loop {
                if let Some(got) = take(&ring, &mut from) {
                    assert_eq!(got, message(tag));
                    break;
                }
                thread::yield_now();
            }
        }
        assert_eq!(take(&ring, &mut from), None);
    });
}
