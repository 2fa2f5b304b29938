// SPDX-License-Identifier: GPL-2.0-only
//! A mapping of the memory that the kernel and the agent share.
//!
//! The kernel writes while this process reads. So every access is atomic or volatile, and no
//! reference to the memory is made except to atomics.

use std::fs::File;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

/// A shared mapping of a file, or memory that a model of the kernel owns.
pub(crate) struct Map {
    at: *mut u8,
    size: usize,
    is_mapped: bool,
}

// SAFETY: Shared-memory. The mapping lives as long as this value, and all accesses are atomic or
// volatile.
unsafe impl Send for Map {}
// SAFETY: Shared-memory. As above.
unsafe impl Sync for Map {}

impl Map {
    pub fn new(file: &File, offset: u64, size: u64, protection: ProtFlags) -> Result<Self, Errno> {
        let size = usize::try_from(size).map_err(|_| Errno::NOMEM)?;
        // SAFETY: New-mapping. The kernel chooses the place of the new mapping.
        let at = unsafe {
            mm::mmap(
                ptr::null_mut(),
                size,
                protection,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        Ok(Self {
            at: at.cast(),
            size,
            is_mapped: true,
        })
    }

    /// Memory of a model.
    ///
    /// # Safety
    /// Shared-memory: there are `size` bytes at `at`, aligned to a page, as long as the result
    /// lives.
    pub unsafe fn of(at: *mut u8, size: u64) -> Self {
        Self {
            at,
            size: size as usize,
            is_mapped: false,
        }
    }

    /// The place of element `index` of an array at `offset`. Panics outside of the mapping.
    #[inline]
    fn place<T>(&self, offset: u64, index: usize) -> *mut T {
        self.places(offset as usize + index * size_of::<T>(), 1)
    }

    /// The place of so many elements. Panics outside of the mapping.
    #[inline]
    fn places<T>(&self, offset: usize, count: usize) -> *mut T {
        if offset + count * size_of::<T>() > self.size {
            outside(offset);
        }
        // SAFETY: Shared-memory. It is inside, by the comparison.
        unsafe { self.at.add(offset) }.cast()
    }

    /// The `number`th array of `count` elements at `offset`.
    #[inline]
    pub fn array<T: Copy>(&self, offset: u64, number: usize, count: usize) -> Array<'_, T> {
        let offset = offset as usize + number * count * size_of::<T>();
        Array {
            first: self.places(offset, count),
            count,
            map: PhantomData,
        }
    }

    /// Reads a structure that the kernel may be writing. The parts may be of different times.
    #[inline]
    pub fn read<T: Copy>(&self, offset: u64, index: usize) -> T {
        // SAFETY: Shared-memory. Every bit pattern is a value of the structures of integers that
        // are read here.
        unsafe { self.place::<T>(offset, index).read_volatile() }
    }

    /// Writes a structure that the kernel may be reading.
    #[inline]
    pub fn write<T: Copy>(&self, offset: u64, index: usize, value: T) {
        // SAFETY: Shared-memory. The mapping is writable where this is called.
        unsafe { self.place::<T>(offset, index).write_volatile(value) }
    }

    /// A word, for atomic access. `offset` is a multiple of four.
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: Shared-memory. The mapping is aligned to a page and lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.place(offset, 0)) }
    }
}

/// Structures that the kernel may be writing.
pub(crate) struct Array<'a, T> {
    first: *const T,
    count: usize,
    map: PhantomData<&'a Map>,
}

impl<T: Copy> Array<'_, T> {
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Reads an element. The parts may be of different times. Panics outside of the array.
    #[inline]
    pub fn read(&self, index: usize) -> T {
        self.read_as(index)
    }

    /// Reads another structure at the place of an element.
    #[inline]
    pub fn read_as<U: Copy>(&self, index: usize) -> U {
        const { assert!(size_of::<U>() <= size_of::<T>() && align_of::<U>() <= align_of::<T>()) }
        if index >= self.count {
            outside(index);
        }
        // SAFETY: Shared-memory. It is inside, by the comparison. Every bit pattern is a value of
        // the structures of integers that are read here.
        unsafe { self.first.add(index).cast::<U>().read_volatile() }
    }
}

#[cold]
#[inline(never)]
fn outside(place: usize) -> ! {
    panic!("{place} is outside of the mapping");
}

impl Drop for Map {
    fn drop(&mut self) {
        if !self.is_mapped {
            return;
        }
        // SAFETY: New-mapping. Nothing refers to it any more. It can fail only for a wrong address.
        let _ = unsafe { mm::munmap(self.at.cast(), self.size) };
    }
}
