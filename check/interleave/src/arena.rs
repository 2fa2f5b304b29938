// SPDX-License-Identifier: GPL-2.0-only
//! What the rules borrow for as long as there is a core: slots and CPUs. The kernel has them for
//! ever; here each schedule has its own.

/// A slice on the heap that is lent for ever and freed with this. Whoever has one drops it after
/// all that borrowed from it.
pub struct Arena<T: 'static>(*mut [T]);

impl<T: Default> Arena<T> {
    pub fn new(count: usize) -> Self {
        Self(Box::into_raw((0..count).map(|_| T::default()).collect()))
    }

    pub fn get(&self) -> &'static [T] {
        // SAFETY: Own-arena. It came of a Box, is never written through, and is freed after all
        // borrowers are gone.
        unsafe { &*self.0 }
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        // SAFETY: Own-arena. As above; this runs once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}
