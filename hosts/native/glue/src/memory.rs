// SPDX-License-Identifier: GPL-2.0-only
//! A policy's memory in user space: the counterpart of `hosts/kernel/memory.c`, with the same kinds
//! of limits, so that a policy that allocates too much fails here as it does there.

use baton_seam::host;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
    mem::MaybeUninit,
};

/// Limit for all policies of one thread, bytes; a simulation runs on one thread. More than in the
/// kernel, as a simulated machine may have 4,096 CPUs.
const LIMIT: usize = 512 << 20;

/// The largest block outside the methods that make a policy, bytes.
const SMALL: usize = 8 << 10;

thread_local! {
    static MAKES: Cell<bool> = const { Cell::new(false) };
    static USED: Cell<usize> = const { Cell::new(0) };
}

/// As long as it lives, this thread makes a policy, and may allocate blocks of any size.
pub(crate) struct Making {
    outer: bool,
}

impl Making {
    pub fn begin() -> Self {
        Self {
            outer: MAKES.replace(true),
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        MAKES.set(self.outer);
    }
}

/// Touches as much of the stack as the system's allocator needs. A stack that overflows does so
/// here, and not in the allocator, which then holds a lock: a thread that is abandoned there
/// (`hosts/native/src/trap.rs`) never releases it.
#[inline(never)]
fn need_stack() {
    // A function with a frame of this size probes each page.
    black_box(&MaybeUninit::<[u8; 8 << 10]>::uninit());
}

/// The allocator of a library; it limits the library's policies.
pub struct Bounded;

// SAFETY: Allocator. All blocks are the system's. Some requests are refused, as an allocator may
// do.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.get().wrapping_add(layout.size());
        // Unwinding must complete.
        let is_bound = !std::thread::panicking();
        // If another thread allocated what this one freed, the count is below zero, which is within
        // the limit.
        let is_over = used > LIMIT && used < usize::MAX / 2;
        let is_too_large = layout.size() > SMALL && host::is_in_call() && !MAKES.get();
        if is_bound && (!host::has_memory() || is_over || is_too_large) {
            return std::ptr::null_mut();
        }
        USED.set(used);
        need_stack();
        // SAFETY: Allocator. As the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.set(USED.get().wrapping_sub(layout.size()));
        need_stack();
        // SAFETY: Allocator. As the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}
