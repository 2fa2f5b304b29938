// SPDX-License-Identifier: GPL-2.0-only
//! Slots and CPUs, which the rules borrow for the lifetime of the core. In the kernel they are
//! never freed; here each schedule has its own.

/// A slice on the heap that is lent as `'static` and freed with this value. The owner must drop it
/// after everything that borrows from it.
pub struct Arena<T: 'static>(*mut [T]);

impl<T: Default> Arena<T> {
    pub fn new(count: usize) -> Self {
        Self(Box::into_raw((0..count).map(|_| T::default()).collect()))
    }

    pub fn get(&self) -> &'static [T] {
        // SAFETY: Own-arena. The pointer is from a Box, is never written through, and is freed
        // after all borrowers are gone.
        unsafe { &*self.0 }
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        // SAFETY: Own-arena. As above; this runs once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}
