// SPDX-License-Identifier: GPL-2.0-only
//! The host's lock, as a raw mutex of `lock_api`.

use crate::host;
use core::sync::atomic::AtomicU32;

/// A lock that the host implements. In the kernel it is a resilient spin lock, which detects a
/// deadlock instead of hanging. The simulator, the checker and replay have their own locks.
///
/// If a lock cannot be acquired (deadlock, timeout), the host abandons the call and never returns
/// to the policy.
#[repr(transparent)]
pub struct RawLock {
    word: AtomicU32,
}

// SAFETY: Mutual-exclusion. `host::lock` returns only to one holder at a time, until that holder
// calls `host::unlock`.
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "the associated constant is what lock_api asks for"
    )]
    const INIT: Self = Self {
        word: AtomicU32::new(0),
    };

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        host::lock(&self.word);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        host::try_lock(&self.word)
    }

    #[inline]
    unsafe fn unlock(&self) {
        host::unlock(&self.word);
    }
}
