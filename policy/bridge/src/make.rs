// SPDX-License-Identifier: GPL-2.0-only
//! Creation and destruction of a policy.

use alloc::{boxed::Box, vec::Vec};
use baton::{Asked, Env, Place, Scheduler, Topology};
use baton_abi::{BatonAsked, BatonEnv, BATON_MESSAGE_LEN};
use core::ffi::{c_char, c_void, CStr};

pub(crate) extern "C-unwind" fn create<S: Scheduler>(env: *const BatonEnv) -> *mut c_void {
    with_env(env, |env| S::new(env))
}

/// Creates a value from an environment. On failure, returns NULL and writes the reason to the
/// host's message.
pub(crate) fn with_env<T>(
    env: *const BatonEnv,
    make: impl FnOnce(&Env<'_>) -> Result<T, baton::Error>,
) -> *mut c_void {
    // SAFETY: Host-call. The host gives an environment that is valid during the call, with
    // `nr_cpus` CPUs and a NUL-terminated option string.
    let (raw, cpus, options) = unsafe {
        let raw = &*env;
        (
            raw,
            core::slice::from_raw_parts(raw.cpus, raw.nr_cpus as usize),
            CStr::from_ptr(raw.options),
        )
    };
    let places: Vec<Place> = cpus
        .iter()
        .map(|c| Place {
            core: c.core,
            llc: c.llc,
            node: c.node,
        })
        .collect();
    let made = options
        .to_str()
        .map_err(|_| "the options are not UTF-8".into())
        .and_then(|options| make(&Env::new(Topology::new(places), raw.max_tasks, options)));
    match made {
        Ok(made) => Box::into_raw(Box::new(made)).cast(),
        Err(why) => {
            say(raw.message, why.message());
            core::ptr::null_mut()
        }
    }
}

pub(crate) extern "C-unwind" fn destroy<S: Scheduler>(this: *mut c_void) {
    // SAFETY: Host-call. `create` made it from a Box of the same type. The host calls this once,
    // and calls nothing after it.
    drop(unsafe { Box::from_raw(this.cast::<S>()) });
}

pub(crate) extern "C-unwind" fn may_have<S: Scheduler>(
    this: *mut c_void,
    asked: *const BatonAsked,
) -> u64 {
    // SAFETY: Host-call. The host gives what `create` made, which lives until `destroy`, and a
    // question that is valid during the call.
    let (policy, raw) = unsafe { (&*this.cast::<S>(), &*asked) };
    let name = raw.comm.split(|byte| *byte == 0).next().unwrap_or_default();
    let asked = match raw.pid {
        0 => Asked::Rest,
        pid => Asked::Task {
            pid,
            nice: raw.nice,
            // The kernel does not check names.
            name: core::str::from_utf8(name).unwrap_or("?"),
        },
    };
    match policy.may_have(&asked) {
        Ok(()) => 0,
        Err(why) => {
            say(raw.message, why.message());
            1
        }
    }
}

fn say(message: *mut c_char, why: &str) {
    for (i, byte) in why
        .bytes()
        .take(BATON_MESSAGE_LEN - 1)
        .chain([0])
        .enumerate()
    {
        // SAFETY: Host-call. The host's buffer has BATON_MESSAGE_LEN bytes.
        unsafe { message.add(i).write(byte as c_char) };
    }
}
