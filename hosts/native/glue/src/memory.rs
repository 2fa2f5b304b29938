// SPDX-License-Identifier: GPL-2.0-only
//! A policy's memory in user space: the counterpart of `hosts/kernel/memory.c`, with its bounds, so that a policy which asks for too much
//! fails here as it does there.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// What a library's policies may have together, bytes. More than in the kernel: it may be asked for a machine of 4,096 CPUs.
const LIMIT: usize = 512 << 20;

/// The largest block outside the methods that make a policy, bytes.
const SMALL: usize = 8 << 10;

thread_local! {
    static IS_SMALL: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread is in a method that gets small blocks only, or is not. Gives what held before.
pub(crate) fn small_only(is_small: bool) -> bool {
    IS_SMALL.replace(is_small)
}

/// The allocator of a library, whose policies it bounds.
pub struct Bounded {
    used: AtomicUsize,
}

impl Bounded {
    /// With nothing used.
    #[allow(clippy::new_without_default, reason = "a static needs a constant")]
    pub const fn new() -> Self {
        Self { used: AtomicUsize::new(0) }
    }
}

// SAFETY: Allocator. All blocks are the system's; some are refused, as an allocator may.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = self.used.fetch_add(layout.size(), Relaxed) + layout.size();
        // What is being unwound must come to an end.
        let is_bound = !std::thread::panicking();
        if is_bound && (used > LIMIT || (layout.size() > SMALL && IS_SMALL.get())) {
            self.used.fetch_sub(layout.size(), Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: Allocator. As the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size(), Relaxed);
        // SAFETY: Allocator. As the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}
