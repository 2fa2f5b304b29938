// SPDX-License-Identifier: GPL-2.0-only
//! The C functions for upgrades.

use crate::make::with_env;
use alloc::boxed::Box;
use baton::{Layout, Load, Plain, Save, Scheduler, State, Upgradable, Upgrade};
use baton_abi::{BatonBytes, BatonEnv, BatonOlder, BatonPolicy, BatonStateType, BATON_NAME_LEN};
use core::ffi::{c_char, c_void};

/// A policy as `baton::policy!` declares it, with or without the functions of [`Upgrade`].
pub trait Exchange {
    /// Type of the policy.
    type Scheduler: Scheduler;

    /// All functions of the policy.
    const OPS: BatonPolicy;
}

impl<S: Scheduler> Exchange for Plain<S> {
    type Scheduler = S;
    const OPS: BatonPolicy = crate::plain::<S>();
}

impl<S: Upgrade> Exchange for Upgradable<S> {
    type Scheduler = S;
    const OPS: BatonPolicy = BatonPolicy {
        state: state_type(S::State::LAYOUT),
        older: state_type(S::Older::LAYOUT),
        reregister_prepare: Some(prepare::<S>),
        reregister_init: Some(init::<S>),
        reregister_drop: Some(drop_state::<S>),
        reregister_convert: Some(convert::<S>),
        reregister_take: Some(take::<S>),
        reregister_save: Some(save::<S>),
        reregister_load: Some(load::<S>),
        ..crate::plain::<S>()
    };
}

const fn state_type(layout: Layout) -> BatonStateType {
    let bytes = layout.name.as_bytes();
    assert!(
        !bytes.is_empty() && bytes.len() < BATON_NAME_LEN,
        "a state's type has a name of 1 to 31 characters"
    );
    let mut name = [0; BATON_NAME_LEN];
    let mut i = 0;
    while i < bytes.len() {
        name[i] = bytes[i] as c_char;
        i += 1;
    }
    BatonStateType {
        name,
        version: layout.version,
        reserved: 0,
        layout: layout.hash,
    }
}

extern "C-unwind" fn prepare<S: Upgrade>(this: *mut c_void) -> *mut c_void {
    // SAFETY: Host-call. The host gives what `create` or `init` made, which lives until `destroy`.
    let policy = unsafe { &*this.cast::<S>() };
    Box::into_raw(Box::new(policy.reregister_prepare())).cast()
}

extern "C-unwind" fn init<S: Upgrade>(env: *const BatonEnv, state: *mut c_void) -> *mut c_void {
    // SAFETY: Same-state. The host has compared the types. It passes a state that `prepare` or
    // `convert` of such a version made, once.
    let state = unsafe { Box::from_raw(state.cast::<S::State>()) };
    with_env(env, |env| S::reregister_init(env, *state))
}

extern "C-unwind" fn drop_state<S: Upgrade>(state: *mut c_void) {
    // SAFETY: Same-state. As above; the state is of this version.
    drop(unsafe { Box::from_raw(state.cast::<S::State>()) });
}

extern "C-unwind" fn convert<S: Upgrade>(
    env: *const BatonEnv,
    older: *const c_void,
) -> *mut c_void {
    // SAFETY: Same-state. The host has compared the types, and keeps the state to the end of the
    // upgrade.
    let older = unsafe { &*older.cast::<S::Older>() };
    with_env(env, |env| S::reregister_convert(env, older))
}

extern "C-unwind" fn take<S: Upgrade>(this: *mut c_void, older: *const BatonOlder) -> u64 {
    // SAFETY: Host-call. The host gives what `init` made, and an `older` that is valid during the
    // call.
    let (policy, older) = unsafe { (&*this.cast::<S>(), &*older) };
    // SAFETY: Same-state. As above.
    let state = unsafe { &*older.state.cast::<S::Older>() };
    policy
        .reregister_take(state, older.nr_slots)
        .is_err()
        .into()
}

/// The host's bytes.
///
/// # Safety
/// Host-call: the bytes are valid and belong to this call alone.
unsafe fn bytes<'a>(raw: *const BatonBytes) -> &'a mut [u8] {
    // SAFETY: Host-call. The caller's promise.
    let BatonBytes { at, length } = unsafe { *raw };
    if length == 0 {
        return &mut [];
    }
    // SAFETY: Host-call. As above.
    unsafe { core::slice::from_raw_parts_mut(at, length) }
}

extern "C-unwind" fn save<S: Upgrade>(this: *mut c_void, to: *const BatonBytes) -> u64 {
    // SAFETY: Host-call. The host gives what `create` or `init` made, which lives until `destroy`,
    // and bytes of its own.
    let (policy, to) = unsafe { (&*this.cast::<S>(), bytes(to)) };
    let mut save = Save::new(to);
    policy.reregister_prepare().save(&mut save);
    save.finish() as u64
}

extern "C-unwind" fn load<S: Upgrade>(
    env: *const BatonEnv,
    from: *const BatonBytes,
) -> *mut c_void {
    // SAFETY: Host-call. The host gives bytes of its own.
    let from = unsafe { bytes(from) };
    with_env(env, |env| {
        let mut load = Load::new(from, env);
        let state = S::State::load(&mut load);
        match state {
            Ok(state) if load.is_done() => S::reregister_init(env, state),
            _ => Err("the saved state is not of this policy, or of another machine".into()),
        }
    })
}
