// SPDX-License-Identifier: GPL-2.0-only
//! Types of states: equal exactly when a value of one can be used as the other.

use baton::{Layout, Lock, PerTask, State};
use std::sync::atomic::AtomicU64;

/// A structure with these fields in a separate module, as in another version of a policy, and its
/// layout.
macro_rules! shared {
    ($version:literal { $($field:ident: $type:ty),* }) => {{
        struct Shared {
            $(#[allow(dead_code, reason = "only its place matters")] $field: $type),*
        }
        baton::state!(Shared, version $version { $($field),* });
        <Shared as State>::LAYOUT
    }};
}

fn check(other: Layout, is_same: bool) {
    let layout = shared!(1 { queued: u32, weight: u32, tasks: PerTask<AtomicU64> });
    assert_eq!(layout == other, is_same, "{layout:?} {other:?}");
}

#[test]
fn a_type_is_the_same_when_all_of_it_is() {
    check(
        shared!(1 { queued: u32, weight: u32, tasks: PerTask<AtomicU64> }),
        true,
    );
    check(
        shared!(2 { queued: u32, weight: u32, tasks: PerTask<AtomicU64> }),
        false,
    );
    check(
        shared!(1 { weight: u32, queued: u32, tasks: PerTask<AtomicU64> }),
        false,
    );
    check(
        shared!(1 { queued: u32, heavy: u32, tasks: PerTask<AtomicU64> }),
        false,
    );
    check(
        shared!(1 { queued: u32, weight: i32, tasks: PerTask<AtomicU64> }),
        false,
    );
    check(
        shared!(1 { queued: u32, weight: u32, tasks: PerTask<Lock<AtomicU64>> }),
        false,
    );
    check(
        shared!(1 { queued: u32, weight: u32, tasks: PerTask<u64> }),
        false,
    );
    check(shared!(1 { queued: u32, weight: u32 }), false);
}

#[test]
fn what_is_inside_counts() {
    struct Inner {
        _a: u32,
    }
    baton::state!(Inner, version 1 { _a });
    let one = shared!(1 { inner: Option<Inner> });
    let two = {
        struct Inner {
            _a: u32,
        }
        baton::state!(Inner, version 2 { _a });
        shared!(1 { inner: Option<Inner> })
    };
    assert_ne!(one, two);
    assert_eq!(one, shared!(1 { inner: Option<Inner> }));
    assert_eq!((one.name, one.version), ("Shared", 1));
}
