// SPDX-License-Identifier: GPL-2.0-only
//! A policy's memory in user space: the counterpart of `hosts/kernel/memory.c`, with its bounds, so
//! that a policy which asks for too much fails here as it does there.

use baton_seam::host;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
    mem::MaybeUninit,
};

/// What the policies of one thread may have together, bytes: a simulation is on one thread. More
/// than in the kernel, as a machine may be of 4,096 CPUs.
const LIMIT: usize = 512 << 20;

/// The largest block outside the methods that make a policy, bytes.
const SMALL: usize = 8 << 10;

thread_local! {
    static IS_SMALL: Cell<bool> = const { Cell::new(false) };
    static USED: Cell<usize> = const { Cell::new(0) };
}

/// From now on this thread is in a method that gets small blocks only, or is not. Gives what held
/// before.
pub(crate) fn small_only(is_small: bool) -> bool {
    IS_SMALL.replace(is_small)
}

/// Looks at as much of the stack as the system's allocator needs. A stack that is used up is used
/// up here, and not in the midst of that one, which holds a lock then: who is left there
/// (`hosts/native/src/trap.rs`) never releases it.
#[inline(never)]
fn need_stack() {
    // A function of this size looks at each page.
    black_box(&MaybeUninit::<[u8; 8 << 10]>::uninit());
}

/// The allocator of a library, whose policies it bounds.
pub struct Bounded;

// SAFETY: Allocator. All blocks are the system's; some are refused, as an allocator may.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.get().wrapping_add(layout.size());
        // What is being unwound must come to an end.
        let is_bound = !std::thread::panicking();
        // What another thread allocated and this one freed leaves less than nothing, which is no
        // bound.
        let is_over = used > LIMIT && used < usize::MAX / 2;
        let is_too_large = layout.size() > SMALL && IS_SMALL.get();
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
