// SPDX-License-Identifier: GPL-2.0-only
//! Hints: the rings of `../hints.c`, and what is in them. Interrupts are off, and no call of a
//! policy is under way, but for replies and looks.

use crate::{core, lent, Frame};
use baton_abi::{BatonCtx, BatonHint, BatonHintAnswer};
use baton_core::{CpuState, PolicyEntry};
use baton_message::ring::{self, Entry};

/// `struct baton_rings` (`../hints.h`).
#[repr(C)]
pub struct Rings {
    hints: *const Entry,
    replies: *const Entry,
    entries: u32,
    policy: u32,
    next_hint: u64,
    next_reply: u64,
}

extern "C" {
    fn baton_khost_thread(rings: *const Rings, id: u32) -> u64;
}

/// The entries of a ring.
///
/// # Safety
/// Shared-ring: there are so many, and they stay during this call.
unsafe fn ring<'a>(at: *const Entry, entries: u32) -> &'a [Entry] {
    // SAFETY: Shared-ring. The caller's promise. An application may write there meanwhile: entries
    // are atomics.
    unsafe { ::core::slice::from_raw_parts(at, entries as usize) }
}

impl Rings {
    fn policy(&self) -> Option<&'static PolicyEntry> {
        core().policies().get(self.policy as usize)
    }

    fn thread_of(&self) -> impl Fn(u32) -> u64 {
        let rings: *const Self = self;
        // SAFETY: Shared-ring. The queue stays during the call.
        move |id| unsafe { baton_khost_thread(rings, id) }
    }
}

/// Is there a hint?
///
/// # Safety
/// Shared-ring: `rings` is that of a queue, which stays during the call.
#[no_mangle]
pub unsafe extern "C" fn baton_core_hints_ready(rings: *const Rings) -> bool {
    // SAFETY: Shared-ring. The caller's promise. Another CPU may be reading: the place is looked at
    // as an atomic is.
    unsafe {
        ring::is_ready(
            ring((*rings).hints, (*rings).entries),
            (&raw const (*rings).next_hint).read_volatile(),
        )
    }
}

/// Is there a reply that was not read?
///
/// # Safety
/// Shared-ring: as above.
#[no_mangle]
pub unsafe extern "C" fn baton_core_hints_unread(rings: *const Rings) -> bool {
    // SAFETY: Shared-ring. As above.
    unsafe {
        ring::is_unread(
            ring((*rings).replies, (*rings).entries),
            (&raw const (*rings).next_reply).read_volatile(),
        )
    }
}

/// See [`baton_core::Core::drain`]; how many were refused. `from` is the handle of the queue's
/// thread.
///
/// # Safety
/// Shared-ring: as above, and nobody else reads its hints. Shim-call: for the rest.
#[no_mangle]
pub unsafe extern "C" fn baton_core_hints_drain(
    rings: *mut Rings,
    from: u64,
    ctx: *mut BatonCtx,
    frame: Frame,
    cpu: &CpuState,
) -> u32 {
    // SAFETY: Shared-ring and Shim-call. The caller's promises.
    let (entries, ctx) = unsafe { (ring((*rings).hints, (*rings).entries), lent(ctx)) };
    // SAFETY: Shared-ring. As above: what others look at meanwhile is put back below.
    let (policy, thread_of, mut place) =
        unsafe { ((*rings).policy(), (*rings).thread_of(), (*rings).next_hint) };
    let (Some(policy), Some(from)) = (policy, core().by_handle(from)) else {
        return 0;
    };
    let drained = core().drain(
        frame,
        cpu,
        ctx,
        from,
        policy,
        (entries, &mut place),
        thread_of,
    );
    // SAFETY: Shared-ring. As above.
    unsafe { (&raw mut (*rings).next_hint).write_volatile(place) };
    drained.refused
}

/// See [`baton_core::Core::hint`]: `BatonHintAnswer`.
///
/// # Safety
/// As above; `hint` is valid.
#[no_mangle]
pub unsafe extern "C" fn baton_core_hint(
    rings: *const Rings,
    from: u64,
    ctx: *mut BatonCtx,
    frame: Frame,
    cpu: &CpuState,
    hint: &BatonHint,
) -> u32 {
    // SAFETY: Shared-ring and Shim-call. The caller's promises.
    let (policy, thread_of, ctx) = unsafe { ((*rings).policy(), (*rings).thread_of(), lent(ctx)) };
    let answer = match (policy, core().by_handle(from)) {
        (Some(policy), Some(from)) => core().hint(frame, cpu, ctx, from, policy, hint, thread_of),
        _ => BatonHintAnswer::NotMember,
    };
    answer as u32
}

/// Writes a reply; false when there is no room.
///
/// # Safety
/// Shared-ring: as above, and nobody else writes replies. `reply` is valid.
#[no_mangle]
pub unsafe extern "C" fn baton_core_hints_reply(rings: *mut Rings, reply: &BatonHint) -> bool {
    // SAFETY: Shared-ring. The caller's promise.
    let (entries, mut place) = unsafe {
        (
            ring((*rings).replies, (*rings).entries),
            (*rings).next_reply,
        )
    };
    let fits = ring::put(entries, &mut place, reply).is_ok();
    // SAFETY: Shared-ring. As above.
    unsafe { (&raw mut (*rings).next_reply).write_volatile(place) };
    fits
}
