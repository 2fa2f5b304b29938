// SPDX-License-Identifier: GPL-2.0-only
//! Parts that make a policy in Rust a kernel module: the allocator, the panic handler, and the
//! policy's functions under the name that `../policy_module.c` expects.
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

use core::{
    alloc::{GlobalAlloc, Layout},
    fmt::Write,
    panic::PanicInfo,
};

#[doc(hidden)]
pub use baton_abi::BatonPolicy;
#[doc(hidden)]
pub use baton_bridge::ops;

extern "C" {
    // Functions of baton.ko (`../host.c`, `../memory.c`).
    fn baton_host_alloc(size: usize, align: usize) -> *mut u8;
    fn baton_host_free(at: *mut u8);
    fn baton_host_panicking(file: *const u8, file_len: usize, line: u32);
    fn baton_host_panic(
        file: *const u8,
        file_len: usize,
        line: u32,
        message: *const u8,
        message_len: usize,
    ) -> !;
}

/// The policy's allocator. The host counts and limits the memory, and frees all of it in the end.
struct HostMemory;

// SAFETY: Allocator. The host returns NULL, or an unused block of that size and alignment.
unsafe impl GlobalAlloc for HostMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: Kernel-call. Plain numbers only.
        unsafe { baton_host_alloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
        // SAFETY: Allocator. The caller passes a block that `alloc` returned.
        unsafe { baton_host_free(at) }
    }
}

#[global_allocator]
static MEMORY: HostMemory = HostMemory;

/// A message, truncated to the size of the buffer.
struct Line {
    text: [u8; 120],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        for &byte in s.as_bytes() {
            let Some(place) = self.text.get_mut(self.len) else {
                break;
            };
            *place = byte;
            self.len += 1;
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let (file, number) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
    // SAFETY: Kernel-call. The pointer is valid for its length, and the host copies the name.
    unsafe { baton_host_panicking(file.as_ptr(), file.len(), number) }
    let mut line = Line {
        text: [0; 120],
        len: 0,
    };
    // Writing to a `Line` does not fail.
    let _ = write!(line, "{}", info.message());
    // SAFETY: Kernel-call. Both pointers are valid for their lengths. The host copies the text
    // before it leaves this stack.
    unsafe {
        baton_host_panic(
            file.as_ptr(),
            file.len(),
            number,
            line.text.as_ptr(),
            line.len,
        )
    }
}

/// Makes this type the policy of the module.
#[macro_export]
macro_rules! export {
    ($scheduler:ty) => {
        #[no_mangle]
        pub static BATON_POLICY_OPS: $crate::BatonPolicy = $crate::ops::<$scheduler>();
    };
}
