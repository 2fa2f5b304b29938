// SPDX-License-Identifier: GPL-2.0-only
//! Hints: access to the rings of `../channel.c`. Interrupts are off and no call of a policy is in
//! progress, except for replies and checks.

use crate::{core, lent, Frame};
use baton_abi::{BatonCtx, BatonHint, BatonHintAnswer};
use baton_core::{CpuState, PolicyEntry};
use baton_message::ring::{self, Entry};

/// `struct baton_rings` (`../channel.h`).
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
/// Shared-ring: `at` has that many entries, which stay valid during this call.
unsafe fn ring<'a>(at: *const Entry, entries: u32) -> &'a [Entry] {
    // SAFETY: Shared-ring. The caller's promise. An application may write there meanwhile, but
    // entries are atomics.
    unsafe { ::core::slice::from_raw_parts(at, entries as usize) }
}

impl Rings {
    fn policy(&self) -> Option<&'static PolicyEntry> {
        core().policies().get(self.policy as usize)
    }

    fn thread_of(&self) -> impl Fn(u32) -> u64 {
        let rings: *const Self = self;
        // SAFETY: Shared-ring. The queue stays valid during the call.
        move |id| unsafe { baton_khost_thread(rings, id) }
    }
}

/// Is there an unread hint?
///
/// # Safety
/// Shared-ring: `rings` belongs to a queue that stays valid during the call.
#[no_mangle]
pub unsafe extern "C" fn baton_core_hints_ready(rings: *const Rings) -> bool {
    // SAFETY: Shared-ring. The caller's promise. Another CPU may be reading hints, so the position
    // is read like an atomic.
    unsafe {
        ring::is_ready(
            ring((*rings).hints, (*rings).entries),
            (&raw const (*rings).next_hint).read_volatile(),
        )
    }
}

/// Is there an unread reply?
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

/// See [`baton_core::Core::drain`]. Returns the number of refused hints. `from` is the handle of
/// the queue's thread.
///
/// # Safety
/// Shared-ring: as above, and no other CPU reads its hints. Shim-call: for the other arguments.
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
    // SAFETY: Shared-ring. As above. The position, which other CPUs may read, is written back
    // below.
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

/// See [`baton_core::Core::hint`]. Returns a `BatonHintAnswer`.
///
/// # Safety
/// Shared-ring: as above; `hint` is valid.
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

/// Writes a reply. False if there is no room.
///
/// # Safety
/// Shared-ring: as above, and no other CPU writes replies. `reply` is valid.
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
