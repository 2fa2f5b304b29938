// SPDX-License-Identifier: GPL-2.0-only
//! Values that are read without a lock.

use baton_seam::host;
use core::{
    fmt,
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// A value that one CPU writes while others read it, with no lock between them: a queue's length
/// for who looks for work, say. What is read depends on how quick the other CPU was, so it is an
/// input of the policy: a recording has it, and a replay gives it again. What is only used under a
/// lock, in the calls about one task or on one CPU, is an atomic like any other.
pub struct Shared<T>(AtomicU64, PhantomData<T>);

/// What a [`Shared`] can be.
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
    /// With this value.
    pub fn new(value: T) -> Self {
        Self(AtomicU64::new(value.to_word()), PhantomData)
    }

    /// The value, as some CPU wrote it last; another may have since.
    #[inline(always)]
    pub fn get(&self) -> T {
        T::from_word(host::read(self.0.load(Relaxed)))
    }

    /// Writes it.
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
        // Not by `get`: who prints it is no part of the policy.
        self.0.load(Relaxed).fmt(f)
    }
}
