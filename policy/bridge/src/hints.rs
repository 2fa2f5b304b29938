// SPDX-License-Identifier: GPL-2.0-only
//! The C function for hints.

use crate::{about, Exchange};
use baton::{Hinted, Hints, Message};
use baton_abi::{BatonCtx, BatonHint, BatonPolicy, BatonTask};
use core::ffi::c_void;

impl<P: Exchange<Scheduler: Hints>> Exchange for Hinted<P> {
    type Scheduler = P::Scheduler;

    const OPS: BatonPolicy = BatonPolicy {
        hint_type: <P::Scheduler as Hints>::Hint::TYPE,
        reply_type: <P::Scheduler as Hints>::Reply::TYPE,
        hint: Some(hint::<P::Scheduler>),
        ..P::OPS
    };
}

extern "C-unwind" fn hint<S: Hints>(
    this: *mut c_void,
    ctx: *mut BatonCtx,
    from: *const BatonTask,
    hint: *const BatonHint,
) -> u64 {
    // SAFETY: Host-call. The host gives a hint that is valid during the call.
    let Some(hint) = S::Hint::decode(unsafe { &*hint }) else {
        return 1;
    };
    about::<S, _>(this, ctx, from, |policy, ctx, from| {
        policy.hint(ctx, from, hint)
    });
    0
}
