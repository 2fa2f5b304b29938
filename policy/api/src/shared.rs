// SPDX-License-Identifier: GPL-2.0-only
//! Values that are read without a lock.

use baton_seam::host;
use core::{
    fmt,
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// A value that one CPU writes while other CPUs read it without a lock, such as the length of a
/// queue for CPUs that look for work. The value read depends on the timing of the other CPU, so it
/// is an input of the policy: a recording holds it, and a replay returns it again. A value that is
/// used only under a lock, only in calls about one task, or only on one CPU can be a plain atomic.
pub struct Shared<T>(AtomicU64, PhantomData<T>);

/// A type that a [`Shared`] can hold.
pub trait Word: Copy + 'static {
    #[doc(hidden)]
    const NAME: &'static str;
    #[doc(hidden)]
    fn to_word(self) -> u64;
    #[doc(hidden)]
    fn from_word(word: u64) -> Self;
}

macro_rules! word {
    ($($type:ty, |$word:ident| $from:expr;)*) => {$(
        impl Word for $type {
            const NAME: &'static str = stringify!($type);
            #[inline(always)]
            fn to_word(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn from_word($word: u64) -> Self {
                $from
            }
        }
    )*};
}
word! {
    u64, |word| word;
    u32, |word| word as u32;
    i64, |word| word as i64;
    bool, |word| word != 0;
}

impl<T: Word> Shared<T> {
    /// Creates it with this value.
    pub fn new(value: T) -> Self {
        Self(AtomicU64::new(value.to_word()), PhantomData)
    }

    /// Reads the value. Another CPU may have changed it since.
    #[inline(always)]
    pub fn get(&self) -> T {
        T::from_word(host::read(self.0.load(Relaxed)))
    }

    /// Writes the value.
    #[inline(always)]
    pub fn set(&self, value: T) {
        self.0.store(value.to_word(), Relaxed);
    }
}

impl<T: Word + Default> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not by `get`: printing is not an input of the policy.
        self.0.load(Relaxed).fmt(f)
    }
}
